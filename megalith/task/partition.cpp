#include "megalith/task/partition.h"

#include <algorithm>
#include <numeric>

#include "megalith/base/ceil_div.h"
#include "megalith/base/error.h"
#include "megalith/base/interruption.h"
#include "megalith/kernels/panel_layout.h"
#include "megalith/kernels/stream_order.h"
#include "megalith/loop/domain.h"
#include "megalith/loop/isl_limit.h"
#include "megalith/ops/streamed.h"
#include "megalith/task/cost.h"
#include "megalith/task/tile_regions.h"

namespace megalith::task {

namespace {

using graph::Graph;
using graph::LoweredKernel;
using graph::Node;

int64_t extent_of(const isl::set& domain, std::ptrdiff_t dim) {
  return domain.dim_max_val(static_cast<int>(dim)).num_si() + 1;
}

// What costs are worked out for: a decode step, which is what placement is balanced for.
constexpr int64_t kCostRows = 1;

// Where an axis is cut: 0, ..., extent. As a user's tile size says, else into `pieces` whose sizes differ by one
// multiple at most.
std::vector<int64_t> cut_axis(int64_t extent, int64_t multiple, int64_t pieces, int64_t chosen_tile) {
  std::vector<int64_t> cuts;
  if (chosen_tile > 0) {
    for (int64_t at = 0; at < extent; at += chosen_tile) cuts.push_back(at);
  } else {
    const int64_t units = ceil_div(extent, multiple);
    pieces = std::min(pieces, units);
    for (int64_t i = 0; i < pieces; ++i) cuts.push_back(i * units / pieces * multiple);
  }
  cuts.push_back(extent);
  return cuts;
}

// Weights that come through a stream come in whole groups of rows, those in panels in whole panels.
int64_t multiple_of(const graph::TaskAxis& axis, const LoweredKernel& kernel) {
  if (kernel.body && kernel.body->packed && kernel.body->packed->axis == axis.iname)
    return std::lcm(axis.multiple, int64_t{panel::kRows});
  if (!kernel.body || !kernel.body->streamed) return axis.multiple;
  const graph::StreamedWeights& streamed = *kernel.body->streamed;
  if (streamed.axis != axis.iname) return axis.multiple;
  const stream::Order order = ops::stream_order(streamed, graph::body_query(kernel));
  const int64_t group = order.partners ? order.group / 2 : order.group;
  if (streamed.step.empty()) return group;
  const std::map<std::string, int64_t>& sizes = kernel.binding.sizes;
  return ops::takes_steps(streamed, sizes.at(streamed.activations)) ? group / sizes.at(streamed.step) : axis.multiple;
}

// A row of streamed weights, or a split-K slice of it, comes once, for all values of any other axis; of many rows of
// activations for each tile of them.
bool comes_once(const graph::TaskAxis& axis, const LoweredKernel& kernel) {
  return kernel.body && kernel.body->streamed && kernel.body->streamed->axis != axis.iname &&
         kernel.body->streamed->slice_axis != axis.iname;
}

// How many values of the axis a task has that shares a group of streamed rows with its partner; 0: it has none.
int64_t half_of_group(const graph::TaskAxis& axis, const LoweredKernel& kernel) {
  return kernel.body && kernel.body->streamed && kernel.body->streamed->axis == axis.iname &&
                 ops::has_partners(*kernel.body->streamed, graph::body_query(kernel))
             ? multiple_of(axis, kernel)
             : 0;
}

// How many values of the axis lie together in the layout of its weights and cannot be cut apart; the rest of a multiple
// is a matter of taste.
int64_t grain_of(const graph::TaskAxis& axis, const LoweredKernel& kernel, int64_t extent) {
  if (comes_once(axis, kernel)) return stream::tile_rows(extent);
  if (!kernel.body) return 1;
  const auto& packed = kernel.body->packed;
  const auto& streamed = kernel.body->streamed;
  if (packed && packed->axis == axis.iname) return panel::kRows;
  return streamed && streamed->axis == axis.iname ? multiple_of(axis, kernel) : 1;
}

// A tile that the user has chosen.
void check_tile(const Node& node, const LoweredKernel& kernel, const graph::TaskAxis& axis, int64_t tile,
                int64_t extent) {
  MEGALITH_CHECK(
      !counts_slices(axis.iname, kernel) || tile == 1,
      "[{}] tiles of {} along \"{}\", but a task takes one contiguous range of its weights: take 1 or leave it out "
      "(node \"{}\")",
      node.op->name, tile, axis.iname, node.name);
  const int64_t grain = grain_of(axis, kernel, extent);
  MEGALITH_CHECK(
      half_of_group(axis, kernel) == 0 || tile == grain,
      "[{}] tiles of {} along \"{}\", but two tasks share a group of its weights, half of its rows each: take "
      "{} or leave it out, or take stream.partners=0 (node \"{}\")",
      node.op->name, tile, axis.iname, grain, node.name);
  MEGALITH_CHECK(!comes_once(axis, kernel) || tile == grain,
                 "[{}] tiles of {} along \"{}\", but each row of its weights comes through a stream once, for {}: "
                 "take {} or leave it out (node \"{}\")",
                 node.op->name, tile, axis.iname,
                 grain < extent ? fmt::format("{} at a time", grain) : fmt::format("all {}", extent), grain, node.name);
  if (tile >= extent || tile % grain == 0) return;
  throw UserError(fmt::format(
      "[{}] tiles of {} along \"{}\", but {} rows of its weights lie together and cannot be cut apart: take "
      "a multiple of {} (node \"{}\")",
      node.op->name, tile, axis.iname, grain, grain, node.name));
}

// Where an axis is cut for a user who wants so many pieces: that many, or fewer where the layout of weights does not
// allow it.
std::vector<int64_t> cut_pieces(const graph::TaskAxis& axis, const LoweredKernel& kernel, int64_t extent,
                                int64_t pieces) {
  if (counts_slices(axis.iname, kernel)) return cut_axis(extent, 1, extent, 0);
  if (comes_once(axis, kernel)) return cut_axis(extent, 1, 1, stream::tile_rows(extent));
  if (const int64_t half = half_of_group(axis, kernel); half > 0) return cut_axis(extent, 1, 1, half);
  return cut_axis(extent, grain_of(axis, kernel, extent), pieces, 0);
}

// Planning takes memory and time for each task; a launch grid has fewer blocks than that, too.
constexpr int64_t kMaxTasksOfNode = int64_t{1} << 20;

// The cuts of all axes: enough pieces along them, in order, to give every worker a task.
std::vector<std::vector<int64_t>> cut_axes(const Node& node, const graph::NodeSchedule& schedule,
                                           const LoweredKernel& kernel, const std::vector<int64_t>& extents,
                                           int64_t num_workers) {
  std::vector<std::vector<int64_t>> cuts;
  int64_t wanted = num_workers, num_tasks = 1;
  for (size_t i = 0; i < extents.size(); ++i)
    if (comes_once(node.op->axes[i], kernel))
      wanted = std::max<int64_t>(wanted / ceil_div(extents[i], stream::tile_rows(extents[i])), 1);
  for (size_t i = 0; i < extents.size(); ++i) {
    const graph::TaskAxis& axis = node.op->axes[i];
    const auto chosen = schedule.tile.find(axis.iname);
    const int64_t tile = chosen != schedule.tile.end()       ? chosen->second
                         : comes_once(axis, kernel)          ? stream::tile_rows(extents[i])
                         : counts_slices(axis.iname, kernel) ? 1
                                                             : half_of_group(axis, kernel);
    if (chosen != schedule.tile.end()) check_tile(node, kernel, axis, tile, extents[i]);
    const auto pieces = schedule.pieces.find(axis.iname);
    const bool has_pieces = pieces != schedule.pieces.end();
    const int64_t asked = has_pieces ? std::min(pieces->second, extents[i]) : tile > 0 ? ceil_div(extents[i], tile) : 1;
    MEGALITH_CHECK(asked <= kMaxTasksOfNode / num_tasks,
                   "[{}] {} tiles along \"{}\" make more than {} tasks: take larger tiles (node \"{}\")", node.op->name,
                   asked, axis.iname, kMaxTasksOfNode, node.name);
    cuts.push_back(has_pieces ? cut_pieces(axis, kernel, extents[i], pieces->second)
                              : cut_axis(extents[i], multiple_of(axis, kernel), wanted, tile));
    num_tasks *= std::max<int64_t>(asked, 1);
    wanted = ceil_div(wanted, static_cast<int64_t>(cuts.back().size()) - 1);
  }
  return cuts;
}

Memory memory_of(graph::TensorKind kind) {
  switch (kind) {
    case graph::TensorKind::constant: return Memory::constant;
    case graph::TensorKind::state: return Memory::state;
    case graph::TensorKind::activation: return Memory::arena;
  }
  return Memory::state;
}

Buffer buffer_of(const graph::Tensor& tensor, bool exchanged) {
  const Memory memory = exchanged ? Memory::exchange : memory_of(tensor.kind);
  Buffer buffer{tensor.name, tensor.dtype, {}, memory, 0, tensor.bytes() * (exchanged ? 2 : 1)};
  for (const graph::Dim& dim : tensor.shape) buffer.shape.push_back(dim.size);
  return buffer;
}

class Partitioner {
 public:
  Partitioner(const Graph& graph, const graph::LoweredGraph& lowered, int64_t num_workers,
              const machine::WorkerRates& rates)
      : graph_(graph),
        lowered_(lowered),
        num_workers_(num_workers),
        costs_(graph, lowered, rates),
        regions_(graph, lowered) {
    for (const LoweredKernel& kernel : lowered.kernels) extents_.push_back(axis_extents(kernel, kernel.binding));
  }

