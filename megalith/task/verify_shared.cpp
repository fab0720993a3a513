#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "megalith/task/verify_parts.h"

namespace megalith::task::verifier {

namespace {

// Accesses to buffers with bytes in common: every access to the one before or after every access to the other.
class SharedBytes {
 public:
  SharedBytes(const TaskGraph& graph, const Clocks& clocks, Findings& findings)
      : graph_(graph),
        clocks_(clocks),
        findings_(findings),
        overlaps_(find_overlaps(graph)),
        buffers_(graph.buffers.size()) {
    for (const Task& task : graph.tasks) {
      for (bool writes : {false, true})
        for (const Region& region : writes ? task.writes : task.reads)
          if (!overlaps_[static_cast<size_t>(region.buffer)].empty() && !touches_nothing(region.box))
            touches_.items.push_back({region.buffer, writes});
      touches_.end_list();
    }
    for (size_t b = 0; b < overlaps_.size(); ++b)
      if (!overlaps_[b].empty())
        for (std::vector<int> Shared::*moments :
             {&Shared::writes, &Shared::all, &Shared::others_writes, &Shared::others_all})
          (buffers_[b].*moments).assign(clocks.num_workers(), 0);
  }

  int64_t check() {
    for (int iteration = 0; iteration < 2; ++iteration)
      for (size_t t = 0; t < graph_.tasks.size() && !findings_.full(); ++t) {
        const int task = static_cast<int>(t);
        if (iteration == 0) check_itself(task);
        if (iteration == 1) visit(task, [&](int b, bool writes) { check_before(task, b, writes); });
        visit(task, [&](int b, bool writes) { remember(b, writes, task, iteration); });
      }
    return num_checked_;
  }

 private:
  // What was done to a buffer so far, and, unless one of them was touched since, to all that share its bytes.
  struct Shared {
    std::vector<int> writes, all, others_writes, others_all;  // moments, per worker
    bool is_known = true;                                     // what others did
    bool is_told = false;  // the others know that they have to look at this one again
  };

  void remember(int b, bool writes, int task, int iteration) {
    Shared& shared = buffers_[static_cast<size_t>(b)];
    const size_t w = static_cast<size_t>(clocks_.worker(task));
    const int moment = clocks_.moment(task, iteration);
    shared.all[w] = std::max(shared.all[w], moment);
    if (writes) shared.writes[w] = std::max(shared.writes[w], moment);
    if (shared.is_told) return;
    shared.is_told = true;
    for (int other : overlaps_[static_cast<size_t>(b)]) buffers_[static_cast<size_t>(other)].is_known = false;
  }

  // Of the buffers that share bytes with b.
  Moments moments_of_others(int b, bool writes_only) {
    Shared& shared = buffers_[static_cast<size_t>(b)];
    if (!shared.is_known) {
      shared.is_known = true;
      for (int o : overlaps_[static_cast<size_t>(b)]) {
        Shared& other = buffers_[static_cast<size_t>(o)];
        other.is_told = false;
        for (size_t w = 0; w < other.all.size(); ++w) {
          shared.others_all[w] = std::max(shared.others_all[w], other.all[w]);
          shared.others_writes[w] = std::max(shared.others_writes[w], other.writes[w]);
        }
      }
    }
    return writes_only ? shared.others_writes : shared.others_all;
  }

  template <class Visit>
  void visit(int t, Visit&& visit) const {
    for (const Touch& touch : touches_[static_cast<size_t>(t)]) visit(touch.buffer, touch.writes);
  }

  void check_before(int t, int b, bool writes) {
    const Moments before = moments_of_others(b, !writes);
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
  // What each task does to buffers that share bytes: looked up once and walked often.
  struct Touch {
    int buffer;
    bool writes;
  };
  Lists<Touch> touches_;
  std::vector<Shared> buffers_;
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

int64_t check_shared_bytes(const TaskGraph& graph, const Clocks& clocks, Findings& findings) {
  return SharedBytes(graph, clocks, findings).check();
}

}  // namespace megalith::task::verifier
