// The parts of the verifier, for verify.cpp alone: each looks at one promise and adds what it finds.
#pragma once

#include <cstdint>
#include <deque>
#include <future>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "megalith/task/task_graph.h"
#include "megalith/task/verify.h"
#include "megalith/task/verify_boxes.h"

namespace megalith::task::verifier {

/// Tasks of a graph for which threads are worth their start.
constexpr size_t kWorthAThread = 4096;
/// How std::async() runs what can be done beside the rest: by a thread, if one is worth it and to be had.
inline std::launch aside(const TaskGraph& graph) {
  const bool alone = graph.tasks.size() < kWorthAThread;
  return alone ? std::launch::deferred : std::launch::async | std::launch::deferred;
}

/// Of a worker's stream: it counts them in 32 bits (runtime/protocol.h).
constexpr int64_t kMaxChunks = std::numeric_limits<uint32_t>::max();

class Findings {
 public:
  void add(FindingKind kind, std::vector<int> tasks, int event, int buffer, std::string message) {
    add({kind, std::move(tasks), event, buffer, std::move(message)});
  }
  void add(Finding finding) {
    if (!full()) list_.push_back(std::move(finding));
  }
  void add(Findings& others) {
    for (Finding& finding : others.list_) add(std::move(finding));
  }
  bool none() const { return list_.empty(); }
  bool full() const { return list_.size() >= kMax; }
  std::vector<Finding> take() { return std::move(list_); }

 private:
  static constexpr size_t kMax = 20;
  std::vector<Finding> list_;
};

/// Lists one behind the other.
template <class Item = int>
struct Lists {
  std::vector<size_t> begin = {0};
  std::vector<Item> items;

  std::span<const Item> operator[](size_t i) const { return {items.data() + begin[i], begin[i + 1] - begin[i]}; }
  /// The next list has all that was added to `items`.
  void end_list() { begin.push_back(items.size()); }
  /// `count` lists of what visit(add) adds, in its order, by add(list, item). It is called twice.
  template <class Visit>
  static Lists sorted(size_t count, Visit&& visit) {
    Lists lists;
    lists.begin.assign(count + 1, 0);
    visit([&](size_t list, const Item&) { ++lists.begin[list + 1]; });
    std::partial_sum(lists.begin.begin(), lists.begin.end(), lists.begin.begin());
    lists.items.resize(lists.begin.back());
    std::vector<size_t> next(lists.begin);
    visit([&](size_t list, const Item& item) { lists.items[next[list]++] = item; });
    return lists;
  }
};

/// Indices, names, shapes, sizes, counts. The other parts rely on what it checks.
void check_structure(const TaskGraph& graph, Findings& findings);

/// A run of one iteration, or the cycle that stops it: the order in which the tasks ran; shorter than the graph if
/// stuck.
std::vector<int> simulate(const TaskGraph& graph, Budget& budget, Findings& findings);

/// No task reads, as another operand, what its node writes.
void check_in_place(const TaskGraph& graph, Budget& budget, Findings& findings);

/// Streams hold what tasks read of them, once, in the order in which tasks take it.
void check_streams(const TaskGraph& graph, Findings& findings);

/// A task in one of the two iterations that are looked at.
struct Instance {
  int task = -1;  // -1: nobody
  int iteration = 0;
};

/// Per worker the last moment (Clocks) at which it did something; 0: it did not.
using Moments = std::span<int>;

/// Who precedes whom, over two iterations. A moment is a task's position in its worker's list, counted from 1 through
/// the first iteration and on through the second.
class Clocks {
 public:
  /// `order`: all tasks, as simulate() ran them.
  Clocks(const TaskGraph& graph, const std::vector<int>& order);