  Partitioned run() {
    result_.buffers = buffers_of(graph_, lowered_.schedule);
    for (size_t n = 0; n < graph_.nodes().size(); ++n) {
      interruption_check();
      add_node(static_cast<int>(n));
    }
    return std::move(result_);
  }

 private:
  void add_node(int node_index) {
    const Node& node = graph_.nodes()[static_cast<size_t>(node_index)];
    const int kernel = lowered_.kernel_of_node[static_cast<size_t>(node_index)];
    const auto cuts =
        cut_axes(node, lowered_.schedule.nodes[static_cast<size_t>(node_index)],
                 lowered_.kernels[static_cast<size_t>(kernel)], extents_[static_cast<size_t>(kernel)], num_workers_);
    std::vector<loop::Range> ranges(cuts.size());
    const size_t first = result_.tasks.size();
    add_tiles(node_index, kernel, cuts, ranges, 0);
    for (size_t t = first; t < result_.tasks.size(); ++t)
      result_.tasks[t].cost_ns *= share(kernel, result_.tasks[t].tile, result_.tasks.size() - first);
    set_partners(node, lowered_.kernels[static_cast<size_t>(kernel)], cuts, first);
  }

  // Of the node's tasks, from number `first` on, those that share a group of streamed rows: neighbours along that axis.
  void set_partners(const Node& node, const LoweredKernel& kernel, const std::vector<std::vector<int64_t>>& cuts,
                    size_t first) {
    size_t apart = 1;  // from a task to the next one along the axis
    for (size_t axis = cuts.size(); axis-- > 0; apart *= cuts[axis].size() - 1) {
      if (half_of_group(node.op->axes[axis], kernel) == 0) continue;
      const size_t along = cuts[axis].size() - 1;
      MEGALITH_ASSERT(along % 2 == 0, "[partition] node \"{}\" has {} halves of groups", node.name, along);
      for (size_t t = first; t < result_.tasks.size(); ++t) {
        const bool is_first = (t - first) / apart % along % 2 == 0;
        result_.tasks[t].partner = static_cast<int>(is_first ? t + apart : t - apart);
      }
      return;
    }
  }

