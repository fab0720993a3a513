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
                                   const std::string& iname, int64_t count, int64_t most_bytes, const isl::set& points,
                                   const std::function<int64_t(const std::string& tensor)>& bytes_aligned,
                                   const std::function<bool(const std::string& tensor, size_t axis)>& has_one_element) {
  std::vector<PackAccess> found;
  const auto look_at = [&](const Expr& subscript, bool is_write) {
    const loop::TensorArgument& tensor = *kernel.find_tensor(subscript.name);
    const int64_t bytes = count * dtype_bytes(*tensor.dtype);
    const bool is_power = (bytes & (bytes - 1)) == 0;  // 12 bytes are no load of a GPU
    if (bytes > most_bytes || (bytes_aligned && !is_power) || (bytes_aligned && bytes_aligned(subscript.name) < bytes))
      return;
    // The axes that take room, the fastest last.
    std::vector<size_t> axes;
    for (size_t d = 0; d < subscript.args.size(); ++d)
      if (!has_one_element(subscript.name, d)) axes.push_back(d);
    if (axes.empty()) return;
    const size_t last = axes.back();
    for (const size_t d : axes)
      if (d != last && loop::mentions(subscript.args[d], iname)) return;
    const loop::LinearSum along = loop::sum_of(subscript.args[last]);
    if (along.coefficient(iname) != 1) return;
    Expr first = subscript;
    first.args[last] = loop::expression_of(along.without(iname));
    mark_whole(first.args[last]);
    if (loop::mentions(first.args[last], iname)) return;
    const bool is_there = !bytes_aligned || (is_multiple(points, first.args[last], count) &&
                                             (axes.size() == 1 || is_multiple(points, tensor.shape[last], count)));
    if (!is_there) return;
    found.push_back({subscript, std::move(first), is_write});
  };
  visit_always(instruction.value, [&](const Expr& subscript) { look_at(subscript, false); });
  look_at(instruction.target, true);
  return found;
}

bool is_of_vectors(const loop::Kernel& kernel, const loop::Instruction& instruction, const std::string& iname,
                   const std::vector<PackAccess>& packs) {
  const auto is_f32 = [&](const Expr& subscript) { return kernel.find_tensor(subscript.name)->dtype == DType::f32; };
  const auto is_pack = [&](const Expr& subscript, bool is_write) {
    return is_f32(subscript) && std::ranges::any_of(packs, [&](const PackAccess& pack) {
             return pack.is_write == is_write && loop::same_expression(pack.subscript, subscript);
           });
  };
  const std::function<bool(const Expr&)> is_vector = [&](const Expr& expr) {
    if (expr.kind == Expr::Kind::reduce) return false;
    if (!loop::mentions(expr, iname)) return std::ranges::all_of(expr.args, is_vector);
    if (expr.kind == Expr::Kind::subscript) return is_pack(expr, false);
    const bool is_operator =
        expr.kind == Expr::Kind::call &&
        (expr.name == "+" || expr.name == "-" || expr.name == "*" || expr.name == "/" || expr.name == "neg");
    return is_operator && std::ranges::all_of(expr.args, is_vector);
  };
  return is_pack(instruction.target, true) && is_vector(instruction.value);
}

}  // namespace megalith::codegen
