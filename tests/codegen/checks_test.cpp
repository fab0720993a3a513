// What data decides is checked: a subscript outside, a division by zero and whatever a float becomes that is no index end
// a task with a fault, nothing outside is touched, and the interpreter says the same. What is guarded, never evaluated
// or proved costs nothing and is no fault.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "codegen/program.h"
#include "megalith/base/error.h"
#include "megalith/codegen/checks.h"
#include "megalith/loop/bind.h"

namespace megalith::codegen::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// A kernel, and data that is wrong: the message of its fault, without the numbers of the interpreter's.
struct Case {
  const char* name;
  const char* text;
  std::map<std::string, int64_t> sizes;
  std::vector<std::string> tiled;
  std::map<std::string, std::pair<int64_t, int64_t>> values;  // all of them right
  const char* tensor;                                         // of which element `at` becomes `value`
  size_t at;
  double value;
  const char* message;      // of the fault
  const char* interpreted;  // part of the interpreter's
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"gather",
       R"(
         parameter T dynamic
         input ids: i32[T]
         input weight: bf16[V, H]
         output y: f32[T, H]
         { [t, h] : 0 <= t < T and 0 <= h < H }
         y[t, h] = f32(weight[ids[t], h]))",
       {{"T", 4}, {"V", 7}, {"H", 33}},
       {"t"},
       {{"ids", {0, 6}}},
       "ids",
       2,
       7,
       "reads weight[ids[t], h]: ids[t] is 7, below 7",
       "weight[7, 0] outside its shape [7, 33]"},
      {"gather_negative",
       R"(
         input ids: i64[T]
         input weight: f32[V]
         output y: f32[T]
         { [t] : 0 <= t < T }
         y[t] = weight[ids[t]])",
       {{"T", 4}, {"V", 7}},
       {"t"},
       {{"ids", {0, 6}}},
       "ids",
       3,
       -1,
       "reads weight[ids[t]]: ids[t] is -1, below 7",
       "weight[-1] outside its shape [7]"},
      {"gather_far",
       R"(
         input ids: i64[T]
         input weight: f32[V, H]
         output y: f32[T, H]
         { [t, h] : 0 <= t < T and 0 <= h < H }
         y[t, h] = weight[ids[t], h])",
       {{"T", 4}, {"V", 7}, {"H", 5}},
       {"t"},
       {{"ids", {0, 6}}},
       "ids",
       0,
       1099511627776.0,
       "ids[t] is 1099511627776, below 7",
       "weight[1099511627776, 0]"},
      // As large as it is today, not as it may become.
      {"gather_today",
       R"(
         parameter T dynamic
         input x: f32[T, H]
         input rows: i32[R]
         output y: f32[R, H]
         { [r, h] : 0 <= r < R and 0 <= h < H }
         y[r, h] = x[rows[r], h])",
       {{"T", 9}, {"R", 3}, {"H", 16}},
       {"r"},
       {{"rows", {0, 3}}},
       "rows",
       1,
       4,
       "rows[r] is 4, below 4",
       "x[4, 0] outside its shape [4, 16]"},
      {"gather_in_a_sum",
       R"(
         input ids: i32[K]
         input weight: f32[V]
         output y: f32[T]
         { [t, k] : 0 <= t < T and 0 <= k < K }
         y[t] = sum(k, weight[ids[k]] * t))",
       {{"T", 2}, {"V", 7}, {"K", 40}},
       {"t"},
       {{"ids", {0, 6}}},
       "ids",
       33,
       9,
       "weight[ids[k]]: ids[k] is 9, below 7",
       "weight[9] outside"},
      {"scatter",
       R"(
         input x: f32[T, H]
         input rows: i32[T]
         inout y: f32[V, H]
         { [t, h] : 0 <= t < T and 0 <= h < H }
         y[rows[t], h] = x[t, h])",
       {{"T", 4}, {"V", 7}, {"H", 21}},
       {"t"},
       {{"rows", {0, 6}}},
       "rows",
       0,
       7,
       "writes y[rows[t], h]: rows[t] is 7, below 7",
       "y[7, 0] outside its shape [7, 21]"},
      {"pages",
       R"(
         input x: f32[T, H]
         input page_table: i32[R, Q]
         input request: i32[T]
         input position: i32[T]
         inout cache: bf16[P, B, H]
         { [t, h] : 0 <= t < T and 0 <= h < H }
         cache[page_table[request[t], position[t] // B], position[t] mod B, h] = x[t, h])",
       {{"T", 3}, {"H", 17}, {"R", 2}, {"Q", 4}, {"P", 6}, {"B", 8}},
       {"h"},
       {{"page_table", {0, 5}}, {"request", {0, 1}}, {"position", {0, 31}}},
       "position",
       1,
       32,
       "reads page_table[request[t], position[t] // 8]: position[t] // 8 is 4, below 4",
       "outside its shape [2, 4]"},
      {"pages_of_nobody",
       R"(
         input page_table: i32[R, Q]
         input request: i32[T]
         input cache: f32[P, B]
         output y: f32[T, B]
         { [t, b, q] : 0 <= t < T and 0 <= b < B and 0 <= q < Q }
         y[t, b] = sum(q, cache[page_table[request[t], q], b]))",
       {{"T", 3}, {"R", 2}, {"Q", 4}, {"P", 6}, {"B", 8}},
       {"t"},
       {{"page_table", {0, 5}}, {"request", {0, 1}}},
       "request",
       2,
       2,
       "reads page_table[request[t], q]: request[t] is 2, below 2",
       "outside its shape [2, 4]"},
      {"float_index",
       R"(
         input x: f32[T]
         input weight: f32[V]
         output y: f32[T]
         { [t] : 0 <= t < T }
         y[t] = weight[i32(x[t])])",
       {{"T", 4}, {"V", 7}},
       {"t"},
       {},
       "x",
       1,
       3e9,
       "weight[i32(x[t])]: i32(x[t]) is 2147483647, below 7",
       "weight[2147483647] outside"},
      {"nan_index",
       R"(
         input x: f32[T]
         input weight: f32[V]
         output y: f32[T]
         { [t] : 0 <= t < T }
         y[t] = weight[i64(x[t])])",
       {{"T", 4}, {"V", 7}},
       {"t"},
       {},
       "x",
       2,
       kNaN,
       "i64(x[t]) is -9223372036854775808, below 7",
       "weight[-9223372036854775808] outside"},
      {"divides",
       R"(
         input a: i32[T]
         input b: i32[T]
         output y: i32[T]
         { [t] : 0 <= t < T }
         y[t] = a[t] // b[t])",
       {{"T", 4}},
       {"t"},
       {{"a", {-9, 9}}, {"b", {1, 5}}},
       "b",
       3,
       0,
       "divides a[t] // b[t]: b[t] is 0, below -1",
       "floor division by zero"},
      {"remainder",
       R"(
         input a: i64[T]
         input b: i64[T]
         output y: i64[T]
         { [t] : 0 <= t < T }
         y[t] = a[t] mod (b[t] - 2))",
       {{"T", 4}},
       {"t"},
       {{"a", {-9, 9}}, {"b", {3, 5}}},
       "b",
       0,
       2,
       "divides a[t] mod (b[t] - 2): b[t] - 2 is 0",
       "floor division by zero"},
      // No data, but no affine form either: nothing else proves it.
      {"product_of_inames",
       R"(
         input x: f32[V]
         input n: i32[1]
         output y: f32[I, J]
         { [i, j] : 0 <= i < I and 0 <= j < J }
         y[i, j] = x[i * j + n[0]])",
       {{"V", 13}, {"I", 4}, {"J", 5}},
       {"i"},
       {{"n", {0, 0}}},
       "n",
       0,
       1,
       "x[i * j + n[0]]: i * j + n[0] is 13, below 13",
       "x[13] outside its shape [13]"},
  };
  return all;
}

