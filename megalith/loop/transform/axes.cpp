// stream, permute_axes, split_axis, vector_axis, separate_axis
#include <isl/set.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "megalith/loop/access.h"
#include "megalith/loop/linear_sum.h"
#include "megalith/loop/text.h"
#include "megalith/loop/transform/rewrite.h"
#include "megalith/loop/transform/transform.h"

namespace megalith::loop {

namespace {

void for_each_access(Kernel& kernel, const std::string& tensor, const std::function<void(std::vector<Expr>&)>& change) {
  for_each_expression(kernel, [&](Expr& expr) {
    if (expr.kind == Expr::Kind::subscript && expr.name == tensor) change(expr.args);
  });
}

/// The axis, once it is known that the tensor has it.
size_t axis_of(const Kernel& kernel, const TensorArgument& tensor, int axis) {
  if (axis < 0 || static_cast<size_t>(axis) >= tensor.shape.size())
    refuse(kernel, "\"{}\" has no axis {}", tensor.name, axis);
  return static_cast<size_t>(axis);
}

int64_t known_length(const Kernel& kernel, const TensorArgument& tensor, size_t axis, const std::string& why) {
  const auto length = constant_value(tensor.shape[axis]);
  if (!length)
    refuse(kernel, "axis {} of \"{}\" has {} elements: {} (`fix` makes a parameter a number)", axis, tensor.name,
           print(tensor.shape[axis]), why);
  return *length;
}

void check_is_vector(const Kernel& kernel, const TensorArgument& tensor, int axis) {
  const int64_t length = known_length(kernel, tensor, axis_of(kernel, tensor, axis), "a vector has 2, 4, 8 or 16");
  if (length != 2 && length != 4 && length != 8 && length != 16)
    refuse(kernel, "axis {} of \"{}\" has {} elements: a vector has 2, 4, 8 or 16 (`split_axis` makes one)", axis,
           tensor.name, length);
}

// The one value that a subscript has at all points of its place, if that is one of those below `length`.
std::optional<int64_t> only_value(const Domains& domains, const Expr& at, int64_t length, const Place& place) {
  if (const auto number = constant_value(at)) return number;
  const isl::set points = place_domain(domains, place);
  const auto aff = to_isl_aff(points.space(), at);
  if (!aff) return std::nullopt;
  const isl::aff zero = aff->sub(*aff);
  for (int64_t value = 0; value < length; ++value)
    if (points.is_subset(aff->eq_set(zero.add_constant(isl::val(isl_context(), static_cast<long>(value))))))
      return value;
  return std::nullopt;
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
  axis_of(kernel, tensor_of_known_shape(kernel, tensor), axis);
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

Kernel vector_axis(const Kernel& kernel, const std::string& tensor, int axis) {
  const TensorArgument& found = tensor_of_known_shape(kernel, tensor);
  check_is_vector(kernel, found, axis);
  std::vector<int> order;
  for (int i = 0; i < static_cast<int>(found.shape.size()); ++i)
    if (i != axis) order.push_back(i);
  order.push_back(axis);
  return permute_axes(kernel, tensor, order);
}

Kernel separate_axis(const Kernel& kernel, const std::string& tensor, int axis) {
  const TensorArgument found = tensor_of_known_shape(kernel, tensor);
  const size_t which = axis_of(kernel, found, axis);
  constexpr int64_t kMaxTensors = 64;
  const int64_t length = known_length(kernel, found, which, "so many tensors cannot be named");
  if (length < 1 || length > kMaxTensors)
    refuse(kernel, "axis {} of \"{}\" has {} elements, want 1 to {} tensors", axis, tensor, length, kMaxTensors);
  if (!found.storage.empty())
    refuse(kernel, "\"{}\" shares the memory \"{}\": `alias` comes behind this step", tensor, found.storage);
  // A tensor of one axis leaves tensors of one element.
  const bool is_last = found.shape.size() == 1;
  const auto take_out = [&](std::vector<Expr>& list, int64_t instead) {
    if (is_last)
      list[which] = make_integer(instead);
    else
      list.erase(list.begin() + axis);
  };
  Kernel result = kernel;
  std::vector<std::string> names;
  std::vector<TensorArgument> parts;
  for (int64_t i = 0; i < length; ++i) {
    names.push_back(free_name(kernel, fmt::format("{}_{}", tensor, i), {names.begin(), names.end()}));
    parts.push_back(found);
    parts.back().name = names.back();
    take_out(parts.back().shape, 1);
  }
  const Domains domains(kernel);
  for (Instruction& instruction : result.instructions)
    rewrite_expressions(instruction, [&](Expr& expr, const Place& place) {
      if (expr.kind != Expr::Kind::subscript || expr.name != tensor) return;
      const Expr at = expr.args[which];
      const auto value = only_value(domains, at, length, place);
      if (!value || *value < 0 || *value >= length)
        refuse(
            kernel,
            "{} takes {} of axis {} of \"{}\", which has several values there, so that no tensor can be named: `peel` "
            "leaves one of an iname's",
            instruction.id, print(at), axis, tensor);
      expr.name = names[static_cast<size_t>(*value)];
      take_out(expr.args, 0);
    });
  const auto at = std::ranges::find(result.tensors, tensor, &TensorArgument::name);
  result.tensors.insert(result.tensors.erase(at), parts.begin(), parts.end());
  return finished(std::move(result));
}

Kernel tag_axes(const Kernel& kernel, const std::string& tensor, const std::vector<std::string>& tags) {
  const size_t rank = tensor_of_known_shape(kernel, tensor).shape.size();
  if (tags.size() != rank)
    refuse(kernel, "{} tags for the {} axes of \"{}\": want one for each", tags.size(), rank, tensor);
  // Where each axis goes: those of levels, the slowest first, then a vector's; what is separate comes last and is taken out.
  std::map<int, int> by_level;
  std::vector<int> vectors, separate;
  for (int axis = 0; axis < static_cast<int>(rank); ++axis) {
    const std::string& tag = tags[static_cast<size_t>(axis)];
    if (tag == "vec") {
      vectors.push_back(axis);
    } else if (tag == "sep") {
      separate.push_back(axis);
    } else if (tag == "c" || tag == "f" || (tag.size() == 2 && tag[0] == 'N' && tag[1] >= '0' && tag[1] <= '9')) {
      const int level = tag == "c" ? static_cast<int>(rank) - 1 - axis : tag == "f" ? axis : tag[1] - '0';
      if (!by_level.emplace(level, axis).second)
        refuse(kernel, "two axes of \"{}\" have the level N{} ({})", tensor, level, fmt::join(tags, " "));
    } else {
      refuse(kernel, "there is no axis tag \"{}\": want N0 (elements side by side), N1, ..., c, f, vec or sep", tag);
    }
  }
  if (vectors.size() > 1) refuse(kernel, "\"{}\" has two vector axes, want one at most", tensor);
  for (const int axis : vectors) check_is_vector(kernel, tensor_of(kernel, tensor), axis);
  std::vector<int> order;
  for (const auto& [level, axis] : by_level) order.insert(order.begin(), axis);
  order.insert(order.end(), vectors.begin(), vectors.end());
  order.insert(order.end(), separate.begin(), separate.end());
  Kernel result = permute_axes(kernel, tensor, order);
  std::vector<std::string> left = {tensor};
  for (size_t i = 0; i < separate.size(); ++i) {
    std::vector<std::string> parts;
    for (const std::string& name : left) {
      std::set<std::string> before;
      for (const TensorArgument& known : result.tensors) before.insert(known.name);
      result = separate_axis(result, name, static_cast<int>(result.find_tensor(name)->shape.size()) - 1);
      for (const TensorArgument& known : result.tensors)
        if (!before.contains(known.name)) parts.push_back(known.name);
    }
    left = std::move(parts);
  }
  return result;
}

}  // namespace megalith::loop
