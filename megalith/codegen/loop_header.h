// What bounds loops: their domains, in a body the tile of the task, and conditions that all instructions in a loop share. The
// emitter asks as it walks the nest; what proposes a schedule asks along the way to a loop.
#pragma once

#include <isl/cpp.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "megalith/codegen/expression.h"

namespace megalith::codegen {

struct LoopHeader {
  std::vector<std::string> lower, upper;  // as text: of the domain and the tile
  std::vector<loop::Expr> conditions;     // that bound the iname, too
  bool bounded_by_data = false;           // by one of them
  bool may_be_empty = false;              // looked at only where the kernel has checks
  isl::set inside;                        // the points that are implemented in it
};

struct LoopForm {
  bool is_whole = false;         // all iterations that there may be, with conditions inside
  bool takes_conditions = true;  // of its instructions
};

class LoopHeaders {
 public:
  /// `tiled`: inames that the tile of a task restricts.
  LoopHeaders(const ExpressionContext& context, const std::vector<std::string>& tiled);

  /// The loop `node` below the loops `outer`, around which the points `implemented` are. Its conditions are taken from those
  /// of the instructions in it.
  LoopHeader enter(const loop::NestNode& node, const std::vector<std::string>& outer, const isl::set& implemented,
                   LoopForm form = {});
  /// Conditions of an instruction that no loop entered so far has taken.
  std::vector<loop::Expr>& conditions_of(int instruction) { return conditions_[static_cast<size_t>(instruction)]; }

 private:
  const ExpressionContext& context_;
  std::vector<std::vector<loop::Expr>> conditions_;
  bool has_checks_ = false;
  std::map<std::string, Bounds> tile_bounds_;  // of tiled inames, over the whole domain
};

/// `set`, of one dimension more than `implemented`, as far as the loops around get there: bounds that follow from theirs go.
isl::set narrowed(const isl::set& set, const isl::set& implemented);
/// All values that the iname has anywhere, below the loops `outer`, whatever part of them `wanted` is; the bounds of that if
/// those are no numbers.
loop::LoopBounds whole_bounds(const loop::Domains& domains, const std::string& iname, const isl::set& wanted,
                              const std::vector<std::string>& outer);

/// Whether `expr` reads one of `tensors`.
bool reads_any(const loop::Expr& expr, const std::set<std::string>& tensors);
/// The tag of a loop, which all instructions in it agree on.
loop::InameTag tag_of_loop(const loop::Kernel& kernel, const loop::NestNode& node);
/// Indices of the instructions in a node, in order.
std::vector<int> instructions_in(const loop::NestNode& node);

}  // namespace megalith::codegen