Spec spec_of_case(const Case& one) { return {one.name, one.text, one.sizes, one.tiled, one.values}; }

const Program& program() {
  static const Program* compiled = [] {
    std::vector<Spec> specs;
    for (const Case& one : cases()) specs.push_back(spec_of_case(one));
    return new Program(specs);
  }();
  return *compiled;
}

// Of the case that looks at what there is today: 4 rows of 9.
std::map<std::string, int64_t> sizes_of(const Case& one) {
  return std::string(one.name) == "gather_today" ? std::map<std::string, int64_t>{{"T", 4}}
                                                 : std::map<std::string, int64_t>{};
}

loop::Arrays with_outputs(const Spec& spec, loop::Arrays arrays) {
  const graph::LoweredKernel lowered = lower(spec);
  const loop::Kernel bound = loop::bind(lowered.kernel, lowered.binding);
  for (const loop::TensorArgument& tensor : bound.tensors) {
    if (tensor.role != loop::Role::output) continue;
    std::vector<int64_t> shape;
    for (const loop::Expr& extent : lowered.kernel.find_tensor(tensor.name)->shape)
      shape.push_back(spec.sizes.contains(extent.name) ? spec.sizes.at(extent.name) : 1);
    arrays[tensor.name] = loop::Array::zeros(shape);
  }
  return arrays;
}

