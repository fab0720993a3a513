#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "megalith/task/verify_parts.h"

namespace megalith::task::verifier {

namespace {

// In the order of the program.
bool later(const Instance& a, const Instance& b) {
  return std::tuple(a.iteration, a.task) > std::tuple(b.iteration, b.task);
}

// The boxes that accesses name, each once, and each access's number among them.
void find_boxes(std::vector<Access>& accesses, std::vector<const loop::Box*>& boxes) {
  std::map<const loop::Box*, int, BoxOrder> numbers;
  for (Access& access : accesses) {
    const bool is_last = !boxes.empty() && *boxes.back() == *access.box;
    access.part = is_last ? static_cast<int>(boxes.size()) - 1
                          : numbers.try_emplace(access.box, static_cast<int>(boxes.size())).first->second;
    if (access.part == static_cast<int>(boxes.size())) boxes.push_back(access.box);
  }
}

// What tasks have done to one buffer so far. The boxes that they name, each once, are its parts; they cut it into
// cells, of which a part has some whole. A write is remembered by cell, the last one. A read is remembered by part, and
// of each worker the last one, since many tasks read the same: whoever comes after that one comes after all before it.
class History {
 public:
  struct Part {
    int first_moment = -1;  // of those who read it; -1: nobody ever does
    // As long as none of its cells is written again: of their last writes the first, and whether each has one.
    bool is_known = false, is_whole = false;
    Instance oldest;
    int asker = -1;  // the last write that asked who reads it
  };

  History(size_t rank, const std::vector<Access>& accesses, const std::vector<const loop::Box*>& boxes,
          size_t num_workers)
      : num_workers_(num_workers), parts_(boxes.size()) {
    size_t num_readers = 0;
    for (const Access& access : accesses)
      if (int& first = part(access.part).first_moment; !access.writes && first < 0)
        first = static_cast<int>(num_readers++ * num_workers);
    affordable_ = num_readers <= kMostVisits / num_workers && cut(rank, boxes);
    if (!affordable_) return;
    reads_.assign(num_readers * num_workers, 0);
    writes_ = reads_;
    find_readers();
  }

  /// False: so ragged that comparing every pair of accesses is better.
  bool affordable() const { return affordable_; }
  Part& part(int p) { return parts_[static_cast<size_t>(p)]; }
  std::span<const int> cells(int p) const { return cells_of_[static_cast<size_t>(p)]; }
  std::span<const int> readers(int cell) const { return readers_of_[static_cast<size_t>(cell)]; }
  /// Of a cell; of nobody if there was none.
  Instance& last_write(int cell) { return last_writes_[static_cast<size_t>(cell)]; }
  /// When each worker last read a part, and, if it is known, when each made the last of its cells' writes.
  Moments reads(const Part& part) { return {&reads_[static_cast<size_t>(part.first_moment)], num_workers_}; }
  Moments writes(const Part& part) { return {&writes_[static_cast<size_t>(part.first_moment)], num_workers_}; }

  /// What is remembered of the writes of part p, as it is now.
  const Part& known(int p, const Clocks& clocks) {
    Part& part = this->part(p);
    if (part.is_known) return part;
    part.is_known = part.is_whole = true;
    part.oldest = {};
    const Moments moments = writes(part);
    std::fill(moments.begin(), moments.end(), 0);
    for (int c : cells(p)) {
      const Instance& write = last_write(c);
      if (write.task < 0) {
        part.is_whole = false;
        continue;
      }
      int& last = moments[static_cast<size_t>(clocks.worker(write.task))];
      last = std::max(last, clocks.moment(write.task, write.iteration));
      if (part.oldest.task < 0 || later(part.oldest, write)) part.oldest = write;
    }
    return part;
  }

