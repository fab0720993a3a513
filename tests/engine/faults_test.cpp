// Data that leads outside, through the whole of compilation: ids that another node made, operators of Megalith's own and
// of a script's, bodies of theirs, tables of pages. Each is an error with the node, the tensor, the value and the extent in
// it, on one worker and on several, and right data runs afterwards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "megalith/base/error.h"
#include "megalith/engine/graph_memory.h"
#include "megalith/graph/declare.h"
#include "megalith/graph/interpret.h"
#include "megalith/graph/lower.h"
#include "megalith/graph/sizes.h"
#include "megalith/jit/compile.h"
#include "megalith/ops/registry.h"
#include "megalith/optimize/schedule.h"
#include "megalith/runtime/batch.h"
#include "megalith/runtime/program.h"

namespace megalith::engine {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Bench {
 public:
  explicit Bench(graph::Graph graph, int num_workers = 2)
      : graph_(std::move(graph)),
        memory_(graph_),
        kernel_(jit::compile(graph_, {.num_workers = num_workers})),
        program_(graph_, kernel_, memory_.addresses()),
        launcher_(program_.entry(), program_.image()) {}

  std::string run() {
    try {
      launcher_.run();
    } catch (const UserError& error) { return error.what(); }
    return "";
  }
  std::string interpreted() {
    try {
      loop::Arrays arrays = memory_.arrays();
      graph::interpret(graph_, optimize::lower(graph_, "cpu"), arrays, 1);
    } catch (const UserError& error) { return error.what(); }
    return "";
  }
  GraphMemory& memory() { return memory_; }
  const jit::CompiledKernel& kernel() const { return kernel_; }

