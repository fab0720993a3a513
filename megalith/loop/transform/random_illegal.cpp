#include "megalith/loop/transform/random_illegal.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>

#include "megalith/base/error.h"
#include "megalith/loop/check.h"
#include "megalith/loop/infer.h"
#include "megalith/loop/isl_limit.h"
#include "megalith/loop/text.h"
#include "megalith/loop/transform/random_dice.h"
#include "megalith/loop/transform/schedule.h"

namespace megalith::loop {

namespace {

// Names that differ from case to case; every size is at least 40, so that what is wrong for large sizes is wrong.
struct Names {
  std::string i, j, k, a, b, t, s;

  explicit Names(Dice& dice) {
    static const std::vector<std::string> endings = {"", "0", "1", "_", "x", "_long_name"};
    const std::string ending = dice.one_of(endings);
    i = "i" + ending;
    j = "j" + ending;
    k = "k" + ending;
    a = "a" + ending;
    b = "b" + ending;
    t = "t" + ending;
    s = "s" + ending;
  }
};

constexpr const char* kSizes = "assume n >= 40 and m >= 40\n";

// u[i] from u[i - back].
std::string recurrence(const Names& names, int back) {
  return fmt::format(
      "input x: f32[n]\ninout u: f32[n]\n{0}{{ [{1}] : {2} <= {1} < n }}\nu[{1}] = u[{1} - {2}] + x[{1}]\n", kSizes,
      names.i, back);
}

// t from x, and y from t read in reverse.
std::string reversed(const Names& names) {
  return fmt::format(
      "input x: f32[n]\noutput y: f32[n]\n{0}{{ [{1}] : 0 <= {1} < n }}\n{{ [{2}] : 0 <= {2} < n }}\n{3}[{1}] = 2 * "
      "x[{1}]\n"
      "y[{2}] = {3}[n - 1 - {2}]\n",
      kSizes, names.i, names.j, names.t);
}

// y from x, point by point.
std::string pointwise(const Names& names) {
  return fmt::format(
      "input x: f32[n, m]\noutput y: f32[n, m]\n{0}{{ [{1}, {2}] : 0 <= {1} < n and 0 <= {2} < m }}\ny[{1}, {2}] = "
      "x[{1}, {2}] "
      "+ 1\n",
      kSizes, names.i, names.j);
}

std::string product(const Names& names) {
  return fmt::format(
      "input x: f32[n, m]\noutput y: f32[n]\n{0}{{ [{1}, {2}] : 0 <= {1} < n and 0 <= {2} < m }}\ny[{1}] = sum({2}, "
      "x[{1}, "
      "{2}])\n",
      kSizes, names.i, names.k);
}

// ---- what tags ask for --------------------------------------------------------------------------------------------------

IllegalCase recurrence_across_threads(Dice& dice) {
  const Names names(dice);
  const int back = 1 + dice.below(3), factor = back + 1 + dice.below(12);
  static const std::vector<std::array<const char*, 3>> tags = {
      {"", ":l.0", "no barrier can stand"}, {"", ":l.2", "no barrier can stand"}, {"", ":lane", "no barrier can stand"},
      {"", ":vec", "tagged vec"},           {":g.0", "", "in another block"},     {":g.2", ":unr", "in another block"}};
  const auto& [outer, inner, reason] = dice.one_of(tags);
  return {"recurrence across threads",
          recurrence(names, back),
          {},
          fmt::format("split {} {} -> {}{} {}{}", names.i, factor, names.a, outer, names.b, inner),
          reason};
}

// A stencil's dependence along time, between blocks: what loopy lets pass.
IllegalCase stencil_across_blocks(Dice& dice) {
  const Names names(dice);
  const int left = dice.below(3), right = left == 0 ? 1 + dice.below(2) : dice.below(3);
  return {
      "stencil across blocks",
      fmt::format(
          "inout u: f32[m, n]\n{0}{{ [{1}, {2}] : 1 <= {1} < m and {3} <= {2} < n - {4} }}\nu[{1}, {2}] = u[{1} - 1, "
          "{2} - {3}] + u[{1} - 1, {2} + {4}]\n",
          kSizes, names.k, names.i, left, right),
      {},
      fmt::format("split {} {} -> {}:g.{} {}:l.0", names.i, 4 + dice.below(13), names.a, dice.below(3), names.b),
      "in another block"};
}

IllegalCase reversed_across_blocks(Dice& dice) {
  const Names names(dice);
  const int factor = 4 + dice.below(13), axis = dice.below(3);
  return {"reversed across blocks",
          reversed(names),
          {},
          fmt::format("split {0} {1} -> {2}:g.{3} {2}i, {4} {1} -> {5}:g.{3} {5}i", names.i, factor, names.a, axis,
                      names.j, names.b),
          "in another block"};
}

IllegalCase private_in_another_thread(Dice& dice) {
  const Names names(dice);
  const int factor = 4 + dice.below(13);
  return {"private in another thread",
          reversed(names),
          {fmt::format("split {0} {1} -> {2} {2}i:l.0, {3} {1} -> {4} {4}i:l.0", names.i, factor, names.a, names.j,
                       names.b)},
          fmt::format("space {} private", names.t),
          "is private, but"};
}

IllegalCase one_axis_twice(Dice& dice) {
  const Names names(dice);
  static const std::vector<std::string> tags = {"l.0", "l.1", "g.0", "g.2", "lane", "w"};
  const std::string tag = dice.one_of(tags);
  return {"one axis twice",
          pointwise(names),
          {fmt::format("split {0} 4 -> {1} {1}i, {2} 8 -> {3} {3}i", names.i, names.a, names.j, names.b)},
          fmt::format("tag {}i {} {}i {}", names.a, tag, names.b, tag),
          "both tagged"};
}

IllegalCase too_many_threads(Dice& dice) {
  const Names names(dice);
  IllegalCase result{"too many threads", pointwise(names), {}, "", "at most 1024"};
  switch (dice.below(3)) {
    case 0: result.wrong = fmt::format("tag {} l.{}", names.i, dice.below(3)); break;
    case 1:
      result.kernel.replace(result.kernel.find("n >= 40"), 7, "n >= 5000");
      result.wrong =
          fmt::format("split {} {} -> {} {}:l.{}", names.i, 1025 + dice.below(2000), names.a, names.b, dice.below(3));
      break;
    default:
      result.reason = "a block would have";
      result.wrong = fmt::format("split {0} {1} -> {2} {2}i:l.0, {3} {4} -> {5} {5}i:l.1", names.i, 33 + dice.below(7),
                                 names.a, names.j, 32 + dice.below(8), names.b);
  }
  return result;
}

IllegalCase too_many_lanes(Dice& dice) {
  const Names names(dice);
  return {"too many lanes",
          pointwise(names),
          {},
          fmt::format("split {} {} -> {} {}:lane", names.i, 33 + dice.below(7), names.a, names.b),
          "where a warp has its"};
}

IllegalCase sum_over_threads(Dice& dice) {
  const Names names(dice);
  static const std::vector<std::string> tags = {"l.0", "l.1", "lane", "w"};
  return {"sum over threads",
          product(names),
          {},
          fmt::format("split {} {} -> {}:{} {}", names.k, 2 + dice.below(30), names.a, dice.one_of(tags), names.b),
          "no thread has a part of a sum"};
}

// ---- the order ----------------------------------------------------------------------------------------------------------

IllegalCase turned_round(Dice& dice) {
  const Names names(dice);
  const int up = 1 + dice.below(3), right = 1 + dice.below(3);
  return {
      "turned round",
      fmt::format(
          "inout u: f32[n, m]\n{0}{{ [{1}, {2}] : {3} <= {1} < n and 0 <= {2} < m - {4} }}\nu[{1}, {2}] = 0.5 * u[{1} "
          "- {3}, {2} + {4}]\n",
          kSizes, names.i, names.j, up, right),
      {},
      dice.chance(50) ? fmt::format("order {} {}", names.j, names.i)
                      : fmt::format("map [{0}, {1}] -> {2} = {1}, {3} = {0}", names.i, names.j, names.a, names.b),
      "would turn that round"};
}

IllegalCase turned_by_a_map(Dice& dice) {
  const Names names(dice);
  const int back = 1 + dice.below(4);
  return {"turned by a map",
          recurrence(names, back),
          {},
          fmt::format("map [{0}] -> {1} = {2} - {0}", names.i, names.a, dice.chance(50) ? "n" : "0"),
          "would turn that round"};
}

IllegalCase fused_too_early(Dice& dice) {
  const Names names(dice);
  return {"fused too early",
          reversed(names),
          {},
          fmt::format("fuse_loops {} {}", names.j, names.i),
          "would turn that round"};
}

IllegalCase moved_before_its_input(Dice& dice) {
  const Names names(dice);
  return {
      "moved before its input", reversed(names), {}, "move insn1 before insn0", "leave it behind what it waits for"};
}

IllegalCase storage_of_two(Dice& dice) {
  const Names names(dice);
  return {
      "storage of two",
      fmt::format(
          "input x: f32[n]\noutput y: f32[n]\n{0}{{ [{1}] : 0 <= {1} < n }}\n{{ [{2}] : 0 <= {2} < n }}\n{{ [{3}] : 0 "
          "<= {3} < n }}\n{4}[{1}] = 2 * x[{1}]\n{5}[{2}] = 3 * x[{2}]\ny[{3}] = {4}[{3}] + {5}[{3}]\n",
          kSizes, names.i, names.j, names.k, names.t, names.s),
      {},
      fmt::format("alias {} {} -> pool", names.t, names.s),
      "share memory"};
}

// ---- kernels that are wrong ---------------------------------------------------------------------------------------------

IllegalCase outside(Dice& dice) {
  const Names names(dice);
  const int by = 1 + dice.below(5);
  static const std::vector<std::string> indices = {"{0} + {1}", "{0} - {1}", "n + {1} - {0}", "2 * {0}",
                                                   "({0} + {1}) * {1}"};
  const std::string index = fmt::format(fmt::runtime(dice.one_of(indices)), names.i, by);
  return {"outside",
          fmt::format("input x: f32[n]\noutput y: f32[n]\n{0}{{ [{1}] : 0 <= {1} < n }}\ny[{1}] = x[{2}]\n", kSizes,
                      names.i, index),
          {},
          dice.chance(50) ? "" : fmt::format("split {} 4 -> {} {}", names.i, names.a, names.b),
          "outside its shape",
          true};
}

IllegalCase written_by_many(Dice& dice) {
  const Names names(dice);
  const bool is_left_out = dice.chance(50);
  return {"written by many",
          fmt::format("input x: f32[n, m]\noutput y: f32[n + m]\n{0}{{ [{1}, {2}] : 0 <= {1} < n and 0 <= {2} < m "
                      "}}\ny[{3}] = x[{1}, "
                      "{2}]  {{inames={1}:{2}}}\n",
                      kSizes, names.i, names.j, is_left_out ? names.i : names.i + " + " + names.j),
          {},
          "",
          is_left_out ? "leave out" : "writes the same element",
          true};
}

IllegalCase read_and_not_written(Dice& dice) {
  const Names names(dice);
  const int first = dice.below(3), last = first == 0 ? 1 + dice.below(3) : dice.below(3);
  return {"read and not written",
          fmt::format("input x: f32[n]\ntemporary {3}: f32[n]\noutput y: f32[n]\n{0}{{ [{1}] : {4} <= {1} < n - {5} "
                      "}}\n{{ [{2}] : 0 "
                      "<= {2} < n }}\n{3}[{1}] = 2 * x[{1}]\ny[{2}] = {3}[{2}]\n",
                      kSizes, names.i, names.j, names.t, first, last),
          {},
          dice.chance(50) ? "" : fmt::format("split {} 4 -> {} {}", names.i, names.a, names.b),
          "wr",
          true};
}

// ---- steps that do not apply --------------------------------------------------------------------------------------------

IllegalCase map_to_a_line(Dice& dice) {
  const Names names(dice);
  const int p = 1 + dice.below(3), q = 1 + dice.below(3), by = dice.below(3);
  return {"map to a line",
          pointwise(names),
          {},
          fmt::format("map [{0}, {1}] -> {2} = {4} * {0} + {5} * {1}, {3} = {6} * {0} + {7} * {1}", names.i, names.j,
                      names.a, names.b, p, q, by * p, by * q),
          "want a bijection"};
}

IllegalCase argmax_split(Dice& dice) {
  const Names names(dice);
  return {"argmax split",
          fmt::format("input x: f32[n, m]\noutput y: i32[n]\n{0}{{ [{1}, {2}] : 0 <= {1} < n and 0 <= {2} < m "
                      "}}\ny[{1}] = argmax({2}, "
                      "x[{1}, {2}])\n",
                      kSizes, names.i, names.k),
          {},
          fmt::format("split {} {} -> {} {}", names.k, 2 + dice.below(9), names.a, names.b),
          "would be lost"};
}

IllegalCase size_that_is_excluded(Dice& dice) {
  const Names names(dice);
  return {"size that is excluded",
          pointwise(names),
          {},
          fmt::format("fix n {}", dice.below(40)),
          "no sizes are as it assumes"};
}

IllegalCase written_twice(Dice& dice) {
  const Names names(dice);
  static const std::vector<std::string> steps = {"substitute {}", "assignment_to_subst {}"};
  std::string kernel = reversed(names);
  kernel.insert(kernel.find("y["), fmt::format("{0}[{1}] = {0}[{1}] + 1\n", names.t, names.i));
  return {
      "written twice", kernel, {}, fmt::format(fmt::runtime(dice.one_of(steps)), names.t), "two instructions assign"};
}

// Names that are taken or unknown, numbers that are none, words too few and too many.
IllegalCase not_a_step(Dice& dice) {
  const Names names(dice);
  static const std::vector<std::string> steps = {
      "split {i} 4 -> {j} {a}",
      "split {i} 4 -> {a} {a}",
      "split {i} 0 -> {a} {b}",
      "split {i} -3 -> {a} {b}",
      "split {i} 4 {a} {b}",
      "split {i} 4 -> {a}",
      "split {i} 99999999999999999999 -> {a} {b}",
      "split {i} four -> {a} {b}",
      "split nobody 4 -> {a} {b}",
      "split {i} 4 -> x {b}",
      "split {i} 4 -> {a}:q.0 {b}",
      "split {i} 4 -> {a} {b} {b}",
      "tag {i}",
      "tag nobody l.0",
      "tag {i} l.3",
      "tag {i} l.0 {j}",
      "untag nobody",
      "order {i} {i}",
      "order {i} nobody",
      "join {i} {i} -> {a}",
      "join {j} {i} -> x",
      "chunk {i} 0 -> {a} {b}",
      "chunk {i} 4 -> {a} {b}",
      "tile {i} {j} 4 -> {a} {b} c d",
      "rename {i} {j}",
      "rename nobody {a}",
      "rename {i} 3{a}",
      "rename {i} sum",
      "duplicate {i} -> {a} in nobody",
      "duplicate {i} -> {j} in insn0",
      "fuse_loops {i} {i}",
      "fuse_loops {i} nobody",
      "fuse_loops {i} {j}",
      "move insn0 before insn7",
      "prefetch x[{i}] -> {a}",
      "prefetch nobody[{i}, {j}] -> {a}",
      "prefetch x[{i}, nobody] -> {a}",
      "prefetch x[{i}, {j}] -> y",
      "prefetch y[{i}, {j}] -> {a}",
      "prefetch x[{i}, {j} -> {a}",
      "precompute x[{i}, {j}] -> {a}",
      "accumulate {i} -> {a}",
      "accumulate nobody -> {a}",
      "reduction_inward {i}",
      "reduction_outward {i}",
      "split_reduction {i} {a}",
      "tree {i} 8 -> {a} {b}",
      "substitute x",
      "substitute nobody",
      "assignment_to_subst y",
      "extract_subst f(q) = q + nobody[{i}]",
      "expand nobody",
      "hoist_factors nobody",
      "space x shared",
      "space nobody shared",
      "privatise x {i}",
      "alias x y -> {a}",
      "pad x 0 1",
      "permute_axes x 0",
      "permute_axes x 0 0",
      "permute_axes x 1 2",
      "split_axis x 2 4",
      "split_axis x 0 0",
      "vector_axis x 2",
      "separate_axis x 5",
      "axes x N0",
      "axes x rows columns",
      "barrier before insn0",
      "barrier before nobody",
      "no_barrier before insn0",
      "no_sync insn0 nobody",
      "assume n <",
      "assume {i} > 3",
      "assume n < 3",
      "fix nobody 3",
      "fix n -1",
      "peel {i} -> {a} where",
      "peel {i} -> {j} where {i} >= 4",
      "peel nobody -> {a} where nobody >= 4",
      "map [{i}] -> {a} = nobody",
      "map [{i}] -> {a} = {i} * {i}",
      "map [{i}] -> {a} = 0",
      "map [{i}, {j}] -> {a} = {i}",
      "fuse nobody p=y",
      "nothing {i}",
      "-> {i}",
      "split",
      "{i}",
      "split {i} 4 -> {a} \"{b}",
  };
  const std::string wrong = fmt::format(fmt::runtime(dice.one_of(steps)), fmt::arg("i", names.i),
                                        fmt::arg("j", names.j), fmt::arg("a", names.a), fmt::arg("b", names.b));
  return {"not a step", pointwise(names), {}, wrong, ""};
}

using Recipe = IllegalCase (*)(Dice&);
constexpr Recipe kRecipes[] = {
    recurrence_across_threads,
    stencil_across_blocks,
    reversed_across_blocks,
    private_in_another_thread,
    one_axis_twice,
    too_many_threads,
    too_many_lanes,
    sum_over_threads,
    turned_round,
    turned_by_a_map,
    fused_too_early,
    moved_before_its_input,
    storage_of_two,
    outside,
    written_by_many,
    read_and_not_written,
    map_to_a_line,
    argmax_split,
    size_that_is_excluded,
    written_twice,
    not_a_step,
    not_a_step,
    not_a_step,
    not_a_step,
};

// A nest beside that has nothing to do with the rest, and what is right to do with it.
void add_bystander(Dice& dice, IllegalCase& illegal) {
  illegal.kernel = "input by: f32[n]\noutput of: f32[n]\n" + illegal.kernel;
  illegal.kernel += "{ [near] : 0 <= near < n }\nof[near] = 2 * by[near]\n";
  static const std::vector<std::string> steps = {
      "split near 4 -> far close",    "split near 8 -> far close:unr", "rename near far", "tag near for",
      "map [near] -> far = near + 3", "split near 4 -> far close:ilp"};
  if (dice.chance(50)) illegal.steps.insert(illegal.steps.begin(), dice.one_of(steps));
}

}  // namespace

int num_illegal_recipes() { return static_cast<int>(std::size(kRecipes)); }

IllegalCase random_illegal(uint64_t seed) {
  Dice dice(seed);
  IllegalCase illegal = kRecipes[seed % std::size(kRecipes)](dice);
  if (dice.chance(50)) add_bystander(dice, illegal);
  return illegal;
}

std::string check_refused(const IllegalCase& illegal) {
  const auto told = [&](const std::string& what) {
    return fmt::format("{}: {}\n{}{}\n{}", illegal.recipe, what, illegal.kernel, fmt::join(illegal.steps, "\n"),
                       illegal.wrong);
  };
  bool is_at_wrong = illegal.is_kernel_wrong;
  try {
    Kernel kernel = parse_kernel(illegal.kernel);
    infer_types(kernel);
    infer_shapes(kernel);
    if (illegal.wrong.empty()) {
      with_isl_limit(kernel.name, [&] { check_kernel(kernel); });
      return told("accepted");
    }
    Schedule schedule(kernel);
    for (const std::string& step : illegal.steps) schedule = schedule.then(step);
    is_at_wrong = true;
    schedule.then(illegal.wrong);
    return told("accepted");
  } catch (const UserError& error) {
    const std::string message = error.what();
    if (!is_at_wrong) return told("what is right was refused: " + message);
    return message.find(illegal.reason) == std::string::npos ? told("refused for another reason: " + message) : "";
  } catch (const std::exception& error) { return told(std::string("no UserError: ") + error.what()); }
}

}  // namespace megalith::loop
