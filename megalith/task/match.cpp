#include "megalith/task/match.h"

#include <algorithm>

#include "megalith/base/error.h"
#include "megalith/task/partition.h"

namespace megalith::task {

namespace {

template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> difference, Args&&... args) {
  throw UserError(fmt::format("the tasks are of another graph, or of other options: {}; dump them again",
                              fmt::format(difference, std::forward<Args>(args)...)));
}

std::string describe(const Buffer& buffer) {
  return fmt::format("\"{}\" {} [{}] ({})", buffer.name, dtype_name(buffer.dtype), fmt::join(buffer.shape, ", "),
                     kMemoryNames[static_cast<int>(buffer.memory)]);
}

void check_buffers(const TaskGraph& tasks, const graph::Graph& graph, const std::string& target) {
  const std::vector<Buffer> wanted = buffers_of(graph, graph::exchanged_tensors(graph, target));
  if (tasks.buffers.size() != wanted.size())
    fail("there are {} buffers, and the graph has {} tensors", tasks.buffers.size(), wanted.size());
  for (size_t b = 0; b < wanted.size(); ++b) {
    const Buffer &found = tasks.buffers[b], &want = wanted[b];
    if (found.name != want.name || found.dtype != want.dtype || found.shape != want.shape ||
        found.memory != want.memory || found.bytes != want.bytes)
      fail("buffer {} is {} of {} bytes, want {} of {} bytes", b, describe(found), found.bytes, describe(want),
           want.bytes);
  }
}

// The task that ends an iteration is the one that the graph says, or none: without it, workers would not stop together.
void check_gate(const TaskGraph& tasks, const graph::Graph& graph) {
  const std::optional<int> node = graph.gate_node();
  if (tasks.gate.has_value() != node.has_value())
    fail("they have {} gate, and the graph has {}", tasks.gate ? "a" : "no",
         node ? fmt::format("the node \"{}\" that ends an iteration", graph.nodes()[static_cast<size_t>(*node)].name)
              : "no node that ends an iteration");
  if (!node) return;
  for (const Task& task : tasks.tasks)
    if (task.node != *node && std::ranges::count(task.signals, *tasks.gate))
      fail("task \"{}\" signals the gate, want only tasks of node \"{}\"", task.name,
           graph.nodes()[static_cast<size_t>(*node)].name);
}

}  // namespace

void check_matches(const TaskGraph& tasks, const graph::Graph& graph, const std::string& target, int num_workers) {
  if (static_cast<int>(tasks.workers.size()) != num_workers)
    fail("they are for {} workers, want {}", tasks.workers.size(), num_workers);
  check_buffers(tasks, graph, target);
  const int num_nodes = static_cast<int>(graph.nodes().size());
  for (const Task& task : tasks.tasks)
    if (task.node < 0 || task.node >= num_nodes)
      fail("task \"{}\" belongs to node {}, want 0 to {}", task.name, task.node, num_nodes - 1);
  check_gate(tasks, graph);
}

void check_tiles(const TaskGraph& tasks, const graph::Graph& graph, const graph::LoweredGraph& lowered) {
  std::vector<std::vector<int64_t>> extents;
  for (const graph::LoweredKernel& kernel : lowered.kernels) extents.push_back(axis_extents(kernel));
  std::vector<int64_t> num_points(graph.nodes().size(), 0);
  for (const Task& task : tasks.tasks) {
    const auto node = static_cast<size_t>(task.node);
    const auto k = static_cast<size_t>(lowered.kernel_of_node[node]);
    const std::vector<std::string>& axes = lowered.kernels[k].tiled;
    if (task.tile.size() != axes.size())
      fail("task \"{}\" has {} ranges, want {} ({})", task.name, task.tile.size(), axes.size(), fmt::join(axes, ", "));
    int64_t points = 1;
    for (size_t a = 0; a < axes.size(); ++a) {
      const loop::Range& range = task.tile[a];
      if (range.iname != axes[a] || range.begin < 0 || range.begin > range.end || range.end > extents[k][a])
        fail("task \"{}\" has the range {}={}:{}, want {} within 0:{}", task.name, range.iname, range.begin, range.end,
             axes[a], extents[k][a]);
      points *= range.end - range.begin;
    }
    num_points[node] += points;
  }
  // Tiles that lie over each other are two tasks that write the same, which the verifier orders.
  for (size_t n = 0; n < num_points.size(); ++n) {
    int64_t want = 1;
    for (const int64_t extent : extents[static_cast<size_t>(lowered.kernel_of_node[n])]) want *= extent;
    if (num_points[n] != want)
      fail("the tiles of node \"{}\" have {} points, want {}", graph.nodes()[n].name, num_points[n], want);
  }
}

}  // namespace megalith::task
