// What a node reads of what it writes. Tasks of one node may be ordered among each other (planning orders whatever
// conflicts), and the result is wrong all the same: an operator's inputs are what they were before it began.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "megalith/task/verify_parts.h"

namespace megalith::task::verifier {

namespace {

bool same_operand(const Region& a, const Region& b) { return a.operand >= 0 && a.operand == b.operand; }
bool other_operand(const Region& a, const Region& b) {
  return a.operand >= 0 && b.operand >= 0 && a.operand != b.operand;
}

class InPlace {
 public:
  InPlace(const TaskGraph& graph, Budget& budget, Findings& findings)
      : graph_(graph), budget_(budget), findings_(findings), uses_(graph.buffers.size()) {}

  void check() {
    std::vector<int> tasks(graph_.tasks.size());
    std::iota(tasks.begin(), tasks.end(), 0);
    std::stable_sort(tasks.begin(), tasks.end(), [&](int a, int b) { return task(a).node < task(b).node; });
    for (size_t begin = 0, end = 0; begin < tasks.size() && !findings_.full(); begin = end) {
      while (end < tasks.size() && task(tasks[end]).node == task(tasks[begin]).node) ++end;
      check_node(std::span(tasks).subspan(begin, end - begin));
    }
  }

 private:
  struct Access {
    int task;
    const Region* region;
  };
  // Of one buffer, by the node at hand.
  struct Use {
    std::vector<Access> reads, writes;
  };

  void check_node(std::span<const int> tasks) {
    for (const int t : tasks) {
      for (const Region& region : task(t).reads) add(region, &Use::reads, t);
      for (const Region& region : task(t).writes) add(region, &Use::writes, t);
    }
    for (const int b : touched_) {
      Use& use = uses_[static_cast<size_t>(b)];
      if (!use.writes.empty() && !findings_.full()) check_use(use);
      use.reads.clear();
      use.writes.clear();
    }
    touched_.clear();
  }

  void add(const Region& region, std::vector<Access> Use::*list, int t) {
    if (graph_.buffers[static_cast<size_t>(region.buffer)].memory == Memory::constant || touches_nothing(region.box))
      return;
    Use& use = uses_[static_cast<size_t>(region.buffer)];
    if (use.reads.empty() && use.writes.empty()) touched_.push_back(region.buffer);
    (use.*list).push_back({t, &region});
  }

  void check_use(const Use& use) {
    const bool is_alone =
        use.reads.empty() && std::ranges::adjacent_find(use.writes, [](const Access& a, const Access& b) {
                               return a.task == b.task;
                             }) == use.writes.end();
    if (is_alone) return;  // nearly every buffer that is written
    BoxIndex index;
    for (const Access& write : use.writes) index.add(write.region->box);
    index.sort();
    for (const Access& read : use.reads) check_read(read, use, index);
    for (size_t i = 0; i < use.writes.size(); ++i)
      index.visit(use.writes[i].region->box, budget_, 1, [&](size_t w) {
        if (w < i) check_writes(use.writes[w], use.writes[i]);
      });
  }

  void check_read(const Access& read, const Use& use, const BoxIndex& index) {
    const Access* own = nullptr;  // a write of the same task that nothing says is right
    bool is_told_apart = false, is_covered = false;
    index.visit(read.region->box, budget_, 1, [&](size_t w) {
      const Access& write = use.writes[w];
      if (same_operand(*read.region, *write.region)) return;
      if (read.task != write.task) {
        if (!task(read.task).tile.empty() && !task(write.task).tile.empty()) report_tiles(read, write);
        return;
      }
      own = &write;
      is_told_apart |= other_operand(*read.region, *write.region);
      is_covered |= contains(write.region->box, read.region->box);
    });
    // Who does not say which operands they are is believed if it reads no more than it writes itself: element by
    // element.
    if (own && (is_told_apart || !is_covered))
      report(read, *own, "reads", "may read there what it has written already");
  }

  // Boxes may be wider than what is written, so that those of one operand may meet; but then neither is in the other.
  void check_writes(const Access& a, const Access& b) {
    if (a.task != b.task || same_operand(*a.region, *b.region)) return;
    if (other_operand(*a.region, *b.region) || contains(a.region->box, b.region->box) ||
        contains(b.region->box, a.region->box))
      report(a, b, "writes", "writes there twice, in no order that is known");
  }

  void report(const Access& a, const Access& b, const char* does, const char* trouble) {
    findings_.add(FindingKind::in_place, {b.task}, -1, b.region->buffer,
                  fmt::format("task \"{}\" {} {} of buffer \"{}\" and {} {} of it{}: it {}; let it write "
                              "another buffer{}",
                              task(b.task).name, does, box_text(a.region->box), buffer(b),
                              does == std::string_view("writes") ? "also" : "writes", box_text(b.region->box),
                              other_operand(*a.region, *b.region)
                                  ? fmt::format(", as operands {} and {}", a.region->operand, b.region->operand)
                                  : "",
                              trouble,
                              other_operand(*a.region, *b.region)
                                  ? ""
                                  : ", or, where both are one operand, give both regions its number (\"operand\")"));
  }

  void report_tiles(const Access& read, const Access& write) {
    findings_.add(
        FindingKind::in_place, {write.task, read.task}, -1, write.region->buffer,
        fmt::format("task \"{}\" reads {} of buffer \"{}\", and task \"{}\" of the same node writes {} of it: a "
                    "node's inputs are what they were before it began; let it write another buffer",
                    task(read.task).name, box_text(read.region->box), buffer(write), task(write.task).name,
                    box_text(write.region->box)));
  }

  static bool contains(const loop::Box& outer, const loop::Box& inner) {
    for (size_t d = 0; d < outer.lo.size(); ++d)
      if (inner.lo[d] < outer.lo[d] || inner.hi[d] > outer.hi[d]) return false;
    return true;
  }
  const Task& task(int t) const { return graph_.tasks[static_cast<size_t>(t)]; }
  const std::string& buffer(const Access& access) const {
    return graph_.buffers[static_cast<size_t>(access.region->buffer)].name;
  }

  const TaskGraph& graph_;
  Budget& budget_;
  Findings& findings_;
  std::vector<Use> uses_;     // per buffer
  std::vector<int> touched_;  // buffers of the node at hand
};

}  // namespace

void check_in_place(const TaskGraph& graph, Budget& budget, Findings& findings) {
  InPlace(graph, budget, findings).check();
}

}  // namespace megalith::task::verifier
