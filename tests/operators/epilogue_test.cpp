// Epilogues on a CPU: the same bits as of the two nodes, whatever body multiplies and whatever comes behind it.
#include <gtest/gtest.h>

#include <random>

#include "base/temporary_folder.h"
#include "megalith/optimize/optimize.h"
#include "megalith/optimize/schedule.h"
#include "support/confusing_epilogue.h"
#include "support/operator_cases.h"

namespace megalith {
namespace {

using graph::Graph;
using graph::TensorId;

// More columns than fill whole vectors of 16.
constexpr int64_t kRows = 5, kColumns = 96, kOutputs = 77;

struct Sum {
  const char* op;
  bool quantized = false;
};

// Tensors of a graph that have this name already are shared.
TensorId tensor(Graph& g, graph::TensorKind kind, const std::string& name, DType dtype, std::vector<graph::Dim> shape) {
  if (g.has(name)) return g.find(name);
  return kind == graph::TensorKind::constant ? g.constant(name, dtype, std::move(shape))
                                             : g.state(name, dtype, std::move(shape));
}

TensorId multiply(Graph& g, const Sum& sum, const std::string& node) {
  constexpr auto constant = graph::TensorKind::constant, state = graph::TensorKind::state;
  const std::string op = sum.op;
  std::vector<TensorId> inputs = {tensor(g, state, "x", DType::f32, {kRows, kColumns})};
  if (op.starts_with("rmsnorm")) inputs.push_back(tensor(g, constant, "norm", DType::bf16, {kColumns}));
  for (const char* name : {"weight", "up"}) {
    if (name == std::string("up") && op.find("gate_up") == std::string::npos) continue;
    inputs.push_back(tensor(g, constant, name, sum.quantized ? DType::i8 : DType::bf16, {kOutputs, kColumns}));
    if (sum.quantized)
      inputs.push_back(tensor(g, constant, std::string(name) + ".s", DType::bf16, {kOutputs, kColumns / 32}));
  }
  graph::NodeOptions options;
  if (sum.quantized) options.sizes["L"] = 32;
  return g.apply(op, node, inputs, options);
}

// Behind a sum comes a bias, or another state is added; in f32 and in f16.
Graph graph_of(const Sum& sum) {
  Graph g(ops::builtin());
  for (const DType dtype : {DType::f32, DType::f16}) {
    const std::string name(dtype_name(dtype));
    const TensorId result = g.state("result." + name, dtype, {kRows, kOutputs}),
                   total = g.state("total." + name, dtype, {kRows, kOutputs});
    const TensorId y = multiply(g, sum, "first." + name);
    g.add("row_bias", "bias." + name, {y, tensor(g, graph::TensorKind::constant, "bias", DType::bf16, {kOutputs})},
          {.outputs = {{"y", result}}});
    const TensorId z = multiply(g, sum, "second." + name);
    g.add("add", "add." + name, {z, tensor(g, graph::TensorKind::state, "other", DType::f32, {kRows, kOutputs})},
          {.outputs = {{"y", total}}});
  }
  return g;
}

void fill(const Graph& g, testing::GraphMemory& memory) {
  std::mt19937_64 random(11);
  std::uniform_real_distribution<double> value(-1, 1);
  for (const graph::Tensor& tensor : g.tensors()) {
    if (tensor.kind == graph::TensorKind::activation) continue;
    std::vector<double> values(static_cast<size_t>(tensor.num_elements()));
    for (double& one : values) one = dtype_is_float(tensor.dtype) ? value(random) : std::floor(100 * value(random));
    memory.set(tensor.name, values);
  }
}

class Epilogue : public ::testing::TestWithParam<Sum> {};
INSTANTIATE_TEST_SUITE_P(Bodies, Epilogue,
                         ::testing::Values(Sum{"linear"}, Sum{"rmsnorm_linear"}, Sum{"gate_up"}, Sum{"rmsnorm_gate_up"},
                                           Sum{"dequantize_linear", true}, Sum{"rmsnorm_dequantize_linear", true},
                                           Sum{"rmsnorm_dequantize_gate_up", true}),
                         [](const auto& one) { return std::string(one.param.op); });

TEST_P(Epilogue, HasTheBitsOfTheTwoNodes) {
  const Graph before = graph_of(GetParam()), after = optimize::optimize(before, "cpu");
  ASSERT_EQ(before.nodes().size(), 8u);
  ASSERT_EQ(after.nodes().size(), 4u);
  testing::GraphMemory apart(before), together(after);
  fill(before, apart);
  fill(before, together);
  testing::run_compiled(before, apart, 2);
  const jit::CompiledKernel kernel = testing::run_compiled(after, together, 2);
  for (size_t n = 0; n < after.nodes().size(); ++n) EXPECT_NE(kernel.schedule.body(n), nullptr);
  for (const char* name : {"result.f32", "result.f16", "total.f32", "total.f16"})
    EXPECT_EQ(together.array(name).values, apart.array(name).values) << name;
}

// Names that bodies look for are not theirs: what it means is what the interpreter says. (With weights in f32: those in
// bf16 meet activations that were rounded to it.)
TEST(EpilogueWithNamesOfBodies, IsWhatTheInterpreterSays) {
  for (const char* op : {"linear", "rmsnorm_linear", "gate_up", "rmsnorm_gate_up"})
    for (const int64_t rows : {1, 8, 64}) {
      Graph before(testing::registry_with_confusing_epilogue());
      std::vector<TensorId> inputs = {before.state("x", DType::f32, {rows, kColumns})};
      if (std::string(op).starts_with("rmsnorm")) inputs.push_back(before.constant("norm", DType::bf16, {kColumns}));
      inputs.push_back(before.constant("weight", DType::f32, {kOutputs, kColumns}));
      if (std::string(op).ends_with("up")) inputs.push_back(before.constant("up", DType::f32, {kOutputs, kColumns}));
      testing::add_confusing(before, before.apply(op, "first", inputs), DType::f32, rows, kOutputs);
      const Graph after = optimize::optimize(before, "cpu");
      ASSERT_EQ(after.nodes().size(), 1u) << op;
      testing::GraphMemory memory(after);
      fill(after, memory);
      loop::Arrays wanted = memory.arrays();
      graph::interpret(before, optimize::lower(before, "cpu"), wanted, 1);
      const jit::CompiledKernel kernel = testing::run_compiled(after, memory, 2);
      EXPECT_NE(kernel.schedule.body(0), nullptr);
      EXPECT_LE(testing::error_in_roundings(memory.array("result"), wanted.at("result"), DType::f32, 16), 1)
          << op << " of " << rows << " rows";
    }
}

// A sum with what it is written over: an element is read right before it is written.
TEST(EpilogueInPlace, HasTheBitsOfTheTwoNodes) {
  Graph before(ops::builtin());
  const TensorId other = before.state("other", DType::f32, {kRows, kOutputs});
  before.add("add", "second", {multiply(before, {"linear"}, "first"), other}, {.outputs = {{"y", other}}});
  const Graph after = optimize::optimize(before, "cpu");
  ASSERT_EQ(after.nodes().size(), 1u);
  testing::GraphMemory apart(before), together(after);
  fill(before, apart);
  fill(before, together);
  testing::run_compiled(before, apart, 2);
  const jit::CompiledKernel kernel = testing::run_compiled(after, together, 2);
  EXPECT_NE(kernel.schedule.body(0), nullptr);
  EXPECT_EQ(together.array("other").values, apart.array("other").values);
}

// A bias and then a sum: one epilogue of both.
TEST(EpilogueOfTwo, HasTheBitsOfTheThreeNodes) {
  Graph before(ops::builtin());
  const TensorId y = multiply(before, {"linear"}, "first"),
                 biased = before.apply("row_bias", "second", {y, before.constant("b", DType::f32, {kOutputs})}),
                 total = before.state("total", DType::f32, {kRows, kOutputs});
  before.add("add", "third", {before.state("other", DType::f32, {kRows, kOutputs}), biased},
             {.outputs = {{"y", total}}});
  const Graph after = optimize::optimize(before, "cpu");
  ASSERT_EQ(after.nodes().size(), 1u);
  testing::GraphMemory apart(before), together(after);
  fill(before, apart);
  fill(before, together);
  testing::run_compiled(before, apart, 2);
  const jit::CompiledKernel kernel = testing::run_compiled(after, together, 2);
  EXPECT_NE(kernel.schedule.body(0), nullptr);
  EXPECT_EQ(together.array("total").values, apart.array("total").values);
  // Of what it reads it asks ahead for what lies as the output does, and not for the bias.
  const size_t ask = kernel.source.find("void ask(");
  ASSERT_NE(ask, std::string::npos);
  const std::string asked = kernel.source.substr(ask, kernel.source.find("}", ask) - ask);
  const size_t prefetch = asked.find("__builtin_prefetch(");
  ASSERT_NE(prefetch, std::string::npos) << asked;
  EXPECT_EQ(prefetch, asked.rfind("__builtin_prefetch(")) << asked;
}

}  // namespace
}  // namespace megalith