std::string interpreted(const Spec& spec, const std::map<std::string, int64_t>& sizes, loop::Arrays arrays) {
  graph::LoweredKernel lowered = lower(spec);
  for (const auto& [size, value] : sizes) lowered.binding.sizes[size] = value;
  try {
    loop::interpret(lowered.kernel, lowered.binding, arrays);
  } catch (const UserError& error) { return error.what(); }
  return "";
}

std::string run(const Program& program, const std::string& name, loop::Arrays& arrays,
                const std::map<std::string, int64_t>& sizes = {}) {
  try {
    program.run(name, arrays, {}, sizes);
  } catch (const UserError& error) { return error.what(); }
  return "";
}

class Checked : public ::testing::TestWithParam<size_t> {};
INSTANTIATE_TEST_SUITE_P(Kernels, Checked, ::testing::Range(size_t{0}, cases().size()),
                         [](const auto& number) { return cases()[number.param].name; });

TEST_P(Checked, IsAFaultAndTheInterpretersError) {
  const Case& one = cases()[GetParam()];
  const Spec spec = spec_of_case(one);
  const loop::Arrays right = with_outputs(spec, random_arrays(spec, 1));
  loop::Arrays wrong = right;
  wrong.at(one.tensor).values.at(one.at) = one.value;
  EXPECT_THAT(interpreted(spec, sizes_of(one), wrong), HasSubstr(one.interpreted));
  EXPECT_THAT(run(program(), one.name, wrong, sizes_of(one)), HasSubstr(one.message));
}

TEST_P(Checked, RightDataIsNoFault) {
  const Case& one = cases()[GetParam()];
  EXPECT_LT(difference(program(), one.name, 2, {}, sizes_of(one)), 1);
  EXPECT_LT(difference(program(), one.name, 3, {{one.tiled[0], 2}}, sizes_of(one)), 1);
}

// Also where it is an inner subscript that is outside, or a divisor: the outer one is right then.
TEST(Checks, NothingIsWrittenElsewhereInstead) {
  const std::vector<Spec> specs = {{"by_pages",
                                    R"(
         input x: f32[T]
         input pages: i32[R]
         input request: i32[T]
         inout y: f32[P]
         { [t] : 0 <= t < T }
         y[pages[request[t]]] = x[t])",
                                    {{"T", 3}, {"R", 2}, {"P", 6}},
                                    {"t"},
                                    {{"pages", {0, 5}}, {"request", {2, 9}}}},
                                   {"by_quotients",
                                    R"(
         input x: f32[T]
         input b: i32[T]
         inout y: f32[P]
         { [t] : 0 <= t < T }
         y[3 // b[t]] = x[t])",
                                    {{"T", 3}, {"P", 6}},
                                    {"t"},
                                    {{"b", {0, 0}}}}};
  const Program elsewhere(specs);
  for (const Spec& spec : specs) {
    loop::Arrays arrays = random_arrays(spec, 1);
    const std::vector<double> before = arrays.at("y").values;
    EXPECT_THROW(elsewhere.run(spec.name, arrays), UserError) << spec.name;
    EXPECT_EQ(arrays.at("y").values, before) << spec.name;
  }
}

