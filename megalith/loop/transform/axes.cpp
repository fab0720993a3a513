// stream, permute_axes, split_axis
#include <isl/set.h>

#include <algorithm>
#include <numeric>

#include "megalith/loop/access.h"
#include "megalith/loop/linear_sum.h"
#include "megalith/loop/transform/rewrite.h"
#include "megalith/loop/transform/transform.h"

namespace megalith::loop {

namespace {

void for_each_access(Kernel& kernel, const std::string& tensor, const std::function<void(std::vector<Expr>&)>& change) {
  for_each_expression(kernel, [&](Expr& expr) {
    if (expr.kind == Expr::Kind::subscript && expr.name == tensor) change(expr.args);
  });
}

const TensorArgument& tensor_of_known_shape(const Kernel& kernel, const std::string& tensor) {
  const TensorArgument& found = tensor_of(kernel, tensor);
  if (!found.shape_known) refuse(kernel, "the shape of \"{}\" is not known", tensor);
  return found;
}

// at // factor and at mod factor, where what of `at` is no multiple of the factor stays within 0 and factor: without // then.
std::pair<Expr, Expr> divided(const Domains& domains, const Expr& at, int64_t factor, const Place& place) {
  const LinearSum whole = sum_of(at);
  LinearSum outer, inner;
  for (const LinearSum::Term& term : whole.terms)
    if (term.coefficient % factor == 0)
      outer.terms.push_back({term.atom, term.coefficient / factor});
    else
      inner.terms.push_back(term);
  inner.constant = ((whole.constant % factor) + factor) % factor;
  outer.constant = (whole.constant - inner.constant) / factor;
  const isl::set points = place_domain(domains, place);
  if (const auto rest = to_isl_aff(points.space(), expression_of(inner))) {
    const isl::aff zero = rest->sub(*rest), most = zero.add_constant(isl::val(isl_context(), factor));
    if (points.is_subset(rest->ge_set(zero).intersect(rest->lt_set(most))))
      return {expression_of(outer), expression_of(inner)};
  }
  return {make_call("//", {at, make_integer(factor)}), make_call("mod", {at, make_integer(factor)})};
}

}  // namespace

Kernel stream(const Kernel& kernel, const std::string& tensor) {
  const Role role = tensor_of(kernel, tensor).role;
  if (role == Role::temporary)
    refuse(kernel, "\"{}\" is a temporary: what reads it next finds it in a cache, and would wait for memory", tensor);
  if (role == Role::input) refuse(kernel, "\"{}\" is an input: only what is written is stored past the caches", tensor);
  Kernel result = kernel;
  result.find_tensor(tensor)->is_streamed = true;
  return result;
}

Kernel permute_axes(const Kernel& kernel, const std::string& tensor, const std::vector<int>& order) {
  const size_t rank = tensor_of_known_shape(kernel, tensor).shape.size();
  std::vector<int> sorted = order, all(rank);
  std::iota(all.begin(), all.end(), 0);
  std::ranges::sort(sorted);
  if (sorted != all)
    refuse(kernel, "the axes ({}) are not those of \"{}\", 0 to {}, each once", fmt::join(order, ", "), tensor,
           static_cast<int>(rank) - 1);
  const auto permute = [&](std::vector<Expr>& list) {
    const std::vector<Expr> before = list;
    for (size_t i = 0; i < rank; ++i) list[i] = before[static_cast<size_t>(order[i])];
  };
  Kernel result = kernel;
  permute(result.find_tensor(tensor)->shape);
  for_each_access(result, tensor, permute);
  return finished(std::move(result));
}

Kernel split_axis(const Kernel& kernel, const std::string& tensor, int axis, int64_t factor) {
  const size_t rank = tensor_of_known_shape(kernel, tensor).shape.size();
  if (axis < 0 || static_cast<size_t>(axis) >= rank) refuse(kernel, "\"{}\" has no axis {}", tensor, axis);
  if (factor < 1) refuse(kernel, "an axis of \"{}\" is split by {}, want at least 1", tensor, factor);
  const auto replace = [&](std::vector<Expr>& list, Expr outer, Expr inner) {
    list[static_cast<size_t>(axis)] = std::move(outer);
    list.insert(list.begin() + axis + 1, std::move(inner));
  };
  Kernel result = kernel;
  std::vector<Expr>& shape = result.find_tensor(tensor)->shape;
  const Expr size = shape[static_cast<size_t>(axis)];
  const auto number = constant_value(size);
  Expr groups = number ? make_integer((*number + factor - 1) / factor)
                       : make_call("//", {make_call("+", {size, make_integer(factor - 1)}), make_integer(factor)});
  replace(shape, std::move(groups), make_integer(factor));
  const Domains domains(kernel);
  for (Instruction& instruction : result.instructions)
    rewrite_expressions(instruction, [&](Expr& expr, const Place& place) {
      if (expr.kind != Expr::Kind::subscript || expr.name != tensor) return;
      auto [outer, inner] = divided(domains, expr.args[static_cast<size_t>(axis)], factor, place);
      replace(expr.args, std::move(outer), std::move(inner));
    });
  return finished(std::move(result));
}

}  // namespace megalith::loop
