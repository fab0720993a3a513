#include "megalith/task/tile_regions.h"

#include <algorithm>
#include <utility>

namespace megalith::task {

namespace {

void add_once(std::vector<Region>& regions, Region region) {
  for (const Region& other : regions)
    if (other.buffer == region.buffer && other.box.contains(region.box)) return;
  regions.push_back(std::move(region));
}

}  // namespace

TileRegions::TileRegions(const graph::Graph& graph, const graph::LoweredGraph& lowered)
    : graph_(graph), lowered_(lowered) {
  for (const graph::LoweredKernel& kernel : lowered.kernels)
    footprints_.emplace_back(kernel.kernel, kernel.binding, kernel.tiled);
}

void TileRegions::fill(Task& task) const {
  const auto index = static_cast<size_t>(task.node);
  const graph::Node& node = graph_.nodes()[index];
  const auto footprint = footprints_[static_cast<size_t>(lowered_.kernel_of_node[index])].of_tile(task.tile);
  task.reads.clear();
  task.writes.clear();
  for (size_t i = 0; i < node.operands.size(); ++i) {
    const auto found = footprint.find(node.op->operands[i].name);
    if (found == footprint.end()) continue;
    for (const loop::Box& box : found->second.writes) task.writes.push_back({node.operands[i], box});
    for (const loop::Box& box : found->second.reads) {
      // What a task writes itself it need not get from an exchange.
      const bool own = std::ranges::any_of(found->second.writes, [&](const loop::Box& w) { return w.contains(box); });
      if (own && lowered_.exchanged[static_cast<size_t>(node.operands[i])]) continue;
      task.reads.push_back({node.operands[i], box});
    }
  }
  for (const auto& [size, dynamic] : node.dynamic) {
    const graph::DynamicSize& where = graph_.dynamic_sizes().at(dynamic);
    add_once(task.reads, {where.tensor, loop::Box{{where.index}, {where.index + 1}}});
  }
}

}  // namespace megalith::task
