#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <tuple>

#include "megalith/task/verify_parts.h"

namespace megalith::task::verifier {

namespace {

struct Access {
  int task;
  bool writes;
  const loop::Box* box;
};

// A task in one of the two iterations, in the order of the program.
struct Instance {
  int task = -1;  // -1: nobody
  int iteration = 0;
};
bool later(const Instance& a, const Instance& b) {
  return std::tuple(a.iteration, a.task) > std::tuple(b.iteration, b.task);
}

// A buffer cut along every end of every box into cells, of which each access touches all or nothing. Each cell
// remembers the last write and the reads since: whoever comes after those comes after everything before.
class Cells {
 public:
  Cells(size_t rank, const std::vector<Access>& accesses) : cuts_(rank), counts_(rank) {
    for (size_t d = 0; d < rank; ++d) {
      std::vector<int64_t>& cuts = cuts_[d];
      for (const Access& access : accesses) cuts.push_back(access.box->lo[d]), cuts.push_back(access.box->hi[d]);
      std::sort(cuts.begin(), cuts.end());
      cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
      counts_[d] = cuts.size() - 1;
    }
    double cells = 1, visits = 0;
    for (size_t count : counts_) cells *= static_cast<double>(count);
    for (const Access& access : accesses) {
      double visit = 1;
      for (size_t d = 0; d < rank; ++d)
        visit *= static_cast<double>(index(d, access.box->hi[d]) - index(d, access.box->lo[d]));
      visits += visit;
    }
    constexpr double kMostCells = 1 << 22, kMostVisits = 1 << 28;
    affordable_ = cells <= kMostCells && visits <= kMostVisits;
    if (affordable_) cells_.resize(static_cast<size_t>(cells));
  }

  struct Cell {
    Instance last_write;
    std::vector<Instance> reads;  // since the last write
  };

  /// False: so ragged that comparing every pair of accesses is better.
  bool affordable() const { return affordable_; }

  template <class Visit>
  void visit(const loop::Box& box, Visit&& visit) {
    std::vector<size_t> begin, end, at;
    for (size_t d = 0; d < cuts_.size(); ++d) begin.push_back(index(d, box.lo[d])), end.push_back(index(d, box.hi[d]));
    at = begin;
    for (;;) {
      size_t cell = 0;
      for (size_t d = 0; d < at.size(); ++d) cell = cell * counts_[d] + at[d];
      if (at.empty()) return visit(cells_[0]);
      const size_t last = at.size() - 1;
      for (size_t i = begin[last]; i < end[last]; ++i) visit(cells_[cell++]);
      size_t d = last;
      while (d > 0 && ++at[d - 1] == end[d - 1]) --d, at[d] = begin[d];
      if (d == 0) return;
    }
  }

 private:
  size_t index(size_t d, int64_t end) const {
    return static_cast<size_t>(std::lower_bound(cuts_[d].begin(), cuts_[d].end(), end) - cuts_[d].begin());
  }

  std::vector<std::vector<int64_t>> cuts_;
  std::vector<size_t> counts_;
  std::vector<Cell> cells_;
  bool affordable_;
};

class Hazards {
 public:
  Hazards(const TaskGraph& graph, const Clocks& clocks, Findings& findings)
      : graph_(graph), clocks_(clocks), findings_(findings), accesses_(graph.buffers.size()) {
    for (size_t t = 0; t < graph.tasks.size(); ++t)  // a task reads before it writes
      for (bool writes : {false, true})
        for (const Region& region : writes ? graph.tasks[t].writes : graph.tasks[t].reads)
          if (!touches_nothing(region.box))
            accesses_[static_cast<size_t>(region.buffer)].push_back({static_cast<int>(t), writes, &region.box});
  }

  int64_t check() {
    const std::vector<std::vector<int>> overlaps = find_overlaps(graph_);
    for (size_t b = 0; b < graph_.buffers.size() && !findings_.full(); ++b) {
      const std::vector<Access>& accesses = accesses_[b];
      if (graph_.buffers[b].memory != Memory::exchange &&
          std::none_of(accesses.begin(), accesses.end(), [](const Access& access) { return access.writes; }))
        continue;
      if (accesses.empty()) continue;
      gather_overwriters(overlaps[b]);
      Cells cells(graph_.buffers[b].shape.size(), accesses);
      const bool exchange = graph_.buffers[b].memory == Memory::exchange;
      if (exchange && !cells.affordable())
        findings_.add(FindingKind::structure, {}, -1, static_cast<int>(b),
                      fmt::format("the exchange \"{}\" is cut too finely to be looked at", graph_.buffers[b].name));
      else if (cells.affordable())
        check_cells(static_cast<int>(b), cells);
      else
        check_pairs(static_cast<int>(b));
    }
    return num_checked_;
  }

