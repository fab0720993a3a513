#include "megalith/engine/operator_cases.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "megalith/base/error.h"
#include "megalith/graph/sizes.h"

namespace megalith::engine {

using graph::Graph;
using graph::Operand;
using graph::Operator;

namespace {

int64_t product_of(const std::string& text, const std::map<std::string, int64_t>& sizes) {
  Operator op;
  op.name = "index";
  const Operand operand{"x", loop::Role::input, {text}, DType::i32};
  return graph::operand_shape(op, operand, {sizes, {}})[0].size;
}

// Weights that some body takes from a stream or from panels: constants, since those are laid out before anything runs.
bool is_laid_out(const Operator& op, const std::string& operand) {
  auto has = [&](const auto& weights) {
    return weights && std::ranges::find(weights->operands, operand) != weights->operands.end();
  };
  return std::ranges::any_of(op.bodies,
                             [&](const graph::TunedBody& body) { return has(body.streamed) || has(body.packed); });
}

// Where any sizes will do: all of them 1, and odd ones that have no factor in common.
std::vector<std::map<std::string, int64_t>> tests_of(const Operator& op) {
  std::vector<std::map<std::string, int64_t>> tests = op.tests;
  MEGALITH_CHECK(!tests.empty(), "[{}] declares no sizes to be tested on", op.name);
  if (!op.any_sizes) return tests;
  constexpr int64_t kOdd[] = {3, 37, 5, 19, 7, 11};
  std::map<std::string, int64_t> ones = tests[0], odd = tests[0];
  for (auto& [name, size] : ones) size = 1;
  size_t next = 0;
  for (auto& [name, size] : odd) size = kOdd[next++ % std::size(kOdd)];
  for (const auto& more : {ones, odd})
    if (std::ranges::find(tests, more) == tests.end()) tests.push_back(more);
  return tests;
}

// Normal values such as a model has there, where others would measure what no body can help: a product of two large
// sums multiplies the error of the one with the other, and a total near 0 divides by it.
void make_likely(std::vector<double>& values, const Operator& op, const Operand& operand,
                 const std::map<std::string, int64_t>& sizes) {
  const bool is_scale = operand.name.ends_with("scale");
  const double of_sums =  // which are of about 1 then
      is_laid_out(op, operand.name) && sizes.contains("K") ? 1 / std::sqrt(static_cast<double>(sizes.at("K"))) : 1;
  for (size_t i = 0; i < values.size(); ++i) {
    double& value = values[i];
    // of exponentials, the largest of which is 1; beside the largest score; of squares
    if (operand.name == "total" || operand.name == "squares" || (operand.name == "softmax" && i % 2 == 1))
      value = 1 + std::abs(value);
    if (is_scale) value = (0.5 + std::abs(value)) * 0.01;  // of whole numbers up to 100
    if (dtype_is_float(operand.dtype)) value *= of_sums;
  }
}

// "y[2, 5]"
std::string element_text(const std::string& name, const loop::Array& array, size_t at) {
  std::vector<int64_t> index(array.shape.size());
  auto rest = static_cast<int64_t>(at);
  for (size_t d = index.size(); d-- > 0; rest /= array.shape[d]) index[d] = rest % array.shape[d];
  return fmt::format("{}[{}]", name, fmt::join(index, ", "));
}

std::string sizes_text(const OperatorCase& test) {
  std::vector<std::string> sizes;
  for (const auto& [name, size] : test.sizes) sizes.push_back(fmt::format("{} = {}", name, size));
  return fmt::format("{}", fmt::join(sizes, ", "));
}

}  // namespace

std::map<std::string, std::string> add_operator(Graph& graph, const Operator& op, const std::string& node, DType dtype,
                                                const std::map<std::string, int64_t>& sizes,
                                                const std::map<std::string, std::string>& dynamic) {
  std::map<std::string, std::string> tensors;
  std::vector<graph::TensorId> inputs;
  graph::NodeOptions options;
  for (const std::string& size : op.extra_sizes) options.sizes[size] = sizes.at(size);
  for (const Operand& operand : op.operands) {
    std::vector<graph::Dim> shape = graph::operand_shape(op, operand, {sizes, dynamic});
    const DType type = operand.exact_dtype || !dtype_is_float(operand.dtype) ? operand.dtype : dtype;
    const std::string& name = tensors[operand.name] = node + "." + operand.name;
    const graph::TensorId id =
        is_laid_out(op, operand.name) ? graph.constant(name, type, shape) : graph.state(name, type, shape);
    if (operand.role == loop::Role::output)
      options.outputs[operand.name] = id;
    else
      inputs.push_back(id);
  }
  graph.add(op.name, node, inputs, options);
  return tensors;
}

OperatorCases::OperatorCases(std::shared_ptr<const graph::Registry> registry, const std::vector<std::string>& names)
    : graph(registry, "operators") {
  graph.dynamic_size("rows", graph.state("counts", DType::i32, {1}), 0);
  auto add = [&](const Operator& op, DType dtype, bool is_dynamic) {
    const auto tests = tests_of(op);
    for (size_t t = 0; t < tests.size(); ++t) {
      std::map<std::string, std::string> dynamic;
      if (is_dynamic && tests[t].contains("T") && tests[t].at("T") > 1) dynamic["T"] = "rows";
      if (is_dynamic && dynamic.empty()) continue;
      const std::string node = fmt::format("{}.{}.{}{}", op.name, t, dtype_name(dtype), is_dynamic ? ".dynamic" : "");
      cases.push_back({node, &op, dtype, add_operator(graph, op, node, dtype, tests[t], dynamic), tests[t]});
    }
  };
  for (const std::string& name : names) {
    const Operator& op = registry->get(name);
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) add(op, dtype, false);
    add(op, DType::f32, true);
  }
}