 private:
  graph::Graph graph_;
  GraphMemory memory_;
  jit::CompiledKernel kernel_;
  runtime::Program program_;
  runtime::Launcher launcher_;
};

std::vector<double> ones(size_t count) { return std::vector<double>(count, 1); }

// Token ids are the largest of more columns than the table has rows.
TEST(Faults, IdsThatANodeMade) {
  graph::Graph graph(ops::builtin(), "made");
  const auto x = graph.state("x", DType::f32, {2, 64}), table = graph.state("table", DType::f32, {16, 40});
  const auto chunks = graph.add("argmax_partial", "partial", {x}, {.sizes = {{"C", 4}, {"L", 16}}});
  const auto best = graph.add("argmax_reduce", "best", {chunks[0], chunks[1]});
  graph.add("embedding", "rows", {best[0], table}, {.outputs = {{"y", graph.state("y", DType::f32, {2, 40})}}});
  Bench bench(std::move(graph));
  std::vector<double> columns(128);
  columns[5] = columns[64 + 63] = 1;
  bench.memory().set("x", columns);
  EXPECT_THAT(bench.interpreted(), HasSubstr("weight[63, 0] outside its shape [16, 40]"));
  for (int round = 0; round < 3; ++round)
    EXPECT_THAT(bench.run(), AllOf(HasSubstr("[launch] made: task \"rows"), HasSubstr("embedding of "),
                                   HasSubstr("weight \"table\""), HasSubstr("reads weight[ids[t], h] outside"),
                                   HasSubstr("is 63, allowed 0 <= index < 16")));
  columns[64 + 63] = 0;
  bench.memory().set("x", columns);
  bench.memory().set("table", ones(16 * 40));
  EXPECT_EQ(bench.run(), "");
  EXPECT_EQ(bench.memory().array("y").values, ones(80));
}

// Integer inputs of operators that have one, and the value from which on it is wrong: of sizes that differ, so that no
// other extent is taken for it.
struct Led {
  const char* op;
  std::map<std::string, int64_t> sizes;
  const char* operand;
  double wrong;
  const char* message;
  bool interpreted = true;  // by the loop kernel as well, which cuts off what has no chunk
};
const Led kLed[] = {
    {"embedding", {{"T", 3}, {"V", 7}, {"H", 64}}, "ids", 7, "ids[t] is 7, allowed 0 <= index < 7"},
    {"dequantize_embedding",
     {{"T", 3}, {"V", 7}, {"H", 64}, {"G", 2}, {"L", 32}},
     "ids",
     -1,
     "is -1, allowed 0 <= index < 7"},
    {"embedding_rmsnorm_parts", {{"T", 3}, {"V", 7}, {"C", 2}, {"L", 32}}, "ids", 8, "is 8, allowed 0 <= index < 7"},
    {"gather_rows", {{"T", 5}, {"R", 3}, {"H", 64}}, "rows", 5, "rows[r] is 5, allowed 0 <= index < 5"},
    {"rope",
     {{"T", 3}, {"A", 2}, {"M", 8}, {"W", 8}, {"S", 10}},
     "position",
     10,
     "position[t] is 10, allowed 0 <= index < 10"},
    {"rope", {{"T", 3}, {"A", 2}, {"M", 8}, {"W", 16}, {"S", 10}}, "position", -3, "is -3, allowed 0 <= index < 10"},
    {"slice_at",
     {{"S", 40}, {"R", 3}, {"B", 36}, {"T", 5}},
     "begin",
     38,
     "begin[0] + t is 40, allowed 0 <= index < 40"},
    {"kv_append",
     {{"T", 2}, {"G", 2}, {"D", 8}, {"R", 3}, {"Q", 2}, {"P", 5}, {"B", 4}},
     "page_table",
     5,
     "is 5, allowed 0 <= index < 5"},
    {"kv_append",
     {{"T", 2}, {"G", 2}, {"D", 8}, {"R", 3}, {"Q", 2}, {"P", 5}, {"B", 4}},
     "request",
     3,
     "request[t] is 3, allowed 0 <= index < 3"},
    {"kv_append",
     {{"T", 2}, {"G", 2}, {"D", 8}, {"R", 3}, {"Q", 2}, {"P", 5}, {"B", 4}},
     "position",
     8,
     "position[t] // 4 is 2, allowed 0 <= index < 2"},
    {"attention_partial",
     {{"T", 2}, {"G", 2}, {"M", 1}, {"D", 8}, {"P", 5}, {"B", 4}, {"R", 3}, {"Q", 2}, {"C", 2}, {"L", 4}},
     "page_table",
     77,
     "follows page_table outside: index page_table is 77, allowed 0 <= index < 5"},
    {"attention_partial",
     {{"T", 2}, {"G", 2}, {"M", 1}, {"D", 8}, {"P", 5}, {"B", 4}, {"R", 3}, {"Q", 2}, {"C", 2}, {"L", 4}},
     "request",
     -1,
     "index request is -1, allowed 0 <= index < 3"},
    {"attention_partial",
     {{"T", 2}, {"G", 2}, {"M", 1}, {"D", 8}, {"P", 5}, {"B", 4}, {"R", 3}, {"Q", 2}, {"C", 2}, {"L", 4}},
     "position",
     8,
     "index position is 8, allowed 0 <= index < 8",
     false},
    {"attention_merge",
     {{"T", 2}, {"A", 2}, {"D", 8}, {"C", 3}, {"L", 4}},
     "position",
     12,
     "index position is 12, allowed 0 <= index < 12",
     false},
    {"rope_attention",
     {{"T", 2},
      {"G", 2},
      {"M", 2},
      {"E", 4},
      {"H", 8},
      {"W", 8},
      {"N", 16},
      {"S", 16},
      {"P", 3},
      {"B", 4},
      {"R", 2},
      {"Q", 4},
      {"F", 1}},
     "position",
     16,
     "position[t] is 16, allowed 0 <= index < 16"},
    {"pages_of", {{"I", 4}, {"R", 3}, {"P", 10}, {"Q", 7}}, "first_page", 99, "allowed 0 <= index < 10"},
};

// With two that a script declares: a subscript adds to what data says, and a condition guards one.
std::shared_ptr<const graph::Registry> operators() {
  auto registry = std::make_shared<graph::Registry>(*ops::builtin());
  registry->add(graph::declare({.name = "slice_at",
                                .doc = "ids[t] = tokens[begin[0] + t]",
                                .text = R"(
                                  parameter B
                                  input tokens: i32[S]
                                  input begin: i32[R]
                                  output ids: i32[T]
                                  { [t] : 0 <= t < T }
                                  ids[t] = tokens[begin[0] + t])",
                                .index = {{"begin", "B"}},
                                .tests = {{{"S", 40}, {"R", 3}, {"B", 36}, {"T", 5}}}}));
  registry->add(graph::declare({.name = "pages_of",
                                .doc = "the pages of each request, where it has that many",
                                .text = R"(
                                  input first_page: i32[I]
                                  input pages: i32[P]
                                  output page_table: i32[R, Q]
                                  { [r, q] : 0 <= r < R and 0 <= q < Q and r + 1 < I }
                                  page_table[r, q] = pages[first_page[r] + q]  {if=first_page[r] + q < first_page[r + 1]})",
                                .index = {{"first_page", "P"}},
                                .tests = {{{"I", 4}, {"R", 3}, {"P", 10}, {"Q", 7}}}}));
  return registry;
}