  // All tiles, the first axis slowest.
  void add_tiles(int node_index, int kernel, const std::vector<std::vector<int64_t>>& cuts,
                 std::vector<loop::Range>& ranges, size_t axis) {
    if (axis == cuts.size()) return add_task(node_index, ranges);
    for (size_t i = 0; i + 1 < cuts[axis].size(); ++i) {
      ranges[axis] = {lowered_.kernels[static_cast<size_t>(kernel)].tiled[axis], cuts[axis][i], cuts[axis][i + 1]};
      add_tiles(node_index, kernel, cuts, ranges, axis + 1);
    }
  }

  void add_task(int node_index, const std::vector<loop::Range>& ranges) {
    const Node& node = graph_.nodes()[static_cast<size_t>(node_index)];
    Task task;
    task.node = node_index;
    task.tile = ranges;
    std::vector<std::string> spans;
    for (const loop::Range& range : ranges)
      spans.push_back(fmt::format("{}={}:{}", range.iname, range.begin, range.end));
    task.name = spans.empty() ? node.name : fmt::format("{}[{}]", node.name, fmt::join(spans, ","));

    regions_.fill(task);
    const Cost cost = costs_.of(node_index, counted_as(node_index, ranges), kCostRows);
    task.cost_ns = costs_.ns(node_index, cost);
    task.side = side_of(node_index, ranges);
    result_.tasks.push_back(std::move(task));
  }

