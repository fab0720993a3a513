// Boxes for the verifier, which shares no code with planning: in order, by what they meet, as text; and a bound on how
// much looking at them may take.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "megalith/task/task_graph.h"

namespace megalith::task::verifier {

/// Some order of boxes of one rank.
struct BoxOrder {
  bool operator()(const loop::Box* a, const loop::Box* b) const {
    for (size_t d = 0; d < a->lo.size(); ++d) {
      if (a->lo[d] != b->lo[d]) return a->lo[d] < b->lo[d];
      if (a->hi[d] != b->hi[d]) return a->hi[d] < b->hi[d];
    }
    return false;
  }
};

/// "[0:1, 0:128]"
std::string box_text(const loop::Box& box);
inline bool touches_nothing(const loop::Box& box) {
  for (size_t d = 0; d < box.lo.size(); ++d)
    if (box.hi[d] <= box.lo[d]) return true;
  return false;
}
/// Whether two boxes of one rank have an element in common; neither touches nothing.
inline bool meet(const loop::Box& a, const loop::Box& b) {
  for (size_t d = 0; d < a.lo.size(); ++d)
    if (a.lo[d] >= b.hi[d] || b.lo[d] >= a.hi[d]) return false;
  return true;
}

/// What may be spent on a graph beyond what grows with it: somebody's graph may be cut so finely, or be so tangled, that
/// looking at it would take for ever. Counted by all parts together.
class Budget {
 public:
  /// Steps of a few nanoseconds. False once there are none left; the part that asks stops, and verify() says that nothing
  /// was proved.
  bool spend(int64_t steps) {
    return left_.load(std::memory_order_relaxed) > 0 && left_.fetch_sub(steps, std::memory_order_relaxed) > steps;
  }
  void spend_all() { left_.store(0, std::memory_order_relaxed); }
  bool is_spent() const { return left_.load(std::memory_order_relaxed) <= 0; }

 private:
  // Some ten seconds of one core. Qwen3-8B on 132 workers takes a thousandth of it.
  std::atomic<int64_t> left_ = int64_t{1} << 31;
};

/// Boxes of one buffer, sorted along the dimension that tells them apart best, to find those that meet another box.
class BoxIndex {
 public:
  void add(const loop::Box& box) { list_.push_back({&box, list_.size(), 0}); }
  /// Once all are added.
  void sort();
  /// Calls visit(number) of each box that meets `box`, by its number in the order of add(); such a call takes so many
  /// steps. Ends early without budget.
  template <class Visit>
  void visit(const loop::Box& box, Budget& budget, int64_t steps_of_visit, Visit&& visit) const {
    auto item = list_.begin();
    if (!box.lo.empty())
      item = std::upper_bound(list_.begin(), list_.end(), box.lo[axis_],
                              [](int64_t begin, const Item& i) { return begin < i.end_so_far; });
    int64_t steps = 1;
    for (; item != list_.end() && (box.lo.empty() || item->box->lo[axis_] < box.hi[axis_]); ++item, ++steps) {
      if (meet(*item->box, box)) visit(item->number), steps += steps_of_visit;
      if (steps >= kStepsAtOnce && !budget.spend(std::exchange(steps, 0))) return;
    }
    budget.spend(steps);
  }

 private:
  static constexpr int64_t kStepsAtOnce = 1024;
  struct Item {
    const loop::Box* box;
    size_t number;
    int64_t end_so_far;  // of those up to this one
  };

  std::vector<Item> list_;
  size_t axis_ = 0;
};

}  // namespace megalith::task::verifier