 private:
  void check_cells(int b, Cells& cells) {
    const bool exchange = buffer(b).memory == Memory::exchange;
    for (int iteration = 0; iteration < 2; ++iteration)
      for (const Access& access : accesses_[static_cast<size_t>(b)]) {
        if (findings_.full()) return;
        const Instance now{access.task, iteration};
        Instance missed{};  // reported once an access, not once a cell
        bool missed_writes = false;
        Instance stale{};
        bool alone = true;  // of an exchange: one write, and reads behind it
        const Instance overwriter = access.writes || overwriters_.empty() ? Instance{} : last_overwriter(now);
        cells.visit(*access.box, [&](Cells::Cell& cell) {
          auto check = [&](const Instance& before, bool writes) {
            if (before.task == now.task && before.iteration == iteration) return;
            ++num_checked_;
            if (!clocks_.precedes(before.task, before.iteration, now.task)) missed = before, missed_writes = writes;
          };
          const bool written_now = cell.last_write.task >= 0 && cell.last_write.iteration == iteration;
          if (exchange && access.writes == written_now && iteration == 1) alone = false;
          if (iteration == 1) {  // a read or write since implies the last write
            // A read of an exchange waits for the write by itself.
            if (cell.last_write.task >= 0 && (access.writes ? cell.reads.empty() : !exchange))
              check(cell.last_write, true);
            if (access.writes)
              for (const Instance& read : cell.reads) check(read, false);
            if (overwriter.task >= 0 && cell.last_write.task >= 0 && later(overwriter, cell.last_write))
              stale = cell.last_write;
          }
          if (access.writes) {
            // The task's own read of this cell is implied by its write; others' reads are behind it.
            cell.last_write = now;
            cell.reads.clear();
          } else {
            cell.reads.push_back(now);
          }
        });
        if (!alone) report_exchange(b, access);
        if (missed.task >= 0) report_unordered(b, missed, missed_writes, access);
        if (stale.task >= 0) report_overwritten(b, stale, overwriter, access);
      }
  }

  // The same by pairs: every access of the second iteration against every earlier one that it meets.
  void check_pairs(int b) {
    const std::vector<Access>& accesses = accesses_[static_cast<size_t>(b)];
    for (size_t i = 0; i < accesses.size() && !findings_.full(); ++i) {
      const Access& access = accesses[i];
      Instance oldest_write{};  // its value may be what is read
      for (int iteration : {1, 0})
        for (size_t j = 0; j < (iteration == 1 ? i : accesses.size()); ++j) {
          const Access& before = accesses[j];
          if (before.writes && (oldest_write.task < 0 || oldest_write.iteration == iteration))
            if (oldest_write.task < 0 || before.task < oldest_write.task) oldest_write = {before.task, iteration};
          if ((!before.writes && !access.writes) || (before.task == access.task && iteration == 1)) continue;
          if (!meet(*before.box, *access.box)) continue;
          ++num_checked_;
          if (!clocks_.precedes(before.task, iteration, access.task))
            report_unordered(b, {before.task, iteration}, before.writes, access);
        }
      if (access.writes || overwriters_.empty() || oldest_write.task < 0) continue;
      const Instance overwriter = last_overwriter({access.task, 1});
      if (overwriter.task >= 0 && later(overwriter, oldest_write))
        report_overwritten(b, oldest_write, overwriter, access);
    }
  }

  static bool meet(const loop::Box& a, const loop::Box& b) {
    for (size_t d = 0; d < a.lo.size(); ++d)
      if (a.lo[d] >= b.hi[d] || b.lo[d] >= a.hi[d]) return false;
    return true;
  }

  // ---- values lost through another buffer at the same bytes --------------------------------------------------------

  void gather_overwriters(const std::vector<int>& overlaps) {
    overwriters_.clear();
    for (int other : overlaps)
      for (const Access& access : accesses_[static_cast<size_t>(other)])
        if (access.writes) overwriters_.emplace_back(access.task, other);
    std::sort(overwriters_.begin(), overwriters_.end());
  }

  // The last write through another buffer before `now`; its own are seen when shared bytes are ordered.
  Instance last_overwriter(const Instance& now) const {
    const auto next = std::lower_bound(overwriters_.begin(), overwriters_.end(), std::pair(now.task, -1));
    if (next != overwriters_.begin()) return {std::prev(next)->first, now.iteration};
    return now.iteration == 1 ? Instance{overwriters_.back().first, 0} : Instance{};
  }

  // ---- words -------------------------------------------------------------------------------------------------------

  const std::string& name(int t) const { return graph_.tasks[static_cast<size_t>(t)].name; }
  const Buffer& buffer(int b) const { return graph_.buffers[static_cast<size_t>(b)]; }

