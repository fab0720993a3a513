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

// In the order of the program; anything is later than nothing.
bool later(const Instance& a, const Instance& b) {
  return std::tuple(a.task >= 0, a.iteration, a.task) > std::tuple(b.task >= 0, b.iteration, b.task);
}

// The boxes that accesses name, each once, and each access's number among them.
void find_boxes(std::vector<Access>& accesses, std::vector<const loop::Box*>& boxes) {
  std::map<const loop::Box*, int, BoxOrder> numbers;
  const auto number = [&](const loop::Box* box) {
    if (!boxes.empty() && *boxes.back() == *box) return static_cast<int>(boxes.size()) - 1;
    const int found = numbers.try_emplace(box, static_cast<int>(boxes.size())).first->second;
    if (found == static_cast<int>(boxes.size())) boxes.push_back(box);
    return found;
  };
  for (Access& access : accesses) {
    access.part = number(access.box);
    if (access.all_rows != nullptr) access.part_of_all_rows = number(access.all_rows);
  }
}

struct LessBoxWithRows {
  using Key = std::pair<const loop::Box*, std::pair<int64_t, int64_t>>;
  bool operator()(const Key& a, const Key& b) const {
    if (a.second != b.second) return a.second < b.second;
    return BoxOrder()(a.first, b.first);
  }
};

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

  /// Of an exchange nobody asks when it was written: reads wait for that.
  History(size_t rank, const std::vector<Access>& accesses, const std::vector<const loop::Box*>& boxes,
          size_t num_workers, bool exchange)
      : num_workers_(num_workers), exchange_(exchange), parts_(boxes.size()) {
    size_t num_readers = 0;
    for (const Access& access : accesses)
      if (int& first = part(access.part).first_moment; !access.writes && first < 0)
        first = static_cast<int>(num_readers++ * num_workers);
    affordable_ = num_readers <= kMaxVisits / num_workers && cut(rank, boxes);
    if (!affordable_) return;
    reads_.assign(num_readers * num_workers, 0);
    if (!exchange) writes_ = reads_;
    if (std::ranges::any_of(accesses, [](const Access& access) { return access.all_rows != nullptr; }))
      writes_before_.resize(last_writes_.size());
    find_readers();
  }

  /// False: so ragged that comparing every pair of accesses is better.
  bool affordable() const { return affordable_; }
  Part& part(int p) { return parts_[static_cast<size_t>(p)]; }
  std::span<const int> cells(int p) const { return cells_of_[static_cast<size_t>(p)]; }
  std::span<const int> readers(int cell) const { return readers_of_[static_cast<size_t>(cell)]; }
  /// Of a cell; of nobody if there was none.
  Instance& last_write(int cell) { return last_writes_[static_cast<size_t>(cell)]; }
  /// Where rows are scattered: the last one before those of that one's node and iteration.
  bool has_rows() const { return !writes_before_.empty(); }
  Instance& write_before(int cell) { return writes_before_[static_cast<size_t>(cell)]; }
  /// When each worker last read a part, and, if it is known and no exchange, when each made the last of its cells'
  /// writes.
  Moments reads(const Part& part) { return {&reads_[static_cast<size_t>(part.first_moment)], num_workers_}; }
  Moments writes(const Part& part) { return {&writes_[static_cast<size_t>(part.first_moment)], num_workers_}; }

  /// What is remembered of the writes of part p, as it is now.
  const Part& known(int p, const Clocks& clocks, Budget& budget) {
    Part& part = this->part(p);
    if (part.is_known) return part;
    budget.spend(static_cast<int64_t>(num_workers_ / kWorkersAStep + cells(p).size()));
    part.is_known = part.is_whole = true;
    part.oldest = {};
    const Moments moments = exchange_ ? Moments() : writes(part);
    std::fill(moments.begin(), moments.end(), 0);
    for (int c : cells(p)) {
      const Instance& write = last_write(c);
      if (write.task < 0) {
        part.is_whole = false;
        continue;
      }
      if (!exchange_) {
        int& last = moments[static_cast<size_t>(clocks.worker(write.task))];
        last = std::max(last, clocks.moment(write.task, write.iteration));
      }
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
    if (num_cells > double{kMaxCells} || num_visits > double{kMaxVisits}) return false;
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

  static constexpr size_t kMaxCells = 1 << 22, kMaxVisits = 1 << 24, kWorkersAStep = 8;

  const size_t num_workers_;
  const bool exchange_;
  std::vector<Part> parts_;
  Lists<> cells_of_, readers_of_;
  std::vector<Instance> last_writes_, writes_before_;
  std::vector<int> reads_, writes_;
  bool affordable_ = false;
};

// The hazards of one buffer. Each has its own, so they are looked at side by side.
class Hazards {
 public:
  Hazards(const TaskGraph& graph, const Clocks& clocks, const Accesses& accesses, size_t buffer, Budget& budget)
      : graph_(graph),
        clocks_(clocks),
        budget_(budget),
        buffer_(graph.buffers[buffer]),
        b_(static_cast<int>(buffer)),
        accesses_(accesses.of_buffer[buffer]),
        boxes_(accesses.boxes[buffer]) {}

  void check() {
    if (boxes_.empty()) return;
    const bool exchange = buffer_.memory == Memory::exchange;
    History history(boxes_.front()->lo.size(), accesses_, boxes_, clocks_.num_workers(), exchange);
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
        if (findings_.full() || budget_.is_spent()) return;
        if (iteration == 1) {
          const Doubt doubt = access.writes ? check_write(access, history) : check_read(access, history, exchange);
          if (exchange && !doubt.alone) report_exchange(access);
          if (doubt.unordered.task >= 0) report_unordered(doubt.unordered, doubt.unordered_writes, access);
          if (doubt.stale.task >= 0) report_overwritten(doubt.stale, access);
        }
        if (access.writes) {
          budget_.spend(static_cast<int64_t>(history.cells(access.part).size()));
          for (int c : history.cells(access.part)) {
            if (history.has_rows() && !is_of(history.last_write(c), node(access.task), iteration))
              history.write_before(c) = history.last_write(c);
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
    // Rows are told apart within their node and iteration only.
    if (access.all_rows != nullptr)
      for (int c : history.cells(access.part_of_all_rows)) {
        const Instance& last = history.last_write(c);
        const Instance& write = is_of(last, node(access.task), 1) ? history.write_before(c) : last;
        if (write.task < 0) continue;
        ++num_checked_;
        if (!clocks_.precedes(write.task, write.iteration, access.task))
          doubt.unordered = write, doubt.unordered_writes = true;
      }
    return doubt;
  }
  bool is_of(const Instance& write, int of_node, int iteration) const {
    return write.task >= 0 && write.iteration == iteration && node(write.task) == of_node;
  }

  // Behind all writes of it; a read of an exchange waits for them by itself.
  Doubt check_read(const Access& access, History& history, bool exchange) {
    Doubt doubt;
    const History::Part& part = history.known(access.part, clocks_, budget_);
    doubt.alone = part.is_whole && part.oldest.iteration == 1;
    if (part.oldest.task < 0) return doubt;
    if (!exchange) {
      doubt.unordered = unordered_of(history.writes(part), access.task);
      doubt.unordered_writes = true;
    }
    if (later(access.overwrite, part.oldest)) doubt.stale = part.oldest;
    return doubt;
  }

  // One of `moments` that does not precede the task in iteration 1; nobody if all do.
  Instance unordered_of(Moments moments, int task) {
    num_checked_ += static_cast<int64_t>(moments.size());
    const int w = clocks_.late_worker(moments, task);
    return w < 0 ? Instance{} : instance_at(graph_, w, moments[static_cast<size_t>(w)]);
  }

  // Of one iteration: whether both are of one scatter, of rows that go to different elements.
  bool scatter_apart(const Access& a, const Access& b) const {
    const Region &one = *a.region, &other = *b.region;
    return a.writes && b.writes && one.is_scatter() && other.is_scatter() && node(a.task) == node(b.task) &&
           (one.row_end <= other.row_begin || other.row_end <= one.row_begin);
  }

  // The same by pairs: every access of the second iteration against every earlier one that it meets.
  void check_pairs() {
    constexpr int64_t kStepsOfPair = 16;
    BoxIndex index;
    for (const Access& access : accesses_) index.add(access.region->box);
    index.sort();
    for (size_t i = 0; i < accesses_.size() && !findings_.full() && !budget_.is_spent(); ++i) {
      const Access& access = accesses_[i];
      Instance oldest_write{};  // its value may be what is read
      index.visit(access.region->box, budget_, kStepsOfPair, [&](size_t j) {
        const Access& before = accesses_[j];
        const Instance write{before.task, j < i};
        if (before.writes && (oldest_write.task < 0 || write.iteration > oldest_write.iteration ||
                              (write.iteration == oldest_write.iteration && write.task < oldest_write.task)))
          oldest_write = write;
        if (!before.writes && !access.writes) return;
        for (int of : {1, 0}) {
          if (of == 1 && (j >= i || before.task == access.task || scatter_apart(before, access))) continue;
          ++num_checked_;
          if (!clocks_.precedes(before.task, of, access.task))
            report_unordered({before.task, of}, before.writes, access);
        }
      });
      if (access.writes || oldest_write.task < 0) continue;
      if (later(access.overwrite, oldest_write)) report_overwritten(oldest_write, access);
    }
  }

  // ---- words -------------------------------------------------------------------------------------------------------

  const std::string& name(int t) const { return graph_.tasks[static_cast<size_t>(t)].name; }
  int node(int t) const { return graph_.tasks[static_cast<size_t>(t)].node; }

  // `second` runs in iteration 1.
  void report_unordered(const Instance& first, bool first_writes, const Access& second) {
    if (!reported_.insert({first.task, second.task, first.iteration}).second) return;
    const Task& task = graph_.tasks[static_cast<size_t>(first.task)];
    loop::Box both = second.region->box;
    for (const Region& region : first_writes ? task.writes : task.reads) {
      if (region.buffer != b_ || !meet(region.box, both)) continue;
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
                                    name(access.task), box_text(access.region->box), buffer_.name)
                      : fmt::format("task \"{}\" waits for {} of the exchange \"{}\", part of which no task before it "
                                    "writes",
                                    name(access.task), box_text(access.region->box), buffer_.name));
  }

  void report_overwritten(const Instance& writer, const Access& reader) {
    const int by = reader.overwrite.task;
    if (!reported_.insert({reader.task, by, 2}).second) return;
    findings_.add(
        FindingKind::overwritten, {reader.task, writer.task, by}, -1, b_,
        fmt::format("task \"{}\" reads buffer \"{}\" {} as task \"{}\" wrote it, but task \"{}\" wrote buffer "
                    "\"{}\", which shares its bytes, in between",
                    name(reader.task), buffer_.name, box_text(reader.region->box), name(writer.task), name(by),
                    graph_.buffers[static_cast<size_t>(reader.overwriter)].name));
  }

  const TaskGraph& graph_;
  const Clocks& clocks_;
  Budget& budget_;
  const Buffer& buffer_;
  const int b_;
  const std::vector<Access>& accesses_;
  const std::vector<const loop::Box*>& boxes_;
  std::set<std::tuple<int, int, int>> reported_;
  Findings findings_;
  int64_t num_checked_ = 0;
};

}  // namespace

Accesses::Accesses(const TaskGraph& graph, const ArenaCells& cells, Budget& budget)
    : of_buffer(graph.buffers.size()), boxes(graph.buffers.size()) {
  // Of a cell the last write, and the last one through another buffer than that.
  struct Write {
    Instance instance;
    int buffer = -1;
  };
  struct Cell {
    Write last, other;
  };
  std::vector<Cell> last_writes(cells.size());
  std::vector<bool> is_written(graph.buffers.size());
  std::vector<size_t> counts(graph.buffers.size());
  for (int iteration = 0; iteration < 2; ++iteration)
    for (size_t t = 0; t < graph.tasks.size() && !budget.is_spent(); ++t)  // a task reads before it writes
      for (bool writes : {false, true})
        for (const Region& region : writes ? graph.tasks[t].writes : graph.tasks[t].reads) {
          const size_t b = static_cast<size_t>(region.buffer);
          if (graph.buffers[b].memory == Memory::constant || touches_nothing(region.box)) continue;
          Access access{static_cast<int>(t), writes, &region, &region.box};
          const auto [first, end] = cells.of_buffer(region.buffer);
          budget.spend(end - first);
          for (int c = first; c < end; ++c) {
            Cell& cell = last_writes[static_cast<size_t>(c)];
            if (writes) {
              if (cell.last.buffer != region.buffer) cell.other = cell.last;
              cell.last = {{access.task, iteration}, region.buffer};
            } else if (const Write& write = cell.last.buffer == region.buffer ? cell.other : cell.last;
                       later(write.instance, access.overwrite)) {
              access.overwrite = write.instance;
              access.overwriter = write.buffer;
            }
          }
          if (iteration == 0) {
            is_written[b] = is_written[b] || writes;
            ++counts[b];
            continue;
          }
          if (of_buffer[b].empty()) of_buffer[b].reserve(counts[b]);
          of_buffer[b].push_back(access);
        }
  for (size_t b = 0; b < of_buffer.size(); ++b)
    if (graph.buffers[b].memory == Memory::exchange || is_written[b]) {
      if (std::ranges::any_of(of_buffer[b], [](const Access& access) { return access.region->is_scatter(); }))
        add_rows(of_buffer[b]);
      find_boxes(of_buffer[b], boxes[b]);
    }
}

void Accesses::add_rows(std::vector<Access>& accesses) {
  int64_t num_rows = 0;
  for (const Access& access : accesses) num_rows = std::max(num_rows, access.region->row_end);
  std::map<std::pair<const loop::Box*, std::pair<int64_t, int64_t>>, const loop::Box*, LessBoxWithRows> known;
  const auto box_of = [&](const loop::Box& box, int64_t begin, int64_t end) {
    const loop::Box*& found = known[{&box, {begin, end}}];
    if (found == nullptr) {
      with_rows.push_back(box);
      with_rows.back().lo.push_back(begin);
      with_rows.back().hi.push_back(end);
      found = &with_rows.back();
    }
    return found;
  };
  for (Access& access : accesses) {
    const Region& region = *access.region;
    access.box =
        box_of(region.box, region.is_scatter() ? region.row_begin : 0, region.is_scatter() ? region.row_end : num_rows);
    if (region.is_scatter()) access.all_rows = box_of(region.box, 0, num_rows);
  }
}

int64_t check_hazards(const TaskGraph& graph, const Accesses& accesses, const Clocks& clocks, Budget& budget,
                      Findings& findings) {
  struct Result {
    std::vector<Finding> findings;
    int64_t num_checked = 0;
  };
  std::vector<Result> results(graph.buffers.size());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t b; (b = next.fetch_add(1, std::memory_order_relaxed)) < results.size();) {
      Hazards hazards(graph, clocks, accesses, b, budget);
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
