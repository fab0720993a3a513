#include "megalith/loop/evaluate_reduce.h"

#include <isl/set.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "megalith/base/error.h"
#include "megalith/loop/lex.h"

namespace megalith::loop {

namespace {

// iname <op> bound, where bound does not change inside the loop over iname.
struct Clamp {
  std::string op;
  EvaluablePtr bound;

  void apply(int64_t* slots, int64_t& begin, int64_t& end) const {
    static constexpr double kFar = 4e18;
    const double value = bound->eval(slots);
    if (std::isnan(value)) {  // no comparison holds
      end = begin;
      return;
    }
    const auto to_integer = [](double v) { return static_cast<int64_t>(std::clamp(v, -kFar, kFar)); };
    if (op == "<=" || op == "==") end = std::min(end, to_integer(std::floor(value)) + 1);
    if (op == "<") end = std::min(end, to_integer(std::ceil(value)));
    if (op == ">=" || op == "==") begin = std::max(begin, to_integer(std::ceil(value)));
    if (op == ">") begin = std::max(begin, to_integer(std::floor(value)) + 1);
  }
};

struct Level {
  CompiledLoop loop;
  std::vector<Clamp> clamps;
};

// How a reduction starts and goes on. NaN wins over everything, so that it is not lost.
template <ReduceOp op>
struct Accumulator {
  double value = op == ReduceOp::sum ? 0 : op == ReduceOp::min ? INFINITY : -INFINITY;
  double index = 0;
  bool any = false;

  void add(double x, int64_t at) {
    if constexpr (op == ReduceOp::sum) value += x;
    if constexpr (op == ReduceOp::max)
      if (x > value || std::isnan(x)) value = x;
    if constexpr (op == ReduceOp::min)
      if (x < value || std::isnan(x)) value = x;
    if constexpr (op == ReduceOp::argmax)
      if (!any || x > value || (std::isnan(value) && !std::isnan(x))) {
        value = x;
        index = static_cast<double>(at);
        any = true;
      }
  }
  double result() const { return op == ReduceOp::argmax ? index : value; }
};

template <ReduceOp op>
struct Reduction : Evaluable {
  std::vector<Level> levels;
  AffineSet guard;
  bool is_guarded = false;
  EvaluablePtr condition;  // may be null
  EvaluablePtr body;

  double eval(int64_t* slots) const override {
    Accumulator<op> accumulator;
    run(0, slots, accumulator);
    return accumulator.result();
  }