 private:
  // The cells of each part; false if there are too many.
  bool cut(size_t rank, const std::vector<const loop::Box*>& boxes) {
    std::vector<std::vector<int64_t>> cuts(rank);
    std::vector<int> ends;  // of each box, in each dimension: the number of the cut where it begins, and where it ends
    double num_cells = 1;
    for (size_t d = 0; d < rank; ++d) {
      for (const loop::Box* box : boxes) cuts[d].push_back(box->lo[d]), cuts[d].push_back(box->hi[d]);
      std::sort(cuts[d].begin(), cuts[d].end());
      cuts[d].erase(std::unique(cuts[d].begin(), cuts[d].end()), cuts[d].end());
      num_cells *= static_cast<double>(cuts[d].size() - 1);
    }
    double num_visits = 0;
    for (const loop::Box* box : boxes) {
      double visits = 1;
      for (size_t d = 0; d < rank; ++d) {
        for (int64_t end : {box->lo[d], box->hi[d]})
          ends.push_back(static_cast<int>(std::lower_bound(cuts[d].begin(), cuts[d].end(), end) - cuts[d].begin()));
        visits *= ends.back() - ends[ends.size() - 2];
      }
      num_visits += visits;
    }
    if (num_cells > double{kMostCells} || num_visits > double{kMostVisits}) return false;
    last_writes_.resize(static_cast<size_t>(num_cells));
    cells_of_.items.reserve(static_cast<size_t>(num_visits));
    for (size_t p = 0; p < boxes.size(); ++p) {
      add_cells(cuts, std::span(ends).subspan(2 * rank * p, 2 * rank), 0);
      cells_of_.end_list();
    }
    return true;
  }
  // Of the cells that `ends` says, those behind cell number `cell` of the dimensions that are left out of it.
  void add_cells(const std::vector<std::vector<int64_t>>& cuts, std::span<const int> ends, int cell) {
    if (ends.empty()) return cells_of_.items.push_back(cell);
    const int count = static_cast<int>(cuts[cuts.size() - ends.size() / 2].size()) - 1;
    for (int i = ends[0]; i < ends[1]; ++i) add_cells(cuts, ends.subspan(2), cell * count + i);
  }

  void find_readers() {
    readers_of_ = Lists<>::sorted(last_writes_.size(), [&](auto&& add) {
      for (int p = 0; p < static_cast<int>(parts_.size()); ++p)
        if (part(p).first_moment >= 0)
          for (int cell : cells(p)) add(static_cast<size_t>(cell), p);
    });
  }

  static constexpr size_t kMostCells = 1 << 22, kMostVisits = 1 << 24;

  const size_t num_workers_;
  std::vector<Part> parts_;
  Lists<> cells_of_, readers_of_;
  std::vector<Instance> last_writes_;
  std::vector<int> reads_, writes_;
  bool affordable_ = false;
};

// The hazards of one buffer. Each has its own, so they are looked at side by side.
class Hazards {
 public:
  Hazards(const TaskGraph& graph, const Clocks& clocks, const Accesses& accesses, size_t buffer)
      : graph_(graph),
        clocks_(clocks),
        buffer_(graph.buffers[buffer]),
        b_(static_cast<int>(buffer)),
        accesses_(accesses.of_buffer[buffer]),
        boxes_(accesses.boxes[buffer]),
        overlaps_(accesses.overlaps[buffer]),
        writers_(accesses.writers) {}

  void check() {
    if (boxes_.empty()) return;
    const bool exchange = buffer_.memory == Memory::exchange;
    History history(buffer_.shape.size(), accesses_, boxes_, clocks_.num_workers());
    if (history.affordable())
      check_history(history);
    else if (exchange)
      findings_.add(FindingKind::structure, {}, -1, b_,
                    fmt::format("the exchange \"{}\" is cut too finely to be looked at", buffer_.name));
    else
      check_pairs();
  }
  int64_t num_checked() const { return num_checked_; }
  std::vector<Finding> take_findings() { return findings_.take(); }

 private:
  // What there is to be said of an access, once and not for each cell.
  struct Doubt {
    Instance unordered;  // with whom
    bool unordered_writes = false;
    Instance stale;     // whose value is lost
    bool alone = true;  // of an exchange: one write, and reads behind it
  };

  // The first iteration is only remembered.
  void check_history(History& history) {
    const bool exchange = buffer_.memory == Memory::exchange;
    for (int iteration = 0; iteration < 2; ++iteration)
      for (const Access& access : accesses_) {
        if (findings_.full()) return;
        if (iteration == 1) {
          const Doubt doubt = access.writes ? check_write(access, history) : check_read(access, history, exchange);
          if (exchange && !doubt.alone) report_exchange(access);
          if (doubt.unordered.task >= 0) report_unordered(doubt.unordered, doubt.unordered_writes, access);
          if (doubt.stale.task >= 0) report_overwritten(doubt.stale, access);
        }
        if (access.writes) {
          for (int c : history.cells(access.part)) {
            history.last_write(c) = {access.task, iteration};
            for (int reader : history.readers(c)) history.part(reader).is_known = false;
          }
        } else {
          int& last = history.reads(history.part(access.part))[static_cast<size_t>(clocks_.worker(access.task))];
          last = std::max(last, clocks_.moment(access.task, iteration));
        }
      }
  }

  // Behind the last write of each cell and all reads of it.
  Doubt check_write(const Access& access, History& history) {
    Doubt doubt;
    for (int c : history.cells(access.part)) {
      const Instance& write = history.last_write(c);
      if (write.task >= 0 && write.iteration == 1) doubt.alone = false;
      if (write.task >= 0 && (write.task != access.task || write.iteration == 0)) {
        ++num_checked_;
        if (!clocks_.precedes(write.task, write.iteration, access.task))
          doubt.unordered = write, doubt.unordered_writes = true;
      }
      for (int r : history.readers(c)) {
        History::Part& reader = history.part(r);
        if (reader.asker == access.task) continue;
        reader.asker = access.task;
        if (const Instance read = unordered_of(history.reads(reader), access.task); read.task >= 0)
          doubt.unordered = read, doubt.unordered_writes = false;
      }
    }
    return doubt;
  }