TEST(Checks, NothingIsWrittenOutside) {
  const Spec spec = program().spec("scatter");
  loop::Arrays arrays = random_arrays(spec, 1);
  for (size_t t = 0; t < 4; ++t) arrays.at("rows").values[t] = t == 0 ? 1e9 : t == 1 ? -1 : t == 2 ? 7 : 123;
  const std::vector<double> before = arrays.at("y").values;
  EXPECT_THROW(program().run("scatter", arrays), UserError);
  EXPECT_EQ(arrays.at("y").values, before) << "a row that is outside became another one";
}

// The same on what has no compiler's help: other instruction sets, other compilers, other optimisations.
TEST(Checks, HoldOnOtherMachines) {
  std::vector<Spec> specs;
  for (const Case& one : cases()) specs.push_back(spec_of_case(one));
  on_other_machines(specs, [](const Program& there, const std::string& machine) {
    for (const Case& one : cases()) {
      const Spec spec = spec_of_case(one);
      loop::Arrays wrong = with_outputs(spec, random_arrays(spec, 1));
      wrong.at(one.tensor).values.at(one.at) = one.value;
      EXPECT_THAT(run(there, one.name, wrong, sizes_of(one)), HasSubstr(one.message)) << machine;
    }
  });
}

// ---- where there is nothing to be said ---------------------------------------------------------

// The data is wrong at every place, and none of it is used.
TEST(Checks, WhatIsNotEvaluatedIsNoFault) {
  const std::vector<Spec> specs = {
      {"guarded",
       R"(
         input ids: i32[T]
         input w: f32[V]
         output y: f32[T]
         { [t] : 0 <= t < T }
         y[t] = if(ids[t] >= 0 and ids[t] < V, w[ids[t]], -1))",
       {{"T", 5}, {"V", 3}},
       {"t"},
       {{"ids", {100, 200}}}},
      {"under_a_condition",
       R"(
         input ids: i32[T]
         input w: f32[V, H]
         inout y: f32[T, H]
         { [t, h] : 0 <= t < T and 0 <= h < H }
         y[t, h] = w[ids[t], h]  {if=ids[t] < V})",
       {{"T", 5}, {"V", 3}, {"H", 40}},
       {"t"},
       {{"ids", {100, 200}}}},
      {"behind_another_condition",
       R"(
         input ids: i32[T]
         input mask: i32[V]
         inout y: f32[T, H]
         { [t, h] : 0 <= t < T and 0 <= h < H }
         y[t, h] = 1  {if=ids[t] < V and mask[ids[t]] > 0})",
       {{"T", 5}, {"V", 3}, {"H", 40}},
       {"t"},
       {{"ids", {100, 200}}, {"mask", {1, 1}}}},
      {"behind_a_bound",
       R"(
         input ids: i32[T]
         input length: i32[V]
         input x: f32[H]
         output y: f32[T]
         { [t, h] : 0 <= t < T and 0 <= h < H }
         y[t] = sum(h, x[h], ids[t] < V and h < length[ids[t]]))",
       {{"T", 5}, {"V", 3}, {"H", 40}},
       {"t"},
       {{"ids", {100, 200}}, {"length", {1, 9}}}},
      {"sum_of_nothing",
       R"(
         input ids: i32[T]
         input w: f32[V, T]
         output y: f32[T]
         { [t] : 0 <= t < T }
         { [k] : t < k < 2 }
         y[t] = sum(k, w[ids[t], k]))",
       {{"T", 5}, {"V", 3}},
       {"t"},
       {{"ids", {100, 200}}}},
      {"bounded_by_data",
       R"(
         input ids: i32[T]
         input n: i32[T]
         input w: f32[V, H]
         output y: f32[T]
         { [t, h] : 0 <= t < T and 0 <= h < H }
         y[t] = sum(h, w[ids[t], h], h < n[t]))",
       {{"T", 5}, {"V", 3}, {"H", 20}},
       {"t"},
       {{"ids", {100, 200}}, {"n", {-3, 0}}}},
      {"no_rows_today",
       R"(
         parameter T dynamic
         input sel: i32[1]
         input w: f32[V, H]
         output y: f32[T, H]
         { [t, h] : 0 <= t < T and 0 <= h < H }
         y[t, h] = w[sel[0], h])",
       {{"T", 5}, {"V", 3}, {"H", 20}},
       {"h"},
       {{"sel", {100, 200}}}},
  };
  const Program unused(specs);
  for (const Spec& spec : specs) {
    loop::Arrays arrays = with_outputs(spec, random_arrays(spec, 4));
    if (spec.name == "sum_of_nothing") arrays.at("ids").values[0] = 1;  // of the one row that has a term
    const std::map<std::string, int64_t> sizes =
        spec.name == "no_rows_today" ? std::map<std::string, int64_t>{{"T", 0}} : std::map<std::string, int64_t>{};
    EXPECT_EQ(interpreted(spec, sizes, arrays), "") << spec.name;
    EXPECT_EQ(run(unused, spec.name, arrays, sizes), "") << spec.name;
  }
}

