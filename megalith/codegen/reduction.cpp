// Reductions: their bounds, the order in which they are formed, and their text. Part of expression.h.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <isl/cpp.h>
#include <isl/set.h>

#include <algorithm>

#include "megalith/base/error.h"
#include "megalith/codegen/checks.h"
#include "megalith/codegen/columns.h"
#include "megalith/codegen/expression.h"
#include "megalith/codegen/loop_header.h"
#include "megalith/loop/recall.h"
#include "megalith/loop/tag.h"

namespace megalith::codegen {

using loop::Expr;
using loop::ReduceOp;

namespace {

// The set with its dimensions in the order of `inames`.
isl::set reorder(const isl::set& set, const std::vector<std::string>& from, const std::vector<std::string>& inames) {
  if (from == inames) return set;
  const isl::map order(loop::isl_context(),
                       fmt::format("{{ [{}] -> [{}] }}", fmt::join(from, ", "), fmt::join(inames, ", ")));
  isl_set* result = set.apply(order).release();  // which forgets the names
  for (size_t i = 0; i < inames.size(); ++i)
    result = isl_set_set_dim_name(result, isl_dim_set, static_cast<unsigned>(i), inames[i].c_str());
  return isl::manage(result);
}

// One of the loops of a reduction, as its domain has it.
struct ReductionLoop {
  std::vector<std::string> lower, upper, guards;
  bool may_be_empty = false;
};

// Inside of the loops `scope`. Every part of an expression that a sum is in asks, when a schedule is proposed and when the
// body is written; so answers are kept.
std::vector<ReductionLoop> reduction_loops(const loop::Domains& domains, const std::vector<std::string>& scope,
                                           const std::vector<std::string>& reduced,
                                           const std::set<std::string>& whole) {
  std::vector<std::string> outer = scope;
  std::string question =
      fmt::format("{} in {}: {}", fmt::join(reduced, " "), fmt::join(scope, " "), domains.question(scope));
  for (const std::string& iname : reduced) {
    outer.push_back(iname);
    question += "; " + domains.question(outer);
    if (whole.contains(iname)) question += " whole";
  }
  thread_local loop::Recall<std::vector<ReductionLoop>> known(4096);
  if (const std::vector<ReductionLoop>* loops = known.find(question)) return *loops;

  std::vector<ReductionLoop> loops;
  outer = scope;
  isl::set implemented = reorder(domains.over(outer), domains.sorted(outer), outer);
  for (const std::string& iname : reduced) {
    std::vector<std::string> inames = outer;
    inames.push_back(iname);
    const isl::set domain = reorder(domains.over(inames), domains.sorted(inames), inames);
    const isl::set wanted = narrowed(domain, implemented);
    const loop::LoopBounds found =
        whole.contains(iname) ? whole_bounds(domains, iname, wanted, outer) : loop::loop_bounds(wanted, iname, outer);
    const isl::set around = implemented;
    implemented = loop::enter_loop(implemented, found);
    ReductionLoop& one = loops.emplace_back(ReductionLoop{found.lower, found.upper, {}});
    one.guards = loop::guards(domain, implemented);
    implemented = implemented.intersect(domain);
    one.may_be_empty = loop::may_be_empty(implemented, around);
    outer = std::move(inames);
  }
  known.keep(std::move(question), loops);
  return loops;
}

std::string indented(const std::string& text) {
  std::string result = "  ";
  for (const char c : text) {
    result += c;
    if (c == '\n') result += "  ";
  }
  return result;
}

}  // namespace

std::vector<ExpressionWriter::Reduction> ExpressionWriter::reductions(const Expr& reduce) const {
  std::vector<Expr> conditions;
  if (reduce.args.size() > 1) conditions = conjuncts(reduce.args[1]);

  // A condition belongs to the innermost iname that it mentions, and bounds it if it can.
  auto owner = [&](const Expr& condition) {
    for (size_t r = reduce.inames.size(); r-- > 0;)
      if (mentions(condition, reduce.inames[r])) return r;
    return reduce.inames.size() - 1;
  };

  const std::vector<ReductionLoop> loops = reduction_loops(context_.domains, scope_, reduce.inames, context_.whole);
  std::vector<Reduction> result;
  for (size_t r = 0; r < reduce.inames.size(); ++r) {
    const std::string& iname = reduce.inames[r];
    Reduction reduction;
    std::vector<std::string> lower = loops[r].lower, upper = loops[r].upper;
    reduction.guards = loops[r].guards;
    reduction.may_be_empty = loops[r].may_be_empty;

    for (const Expr& condition : conditions) {
      if (owner(condition) != r) continue;
      // A condition with a check holds only behind those before it: it may not move to where the loop begins.
      const bool stays =
          has_check(condition) && (reduction.may_be_empty || !same_expression(condition, conditions.front()));
      const auto bound = stays ? std::nullopt : condition_bound(condition, iname);
      if (!bound) {
        reduction.conditions.push_back(condition);
        continue;
      }
      (bound->is_upper ? upper : lower).push_back(write(*bound));
      reduction.bounded_by_data = reduction.bounded_by_data || reads_tensor(condition);
    }
    reduction.bounds = {join_bounds(lower, "max"), join_bounds(upper, "min")};
    result.push_back(std::move(reduction));
  }
  return result;
}

std::string accumulate(const ExpressionWriter& writer, const Expr& term, const std::string& acc) {
  constexpr int kAdd = 6;
  const bool product = term.kind == Expr::Kind::call && term.name == "*";
  if (writer.natural(term) == Type::f32) {
    if (product)
      return fmt::format("fma({}, {}, {})", writer.write(term.args[0], Type::f32),
                         writer.write(term.args[1], Type::f32), acc);
    return fmt::format("{} + {}", acc, writer.write(term, Type::f32, kAdd + 1));
  }
  return fmt::format("{} + {}", acc, writer.write(term, Type::i64, kAdd + 1));
}

ExpressionWriter::Text ExpressionWriter::reduce_text(const Expr& expr) const {
  const Type type = natural(expr);
  const std::vector<Reduction> loops = reductions(expr);
  const std::vector<std::string> scope = scope_;
  scope_.insert(scope_.end(), expr.inames.begin(), expr.inames.end());

  std::vector<std::string> tests;  // of the innermost loop; those of outer loops hold for all terms inside
  for (const Reduction& one : loops) {
    tests.insert(tests.end(), one.guards.begin(), one.guards.end());
    for (const Expr& condition : one.conditions) tests.push_back(write(condition, Type::truth, 4));
  }
  const std::string holds = fmt::format("{}", fmt::join(tests, " && "));
  auto parameter = [&](const std::string& iname, const std::string& body) {
    // A parameter that is not used has no name, or compilers complain.
    return has_word(body, iname) ? "i64 " + iname : "[[maybe_unused]] i64 " + iname;
  };
  auto lambda = [&](const std::string& parameters, const std::string& body) {
    return fmt::format("[&]({}) {} {{\n{}\n}}", parameters, context_.dialect.inline_lambda,
                       indented("return " + body + ";"));
  };

  // As the schedule has it (body_schedule.h). Where threads share a reduction, each works out its part of the innermost loop's
  // terms alone; loops around that carry the result through it, and all threads run them.
  const loop::InameTag tag = tag_in(instruction_, expr.inames.back());
  const bool together = level_ != Level::thread && (tag == loop::InameTag::thread_0 || tag == loop::InameTag::lane);
  const bool in_lanes =
      !together && !context_.dialect.is_literal && (tag == loop::InameTag::vector || tag == loop::InameTag::lane);
  const std::string level = !together ? "" : level_ == Level::warp ? "warp_" : "block_";
  struct Restore {
    Level& level;
    Level value;
    ~Restore() { level = value; }
  } restore{level_, level_};
  level_ = Level::thread;

  const auto fold_of = [&](const std::string& iname) {
    return context_.unrolled.contains(iname) ? "fold_unrolled" : "fold";
  };
  const std::string& last = expr.inames.back();
  std::string text;
  if (expr.reduce == ReduceOp::argmax) {
    const Bounds& bounds = loops[0].bounds;
    const Type of = natural(expr.args[0]) == Type::f32 ? Type::f32 : Type::i64;
    const std::string term = write(expr.args[0], of);
    text = fmt::format("{}argmax({}, {}, {}", level, bounds.lower, bounds.upper, lambda(parameter(last, term), term));
    if (!tests.empty()) text += ", " + lambda(parameter(last, holds), holds);
    scope_ = scope;
    return {text + ")", 9, Type::i64};
  }

  // One step of the innermost loop.
  const std::string& acc = context_.accumulator;
  const std::string name(type_name(type));
  const bool sum = expr.reduce == ReduceOp::sum;
  const std::string pick = word_of(expr.reduce == ReduceOp::max ? "max" : "min", type);
  const std::string nothing = sum                 ? (type == Type::f32 ? "0.0f" : "i64(0)")
                              : type == Type::f32 ? (expr.reduce == ReduceOp::max ? "-kInfinity" : "kInfinity")
                                                  : (expr.reduce == ReduceOp::max ? "kLowest" : "kHighest");
  std::string step =
      sum ? accumulate(*this, expr.args[0], acc) : fmt::format("{}({}, {})", pick, acc, write(expr.args[0], type));
  if (!tests.empty()) step = fmt::format("{} ? {} : {}", holds, step, acc);

  const Bounds& inner = loops.back().bounds;
  if (together)
    text = fmt::format("{}{}<{}>({}, {}, {})", level, sum ? "sum" : pick, name, inner.lower, inner.upper,
                       lambda(name + " " + acc + ", " + parameter(last, step), step));
  else if (in_lanes)
    text = fmt::format("{}_in_lanes({}, {}, {})", sum ? "sum" : pick, inner.lower, inner.upper,
                       lambda("f32 " + acc + ", " + parameter(last, step), step));
  else
    text = fmt::format("{}({}, {}, {}, {})", fold_of(last), loops.size() > 1 ? acc : nothing, inner.lower, inner.upper,
                       lambda(name + " " + acc + ", " + parameter(last, step), step));

  for (size_t r = loops.size() - 1; r-- > 0;) {
    const bool is_partial = (together || in_lanes) && r + 2 == loops.size();
    const std::string body = !is_partial ? text : sum ? acc + " + " + text : fmt::format("{}({}, {})", pick, acc, text);
    text = fmt::format("{}({}, {}, {}, {})", fold_of(expr.inames[r]), r > 0 ? acc : nothing, loops[r].bounds.lower,
                       loops[r].bounds.upper, lambda(name + " " + acc + ", " + parameter(expr.inames[r], text), body));
  }
  scope_ = scope;
  return {text, 9, type};
}

}  // namespace megalith::codegen
