#include "megalith/task/match.h"

#include <algorithm>

#include "megalith/base/error.h"
#include "megalith/task/partition.h"
#include "megalith/task/region.h"
#include "megalith/task/streams.h"
#include "megalith/task/tile_regions.h"

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

void check_buffers(const TaskGraph& tasks, const graph::Graph& graph, const graph::Schedule& schedule) {
  const size_t num_tensors = graph.tensors().size();
  if (tasks.buffers.size() != num_tensors || schedule.layouts.size() != num_tensors)
    fail("there are {} buffers, and the graph has {} tensors", tasks.buffers.size(), num_tensors);
  const std::vector<Buffer> wanted = buffers_of(graph, schedule);
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

int64_t total_elements(const std::vector<loop::Box>& boxes) {
  int64_t elements = 0;
  for (const loop::Box& box : boxes) elements += box_elements(box);
  return elements;
}

std::string describe(const std::vector<std::string>& axes, const loop::Box& box) {
  std::vector<std::string> ranges;
  for (size_t a = 0; a < axes.size(); ++a) ranges.push_back(fmt::format("{}={}:{}", axes[a], box.lo[a], box.hi[a]));
  return ranges.empty() ? "anything" : fmt::format("{}", fmt::join(ranges, ","));
}

std::string describe(const TaskGraph& tasks, const Region& region) {
  std::vector<std::string> ranges;
  for (size_t d = 0; d < region.box.lo.size(); ++d)
    ranges.push_back(fmt::format("{}:{}", region.box.lo[d], region.box.hi[d]));
  return fmt::format(
      "\"{}\" [{}]{}{}", tasks.buffers[static_cast<size_t>(region.buffer)].name, fmt::join(ranges, ", "),
      region.operand >= 0 ? fmt::format(" as operand {}", region.operand) : "",
      region.is_scatter() ? fmt::format(", scattering rows {}:{}", region.row_begin, region.row_end) : "");
}

std::string describe(const TaskGraph& tasks, const WeightStream& stream) {
  std::vector<std::string> names;
  for (const int matrix : stream.matrices)
    names.push_back(fmt::format("\"{}\"", tasks.buffers[static_cast<size_t>(matrix)].name));
  const stream::Order& order = stream.order;
  return fmt::format(
      "{} with {} slices, groups of {} rows, {} chunks a group, parts of {}, turns of {}{}{}", fmt::join(names, ", "),
      order.slices, order.group, order.chunks, order.part, order.turn, order.partners ? ", of partners" : "",
      stream.quant_columns > 0 ? fmt::format(", in int8 with {} columns to a scale", stream.quant_columns) : "");
}

// A region too small hides a race from the verifier; one too large may say that old bytes were written anew.
void check_same(const TaskGraph& tasks, const Task& task, const char* does, const std::vector<Region>& found,
                const std::vector<Region>& wanted) {
  // Which operand it is need not be said: then the verifier takes it for one of its own. Nor that it scatters rows:
  // then it is a write like any other.
  auto is_same = [](const Region& a, const Region& b) {
    return a.buffer == b.buffer && a.box == b.box && (a.operand == b.operand || a.operand < 0) &&
           ((a.row_begin == b.row_begin && a.row_end == b.row_end) || !a.is_scatter());
  };
  for (const Region& region : wanted)
    if (std::ranges::none_of(found, [&](const Region& other) { return is_same(other, region); }))
      fail("task \"{}\" {} {}, and they do not say so", task.name, does, describe(tasks, region));
  for (const Region& region : found)
    if (std::ranges::none_of(wanted, [&](const Region& other) { return is_same(region, other); }))
      fail("they say that task \"{}\" {} {}, which is not what it touches", task.name, does, describe(tasks, region));
}

}  // namespace

void check_matches(const TaskGraph& tasks, const graph::Graph& graph, const graph::Schedule& schedule,
                   int num_workers) {
  if (static_cast<int>(tasks.workers.size()) != num_workers)
    fail("they are for {} workers, want {}", tasks.workers.size(), num_workers);
  check_buffers(tasks, graph, schedule);
  const int num_nodes = static_cast<int>(graph.nodes().size());
  int last_node = 0;
  for (const Task& task : tasks.tasks) {
    if (task.node < 0 || task.node >= num_nodes)
      fail("task \"{}\" belongs to node {}, want 0 to {}", task.name, task.node, num_nodes - 1);
    // The verifier takes the tasks' order for the program's.
    if (task.node < last_node)
      fail("task \"{}\" of node {} stands behind one of node {}, want the nodes' order", task.name, task.node,
           last_node);
    last_node = task.node;
  }
  check_gate(tasks, graph);
}