/// A graph of one such operator, whose operands are states.
graph::Graph graph_of(const char* name, const std::map<std::string, int64_t>& sizes) {
  const auto registry = operators();
  const graph::Operator& op = registry->get(name);
  graph::Graph graph(registry, "one operator");
  std::vector<graph::TensorId> inputs;
  graph::NodeOptions options;
  for (const std::string& size : op.extra_sizes) options.sizes[size] = sizes.at(size);
  for (const graph::Operand& operand : op.operands) {
    const graph::TensorId id = graph.state(operand.name, operand.dtype, graph::operand_shape(op, operand, {sizes, {}}));
    if (operand.role == loop::Role::output)
      options.outputs[operand.name] = id;
    else
      inputs.push_back(id);
  }
  graph.add(op.name, "node", inputs, options);
  return graph;
}

class LedOutside : public ::testing::TestWithParam<size_t> {};
INSTANTIATE_TEST_SUITE_P(Operators, LedOutside, ::testing::Range(size_t{0}, std::size(kLed)), [](const auto& number) {
  return std::string(kLed[number.param].op) + "_" + kLed[number.param].operand + std::to_string(number.param);
});

TEST_P(LedOutside, IsAnError) {
  const Led& led = kLed[GetParam()];
  Bench bench(graph_of(led.op, led.sizes));
  std::mt19937_64 random(1);
  // Zeros lead nowhere wrong.
  const std::string right = bench.run();
  EXPECT_EQ(right, "");
  std::vector<double> values = bench.memory().array(led.operand).values;
  for (double& value : values) value = led.wrong;
  // Where rows end is below where they begin then, and nothing is looked up.
  if (std::string(led.operand) == "first_page") std::iota(values.begin(), values.end(), led.wrong);
  bench.memory().set(led.operand, values);
  EXPECT_THAT(bench.run(), AllOf(HasSubstr("task \"node"), HasSubstr(led.op), HasSubstr(led.message)));
  if (led.interpreted) { EXPECT_THAT(bench.interpreted(), HasSubstr("outside its shape")); }
  bench.memory().set(led.operand, std::vector<double>(values.size()));
  EXPECT_EQ(bench.run(), "");
}

// An operator of a script, with a body of its own that knows nothing of checks.
TEST(Faults, OperatorsOfAScript) {
  const std::string loops = R"(
      input ids: i32[T]
      input slot: i32[T]
      input w: f32[V, H]
      output y: f32[S, H]
      { [t, h] : 0 <= t < T and 0 <= h < H }
      y[slot[t], h] = 2 * w[ids[t], h])";
  const std::string body = R"(
      void doubled_row(const auto& task) {
        for (i64 t = 0; t < task.T; ++t)
          for (i64 h = task.h_begin; h < task.h_end; ++h) task.y(task.slot(t), h) = 2 * task.w(task.ids(t), h);
      })";
  for (const bool has_body : {false, true}) {
    graph::Declaration declaration{.name = "doubled_row",
                                   .doc = "rows, doubled",
                                   .text = loops,
                                   .axes = {{"h", 1}},
                                   .index = {{"ids", "V"}, {"slot", "S"}},
                                   .tests = {{{"T", 2}, {"V", 3}, {"H", 4}, {"S", 5}}}};
    if (has_body) declaration.bodies.push_back({.target = "cpu", .text = body});
    auto registry = std::make_shared<graph::Registry>(*ops::builtin());
    registry->add(graph::declare(declaration));
    graph::Graph graph(registry, "script");
    const auto ids = graph.state("ids", DType::i32, {3}), slot = graph.state("slot", DType::i32, {3}),
               w = graph.state("w", DType::f32, {4, 16});
    graph.add("doubled_row", "node", {ids, slot, w}, {.outputs = {{"y", graph.state("y", DType::f32, {6, 16})}}});
    Bench bench(std::move(graph));
    bench.memory().set("w", ones(64));
    bench.memory().set("slot", {0, 2, 4});
    EXPECT_EQ(bench.run(), "");
    std::vector<double> wanted(96);
    for (const size_t row : {0, 2, 4}) std::fill_n(wanted.begin() + static_cast<long>(row) * 16, 16, 2);
    EXPECT_EQ(bench.memory().array("y").values, wanted);

    bench.memory().set("ids", {0, 1 << 30, 0});
    EXPECT_THAT(bench.run(), AllOf(HasSubstr("doubled_row of"), HasSubstr("is 1073741824, allowed 0 <= index < 4")));
    bench.memory().set("ids", {0, 1, 2});
    bench.memory().set("slot", {-7, -7, -7});
    bench.memory().set("y", std::vector<double>(96));
    EXPECT_THAT(bench.run(), HasSubstr("is -7, allowed 0 <= index < 6"));
    EXPECT_EQ(bench.memory().array("y").values, std::vector<double>(96)) << "a row that is nowhere was written";
  }
}