// Rows that are tiled to nothing by other bounds evaluate nothing either.
TEST(Checks, ATileWithoutPointsIsNoFault) {
  const Spec spec = {"triangle",
                     R"(
         input ids: i32[I]
         input w: f32[V, J]
         output y: f32[I, J]
         { [i, j] : 0 <= i < I and 0 <= j <= i and j < J }
         y[i, j] = w[ids[i], j])",
                     {{"I", 6}, {"J", 6}, {"V", 3}},
                     {"i", "j"},
                     {{"ids", {0, 2}}}};
  const Program triangle({spec});
  loop::Arrays arrays = random_arrays(spec, 1);
  arrays.at("ids").values[0] = 77;  // row 0 has one column, which the second tile does not have
  std::vector<float> w(18), y(36);
  std::vector<runtime::i32> ids(6, 0);
  ids[0] = 77;
  runtime::TaskRecord task{};
  task.begin[0] = 0, task.end[0] = 6, task.begin[1] = 3, task.end[1] = 6;
  EXPECT_NO_THROW(triangle.launch("triangle", {ids.data(), w.data(), y.data()}, {task}));
  task.begin[1] = 0;
  EXPECT_THROW(triangle.launch("triangle", {ids.data(), w.data(), y.data()}, {task}), UserError);
}

std::vector<CheckText> checks_in(const std::string& text, const std::map<std::string, int64_t>& sizes) {
  const graph::LoweredKernel lowered = lower({"k", text, sizes, {}, {}});
  loop::Kernel bound = loop::bind(lowered.kernel, lowered.binding);
  return add_checks(bound);
}

