// Expressions of a loop kernel as C++ text, with types made explicit: arithmetic of floats in f32, of whole numbers in
// i64; conversions where tensors are read and written. Reductions become calls of helpers that have one order:
// kernels/<target>/reduce.h for bodies of operators, kernels/cpu/loops.h for kernels of one's own. Both are written by this.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "megalith/codegen/condition_bound.h"
#include "megalith/codegen/dialect.h"
#include "megalith/codegen/place.h"
#include "megalith/graph/lower.h"
#include "megalith/loop/domain.h"
#include "megalith/loop/kernel.h"

namespace megalith::codegen {

/// Types of the generated code's values. `truth` is a condition.
enum class Type { f32, i32, i64, truth };
std::string_view type_name(Type type);
/// The type in which an element is stored.
std::string element_type(DType dtype);

/// What an expression's text depends on beside itself: where elements stand, what has a name, and the words of the target.
struct ExpressionContext {
  ExpressionContext(const loop::Kernel& kernel, const Dialect& dialect);

  loop::Kernel kernel;
  const Dialect& dialect;
  loop::Domains domains;
  Places places;
  std::map<std::string, Type> locals;       // values that the code has named
  std::map<std::string, std::string> held;  // what stands in a register instead of an element, by the element's text
  // Inames of loops that are unrolled; of those the ones whose loop has all iterations, with conditions inside.
  std::set<std::string> unrolled, whole;
  std::string accumulator = "acc";  // what a reduction has so far is called, which is no other name
  bool approximates = false;        // exp, rsqrt and "/" as the hardware has them, to a few units of f32's last place

  /// An iname with a fixed lower bound of at least 0, or a parameter: a size is never negative.
  bool is_nonnegative(const std::string& name) const;
};

/// That of an operator's body, worked out once per kernel.
struct BodyContext : ExpressionContext {
  /// `bound`: static sizes put in.
  BodyContext(const loop::Kernel& bound, const loop::Binding& binding, const Dialect& dialect);

  const loop::Binding& binding;
  std::vector<loop::NestNode> nest;
};

/// Operands that lie in panels (kernels/panel_layout.h).
void take_layouts(BodyContext& context, const graph::LoweredKernel& lowered);
/// UserError if an iname, a size or an attribute has a name that generated code gives a meaning.
void check_names_of_body(const loop::Kernel& kernel);

/// A loop's bounds as C++ text.
struct Bounds {
  std::string lower, upper;
};
/// "min(a, min(b, c))"; of several numbers only the one that counts.
std::string join_bounds(std::vector<std::string> bounds, const char* combine);

class ExpressionWriter {
 public:
  explicit ExpressionWriter(const ExpressionContext& context) : context_(context) {}

  /// `expr` as text of type `want`, in parentheses if it binds less tightly than `precedence`.
  std::string write(const loop::Expr& expr, Type want, int precedence = 0) const;
  /// The element that a subscript addresses: "x[t * 1024 + k]", or the name of a scalar or of what is held instead.
  std::string element(const loop::Expr& subscript) const;
  /// The value in the type of an element, ready to be stored: "to_bf16(...)".
  std::string stored(const loop::Expr& value, DType dtype) const;
  std::string write(const loop::LinearSum& linear, int precedence = 0) const;
  std::string write(const ConditionBound& bound) const;
  /// The type that `expr` has by itself.
  Type natural(const loop::Expr& expr) const;

  /// By what context.held calls an element.
  std::string held_key(const loop::Expr& subscript) const;
  /// The position of a subscripted element in its tensor.
  loop::LinearSum flat_index(const loop::Expr& subscript) const;

  /// What inames mean where the next expressions stand: reductions are bounded inside it.
  void set_scope(std::vector<std::string> inames) { scope_ = std::move(inames); }
  const std::vector<std::string>& scope() const { return scope_; }
  /// The instruction that the next expressions belong to: its tags say how reductions are formed.
  void set_instruction(int index) { instruction_ = index; }
  loop::InameTag tag_in(int instruction, const std::string& iname) const;
  /// Who runs the next expressions, and forms their reductions together.
  void set_level(Level level) { level_ = level; }
  Level level() const { return level_; }

  /// One reduction iname: its bounds and what is left of the condition. `outer`: inames fixed around it.
  struct Reduction {
    Bounds bounds;
    std::vector<std::string> guards;     // of the domain
    std::vector<loop::Expr> conditions;  // that did not become bounds
    bool bounded_by_data = false;
    bool may_be_empty = false;  // as far as the domain goes
  };
  std::vector<Reduction> reductions(const loop::Expr& reduce) const;

 private:
  struct Text {
    std::string text;
    int precedence;
    Type type;
  };
  Text natural_text(const loop::Expr& expr) const;
  Text linear_text(const loop::LinearSum& linear) const;
  Text call_text(const loop::Expr& expr) const;
  Text reduce_text(const loop::Expr& expr) const;
  std::string text_of_element(const loop::Expr& subscript) const;
  Text convert(Text text, Type want) const;
  std::string word_of(const std::string& function, Type type) const;
  bool is_nonnegative(const loop::Expr& expr) const;
  static bool is_positive(const loop::Expr& expr);

  const ExpressionContext& context_;
  mutable std::vector<std::string> scope_;
  mutable Level level_ = Level::thread;
  int instruction_ = 0;
};

/// acc plus a term, as one fused multiply-add where the term is a product of floats.
std::string accumulate(const ExpressionWriter& writer, const loop::Expr& term, const std::string& acc);

}  // namespace megalith::codegen