  // `second` runs in iteration 1.
  void report_unordered(int b, const Instance& first, bool first_writes, const Access& second) {
    if (!reported_.insert({b, first.task, second.task, first.iteration}).second) return;
    const Task& task = graph_.tasks[static_cast<size_t>(first.task)];
    loop::Box both = *second.box;
    for (const Region& region : first_writes ? task.writes : task.reads) {
      if (region.buffer != b || !meet(region.box, *second.box)) continue;
      for (size_t d = 0; d < both.lo.size(); ++d) {
        both.lo[d] = std::max(both.lo[d], region.box.lo[d]);
        both.hi[d] = std::min(both.hi[d], region.box.hi[d]);
      }
      break;
    }
    findings_.add(
        FindingKind::unordered, {first.task, second.task}, -1, b,
        fmt::format("tasks \"{}\" and{} \"{}\" both touch buffer \"{}\" {} ({}, then {}) {}", name(first.task),
                    first.iteration == 0 ? ", in the next iteration," : "", name(second.task), buffer(b).name,
                    box_text(both), first_writes ? "write" : "read", second.writes ? "write" : "read",
                    order_text(clocks_, first.task, first.iteration, second.task)));
  }

  void report_exchange(int b, const Access& access) {
    if (!reported_.insert({b, access.task, access.task, 3}).second) return;
    findings_.add(access.writes ? FindingKind::structure : FindingKind::deadlock, {access.task}, -1, b,
                  access.writes
                      ? fmt::format("task \"{}\" writes {} of the exchange \"{}\", part of which another has written",
                                    name(access.task), box_text(*access.box), buffer(b).name)
                      : fmt::format("task \"{}\" waits for {} of the exchange \"{}\", part of which no task before it "
                                    "writes",
                                    name(access.task), box_text(*access.box), buffer(b).name));
  }

  void report_overwritten(int b, const Instance& writer, const Instance& overwriter, const Access& reader) {
    if (!reported_.insert({b, reader.task, overwriter.task, 2}).second) return;
    const auto by = std::lower_bound(overwriters_.begin(), overwriters_.end(), std::pair(overwriter.task, -1));
    findings_.add(
        FindingKind::overwritten, {reader.task, writer.task, overwriter.task}, -1, b,
        fmt::format("task \"{}\" reads buffer \"{}\" {} as task \"{}\" wrote it, but task \"{}\" wrote buffer "
                    "\"{}\", which shares its bytes, in between",
                    name(reader.task), buffer(b).name, box_text(*reader.box), name(writer.task), name(overwriter.task),
                    buffer(by->second).name));
  }

  const TaskGraph& graph_;
  const Clocks& clocks_;
  Findings& findings_;
  std::vector<std::vector<Access>> accesses_;     // per buffer, in program order
  std::vector<std::pair<int, int>> overwriters_;  // of the buffer at hand: (task, buffer), sorted
  std::set<std::tuple<int, int, int, int>> reported_;
  int64_t num_checked_ = 0;
};

// Accesses to buffers with bytes in common: every access to the one before or after every access to the other.
class SharedBytes {
 public:
  SharedBytes(const TaskGraph& graph, const Clocks& clocks, Findings& findings)
      : graph_(graph),
        clocks_(clocks),
        findings_(findings),
        overlaps_(find_overlaps(graph)),
        stride_(clocks.num_workers()) {
    writes_.resize(graph.buffers.size());
    all_.resize(graph.buffers.size());
    for (size_t b = 0; b < overlaps_.size(); ++b)
      if (!overlaps_[b].empty()) writes_[b].assign(stride_, 0), all_[b].assign(stride_, 0);
  }

  int64_t check() {
    for (int iteration = 0; iteration < 2; ++iteration)
      for (size_t t = 0; t < graph_.tasks.size() && !findings_.full(); ++t) {
        const int task = static_cast<int>(t);
        if (iteration == 0) check_itself(task);
        if (iteration == 1)
          visit(task, [&](int b, bool writes) {
            const std::vector<int>& before = writes ? all_[static_cast<size_t>(b)] : writes_[static_cast<size_t>(b)];
            check_before(task, b, writes, before);
          });
        visit(task, [&](int b, bool writes) {
          const size_t w = static_cast<size_t>(clocks_.worker(task));
          const int moment = clocks_.moment(task, iteration);
          for (int other : overlaps_[static_cast<size_t>(b)]) {
            const size_t o = static_cast<size_t>(other);
            all_[o][w] = std::max(all_[o][w], moment);
            if (writes) writes_[o][w] = std::max(writes_[o][w], moment);
          }
        });
      }
    return num_checked_;
  }