  // Behind all writes of it; a read of an exchange waits for them by itself.
  Doubt check_read(const Access& access, History& history, bool exchange) {
    Doubt doubt;
    const History::Part& part = history.known(access.part, clocks_);
    doubt.alone = part.is_whole && part.oldest.iteration == 1;
    if (part.oldest.task < 0) return doubt;
    if (!exchange) {
      doubt.unordered = unordered_of(history.writes(part), access.task);
      doubt.unordered_writes = true;
    }
    if (later(last_overwriter(access.task).write, part.oldest)) doubt.stale = part.oldest;
    return doubt;
  }

  // One of `moments` that does not precede the task in iteration 1; nobody if all do.
  Instance unordered_of(Moments moments, int task) {
    num_checked_ += static_cast<int64_t>(moments.size());
    const int w = clocks_.late_worker(moments, task);
    return w < 0 ? Instance{} : instance_at(graph_, w, moments[static_cast<size_t>(w)]);
  }

  // The same by pairs: every access of the second iteration against every earlier one that it meets.
  void check_pairs() {
    for (size_t i = 0; i < accesses_.size() && !findings_.full(); ++i) {
      const Access& access = accesses_[i];
      Instance oldest_write{};  // its value may be what is read
      for (int iteration : {1, 0})
        for (size_t j = 0; j < (iteration == 1 ? i : accesses_.size()); ++j) {
          const Access& before = accesses_[j];
          if (before.writes && (oldest_write.task < 0 || oldest_write.iteration == iteration))
            if (oldest_write.task < 0 || before.task < oldest_write.task) oldest_write = {before.task, iteration};
          if ((!before.writes && !access.writes) || (before.task == access.task && iteration == 1)) continue;
          if (!meet(*before.box, *access.box)) continue;
          ++num_checked_;
          if (!clocks_.precedes(before.task, iteration, access.task))
            report_unordered({before.task, iteration}, before.writes, access);
        }
      if (access.writes || oldest_write.task < 0) continue;
      if (later(last_overwriter(access.task).write, oldest_write)) report_overwritten(oldest_write, access);
    }
  }

  static bool meet(const loop::Box& a, const loop::Box& b) {
    for (size_t d = 0; d < a.lo.size(); ++d)
      if (a.lo[d] >= b.hi[d] || b.lo[d] >= a.hi[d]) return false;
    return true;
  }

  // ---- values lost through another buffer at the same bytes --------------------------------------------------------

  // The last write before `task` of iteration 1 through a buffer that shares bytes with the one at hand, itself not
  // counted (its own are seen when shared bytes are ordered), and the buffer. It is the same for all tasks up to the
  // next such write.
  struct Overwriter {
    Instance write;
    int buffer = -1;
    int first_task = 0, end_task = 0;
  };
  const Overwriter& last_overwriter(int task) {
    if (task < overwriter_.first_task || task >= overwriter_.end_task) find_overwriter(task);
    return overwriter_;
  }
  void find_overwriter(int task) {
    Overwriter of_both[2] = {};  // of the iteration before, of this one
    overwriter_ = {.end_task = std::numeric_limits<int>::max()};
    for (int other : overlaps_) {
      const std::vector<int>& writers = writers_[static_cast<size_t>(other)];
      const auto take = [&](int iteration, int writer) {
        Overwriter& last = of_both[iteration];
        if (writer > last.write.task) last = {.write = {writer, iteration}, .buffer = other};
      };
      const auto next = std::lower_bound(writers.begin(), writers.end(), task);
      if (!writers.empty()) take(0, writers.back());
      if (next != writers.begin()) take(1, *std::prev(next));
      if (next != writers.end()) overwriter_.end_task = std::min(overwriter_.end_task, *next + 1);
    }
    const Overwriter& last = of_both[of_both[1].write.task >= 0];
    overwriter_.write = last.write;
    overwriter_.buffer = last.buffer;
    overwriter_.first_task = of_both[1].write.task + 1;
  }

  // ---- words -------------------------------------------------------------------------------------------------------

  const std::string& name(int t) const { return graph_.tasks[static_cast<size_t>(t)].name; }