  void run(size_t depth, int64_t* slots, Accumulator<op>& accumulator) const {
    const Level& level = levels[depth];
    int64_t begin = 0, end = 0;
    level.loop.range.eval(slots, begin, end);
    for (const Clamp& clamp : level.clamps)
      if (begin < end) clamp.apply(slots, begin, end);
    int64_t& slot = slots[level.loop.slot];
    if (depth + 1 < levels.size()) {
      for (int64_t i = begin; i < end; ++i) {
        slot = i;
        run(depth + 1, slots, accumulator);
      }
    } else if (!is_guarded && !condition) {
      for (int64_t i = begin; i < end; ++i) {
        slot = i;
        accumulator.add(body->eval(slots), i);
      }
    } else {
      for (int64_t i = begin; i < end; ++i) {
        slot = i;
        if (is_guarded && !guard.contains(slots)) continue;
        if (condition && condition->eval(slots) == 0) continue;
        accumulator.add(body->eval(slots), i);
      }
    }
  }
};

void split_conjunction(const Expr& condition, std::vector<const Expr*>& parts) {
  if (condition.kind == Expr::Kind::call && condition.name == "and") {
    split_conjunction(condition.args[0], parts);
    split_conjunction(condition.args[1], parts);
  } else {
    parts.push_back(&condition);
  }
}

std::string mirrored(const std::string& op) {
  if (op == "<") return ">";
  if (op == "<=") return ">=";
  if (op == ">") return "<";
  if (op == ">=") return "<=";
  return op;
}

// The conditions of a reduction by the way they are enforced.
struct Conditions {
  isl::set domain;                         // narrowed by the affine ones
  std::vector<std::vector<Clamp>> clamps;  // per iname of the reduction
  EvaluablePtr rest;
};

// If `part` compares inames[level] with something fixed outside its loop, adds that to the level's clamps.
bool take_clamp(const Expr& part, const std::vector<std::string>& inames, const CompileContext& context,
                std::vector<std::vector<Clamp>>& clamps) {
  constexpr std::string_view kComparisons[] = {"<", "<=", ">", ">=", "=="};
  if (part.kind != Expr::Kind::call || std::ranges::find(kComparisons, part.name) == std::end(kComparisons))
    return false;
  for (const size_t side : {size_t{0}, size_t{1}}) {
    const Expr &iname = part.args[side], &bound = part.args[1 - side];
    const auto level = static_cast<size_t>(std::ranges::find(inames, iname.name) - inames.begin());
    if (iname.kind != Expr::Kind::name || level == inames.size()) continue;
    if (std::any_of(inames.begin() + static_cast<ptrdiff_t>(level), inames.end(),
                    [&](const std::string& inner) { return mentions(bound, inner); }))
      continue;
    clamps[level].push_back({side == 0 ? part.name : mirrored(part.name), compile_expression(bound, context)});
    return true;
  }
  return false;
}

Conditions split_conditions(const Expr& expr, const std::vector<std::string>& inames, isl::set domain,
                            const CompileContext& context) {
  Conditions result{std::move(domain), std::vector<std::vector<Clamp>>(inames.size()), nullptr};
  if (expr.args.size() < 2) return result;
  std::vector<const Expr*> parts;
  split_conjunction(expr.args[1], parts);
  std::optional<Expr> rest;
  for (const Expr* part : parts) {
    if (const auto where = to_isl_set(result.domain.space(), *part)) {
      result.domain = result.domain.intersect(*where);
    } else if (rest || !take_clamp(*part, inames, context, result.clamps)) {
      // What stands behind a condition that is asked point by point may rely on it.
      rest = rest ? make_call("and", {std::move(*rest), *part}) : *part;
    }
  }
  if (rest) result.rest = compile_expression(*rest, context);
  return result;
}

template <ReduceOp op>
EvaluablePtr make_reduction(std::vector<Level> levels, AffineSet guard, EvaluablePtr condition, EvaluablePtr body) {
  auto reduction = std::make_unique<Reduction<op>>();
  reduction->levels = std::move(levels);
  reduction->is_guarded = !guard.is_universe();
  reduction->guard = std::move(guard);
  reduction->condition = std::move(condition);
  reduction->body = std::move(body);
  return reduction;
}

}  // namespace

std::vector<CompiledLoop> compile_loops(const isl::set& domain, const isl::set& outer, const Domains& domains,
                                        AffineSet& guard) {
  const std::vector<std::string> order = variable_names(domain);
  const std::vector<std::string>& names = domains.inames();
  std::vector<std::string> open = variable_names(outer);
  isl::set implemented = outer;
  std::vector<CompiledLoop> loops;
  for (size_t level = open.size(); level < order.size(); ++level) {
    open.push_back(order[level]);
    LoopBounds bounds;
    CompiledLoop loop;
    loop.slot = static_cast<int>(std::ranges::find(names, order[level]) - names.begin());
    loop.range = last_dimension_range(project_dimensions(domain, open), names, &bounds.implemented);
    implemented = enter_loop(implemented, bounds);
    loops.push_back(std::move(loop));
  }
  guard = implemented.is_subset(domain) ? AffineSet{{{}}} : affine_set(domain.gist(implemented), names);
  return loops;
}

EvaluablePtr compile_reduction(const Expr& expr, const CompileContext& context) {
  CompileContext inner = context;
  for (const std::string& iname : expr.inames) {
    MEGALITH_CHECK(std::ranges::find(context.inames, iname) == context.inames.end(),
                   "{} instruction \"{}\" reduces over the iname \"{}\", which has a value there already",
                   message_prefix(context.kernel.name), context.instruction->id, iname);
    inner.inames.push_back(iname);
  }
  const std::vector<std::string> inames = context.domains.sorted(expr.inames);
  std::vector<std::string> order = context.inames;
  order.insert(order.end(), inames.begin(), inames.end());
  const isl::set domain = project_dimensions(context.domains.over(order), order);

  const isl::set outer = project_dimensions(context.domains.over(context.inames), context.inames);
  Conditions conditions = split_conditions(expr, inames, domain, inner);
  AffineSet guard;
  std::vector<CompiledLoop> loops = compile_loops(conditions.domain, outer, context.domains, guard);
  std::vector<Level> levels;
  for (size_t i = 0; i < loops.size(); ++i) levels.push_back({std::move(loops[i]), std::move(conditions.clamps[i])});

  EvaluablePtr body = compile_expression(expr.args[0], inner);
  switch (expr.reduce) {
    case ReduceOp::sum:
      return make_reduction<ReduceOp::sum>(std::move(levels), guard, std::move(conditions.rest), std::move(body));
    case ReduceOp::max:
      return make_reduction<ReduceOp::max>(std::move(levels), guard, std::move(conditions.rest), std::move(body));
    case ReduceOp::min:
      return make_reduction<ReduceOp::min>(std::move(levels), guard, std::move(conditions.rest), std::move(body));
    case ReduceOp::argmax: break;
  }
  return make_reduction<ReduceOp::argmax>(std::move(levels), guard, std::move(conditions.rest), std::move(body));
}

}  // namespace megalith::loop