  const graph::TunedBody* body_of(int node_index) const {
    return lowered_.kernels[static_cast<size_t>(lowered_.kernel_of_node[static_cast<size_t>(node_index)])].body;
  }

  int side_of(int node_index, const std::vector<loop::Range>& tile) const {
    const graph::TunedBody* body = body_of(node_index);
    const bool is_on_sides =
        body && std::ranges::any_of(graph_.nodes()[static_cast<size_t>(node_index)].operands, [&](graph::TensorId id) {
          return lowered_.schedule.layout(id) == graph::Layout::head_pairs;
        });
    for (const loop::Range& range : tile)
      if (is_on_sides && range.iname == body->sides_along && range.end - range.begin == 1)
        return static_cast<int>(range.begin % 2);
    return -1;
  }

  std::vector<loop::Range> counted_as(int node_index, std::vector<loop::Range> tile) const {
    const graph::TunedBody* body = body_of(node_index);
    for (loop::Range& range : tile)
      if (body && range.iname == body->alike_along) range = {range.iname, 0, range.end - range.begin};
    return tile;
  }

  // What a tile has to do, of what the first one has. As much as twice where it grows: as much as the last one of the second
  // chunk of a prompt has more than the first one of it. Where it shrinks, as little as half, unless a worker has several: if a
  // text is as long as it may be they have all the same, and would be dealt unevenly.
  double share(int kernel, const std::vector<loop::Range>& tile, size_t num_tasks) const {
    const graph::TunedBody* body = lowered_.kernels[static_cast<size_t>(kernel)].body;
    if (!body) return 1;
    const auto passed = [&](const std::string& iname) {
      const auto range = std::ranges::find(tile, iname, &loop::Range::iname);
      const int64_t extent = extents_[static_cast<size_t>(kernel)][static_cast<size_t>(range - tile.begin())];
      return static_cast<double>(range->begin) / static_cast<double>(extent);
    };
    if (!body->grows_along.empty()) return 1 + passed(body->grows_along);
    if (!body->shrinks_along.empty() && static_cast<int64_t>(num_tasks) <= num_workers_)
      return 1 - passed(body->shrinks_along) / 2;
    return 1;
  }

  const Graph& graph_;
  const graph::LoweredGraph& lowered_;
  const int64_t num_workers_;
  Costs costs_;
  std::vector<std::vector<int64_t>> extents_;
  const TileRegions regions_;
  Partitioned result_;
};

}  // namespace

std::vector<Buffer> buffers_of(const Graph& graph, const graph::Schedule& schedule) {
  std::vector<Buffer> buffers;
  for (size_t i = 0; i < graph.tensors().size(); ++i)
    buffers.push_back(buffer_of(graph.tensors()[i], schedule.layouts[i] == graph::Layout::flag_in_data));
  return buffers;
}

bool counts_slices(const std::string& axis, const LoweredKernel& lowered) {
  return lowered.body && lowered.body->streamed && lowered.body->streamed->slice_axis == axis;
}

std::vector<int64_t> axis_extents(const LoweredKernel& lowered, const loop::Binding& binding) {
  std::vector<int64_t> extents;
  if (lowered.tiled.empty()) return extents;
  loop::with_isl_limit(lowered.kernel.name, [&] {
    const isl::set domain = loop::kernel_domain(lowered.kernel, binding);
    const std::vector<std::string> inames = lowered.kernel.inames();
    for (const std::string& iname : lowered.tiled) {
      const auto at = std::find(inames.begin(), inames.end(), iname);
      MEGALITH_CHECK(at != inames.end(), "[{}] the task axis \"{}\" is no iname of its loop kernel", lowered.op->name,
                     iname);
      extents.push_back(extent_of(domain, at - inames.begin()));
    }
  });
  return extents;
}

std::vector<int64_t> axis_grains(const LoweredKernel& lowered) {
  const std::vector<int64_t> extents = axis_extents(lowered, lowered.binding);
  std::vector<int64_t> grains;
  for (size_t a = 0; a < extents.size(); ++a) grains.push_back(grain_of(lowered.op->axes[a], lowered, extents[a]));
  return grains;
}

Partitioned partition(const graph::Graph& graph, const graph::LoweredGraph& lowered, int num_workers,
                      const machine::WorkerRates& rates) {
  MEGALITH_CHECK(num_workers >= 1 && num_workers <= kMaxWorkers, "{} workers, want 1 to {}", num_workers, kMaxWorkers);
  return Partitioner(graph, lowered, num_workers, rates).run();
}

}  // namespace megalith::task
