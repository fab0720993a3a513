#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "megalith/task/verify_parts.h"

namespace megalith::task::verifier {

namespace {

bool overlap(const Buffer& a, const Buffer& b) {
  return a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

// Accesses to buffers with bytes in common: every access to the one before or after every access to the other.
//
// A cell belongs to the buffer that touched it last. Its past is what was done through buffers that it belonged to
// before; whoever takes it over has to come after that. It is the same order that comparing every two buffers would
// ask for: whoever stands between two visits of one buffer comes after the first and before the second.
class SharedBytes {
 public:
  SharedBytes(const TaskGraph& graph, const ArenaCells& cells, const Clocks& clocks, Budget& budget, Findings& findings)
      : graph_(graph),
        clocks_(clocks),
        budget_(budget),
        findings_(findings),
        arena_(cells),
        cells_(cells.size()),
        buffers_(graph.buffers.size()) {
    for (const Task& task : graph.tasks) {
      for (bool writes : {false, true})
        for (const Region& region : writes ? task.writes : task.reads)
          if (shares(region.buffer) && !touches_nothing(region.box)) touches_.items.push_back({region.buffer, writes});
      touches_.end_list();
    }
    constexpr size_t kMaxMoments = size_t{1} << 27;
    if (clocks.num_workers() * cells_.size() > kMaxMoments)
      budget.spend_all();
    else
      for (Cell& cell : cells_) cell.past.resize(clocks.num_workers());
  }

  int64_t check() {
    for (int iteration = 0; iteration < 2; ++iteration)
      for (size_t t = 0; t < graph_.tasks.size() && !findings_.full() && !budget_.is_spent(); ++t) {
        const int task = static_cast<int>(t);
        if (iteration == 0) check_itself(task);
        // One touch after the other: the task's next may take over what this one had.
        visit(task, [&](int b, bool writes) {
          take_over(b);
          if (iteration == 1) check_before(task, b, writes);
          remember(b, writes, task, iteration);
        });
      }
    return num_checked_;
  }

 private:
  // Moments, per worker: the last write, the last access.
  struct Done {
    std::vector<int> writes, all;

    void resize(size_t num_workers) {
      writes.assign(num_workers, 0);
      all.assign(num_workers, 0);
    }
    void join(const Done& other) {
      for (size_t w = 0; w < all.size(); ++w) {
        writes[w] = std::max(writes[w], other.writes[w]);
        all[w] = std::max(all[w], other.all[w]);
      }
    }
  };
  struct Cell {
    int owner = -1;
    Done past;
  };
  struct Shared {
    Done own, others;       // there while it has a cell
    bool is_owner = false;  // of all its cells; then `others` is their past
    int num_owned = 0;
  };

  bool shares(int b) const { return arena_.of_buffer(b).first < arena_.of_buffer(b).end; }

  void take_over(int b) {
    Shared& shared = buffers_[static_cast<size_t>(b)];
    if (shared.is_owner) return;
    const auto [first, end] = arena_.of_buffer(b);
    budget_.spend((end - first) * static_cast<int64_t>(clocks_.num_workers() / 4 + 1));
    if (shared.num_owned == 0)
      for (Done* done : {&shared.own, &shared.others}) done->resize(clocks_.num_workers());
    for (int c = first; c < end; ++c) {
      Cell& cell = cells_[static_cast<size_t>(c)];
      if (cell.owner != b) give_up(cell);
      cell.owner = b;
      shared.others.join(cell.past);
    }
    shared.num_owned = end - first;
    shared.is_owner = true;
  }
  void give_up(Cell& cell) {
    if (cell.owner < 0) return;
    Shared& before = buffers_[static_cast<size_t>(cell.owner)];
    cell.past.join(before.own);
    before.is_owner = false;
    if (--before.num_owned == 0) before = {};
  }

  void remember(int b, bool writes, int task, int iteration) {
    Shared& shared = buffers_[static_cast<size_t>(b)];
    const size_t w = static_cast<size_t>(clocks_.worker(task));
    const int moment = clocks_.moment(task, iteration);
    shared.own.all[w] = std::max(shared.own.all[w], moment);
    if (writes) shared.own.writes[w] = std::max(shared.own.writes[w], moment);
  }

  template <class Visit>
  void visit(int t, Visit&& visit) const {
    for (const Touch& touch : touches_[static_cast<size_t>(t)]) visit(touch.buffer, touch.writes);
  }

  void check_before(int t, int b, bool writes) {
    Done& others = buffers_[static_cast<size_t>(b)].others;
    const Moments before = writes ? others.all : others.writes;
    num_checked_ += static_cast<int64_t>(before.size());
    const int w = clocks_.late_worker(before, t);
    if (w < 0) return;
    const auto [other, iteration] = instance_at(graph_, w, before[static_cast<size_t>(w)]);
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
    const auto touches = touches_[static_cast<size_t>(t)];
    budget_.spend(static_cast<int64_t>(touches.size() * touches.size()));
    for (const Touch& a : touches)
      for (const Touch& b : touches) {
        if (budget_.is_spent()) return;
        if (a.buffer >= b.buffer || (!a.writes && !b.writes) || !overlap(buffer(a.buffer), buffer(b.buffer))) continue;
        findings_.add(
            FindingKind::unordered, {t}, -1, a.buffer,
            fmt::format("task \"{}\" touches buffers \"{}\" and \"{}\", which share bytes of the arena {}", name(t),
                        buffer(a.buffer).name, buffer(b.buffer).name, bytes_text(a.buffer, b.buffer)));
      }
  }

  // The buffer through which `t` touches bytes of b.
  int shared_with(int t, int b, bool any) const {
    int found = b;
    visit(t, [&](int other, bool writes) {
      if ((any || writes) && other != b && overlap(buffer(other), buffer(b))) found = other;
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
  Budget& budget_;
  Findings& findings_;
  const ArenaCells& arena_;
  // What each task does to buffers that share bytes: looked up once and walked often.
  struct Touch {
    int buffer;
    bool writes;
  };
  Lists<Touch> touches_;
  std::vector<Cell> cells_;
  std::vector<Shared> buffers_;
  int64_t num_checked_ = 0;
};

}  // namespace

ArenaCells::ArenaCells(const TaskGraph& graph, Budget& budget) : ranges_(graph.buffers.size(), {0, 0}) {
  std::vector<int64_t> cuts;
  const auto is_there = [](const Buffer& buffer) { return buffer.memory == Memory::arena && buffer.bytes > 0; };
  for (const Buffer& buffer : graph.buffers)
    if (is_there(buffer)) cuts.push_back(buffer.offset), cuts.push_back(buffer.offset + buffer.bytes);
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  const auto cut_at = [&](int64_t byte) {
    return static_cast<size_t>(std::lower_bound(cuts.begin(), cuts.end(), byte) - cuts.begin());
  };
  std::vector<int> changes(cuts.size() + 1, 0);  // in how many buffers lie in a cell
  int64_t num_visits = 0;
  for (const Buffer& buffer : graph.buffers)
    if (is_there(buffer)) {
      const size_t first = cut_at(buffer.offset), end = cut_at(buffer.offset + buffer.bytes);
      ++changes[first], --changes[end];
      num_visits += static_cast<int64_t>(end - first);
    }
  budget.spend(num_visits);
  // Shared cells in order; of each cut how many there are before it.
  std::vector<int> shared_before(cuts.size() + 1, 0);
  int depth = 0;
  for (size_t c = 0; c < cuts.size(); ++c) {
    depth += changes[c];
    shared_before[c + 1] = shared_before[c] + (depth > 1 ? 1 : 0);
  }
  for (size_t b = 0; b < ranges_.size(); ++b)
    if (const Buffer& buffer = graph.buffers[b]; is_there(buffer))
      ranges_[b] = {shared_before[cut_at(buffer.offset)], shared_before[cut_at(buffer.offset + buffer.bytes)]};
  num_cells_ = static_cast<size_t>(shared_before.back());
}

int64_t check_shared_bytes(const TaskGraph& graph, const ArenaCells& cells, const Clocks& clocks, Budget& budget,
                           Findings& findings) {
  return SharedBytes(graph, cells, clocks, budget, findings).check();
}

}  // namespace megalith::task::verifier
