#include "megalith/task/tile_regions.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "megalith/loop/access.h"

namespace megalith::task {

namespace {

void add_once(std::vector<Region>& regions, Region region) {
  for (const Region& other : regions)
    if (other.buffer == region.buffer && other.box.contains(region.box)) return;
  regions.push_back(std::move(region));
}

std::set<std::string> read_and_written(const loop::Kernel& kernel) {
  std::set<std::string> read, written, both;
  for (const loop::Instruction& instruction : kernel.instructions) {
    written.insert(instruction.target.name);
    loop::visit_expressions(instruction, [&](const loop::Expr& expr, const loop::Place& place) {
      if (expr.kind == loop::Expr::Kind::subscript && !place.is_target) read.insert(expr.name);
    });
  }
  std::ranges::set_intersection(read, written, std::inserter(both, both.end()));
  return both;
}

// Of a scatter the operands that are written where tables say: those that keep what nobody writes.
bool is_scattered(const graph::Operator& op, size_t operand) {
  return !op.scatters.empty() && op.operands[operand].role == loop::Role::inout;
}

}  // namespace

TileRegions::TileRegions(const graph::Graph& graph, const graph::LoweredGraph& lowered)
    : graph_(graph), lowered_(lowered) {
  for (const graph::LoweredKernel& kernel : lowered.kernels) {
    footprints_.emplace_back(kernel.kernel, kernel.binding, kernel.tiled);
    updated_.push_back(read_and_written(kernel.kernel));
  }
}

void TileRegions::fill(Task& task) const {
  const auto index = static_cast<size_t>(task.node);
  const graph::Node& node = graph_.nodes()[index];
  const auto kernel = static_cast<size_t>(lowered_.kernel_of_node[index]);
  const auto footprint = footprints_[kernel].of_tile(task.tile);
  const std::set<std::string>& updated = updated_[kernel];
  const auto rows = std::ranges::find(task.tile, node.op->scatters, &loop::Range::iname);
  task.reads.clear();
  task.writes.clear();
  for (size_t i = 0; i < node.operands.size(); ++i) {
    const auto found = footprint.find(node.op->operands[i].name);
    if (found == footprint.end()) continue;
    // Said where it matters: of what this operand both reads and writes.
    const int operand = updated.contains(found->first) ? static_cast<int>(i) : -1;
    for (const loop::Box& box : found->second.writes) {
      task.writes.push_back({node.operands[i], box, operand});
      if (rows == task.tile.end() || !is_scattered(*node.op, i)) continue;
      task.writes.back().row_begin = rows->begin;
      task.writes.back().row_end = rows->end;
    }
    for (const loop::Box& box : found->second.reads) {
      // What a task writes itself it need not get from an exchange.
      const bool own = std::ranges::any_of(found->second.writes, [&](const loop::Box& w) { return w.contains(box); });
      if (own && lowered_.schedule.layout(node.operands[i]) == graph::Layout::flag_in_data) continue;
      task.reads.push_back({node.operands[i], box, operand});
    }
  }
  for (const auto& [size, dynamic] : node.dynamic) {
    const graph::DynamicSize& where = graph_.dynamic_sizes().at(dynamic);
    add_once(task.reads, {where.tensor, loop::Box{{where.index}, {where.index + 1}}});
  }
}

}  // namespace megalith::task
