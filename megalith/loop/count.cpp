#include "megalith/loop/count.h"

#include <fmt/format.h>
#include <isl/set.h>

#include <algorithm>

#include "megalith/base/error.h"
#include "megalith/loop/access.h"
#include "megalith/loop/count_points.h"
#include "megalith/loop/function.h"
#include "megalith/loop/lex.h"
#include "megalith/loop/rules.h"

namespace megalith::loop {

namespace {

// Counts how often expressions of a bound kernel are evaluated in one tile.
class Counter {
 public:
  Counter(const Kernel& kernel, const Binding& binding, const std::vector<Range>& tile)
      : kernel_(bind_sizes(without_rules(kernel), binding)), domains_(kernel_), tile_(tile) {
    for (const Parameter& parameter : kernel_.parameters)
      throw UserError(
          fmt::format("{} the parameter \"{}\" has no value", message_prefix(kernel_.name), parameter.name));
    for (const Range& range : tile)
      MEGALITH_CHECK(std::ranges::find(domains_.inames(), range.iname) != domains_.inames().end(),
                     "{} there is no iname \"{}\" to tile", message_prefix(kernel_.name), range.iname);
  }

  const Kernel& kernel() const { return kernel_; }

  int64_t evaluations(const Place& place) {
    // Expressions share their places: count each once.
    std::vector<std::string> key = domains_.sorted(place.inames);
    for (const Guard& guard : place.guards)
      key.push_back(fmt::format("{} {}", guard.holds, static_cast<const void*>(guard.condition)));
    const auto [entry, is_new] = counted_.try_emplace(key, 0);
    if (is_new) entry->second = count_points(in_tile(place_domain(domains_, place)));
    return entry->second;
  }

 private:
  Kernel kernel_;
  Domains domains_;
  const std::vector<Range>& tile_;
  std::map<std::vector<std::string>, int64_t> counted_;

  isl::set in_tile(const isl::set& points) const {
    isl_set* set = points.copy();
    for (const Range& range : tile_) {
      const int at = isl_set_find_dim_by_name(set, isl_dim_set, range.iname.c_str());
      if (at < 0) continue;
      const auto dimension = static_cast<unsigned>(at);
      set = isl_set_lower_bound_val(set, isl_dim_set, dimension, isl_val_int_from_si(isl_context().get(), range.begin));
      set =
          isl_set_upper_bound_val(set, isl_dim_set, dimension, isl_val_int_from_si(isl_context().get(), range.end - 1));
    }
    return isl::manage(set);
  }
};

std::string reduction_name(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum: return "add";
    case ReduceOp::min: return "min";
    case ReduceOp::max:
    case ReduceOp::argmax: break;
  }
  return "max";
}

}  // namespace

int64_t AccessCount::moved_bytes() const {
  return std::min(unique_read_bytes, load_bytes) + std::min(unique_write_bytes, store_bytes);
}

int64_t OpCounts::flops() const {
  int64_t total = 0;
  for (const auto& [key, count] : ops) {
    const auto& [dtype, name] = key;
    if (dtype_is_float(dtype) && name != "cast" && name != "select") total += count;
  }
  return total;
}

OpCounts count_ops(const Kernel& kernel, const Binding& binding, const std::vector<Range>& tile) {
  OpCounts result;
  Counter counter(kernel, binding, tile);
  for (const Instruction& instruction : counter.kernel().instructions)
    visit_expressions(instruction, [&](const Expr& expr, const Place& place) {
      if (place.in_subscript) return;
      if (expr.kind == Expr::Kind::call) {
        const Function* function = find_function(expr.name);
        const std::string name = function ? std::string(function->count) : "cast";
        result.ops[{expr.dtype, name}] += counter.evaluations(place);
      } else if (expr.kind == Expr::Kind::reduce) {
        Place inside = place;
        inside.inames.insert(inside.inames.end(), expr.inames.begin(), expr.inames.end());
        if (expr.args.size() == 2) inside.guards.push_back({&expr.args[1], true});
        const DType dtype = expr.reduce == ReduceOp::argmax ? expr.args[0].dtype : expr.dtype;
        result.ops[{dtype, reduction_name(expr.reduce)}] += counter.evaluations(inside);
      }
    });
  std::erase_if(result.ops, [](const auto& entry) { return entry.second == 0; });
  return result;
}

std::map<std::string, AccessCount> count_accesses(const Kernel& kernel, const Binding& binding,
                                                  const std::vector<Range>& tile) {
  std::map<std::string, AccessCount> result;
  Counter counter(kernel, binding, tile);
  auto element_bytes = [&](const TensorArgument& tensor) {
    MEGALITH_CHECK(tensor.dtype, "{} the dtype of {} is not known", message_prefix(kernel.name), tensor.name);
    return dtype_bytes(*tensor.dtype);
  };
  for (const Instruction& instruction : counter.kernel().instructions)
    visit_expressions(instruction, [&](const Expr& expr, const Place& place) {
      const TensorArgument* tensor = expr.kind == Expr::Kind::subscript ? kernel.find_tensor(expr.name) : nullptr;
      if (!tensor || tensor->role == Role::temporary) return;
      AccessCount& count = result[expr.name];
      const int64_t evaluations = counter.evaluations(place);
      (place.is_target ? count.stores : count.loads) += evaluations;
      (place.is_target ? count.store_bytes : count.load_bytes) += evaluations * element_bytes(*tensor);
    });

  std::vector<std::string> tiled;
  for (const Range& range : tile) tiled.push_back(range.iname);
  for (const auto& [name, footprint] : Footprints(without_rules(kernel), binding, tiled).of_tile(tile)) {
    const int64_t bytes = element_bytes(*kernel.find_tensor(name));
    result[name].unique_read_bytes = bytes * count_elements(footprint.reads);
    result[name].unique_write_bytes = bytes * count_elements(footprint.writes);
  }
  return result;
}

}  // namespace megalith::loop
