#include "megalith/codegen/loop_pack.h"

#include <isl/aff.h>
#include <isl/set.h>

#include <algorithm>

#include "megalith/loop/domain.h"
#include "megalith/loop/linear_sum.h"

namespace megalith::codegen {

namespace {

using loop::Expr;

// What is evaluated at each point, whatever the values are: not one side of a choice, and nothing inside of a reduction.
void visit_always(const Expr& expr, const std::function<void(const Expr&)>& visit) {
  if (expr.kind == Expr::Kind::reduce) return;
  if (expr.kind == Expr::Kind::subscript) {
    visit(expr);
    return;
  }
  const bool chooses = expr.kind == Expr::Kind::call && (expr.name == "if" || expr.name == "and" || expr.name == "or");
  for (size_t i = 0; i < (chooses ? std::min<size_t>(1, expr.args.size()) : expr.args.size()); ++i)
    visit_always(expr.args[i], visit);
}

bool is_multiple(const isl::set& points, const Expr& value, int64_t of) {
  const auto aff = loop::to_isl_aff(points.space(), value);
  if (!aff) return false;
  const isl::aff rest = aff->mod(isl::val(points.ctx(), of));
  return points.is_subset(rest.eq_set(rest.sub(rest)));
}

// Types are inferred in instructions only.
void mark_whole(Expr& expr) {
  expr.dtype = DType::i64;
  for (Expr& arg : expr.args) mark_whole(arg);
}

}  // namespace

std::vector<PackAccess> find_packs(const loop::Kernel& kernel, const loop::Instruction& instruction,
                                   const std::string& iname, int64_t count, const isl::set& points,
                                   const std::function<int64_t(const std::string& tensor)>& bytes_aligned,
                                   const std::function<bool(const std::string& tensor, size_t axis)>& has_one_element) {
  std::vector<PackAccess> found;
  const auto look_at = [&](const Expr& subscript, bool is_write) {
    const loop::TensorArgument& tensor = *kernel.find_tensor(subscript.name);
    const int64_t bytes = count * dtype_bytes(*tensor.dtype);
    if (bytes > 16 || bytes_aligned(subscript.name) < bytes) return;
    // The axes that take room, the fastest last.
    std::vector<size_t> axes;
    for (size_t d = 0; d < subscript.args.size(); ++d)
      if (!has_one_element(subscript.name, d)) axes.push_back(d);
    if (axes.empty()) return;
    const size_t last = axes.back();
    for (const size_t d : axes)
      if (d != last && loop::mentions(subscript.args[d], iname)) return;
    loop::LinearSum along = loop::sum_of(subscript.args[last]);
    if (along.coefficient(iname) != 1) return;
    along.terms.erase(iname);
    Expr first = subscript;
    first.args[last] = loop::expression_of(along);
    mark_whole(first.args[last]);
    if (loop::mentions(first.args[last], iname) || !is_multiple(points, first.args[last], count)) return;
    if (axes.size() > 1 && !is_multiple(points, tensor.shape[last], count)) return;
    found.push_back({subscript, std::move(first), is_write});
  };
  visit_always(instruction.value, [&](const Expr& subscript) { look_at(subscript, false); });
  look_at(instruction.target, true);
  return found;
}

}  // namespace megalith::codegen