void check_streams(const TaskGraph& tasks, const graph::Graph& graph, const graph::Schedule& schedule,
                   bool n_parallel) {
  const std::vector<WeightStream> wanted = weight_streams(graph, schedule, n_parallel);
  const auto name_of = [&](const WeightStream& stream) {
    const bool is_there = stream.node >= 0 && stream.node < static_cast<int>(graph.nodes().size());
    return is_there ? fmt::format("node \"{}\"", graph.nodes()[static_cast<size_t>(stream.node)].name)
                    : fmt::format("node {}", stream.node);
  };
  for (size_t s = 0; s < std::max(wanted.size(), tasks.streams.size()); ++s) {
    if (s < tasks.streams.size() && (s == wanted.size() || tasks.streams[s].node < wanted[s].node))
      fail("they stream weights of {}, which takes none from a stream", name_of(tasks.streams[s]));
    if (s == tasks.streams.size() || wanted[s].node < tasks.streams[s].node)
      fail("they stream no weights of {}, whose body takes {}", name_of(wanted[s]), describe(tasks, wanted[s]));
    const WeightStream &found = tasks.streams[s], &want = wanted[s];
    if (found.matrices != want.matrices || found.order != want.order)
      fail("they stream weights of {} as {}, and its body takes {}", name_of(found), describe(tasks, found),
           describe(tasks, want));
  }
}

void check_tiles(const TaskGraph& tasks, const graph::Graph& graph, const graph::LoweredGraph& lowered) {
  std::vector<std::vector<int64_t>> extents, grains;
  for (const graph::LoweredKernel& kernel : lowered.kernels) {
    extents.push_back(axis_extents(kernel, kernel.binding));
    grains.push_back(axis_grains(kernel));
  }
  std::vector<std::vector<loop::Box>> missing;  // of each node: what no tile has yet
  for (const int kernel : lowered.kernel_of_node) {
    const std::vector<int64_t>& extent = extents[static_cast<size_t>(kernel)];
    missing.push_back({{loop::Corner(extent.size(), 0), loop::Corner(extent)}});
  }
  for (const Task& task : tasks.tasks) {
    const auto node = static_cast<size_t>(task.node);
    const auto k = static_cast<size_t>(lowered.kernel_of_node[node]);
    const std::vector<std::string>& axes = lowered.kernels[k].tiled;
    if (task.tile.size() != axes.size())
      fail("task \"{}\" has {} ranges, want {} ({})", task.name, task.tile.size(), axes.size(), fmt::join(axes, ", "));
    loop::Box tile;
    for (size_t a = 0; a < axes.size(); ++a) {
      const loop::Range& range = task.tile[a];
      if (range.iname != axes[a] || range.begin < 0 || range.begin > range.end || range.end > extents[k][a])
        fail("task \"{}\" has the range {}={}:{}, want {} within 0:{}", task.name, range.iname, range.begin, range.end,
             axes[a], extents[k][a]);
      if (range.begin % grains[k][a] != 0)
        fail("task \"{}\" begins at {}={}, between two of {} that are laid out together", task.name, axes[a],
             range.begin, grains[k][a]);
      if (counts_slices(axes[a], lowered.kernels[k]) && range.end != range.begin + 1)
        fail("task \"{}\" has the range {}={}:{}, want one contiguous range of its weights", task.name, range.iname,
             range.begin, range.end);
      tile.lo.push_back(range.begin);
      tile.hi.push_back(range.end);
    }
    const int64_t before = total_elements(missing[node]);
    box_subtract(missing[node], tile);
    if (before - total_elements(missing[node]) != box_elements(tile))
      fail("task \"{}\" does what another task of node \"{}\" does, too", task.name, graph.nodes()[node].name);
  }
  for (size_t n = 0; n < missing.size(); ++n)
    if (!missing[n].empty())
      fail("no task of node \"{}\" does {}", graph.nodes()[n].name,
           describe(lowered.kernels[static_cast<size_t>(lowered.kernel_of_node[n])].tiled, missing[n].front()));
}

void check_regions(const TaskGraph& tasks, const graph::Graph& graph, const graph::LoweredGraph& lowered) {
  const TileRegions regions(graph, lowered);
  Task want;
  for (const Task& task : tasks.tasks) {
    want.node = task.node;
    want.tile = task.tile;
    regions.fill(want);
    check_same(tasks, task, "reads", task.reads, want.reads);
    check_same(tasks, task, "writes", task.writes, want.writes);
  }
}

}  // namespace megalith::task
