// A graph of operators on the sizes that they declare, in every float dtype, with full and with partly filled dynamic
// sizes: one node per case, so that one compilation serves them all; random values for it; and the comparison with the
// interpreter. The test that every operator gets from its declaration.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "megalith/engine/graph_memory.h"
#include "megalith/graph/graph.h"

namespace megalith::engine {

/// What the dynamic size is while the cases run.
inline constexpr int64_t kDynamicRows = 2;

struct OperatorCase {
  std::string node;
  const graph::Operator* op;
  DType dtype;                                 // of operands that have none of their own
  std::map<std::string, std::string> tensors;  // operand -> tensor name
  std::map<std::string, int64_t> sizes;
};

struct OperatorCases {
  /// UserError if an operator declares no sizes to be tested on.
  OperatorCases(std::shared_ptr<const graph::Registry> registry, const std::vector<std::string>& names);

  graph::Graph graph;
  std::vector<OperatorCase> cases;
};

/// Sets the operands of one node, which are states and constants of their own, to random values such as a model has.
void fill_operator(const graph::Graph& graph, const graph::Node& node, GraphMemory& memory, std::mt19937_64& random);
void fill_operator_cases(const OperatorCases& all, GraphMemory& memory);

/// Adds a node whose operands are states, or constants where a body lays them out before anything runs; they are named
/// "NODE.OPERAND". `dtype`: of operands that have none of their own. `dynamic`: sizes that follow a dynamic size.
std::map<std::string, std::string> add_operator(graph::Graph& graph, const graph::Operator& op, const std::string& node,
                                                DType dtype, const std::map<std::string, int64_t>& sizes,
                                                const std::map<std::string, std::string>& dynamic = {});

/// Roundings of f32 that a result may be off by, as largest_difference() counts them, on a CPU. Over a dozen seeds the
/// largest were 10.5 in general. More are left to a product of two sums, which has the error of each times the other
/// (13), and to a sum of a thousand products in one order, whose error grows with the root of their number (15 for the
/// values that the test has).
double cpu_slack(const OperatorCase& test);
/// On a GPU; the largest found there, over a few seeds, was 14. A product of two sums has twice as much: where one
/// cancels and the other is large, sums in a warp's order are off by 27 (tests/operators/rounding_test.cpp).
double gpu_slack(const OperatorCase& test);
/// Roundings to bf16 or f16 that a result of such values may be off by on a GPU: its own, and those of operands, since
/// tensor cores multiply what is rounded (x * norm, a key that was rotated), and silu(gate) * up has that twice.
constexpr double kGpuRoundings = 3;

/// Differences that rounding does not explain, a line each with the element that is off most; "" if there are none.
/// `roundings`: to the dtype of the result, which a body may do more than one of. `target`: whose bodies they were that
/// say when they round more than their loop kernel does.
std::string wrong_operators(const OperatorCases& all, const GraphMemory& memory, const loop::Arrays& expected,
                            double (*slack)(const OperatorCase&), double roundings = 1, const std::string& target = "");

}  // namespace megalith::engine
