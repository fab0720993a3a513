// The schedule of a graph: all that is decided about how it runs, as a value. Which body runs each node, how tensors lie
// in memory, how nodes are cut into tasks. What a graph computes does not depend on it. optimize/ makes one; lowering,
// partition, code and the runtime take their decisions from it and make none of their own.
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "megalith/graph/graph.h"

namespace megalith::graph {

/// How a tensor lies in memory.
enum class Layout : uint8_t {
  rows,          // row by row
  flag_in_data,  // an activation each of whose words travels with a flag beside it (docs/protocol.md)
  panels,        // weights, rows of 16 side by side (kernels/panel_layout.h)
  fragments,     // activations of many rows, as tensor cores take them (kernels/row_blocks.h)
  int8,          // weights in eight bits with scales, where a GPU streams them (kernels/int8_layout.h)
  head_pairs,    // a cache whose heads lie in pairs, one head per L2 partition (kernels/head_pairs.h)
};
inline constexpr std::array kLayoutNames = {"rows", "flag-in-data", "panels", "fragments", "int8", "head-pairs"};

struct NodeSchedule {
  const TunedBody* body = nullptr;        // one of its operator's; nullptr: generated from the loop kernel
  std::map<std::string, int64_t> tile;    // iname -> tile size; the rest is cut to have a task for every worker
  std::map<std::string, int64_t> pieces;  // iname -> number of tasks along it
  std::map<std::string, int64_t> stream;  // how the body takes streamed weights, by name (ops/stream_choices.h)
};

/// How each worker on a GPU has weights come (docs/cuda.md).
struct WorkerSchedule {
  int64_t copies = 4;      // weight tiles on their way at a time, 1 to 4
  int64_t prefetch = 16;   // more of them that come into the L2 while the ring is full, up to 64
  int64_t registers = 96;  // of a thread that computes: 96 as all have, or 104 with those that other warps give up

  bool operator==(const WorkerSchedule&) const = default;
};

/// Of one graph, whose operators it points into.
struct Schedule {
  std::string target;           // "cpu" or "cuda"
  WorkerSchedule worker = {};   // of a GPU
  std::vector<Layout> layouts;  // per tensor
  std::vector<NodeSchedule> nodes;

  Layout layout(TensorId tensor) const { return layouts[static_cast<size_t>(tensor)]; }
  const TunedBody* body(size_t node) const { return nodes[node].body; }
};

/// Whether a body may run the node: dtypes and sizes suit it, it takes operands that are one tensor, and what it reads
/// ahead of all order is constant.
bool takes_node(const TunedBody& body, const Graph& graph, const Node& node);

/// The first of the operator's bodies for the target that takes the node; nullptr: none.
const TunedBody* first_body(const Graph& graph, const Node& node, const std::string& target);

/// The simplest one: nodes by first_body(), cut as the graph says, every tensor row by row.
Schedule schedule_in_rows(const Graph& graph, const std::string& target);

/// Whether `body` takes its operand number `operand` in this layout; nullptr: the generated one.
bool takes_layout(const TunedBody* body, const Node& node, size_t operand, Layout layout);

}  // namespace megalith::graph
