// Loops that are an axis of the grid: blocks, threads, lanes.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <isl/set.h>

#include "megalith/base/error.h"
#include "megalith/codegen/loop_emitter.h"
#include "megalith/loop/access.h"
#include "megalith/loop/tag.h"

namespace megalith::codegen {

using loop::Expr;
using loop::NestNode;

std::optional<int> LoopEmitter::axis_of(const NestNode& node) const {
  return is_gpu_ && !node.iname.empty() ? loop::axis_of(kernel_, node.iname) : std::nullopt;
}

void LoopEmitter::emit_axes(const NestNode& first, Inames outer, isl::set implemented) {
  open("");
  std::vector<std::string> tests;
  const NestNode* node = &first;
  for (;; node = &node->body[0]) {
    const int axis = *axis_of(*node);
    const isl::set wanted = loop::loop_domain(domains_, kernel_, *node, outer);
    outer.push_back(node->iname);
    const isl::set domain = loop::project_dimensions(wanted, outer);
    const isl::set around = narrowed(indices(node->iname, axis, domain), implemented);
    line(fmt::format("const i64 {} = {};", node->iname, kLoopAxes[axis]));
    const std::vector<std::string> more = loop::guards(domain, around);
    tests.insert(tests.end(), more.begin(), more.end());
    implemented = more.empty() ? around : around.intersect(domain);
    if (node->body.size() != 1 || !axis_of(node->body[0])) break;
  }
  const bool is_alone = node->body.size() == 1 && node->body[0].instruction >= 0;
  if (is_alone) exchange_lanes(static_cast<size_t>(node->body[0].instruction));
  if (!tests.empty()) open(fmt::format("if ({})", fmt::join(tests, " && ")));
  emit(node->body, outer, implemented);
}

void LoopEmitter::exchange_lanes(size_t index) {
  if (!is_kernel() || exchanged_ == static_cast<int>(index)) return;
  exchanged_ = static_cast<int>(index);
  loop::visit_expressions(kernel_.instructions[index], [&](const Expr& expr, const loop::Place& place) {
    const auto axis = parallel_.lane_axes.find(expr.name);
    if (expr.kind != Expr::Kind::subscript || place.is_target || axis == parallel_.lane_axes.end() ||
        parallel_.is_own_lane(kernel_, index, expr.args[axis->second]))
      return;
    const DType dtype = *tensor(expr.name).dtype;
    MEGALITH_CHECK(dtype == DType::f32 || dtype == DType::i32 || dtype == DType::i64,
                   "{} {} is in lanes and of type {}: lanes exchange f32, i32 and i64; make it shared", prefix_,
                   expr.name, dtype_name(dtype));
    const std::string own = writer_.element(expr), lane = writer_.write(expr.args[axis->second], Type::i64),
                      name = fmt::format("pack_of_{}_{}", expr.name, num_packs_++);
    line(fmt::format("const {} {} = __shfl_sync(0xffffffffu, {}, static_cast<int>({}) & {});", element_type(dtype),
                     name, own, lane, loop::kWarpThreads - 1));
    context_.held[writer_.held_key(expr)] = name;
  });
}

isl::set LoopEmitter::indices(const std::string& iname, int axis, const isl::set& like) const {
  const auto last = static_cast<unsigned>(isl_set_dim(like.get(), isl_dim_set)) - 1;
  isl_set* set = isl_set_lower_bound_si(isl_set_universe(like.space().release()), isl_dim_set, last, 0);
  if (!loop::is_block_axis(axis))
    return isl::manage(isl_set_upper_bound_si(set, isl_dim_set, last,
                                              static_cast<int>(parallel_.num_threads[static_cast<size_t>(axis)]) - 1));
  if (parallel_.inames_along[static_cast<size_t>(axis)].size() > 1) return isl::manage(set);
  isl_set* values = domains_.over({iname}).release();
  isl_set* first = isl_set_fix_si(isl_set_universe(isl_set_get_space(values)), isl_dim_set, 0, 0);
  first = isl_set_intersect_params(first, domains_.context().params().release());
  values = isl_set_apply(values, isl_map_lex_ge(isl_set_get_space(values)));
  values = isl_set_coalesce(isl_set_union(isl_set_lower_bound_si(values, isl_dim_set, 0, 0), first));
  if (isl_set_n_basic_set(values) != 1) {  // may have none: conditions say it better
    isl_set_free(values);
    return isl::manage(set);
  }
  values = isl_set_insert_dims(values, isl_dim_set, 0, last);
  values = isl_set_reset_space(values, like.space().release());
  return isl::manage(isl_set_intersect(set, values));
}

std::vector<std::string> LoopEmitter::tests_of_axes(size_t index) const {
  std::vector<std::string> tests;
  for (int axis = 0; is_gpu_ && axis < loop::kNumAxes; ++axis) {
    const auto at = static_cast<size_t>(axis);
    const bool is_one = !loop::is_block_axis(axis) && parallel_.num_threads[at] == 1;
    if (parallel_.has_axis[at] && !is_one && parallel_.iname(index, axis).empty() &&
        !parallel_.is_in_all(kernel_, index, axis))
      tests.push_back(fmt::format("{} == 0", kLoopAxes[axis]));
  }
  return tests;
}

}  // namespace megalith::codegen
