// The blocks of code that is being written: the function, its loops and ifs, innermost last. Lines of an inner block
// reach the outer one when it closes, so a value that does not change inside a loop can still be put before it.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "megalith/codegen/expression.h"

namespace megalith::codegen {

struct Block {
  std::string head;              // before its brace, where that is known when it opens
  std::string iname;             // of the loop; "" for the function and for ifs
  std::set<std::string> writes;  // tensors that something in it writes
  bool guarded = false;          // a loop that data bounds: reads at places that data decides stay inside
  bool strict = false;           // an if: every read stays inside
  bool may_be_empty = false;     // a loop that may have no iteration: checks stay inside
  Level level = Level::thread;   // who walks it
  std::vector<std::string> lines;
  struct Named {
    loop::Expr value;
    std::string name;
    bool stale = false;  // something it reads was written since
  };
  std::vector<Named> named;  // values that have a name here
};

/// Moves what does not change inside loops and reductions out of them, into named constants.
class Hoister {
 public:
  Hoister(ExpressionContext& context, ExpressionWriter& writer, std::vector<Block>& blocks)
      : context_(context), writer_(writer), blocks_(blocks) {}

  /// Replaces parts of `expr`, an expression of the innermost block, by names of values defined further out (or, for
  /// parts inside a reduction, before the statement).
  /// `bound`: inames of loops that the statement itself contains. `strict`: `expr` is evaluated only sometimes, so that
  /// its reads stay where they are.
  void hoist(loop::Expr& expr, std::vector<std::string> bound = {}, bool strict = false);
  /// The same for an expression that a loop's header would otherwise work out every time round.
  void hoist_reads(loop::Expr& expr);
  /// A name that nothing in the body has yet.
  std::string fresh_name(const std::string& wanted);
  /// `tensor` has been written: names of values read from it are not reused.
  void forget(const std::string& tensor);

 private:
  struct Position {
    std::vector<std::string> bound;  // reduction inames around
    bool guarded = false;            // inside a reduction that data bounds
    bool strict = false;             // inside a reduction with conditions of other kinds
    bool may_be_empty = false;       // inside a reduction that may have no term
  };
  void visit(loop::Expr& expr, const Position& position);
  int level_of(const loop::Expr& expr) const;
  std::vector<std::string> names_in(const loop::Expr& expr) const;
  void name_value(loop::Expr& expr, int level);
  void name_outer_reads(loop::Expr& expr, int level);
  std::string name_for(const loop::Expr& expr) const;

  ExpressionContext& context_;
  ExpressionWriter& writer_;
  std::vector<Block>& blocks_;
  std::set<std::string> used_names_;
  std::vector<std::string> scope_;                     // inames around the expression that is being looked at
  mutable std::map<std::string, std::string> bounds_;  // what bounds reductions, by scope and text: every part asks
};

}  // namespace megalith::codegen
