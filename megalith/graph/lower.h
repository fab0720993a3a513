// Lower: from a node of the graph to its operator's loop kernel, with dtypes and sizes bound and checked. Nodes with
// the same signature (all layers of a model, as a rule) share one lowered kernel, and later one generated body.
#pragma once

#include <string>
#include <vector>

#include "megalith/graph/graph.h"
#include "megalith/loop/kernel.h"

namespace megalith::graph {

/// An operator's loop kernel, bound for one signature.
struct LoweredKernel {
  std::string name;       // "linear_2": operator and a number; a C identifier
  std::string signature;  // text that two nodes share exactly if they can share a body
  const Operator* op = nullptr;
  loop::Kernel kernel;              // types inferred; operand dtypes set; parameters marked dynamic
  loop::Binding binding;            // all sizes (dynamic ones at their largest) and attributes
  std::vector<std::string> tiled;   // inames of the task axes, in order: Task::tile and TaskRecord::begin/end
  const TunedBody* body = nullptr;  // chosen for the target; nullptr: generated from the loop kernel
  std::vector<bool> exchanged;      // per operand: its tensor is made of words that carry a flag (exchanged_tensors())
  std::vector<bool> packed;         // per operand: its tensor lies in panels (packed_tensors())
  std::vector<bool> blocked;        // per operand: its tensor lies in blocks (blocked_tensors())
  std::vector<bool> paired;         // per operand: its tensor lies in pairs of pages (paired_tensors())
  // Operand pointers of a task, in order: the operator's operands, then for every dynamic parameter, by name (which is
  // the order of kernel.parameters), a pointer to its i32 value.
};

struct LoweredGraph {
  std::vector<LoweredKernel> kernels;
  std::vector<int> kernel_of_node;  // index into kernels, per node
  std::vector<bool> exchanged;      // per tensor
};

/// What lowering asks a tuned body with, and the body that a node gets on a target; nullptr: a generated one.
BodyQuery body_query(const Graph& graph, const Node& node);
const TunedBody* tuned_body(const Graph& graph, const Node& node, const std::string& target);

/// UserError naming operands, tensor and node if the node is given one tensor for two operands, one of which it writes
/// before it has read all of the other.
void check_shared_operands(const Graph& graph, const Node& node);

/// Per tensor: whether its values travel with their flag in the data (docs/protocol.md). So do activations whose every
/// reader and writer can take them so, and that are few enough for a reader to look at each word.
std::vector<bool> exchanged_tensors(const Graph& graph, const std::string& target);

/// Per tensor: whether it lies in panels (kernels/panel_layout.h) rather than row by row. So do the weights that some
/// tuned body wants so; generated bodies read them there as well, element by element.
std::vector<bool> packed_tensors(const Graph& graph, const std::string& target);
/// Per tensor: whether it lies in blocks (kernels/row_blocks.h). So do activations of many rows whose every reader and
/// writer can take them so.
std::vector<bool> blocked_tensors(const Graph& graph, const std::string& target);
/// Per tensor: whether it is a cache whose pages lie in pairs (kernels/page_pairs.h). So do those whose every reader and
/// writer can take them so, and at which nobody else looks.
std::vector<bool> paired_tensors(const Graph& graph, const std::string& target);
/// Columns of a packed tensor that stand together for each row.
int packed_together(DType dtype);

/// Which nodes share a signature: per node the index that lower() gives its kernel. Cheap: nothing is lowered.
std::vector<int> kernel_of_node(const Graph& graph, const std::string& target);

/// Lowers every node for a target ("cpu", ...). Runs the loop kernels' checks; errors name the node.
LoweredGraph lower(const Graph& graph, const std::string& target);

}  // namespace megalith::graph