void fill_operator(const Graph& graph, const graph::Node& node, GraphMemory& memory, std::mt19937_64& random) {
  std::map<std::string, int64_t> today = node.sizes;  // an index leads to rows that are there
  for (const auto& [size, dynamic] : node.dynamic) today[size] = std::min(today[size], kDynamicRows);
  for (size_t i = 0; i < node.operands.size(); ++i) {
    const Operand& operand = node.op->operands[i];
    const graph::Tensor& tensor = graph.tensor(node.operands[i]);
    const int64_t limit = operand.index_into.empty() ? 100 : product_of(operand.index_into, today);
    std::vector<double> values = random_values(tensor.num_elements(), tensor.dtype, limit, random);
    if (tensor.dtype == DType::i8)
      for (size_t v = 0; v < values.size(); v += 2) values[v] = -values[v];
    make_likely(values, *node.op, operand, node.sizes);
    memory.set(tensor.name, values);
  }
}

void fill_operator_cases(const OperatorCases& all, GraphMemory& memory) {
  std::mt19937_64 random(7);
  for (const graph::Node& node : all.graph.nodes()) fill_operator(all.graph, node, memory, random);
  memory.set("counts", {static_cast<double>(kDynamicRows)});
}

// Of two long sums, whose errors multiply (tests/operators/rounding_test.cpp).
static bool is_product_of_sums(const Operator& op) { return op.name.find("gate_up") != std::string::npos; }

double cpu_slack(const OperatorCase& test) {
  const std::string& name = test.op->name;
  if (name == "gate_up") return 40;  // sums in order, and no norm before that makes them small
  const auto columns = test.sizes.find("K");
  const bool long_sum = columns != test.sizes.end() && columns->second > 512;
  return long_sum || (name.starts_with("rmsnorm_") && is_product_of_sums(*test.op)) ? 16 : 12;
}

double gpu_slack(const OperatorCase& test) { return is_product_of_sums(*test.op) ? 32 : 16; }

std::string wrong_operators(const OperatorCases& all, const GraphMemory& memory, const loop::Arrays& expected,
                            double (*slack)(const OperatorCase&), double roundings, const std::string& target) {
  std::string wrong;
  for (const OperatorCase& test : all.cases)
    for (const Operand& operand : test.op->operands) {
      if (operand.role == loop::Role::input) continue;
      const std::string& name = test.tensors.at(operand.name);
      const graph::Tensor& tensor = all.graph.tensor(all.graph.find(name));
      // What is exact, but for one rounding of what it is made of.
      const bool rounds = tensor.dtype == DType::f32 && test.dtype == DType::bf16 &&
                          std::ranges::any_of(test.op->bodies, [&](const graph::TunedBody& body) {
                            return body.target == target && body.rounds_operands;
                          });
      loop::Array found = memory.array(name), wanted = expected.at(name);
      if (!tensor.shape.empty() && !tensor.shape[0].dynamic.empty()) {
        // Rows that are not there today must be as they were, and tell nothing of how large the others are.
        const auto there = static_cast<std::ptrdiff_t>(found.values.size()) / tensor.shape[0].size * kDynamicRows;
        if (!std::equal(found.values.begin() + there, found.values.end(), wanted.values.begin() + there))
          wrong += fmt::format("{} is written beyond its rows\n", name);
        found.values.resize(static_cast<size_t>(there));
        wanted.values.resize(static_cast<size_t>(there));
      }
      const Difference worst =
          largest_difference(found, wanted, rounds ? DType::bf16 : tensor.dtype, slack(test), rounds ? 1 : roundings);
      if (worst.roundings > 1.0)
        wrong += fmt::format("{} is {}, want {}: off by {:.3g} times what rounding explains ({})\n",
                             element_text(name, found, worst.index), found.values[worst.index],
                             wanted.values[worst.index], worst.roundings, sizes_text(test));
    }
  return wrong;
}

}  // namespace megalith::engine