 private:
  template <class Visit>
  void visit(int t, Visit&& visit) const {
    const Task& task = graph_.tasks[static_cast<size_t>(t)];
    for (bool writes : {false, true})
      for (const Region& region : writes ? task.writes : task.reads)
        if (!overlaps_[static_cast<size_t>(region.buffer)].empty() && !touches_nothing(region.box))
          visit(region.buffer, writes);
  }

  void check_before(int t, int b, bool writes, const std::vector<int>& before) {
    const int* clock = clocks_.clock(t);
    num_checked_ += static_cast<int64_t>(stride_);
    bool ordered = true;
    for (size_t w = 0; w < stride_; ++w) ordered &= before[w] <= clock[w];
    if (ordered) return;
    size_t w = 0;
    while (before[w] <= clock[w]) ++w;
    const int length = static_cast<int>(graph_.workers[w].size());
    const int iteration = before[w] > length;
    const int other = graph_.workers[w][static_cast<size_t>(before[w] - iteration * length - 1)];
    const int shared = shared_with(other, b, writes);
    findings_.add(
        FindingKind::unordered, {other, t}, -1, b,
        fmt::format("tasks \"{}\" (buffer \"{}\") and{} \"{}\" (buffer \"{}\") touch the same bytes of the "
                    "arena {} {}",
                    name(other), buffer(shared).name, iteration == 0 ? ", in the next iteration," : "", name(t),
                    buffer(b).name, bytes_text(b, shared), order_text(clocks_, other, iteration, t)));
  }

  // One task at once in two buffers that share bytes: its own reads and writes have no order.
  void check_itself(int t) {
    visit(t, [&](int a, bool a_writes) {
      visit(t, [&](int b, bool b_writes) {
        const std::vector<int>& overlaps = overlaps_[static_cast<size_t>(a)];
        if (a >= b || (!a_writes && !b_writes) || std::find(overlaps.begin(), overlaps.end(), b) == overlaps.end())
          return;
        findings_.add(FindingKind::unordered, {t}, -1, a,
                      fmt::format("task \"{}\" touches buffers \"{}\" and \"{}\", which share bytes of the arena {}",
                                  name(t), buffer(a).name, buffer(b).name, bytes_text(a, b)));
      });
    });
  }

  // The buffer through which `t` touches bytes of b.
  int shared_with(int t, int b, bool any) const {
    int found = b;
    visit(t, [&](int other, bool writes) {
      const std::vector<int>& overlaps = overlaps_[static_cast<size_t>(b)];
      if ((any || writes) && std::find(overlaps.begin(), overlaps.end(), other) != overlaps.end()) found = other;
    });
    return found;
  }

  std::string bytes_text(int a, int b) const {
    const Buffer &x = buffer(a), &y = buffer(b);
    return fmt::format("[{}:{}]", std::max(x.offset, y.offset), std::min(x.offset + x.bytes, y.offset + y.bytes));
  }
  const std::string& name(int t) const { return graph_.tasks[static_cast<size_t>(t)].name; }
  const Buffer& buffer(int b) const { return graph_.buffers[static_cast<size_t>(b)]; }

  const TaskGraph& graph_;
  const Clocks& clocks_;
  Findings& findings_;
  const std::vector<std::vector<int>> overlaps_;
  const size_t stride_;
  std::vector<std::vector<int>> writes_,
      all_;  // per buffer, per worker: the last moment of the buffers that share its bytes
  int64_t num_checked_ = 0;
};

}  // namespace

std::vector<std::vector<int>> find_overlaps(const TaskGraph& graph) {
  std::vector<std::vector<int>> overlaps(graph.buffers.size());
  std::vector<int> arena;
  for (size_t b = 0; b < graph.buffers.size(); ++b)
    if (graph.buffers[b].memory == Memory::arena && graph.buffers[b].bytes > 0) arena.push_back(static_cast<int>(b));
  auto at = [&](int b) -> const Buffer& { return graph.buffers[static_cast<size_t>(b)]; };
  std::sort(arena.begin(), arena.end(), [&](int a, int b) { return at(a).offset < at(b).offset; });
  for (size_t i = 0; i < arena.size(); ++i)
    for (size_t j = i + 1; j < arena.size() && at(arena[j]).offset < at(arena[i]).offset + at(arena[i]).bytes; ++j) {
      overlaps[static_cast<size_t>(arena[i])].push_back(arena[j]);
      overlaps[static_cast<size_t>(arena[j])].push_back(arena[i]);
    }
  for (std::vector<int>& list : overlaps) std::sort(list.begin(), list.end());
  return overlaps;
}

int64_t check_hazards(const TaskGraph& graph, const Clocks& clocks, Findings& findings) {
  return Hazards(graph, clocks, findings).check();
}

int64_t check_shared_bytes(const TaskGraph& graph, const Clocks& clocks, Findings& findings) {
  return SharedBytes(graph, clocks, findings).check();
}

}  // namespace megalith::task::verifier
