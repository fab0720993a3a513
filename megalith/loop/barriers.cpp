#include "megalith/loop/barriers.h"

#include <algorithm>
#include <functional>
#include <set>

namespace megalith::loop {

namespace {

bool contains_instruction(const NestNode& node, size_t instruction) {
  if (node.instruction == static_cast<int>(instruction)) return true;
  return std::ranges::any_of(node.body,
                             [&](const NestNode& child) { return contains_instruction(child, instruction); });
}

// As few gaps as satisfy the demands in this body of one kind, beside those of `gaps`. A gap is what stands before the child
// of that number.
std::set<size_t> find_gaps(const std::vector<NestNode>& nodes, size_t level, const std::vector<BarrierDemand>& demands,
                           bool in_warp, const std::set<size_t>& there) {
  struct Interval {
    size_t first, last;
  };
  std::vector<Interval> plain;
  std::vector<std::pair<Interval, Interval>> around;  // after the one, or before the other in the next iteration
  for (const BarrierDemand& demand : demands) {
    if (demand.level != level || demand.in_warp != in_warp) continue;
    const size_t from = child_of(nodes, demand.from), to = child_of(nodes, demand.to);
    if (from == nodes.size() || to == nodes.size()) continue;
    if (demand.carried)
      around.push_back({{from + 1, nodes.size()}, {0, to}});
    else
      plain.push_back({from + 1, to});
  }
  std::set<size_t> gaps = there;
  const auto is_met = [&](const Interval& wanted) {
    const auto found = gaps.lower_bound(wanted.first);
    return found != gaps.end() && *found <= wanted.last;
  };
  std::ranges::sort(plain, {}, &Interval::last);
  for (const Interval& wanted : plain)
    if (!is_met(wanted)) gaps.insert(wanted.last);
  for (const auto& [behind, before] : around)
    if (!is_met(behind) && !is_met(before)) gaps.insert(nodes.size());
  return gaps;
}

// As few barriers as satisfy all demands in this body, and in those inside: of the block first, then of warps.
void place(std::vector<NestNode>& nodes, size_t level, const std::vector<BarrierDemand>& demands,
           BarrierCounts& counts) {
  for (NestNode& node : nodes) place(node.body, level + 1, demands, counts);
  const std::set<size_t> of_block = find_gaps(nodes, level, demands, false, {});
  const std::set<size_t> all = find_gaps(nodes, level, demands, true, of_block);
  for (const size_t gap : std::set<size_t, std::greater<>>(all.begin(), all.end()))
    nodes.insert(nodes.begin() + static_cast<std::ptrdiff_t>(gap),
                 NestNode{.iname = "", .body = {}, .instruction = -1, .is_warp_barrier = !of_block.contains(gap)});
  counts.all += static_cast<int>(all.size());
  counts.of_warps += static_cast<int>(all.size() - of_block.size());
}

}  // namespace

size_t child_of(const std::vector<NestNode>& nodes, size_t instruction) {
  const auto found =
      std::ranges::find_if(nodes, [&](const NestNode& node) { return contains_instruction(node, instruction); });
  return static_cast<size_t>(found - nodes.begin());
}

BarrierCounts place_barriers(std::vector<NestNode>& nodes, const std::vector<BarrierDemand>& demands) {
  BarrierCounts counts;
  place(nodes, 0, demands, counts);
  return counts;
}

}  // namespace megalith::loop