  // `second` runs in iteration 1.
  void report_unordered(const Instance& first, bool first_writes, const Access& second) {
    if (!reported_.insert({first.task, second.task, first.iteration}).second) return;
    const Task& task = graph_.tasks[static_cast<size_t>(first.task)];
    loop::Box both = *second.box;
    for (const Region& region : first_writes ? task.writes : task.reads) {
      if (region.buffer != b_ || !meet(region.box, *second.box)) continue;
      for (size_t d = 0; d < both.lo.size(); ++d) {
        both.lo[d] = std::max(both.lo[d], region.box.lo[d]);
        both.hi[d] = std::min(both.hi[d], region.box.hi[d]);
      }
      break;
    }
    findings_.add(
        FindingKind::unordered, {first.task, second.task}, -1, b_,
        fmt::format("tasks \"{}\" and{} \"{}\" both touch buffer \"{}\" {} ({}, then {}) {}", name(first.task),
                    first.iteration == 0 ? ", in the next iteration," : "", name(second.task), buffer_.name,
                    box_text(both), first_writes ? "write" : "read", second.writes ? "write" : "read",
                    order_text(clocks_, first.task, first.iteration, second.task)));
  }

  void report_exchange(const Access& access) {
    if (!reported_.insert({access.task, access.task, 3}).second) return;
    findings_.add(access.writes ? FindingKind::structure : FindingKind::deadlock, {access.task}, -1, b_,
                  access.writes
                      ? fmt::format("task \"{}\" writes {} of the exchange \"{}\", part of which another has written",
                                    name(access.task), box_text(*access.box), buffer_.name)
                      : fmt::format("task \"{}\" waits for {} of the exchange \"{}\", part of which no task before it "
                                    "writes",
                                    name(access.task), box_text(*access.box), buffer_.name));
  }

  void report_overwritten(const Instance& writer, const Access& reader) {
    const Overwriter& by = last_overwriter(reader.task);
    if (!reported_.insert({reader.task, by.write.task, 2}).second) return;
    findings_.add(
        FindingKind::overwritten, {reader.task, writer.task, by.write.task}, -1, b_,
        fmt::format("task \"{}\" reads buffer \"{}\" {} as task \"{}\" wrote it, but task \"{}\" wrote buffer "
                    "\"{}\", which shares its bytes, in between",
                    name(reader.task), buffer_.name, box_text(*reader.box), name(writer.task), name(by.write.task),
                    graph_.buffers[static_cast<size_t>(by.buffer)].name));
  }

  const TaskGraph& graph_;
  const Clocks& clocks_;
  const Buffer& buffer_;
  const int b_;
  const std::vector<Access>& accesses_;
  const std::vector<const loop::Box*>& boxes_;
  const std::vector<int>& overlaps_;
  const std::vector<std::vector<int>>& writers_;  // of all buffers
  Overwriter overwriter_;
  std::set<std::tuple<int, int, int>> reported_;
  Findings findings_;
  int64_t num_checked_ = 0;
};

}  // namespace

Accesses::Accesses(const TaskGraph& graph)
    : of_buffer(graph.buffers.size()),
      boxes(graph.buffers.size()),
      writers(graph.buffers.size()),
      overlaps(find_overlaps(graph)) {
  for (size_t t = 0; t < graph.tasks.size(); ++t)  // a task reads before it writes
    for (bool writes : {false, true})
      for (const Region& region : writes ? graph.tasks[t].writes : graph.tasks[t].reads) {
        const size_t b = static_cast<size_t>(region.buffer);
        if (graph.buffers[b].memory == Memory::constant || touches_nothing(region.box)) continue;
        of_buffer[b].push_back({static_cast<int>(t), writes, &region.box});
        if (writes) writers[b].push_back(static_cast<int>(t));
      }
  for (size_t b = 0; b < of_buffer.size(); ++b)
    if (graph.buffers[b].memory == Memory::exchange || !writers[b].empty()) find_boxes(of_buffer[b], boxes[b]);
}

int64_t check_hazards(const TaskGraph& graph, const Accesses& accesses, const Clocks& clocks, Findings& findings) {
  struct Result {
    std::vector<Finding> findings;
    int64_t num_checked = 0;
  };
  std::vector<Result> results(graph.buffers.size());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t b; (b = next.fetch_add(1, std::memory_order_relaxed)) < results.size();) {
      Hazards hazards(graph, clocks, accesses, b);
      hazards.check();
      results[b] = {hazards.take_findings(), hazards.num_checked()};
    }
  };
  {
    const size_t most = std::min(std::thread::hardware_concurrency(), 8u);
    std::vector<std::jthread> helpers;
    try {
      while (helpers.size() + 1 < std::min(most, graph.tasks.size() / kWorthAThread)) helpers.emplace_back(work);
    } catch (const std::system_error&) {}  // fewer, then
    work();
  }
  int64_t num_checked = 0;
  for (Result& result : results) {
    num_checked += result.num_checked;
    for (Finding& finding : result.findings) findings.add(std::move(finding));
  }
  return num_checked;
}

}  // namespace megalith::task::verifier