// What the model's loop keeps to itself can be reached by a graph as well.
TEST(Faults, TablesOfTheBatchBlock) {
  Bench bench(graph_of("sampling", {{"R", 2}, {"V", 50}, {"N", 3}, {"S", 20}, {"E", 2}, {"M", 2}}));
  std::vector<double> penalties(24);
  for (size_t n = 0; n < 3; ++n) penalties[n * 8 + 3] = 1.5;  // repetition
  bench.memory().set("sampling_f32", penalties);
  bench.memory().set("sample_request", {0, 2});  // two rows of one would be its last token and a draft
  EXPECT_EQ(bench.run(), "");
  // The reference looks at what it needs: with penalties not at the largest logit, nor at where the prompt ends.
  const auto wrong = [&](const char* tensor, size_t at, double value, bool interpreted) {
    const std::vector<double> before = bench.memory().array(tensor).values;
    std::vector<double> values = before;
    values[at] = value;
    bench.memory().set(tensor, values);
    const std::string message = bench.run();
    EXPECT_THAT(bench.interpreted(),
                ::testing::ContainsRegex(interpreted ? "outside its shape|vocabulary|biases" : "^$"));
    bench.memory().set(tensor, before);
    EXPECT_EQ(bench.run(), "");
    return message;
  };
  EXPECT_THAT(wrong("sample_request", 1, 3, true), HasSubstr("index sample_request is 3, allowed 0 <= index < 3"));
  EXPECT_THAT(wrong("best", 0, -1, false), HasSubstr("index best is -1, allowed 0 <= index < 50"));
  EXPECT_THAT(wrong("requests", 1, 1 << 20, true), HasSubstr("index requests is 1048576, allowed 0 <= index < 21"));
  std::vector<double> lengths(24);
  lengths[1] = 4;
  bench.memory().set("requests", lengths);
  EXPECT_THAT(wrong("history", 2, 50, true), HasSubstr("index history is 50, allowed 0 <= index < 50"));
  EXPECT_THAT(wrong("requests", 6, -1, false), HasSubstr("index requests is -1"));
  // Of a request that wants other logits, and has tokens to make before one may end it.
  std::vector<double> extras(24);
  extras[batch::kExtras] = batch::kEdits, extras[batch::kMinTokens] = 9, extras[batch::kBiases] = 300;
  bench.memory().set("sampling_i32", extras);
  lengths[batch::kFlags] = batch::kOwnStops;
  bench.memory().set("requests", lengths);
  EXPECT_THAT(wrong("bias_tokens", 299, 50, true), HasSubstr("index bias_tokens is 50, allowed 0 <= index < 50"));
  EXPECT_THAT(wrong("stop_tokens", 1, 51, true), HasSubstr("index stop_tokens is 51, allowed 0 <= index < 50"));
  EXPECT_THAT(wrong("own_stops", 15, 52, true), HasSubstr("index own_stops is 52, allowed 0 <= index < 50"));
  EXPECT_THAT(wrong("sampling_i32", batch::kBiases, 301, true),
              HasSubstr("index sampling_i32 is 301, allowed 0 <= index < 301"));
}

// Rows that are as long as one likes are worked out in scratch and not on a stack.
TEST(Workspace, LongRowsNeedNoStack) {
  for (const char* op : {"linear", "rmsnorm_linear"}) {
    constexpr int64_t kColumns = 400'000, kRows = 6;
    graph::Graph graph(ops::builtin(), "long");
    std::vector<graph::TensorId> inputs = {graph.state("x", DType::f32, {kRows, kColumns})};
    if (std::string(op) == "rmsnorm_linear") inputs.push_back(graph.state("norm", DType::bf16, {kColumns}));
    inputs.push_back(graph.constant("w", DType::bf16, {16, kColumns}));
    graph.add(op, "y", inputs, {.outputs = {{"y", graph.state("y", DType::f32, {kRows, 16})}}});
    Bench bench(std::move(graph));
    bench.memory().set("x", ones(kRows * kColumns));
    EXPECT_EQ(bench.run(), "");
    EXPECT_GE(bench.kernel().scratch_bytes, kRows * kColumns * 2) << op;
  }
}

}  // namespace
}  // namespace megalith::engine