TEST(Checks, WhatIsProvedNeedsNone) {
  const char* const kProved[] = {
      "y[t] = w[ids[t] mod V]",
      "y[t] = w[min(max(ids[t], 0), V - 1)]",
      "y[t] = w[argmax(v, w[v])]",
      "y[t] = w[if(ids[t] > 3, V - 1, 0)]",
      "y[t] = w[(ids[t] mod 4) * 2 + (ids[t] // 5) mod 2]",
      "y[t] = w[max(0, min(ids[t], 3)) + 1]",
      "y[t] = w[abs(ids[t] mod 3 - 2)]",
      "y[t] = w[t // 2]",
      "y[t] = ids[t] // 4 + ids[t] mod V",
      "y[t] = ids[t] // (small[t] mod 3 + 1)",
      "y[t] = w[i32(small[t]) + 128 - 128 - i32(small[t]) + 3] {if=t < 1}",
  };
  for (const char* line : kProved) {
    const bool cancels = std::string(line).find("128") != std::string::npos;  // intervals do not see that
    const std::vector<CheckText> checks = checks_in(
        std::string(
            "input ids: i64[T]\ninput small: i8[T]\ninput w: f32[V]\noutput y: f32[T]\n{ [t, v] : 0 <= t < T and "
            "0 <= v < V }\n") +
            line,
        {{"T", 9}, {"V", 9}});
    EXPECT_EQ(checks.size(), cancels ? 1u : 0u) << line << (checks.empty() ? "" : ": " + checks[0].what);
  }
  const char* const kNotProved[] = {
      "y[t] = w[ids[t]]",
      "y[t] = w[ids[t] mod (V + 1)]",
      "y[t] = w[min(ids[t], V - 1)]",
      "y[t] = w[max(ids[t], 0)]",
      "y[t] = w[argmax(v, w[v]) + 1]",
      "y[t] = w[small[t]]",
      "y[t] = w[t * t]",
      "y[t] = 7 // ids[t]",
      "y[t] = 7 mod small[t]",
  };
  for (const char* line : kNotProved)
    EXPECT_EQ(
        checks_in(std::string("input ids: i64[T]\ninput small: i8[T]\ninput w: f32[V]\noutput y: f32[T]\n{ [t, v] : "
                              "0 <= t < T and 0 <= v < V }\n") +
                      line,
                  {{"T", 9}, {"V", 9}})
            .size(),
        1u)
        << line;
}

// A row's check stands outside of the loop over its columns, on either target.
TEST(Checks, AreMadeOnceARow) {
  for (const char* target : {"cpu", "cuda"}) {
    const std::string text = emit(target, {lower(spec_of_case(cases()[0]))}, "a test").text;
    const std::string body = text.substr(text.rfind("// ---- gather"));
    EXPECT_THAT(body, HasSubstr("const i64 ids_t = inside(args.faults, ids[t], 7, 0);"));
    EXPECT_THAT(body, HasSubstr("weight[ids_t * 33 + h]"));
  }
}

TEST(Checks, WholeNumbersDoWhatTheTableSays) {
  const Spec spec = {"whole",
                     R"(
         input a: i64[I]
         input b: i64[I]
         input x: f32[I]
         output quotient: i64[I]
         output rest: i64[I]
         output narrow: i32[I]
         output byte: i8[I]
         output cast: i64[I]
         { [i] : 0 <= i < I }
         quotient[i] = a[i] // b[i]
         rest[i] = a[i] mod b[i]
         narrow[i] = a[i]
         byte[i] = a[i]
         cast[i] = x[i])",
                     {{"I", 6}},
                     {"i"},
                     {{"b", {1, 1}}}};
  const Program whole({spec});
  constexpr int64_t kLowest = std::numeric_limits<int64_t>::min(), kHighest = std::numeric_limits<int64_t>::max();
  std::vector<int64_t> a = {kLowest, 7, -7, 7, -7, 300}, b = {-1, 2, 2, -2, -2, 7}, quotient(6), rest(6), cast(6);
  std::vector<float> x = {NAN, INFINITY, -INFINITY, 1e20f, -3.9f, 3.9f};
  std::vector<runtime::i32> narrow(6);
  std::vector<signed char> byte(6);
  runtime::TaskRecord task{};
  task.end[0] = 6;
  whole.launch("whole",
               {a.data(), b.data(), x.data(), quotient.data(), rest.data(), narrow.data(), byte.data(), cast.data()},
               {task});
  EXPECT_EQ(quotient, (std::vector<int64_t>{kLowest, 3, -4, -4, 3, 42}));
  EXPECT_EQ(rest, (std::vector<int64_t>{0, 1, 1, -1, -1, 6}));
  EXPECT_EQ(narrow, (std::vector<runtime::i32>{std::numeric_limits<runtime::i32>::min(), 7, -7, 7, -7, 300}));
  EXPECT_EQ(byte, (std::vector<signed char>{-128, 7, -7, 7, -7, 127}));
  EXPECT_EQ(cast, (std::vector<int64_t>{kLowest, kHighest, kLowest, kHighest, -3, 3}));
}

}  // namespace
}  // namespace megalith::codegen::testing
