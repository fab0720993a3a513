// Lower: from a node of the graph to its operator's loop kernel, with dtypes and sizes bound and checked. Nodes with
// the same signature (all layers of a model, as a rule) share one lowered kernel, and later one generated body.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "megalith/graph/graph.h"
#include "megalith/graph/schedule.h"
#include "megalith/loop/kernel.h"

namespace megalith::graph {

/// An operator's loop kernel, bound for one signature.
struct LoweredKernel {
  std::string name;       // "linear_2": operator and a number; a C identifier
  std::string signature;  // text that two nodes share exactly if they can share a body
  const Operator* op = nullptr;
  loop::Kernel kernel;                    // types inferred; operand dtypes set; parameters marked dynamic
  loop::Binding binding;                  // all sizes (dynamic ones at their largest) and attributes
  std::vector<std::string> tiled;         // inames of the task axes, in order: Task::tile and TaskRecord::begin/end
  const TunedBody* body = nullptr;        // as the schedule has it; nullptr: generated from the loop kernel
  std::vector<Layout> layouts;            // per operand
  std::map<std::string, int64_t> stream;  // as the schedule has it
  std::optional<std::string> steps;       // of a generated body's schedule, a line each; nothing: codegen proposes them
  // Operand pointers of a task, in order: the operator's operands, then for every dynamic parameter, by name (which is
  // the order of kernel.parameters), a pointer to its i32 value.
};

struct LoweredGraph {
  std::vector<LoweredKernel> kernels;
  std::vector<int> kernel_of_node;  // index into kernels, per node
  Schedule schedule;                // that it was lowered by; nodes whose kernel was edited have generated bodies
};

/// What lowering asks a tuned body with.
BodyQuery body_query(const Graph& graph, const Node& node);
/// The same as somebody scheduled it.
BodyQuery body_query(const Graph& graph, const Schedule& schedule, size_t node);
BodyQuery body_query(const LoweredKernel& lowered);

/// Operands of a node that are one tensor, at least one of which is written: the one that is only read, and the other.
struct SharedPair {
  size_t reader, writer;
};
std::vector<SharedPair> shared_pairs(const Node& node);

/// The operator's loop kernel for this node: types and shapes inferred, checked, sizes not bound. Operands that are one tensor
/// become one.
loop::Kernel node_kernel(const Graph& graph, const Node& node);

/// UserError naming operands, tensor and node if the node is given one tensor for two operands, one of which it writes
/// before it has read all of the other.
void check_shared_operands(const Graph& graph, const Node& node);

/// Which nodes share a signature: per node the index that lower() gives its kernel. Cheap: nothing is lowered.
std::vector<int> kernel_of_node(const Graph& graph, const Schedule& schedule);

/// Lowers every node. Runs the loop kernels' checks; errors name the node.
LoweredGraph lower(const Graph& graph, const Schedule& schedule);

}  // namespace megalith::graph