  /// True if `first` in iteration `iteration` (0 or 1) precedes `second` in iteration 1, or is it.
  bool precedes(int first, int iteration, int second) const {
    if (worker(first) == worker(second)) return moment(second, 1) >= moment(first, iteration);
    return clock(second)[worker(first)] >= moment(first, iteration);
  }
  int worker(int task) const { return worker_[static_cast<size_t>(task)]; }
  int moment(int task, int iteration) const {
    const size_t t = static_cast<size_t>(task);
    return position_[t] + iteration * length_[static_cast<size_t>(worker_[t])];
  }
  size_t num_workers() const { return length_.size(); }
  /// A worker whose moment does not precede `task` of iteration 1; -1 if all do.
  int late_worker(std::span<const int> moments, int task) const {
    const auto own = static_cast<size_t>(worker(task));
    const int* of_task = clock(task);
    int is_late = 0;
    const auto look = [&](size_t begin, size_t end) {  // no way out: by vectors
      for (size_t w = begin; w < end; ++w) is_late |= moments[w] > of_task[w];
    };
    look(0, own);
    look(own + 1, moments.size());
    if (moments[own] > moment(task, 1)) return static_cast<int>(own);
    if (!is_late) return -1;
    size_t w = 0;
    while (w == own || moments[w] <= of_task[w]) ++w;
    return static_cast<int>(w);
  }

 private:
  // Per other worker the last moment that precedes `task` of iteration 1; its own is no matter here.
  const int* clock(int task) const { return &clocks_[clock_[static_cast<size_t>(task)]]; }

  std::vector<int> worker_, position_;  // per task
  std::vector<int> length_;             // per worker
  // Tasks that know the same of others have one clock together: those that one worker runs without learning of others in
  // between, and those that wait for one event.
  std::vector<size_t> clock_;  // per task where it begins
  std::vector<int> clocks_;
};

/// What a worker does at a moment from 1.
inline Instance instance_at(const TaskGraph& graph, int worker, int moment) {
  const std::vector<int>& list = graph.workers[static_cast<size_t>(worker)];
  const int length = static_cast<int>(list.size()), iteration = moment > length;
  return {list[static_cast<size_t>(moment - iteration * length - 1)], iteration};
}

/// No signal of the next iteration can stand in for one of this.
void check_overrun(const TaskGraph& graph, const Clocks& clocks, Findings& findings);

/// The arena's bytes, cut where buffers begin and end. Cells that one buffer has to itself are left out.
class ArenaCells {
 public:
  ArenaCells(const TaskGraph& graph, Budget& budget);

  size_t size() const { return num_cells_; }
  struct Range {
    int first, end;
  };
  /// Those of a buffer; none if it shares no byte.
  Range of_buffer(int b) const { return ranges_[static_cast<size_t>(b)]; }

 private:
  std::vector<Range> ranges_;
  size_t num_cells_ = 0;
};

struct Access {
  int task;
  bool writes;
  const Region* region;
  // What the buffer is cut by: the region's box. Where rows are scattered into the buffer they are one dimension more:
  // of a scatter its rows, of all else all there are.
  const loop::Box* box;
  const loop::Box* all_rows = nullptr;   // of a scatter: its box with all rows
  int part = -1, part_of_all_rows = -1;  // their numbers among the boxes of the buffer
  // Of a read: the last write before it, in iteration 1, through another buffer with bytes in common, and the buffer.
  Instance overwrite = {};
  int overwriter = -1;
};

/// What all tasks do to each buffer but constant ones, in program order.
struct Accesses {
  std::vector<std::vector<Access>> of_buffer;
  std::vector<std::vector<const loop::Box*>> boxes;  // per buffer, each once; none if there is no hazard
  std::deque<loop::Box> with_rows;                   // those of them that no region has

  Accesses(const TaskGraph& graph, const ArenaCells& cells, Budget& budget);
  Accesses(Accesses&&) = default;

 private:
  void add_rows(std::vector<Access>& accesses);
};

/// Accesses to the same elements of the same buffer are ordered as in the program, and no value that is read was
/// overwritten through another buffer. Returns the number of ordered pairs looked at.
int64_t check_hazards(const TaskGraph& graph, const Accesses& accesses, const Clocks& clocks, Budget& budget,
                      Findings& findings);

/// Accesses to different arena buffers with bytes in common are ordered as in the program. Returns as above.
int64_t check_shared_bytes(const TaskGraph& graph, const ArenaCells& cells, const Clocks& clocks, Budget& budget,
                           Findings& findings);

/// `..., and nothing orders them`, with what is true: unordered, or ordered the wrong way round.
std::string order_text(const Clocks& clocks, int first, int iteration, int second);

}  // namespace megalith::task::verifier
