#include "megalith/task/event.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "megalith/base/error.h"

namespace megalith::task {

namespace {

using Clock = std::vector<int>;  // per worker

// A task that waits for a set, `lag` iterations back.
struct Waiter {
  int task, lag;
  bool operator==(const Waiter&) const = default;
};

// Tasks of which none precedes another; what waits for all of them comes after everything they stand for.
struct Producers {
  std::vector<int> tasks;  // ascending
  Clock joined[2];         // by lag: everything that precedes them, once asked for
};

std::string bytes_of(const void* data, size_t size) { return {static_cast<const char*>(data), size}; }

class EventMaker {
 public:
  EventMaker(TaskGraph& graph, const Dependences& dependences, const Order& order, std::optional<int> gate_task)
      : graph_(graph),
        dependences_(dependences),
        order_(order),
        gate_task_(gate_task),
        num_workers_(order.num_workers()),
        next_clocks_(graph.tasks.size() * graph.workers.size()),
        waits_(graph.tasks.size()) {}

  EventReport run() {
    gather_aliases();
    choose_waits();
    merge_same_waiters();
    drop_implied_signals();
    write_graph();
    return report_;
  }

 private:
  // ---- sets --------------------------------------------------------------------------------------------------------

  // The id of the set's core: the last task on each worker, and of those only the ones that precede no other.
  int core_of(const std::vector<int>& tasks) {
    std::vector<int> last(graph_.workers.size(), -1);
    for (int t : tasks) {
      int& slot = last[static_cast<size_t>(task(t).worker)];
      if (slot < 0 || order_.position(t) > order_.position(slot)) slot = t;
    }
    Clock before(graph_.workers.size(), 0);  // what strictly precedes some member
    std::erase(last, -1);
    for (int t : last) {
      const int w = task(t).worker;
      const int* clock = order_.clock(t);
      for (int v = 0; v < num_workers_; ++v) {
        int& slot = before[static_cast<size_t>(v)];
        slot = std::max(slot, clock[v] - (v == w ? 1 : 0));
      }
    }
    std::erase_if(last, [&](int t) { return before[static_cast<size_t>(task(t).worker)] >= order_.position(t); });
    std::sort(last.begin(), last.end());
    auto [entry, added] = producers_of_.try_emplace(bytes_of(last.data(), last.size() * sizeof(int)),
                                                    static_cast<int>(producers_.size()));
    if (added) producers_.push_back({std::move(last), {}});
    return entry->second;
  }

  int core_of_dependence(int set) {
    if (cores_.empty()) cores_.resize(dependences_.sets.size(), -1);
    int& core = cores_[static_cast<size_t>(set)];
    if (core < 0) core = core_of(dependences_.sets[static_cast<size_t>(set)]);
    return core;
  }

  // What sharing bytes adds: all accesses of the other buffers at these bytes precede, in the next iteration, this
  // buffer's. (Within an iteration the arena has seen to it that they are ordered one way or the other.)
  void gather_aliases() {
    const size_t num_buffers = graph_.buffers.size();
    after_all_.assign(num_buffers, -1);
    after_writes_.assign(num_buffers, -1);
    std::vector<int> arena;
    for (size_t b = 0; b < num_buffers; ++b)
      if (graph_.buffers[b].memory == Memory::arena && graph_.buffers[b].bytes > 0)
        arena.push_back(static_cast<int>(b));

    std::vector<std::vector<int>> touched(num_buffers), written(num_buffers);
    for (size_t t = 0; t < graph_.tasks.size(); ++t)
      for (bool writes : {false, true})
        for (const Region& region : writes ? graph_.tasks[t].writes : graph_.tasks[t].reads) {
          const size_t b = static_cast<size_t>(region.buffer);
          if (touched[b].empty() || touched[b].back() != static_cast<int>(t)) touched[b].push_back(static_cast<int>(t));
          if (writes && (written[b].empty() || written[b].back() != static_cast<int>(t)))
            written[b].push_back(static_cast<int>(t));
        }
    for (int b : arena) {
      std::vector<int> all, writers;
      for (int other : arena) {
        if (b == other || !share_bytes(b, other)) continue;
        const size_t o = static_cast<size_t>(other);
        all.insert(all.end(), touched[o].begin(), touched[o].end());
        writers.insert(writers.end(), written[o].begin(), written[o].end());
      }
      if (!all.empty()) after_all_[static_cast<size_t>(b)] = core_of(all);
      if (!writers.empty()) after_writes_[static_cast<size_t>(b)] = core_of(writers);
    }
  }

  bool share_bytes(int a, int b) const {
    const Buffer& x = graph_.buffers[static_cast<size_t>(a)];
    const Buffer& y = graph_.buffers[static_cast<size_t>(b)];
    return x.offset < y.offset + y.bytes && y.offset < x.offset + x.bytes;
  }

  // ---- clocks of the second iteration: positions go on counting where the first iteration's end
  // ------------------------

  int* next_clock(int t) { return next_clocks_.data() + static_cast<size_t>(t) * static_cast<size_t>(num_workers_); }
  int list_length(int w) const { return static_cast<int>(graph_.workers[static_cast<size_t>(w)].size()); }
  int position(int t, int lag) const { return order_.position(t) + (lag == 0 ? list_length(task(t).worker) : 0); }

  // What list order and gate alone put before a task.
  Clock clock_before(int t) {
    const std::vector<int>& list = graph_.workers[static_cast<size_t>(task(t).worker)];
    const int at = order_.position(t) - 1;
    const int* previous = at > 0 ? next_clock(list[static_cast<size_t>(at) - 1]) : order_.clock(list.back());
    Clock clock(previous, previous + num_workers_);
    if (at == 0 && gate_task_) clock_join(clock.data(), order_.clock(*gate_task_), num_workers_);
    return clock;
  }

  const Clock& joined(int set, int lag) {
    Producers& producers = producers_[static_cast<size_t>(set)];
    Clock& clock = producers.joined[lag];
    if (clock.empty()) {
      clock.assign(graph_.workers.size(), 0);
      for (int t : producers.tasks) clock_join(clock.data(), lag == 0 ? next_clock(t) : order_.clock(t), num_workers_);
    }
    return clock;
  }

  bool implied(const Clock& clock, int set, int lag) const {
    for (int t : producers_[static_cast<size_t>(set)].tasks)
      if (clock[static_cast<size_t>(task(t).worker)] < position(t, lag)) return false;
    return true;
  }

  // ---- the steps ---------------------------------------------------------------------------------------------------

  std::vector<std::pair<int, int>> candidates(int t) {  // (lag, set)
    std::vector<std::pair<int, int>> result;
    const size_t index = static_cast<size_t>(t);
    for (int set : dependences_.within[index]) result.emplace_back(0, core_of_dependence(set));
    for (int set : dependences_.carried[index]) result.emplace_back(1, core_of_dependence(set));
    auto add_alias = [&](int set) {
      if (set >= 0) result.emplace_back(1, set);
    };
    for (const Region& region : graph_.tasks[index].reads) add_alias(after_writes_[static_cast<size_t>(region.buffer)]);
    for (const Region& region : graph_.tasks[index].writes) add_alias(after_all_[static_cast<size_t>(region.buffer)]);
    // Latest first: what a late task implies need not be waited for.
    auto latest = [&](const std::pair<int, int>& c) { return producers_[static_cast<size_t>(c.second)].tasks.back(); };
    std::sort(result.begin(), result.end(), [&](const auto& a, const auto& b) {
      if (a.first != b.first) return a.first < b.first;
      return std::pair(-latest(a), a.second) < std::pair(-latest(b), b.second);
    });
    result.erase(std::unique(result.begin(), result.end()), result.end());
    report_.num_candidates += static_cast<int64_t>(result.size());
    return result;
  }

  void choose_waits() {
    for (int t = 0; t < static_cast<int>(graph_.tasks.size()); ++t) {
      const Clock before = clock_before(t);
      Clock clock = before;
      std::vector<std::pair<int, int>>& chosen = waits_[static_cast<size_t>(t)];
      for (const auto& [lag, set] : candidates(t)) {
        if (implied(clock, set, lag)) continue;
        clock_join(clock.data(), joined(set, lag).data(), num_workers_);
        chosen.emplace_back(lag, set);
      }
      drop_mutually_implied(chosen, before);
      clock[static_cast<size_t>(task(t).worker)] = position(t, 0);
      std::copy(clock.begin(), clock.end(), next_clock(t));
    }
  }

  void drop_mutually_implied(std::vector<std::pair<int, int>>& chosen, const Clock& before) {
    for (size_t i = 0; chosen.size() > 1 && i < chosen.size();) {
      Clock others = before;
      for (size_t j = 0; j < chosen.size(); ++j)
        if (j != i) clock_join(others.data(), joined(chosen[j].second, chosen[j].first).data(), num_workers_);
      if (implied(others, chosen[i].second, chosen[i].first))
        chosen.erase(chosen.begin() + static_cast<std::ptrdiff_t>(i));
      else
        ++i;
    }
  }

  // Sets that the same tasks wait for become one event: one wait instead of several.
  void merge_same_waiters() {
    std::map<int, std::vector<Waiter>> waiters;  // by set
    for (int t = 0; t < static_cast<int>(waits_.size()); ++t)
      for (const auto& [lag, set] : waits_[static_cast<size_t>(t)]) waiters[set].push_back({t, lag});
    std::unordered_map<std::string, std::vector<int>> sets_of;  // by waiters
    std::vector<std::string> sequence;
    for (const auto& [set, list] : waiters) {
      std::string key = bytes_of(list.data(), list.size() * sizeof(Waiter));
      std::vector<int>& sets = sets_of[key];
      if (sets.empty()) sequence.push_back(std::move(key));
      sets.push_back(set);
    }
    for (const std::string& key : sequence) {
      const std::vector<int>& sets = sets_of[key];
      std::vector<int> all;
      for (int set : sets) all.insert(all.end(), producers(set).begin(), producers(set).end());
      const int merged = sets.size() == 1 ? sets.front() : core_of(all);
      std::vector<Waiter>& list = waiters_[merged];  // the merged set may be another event's, too
      const std::vector<Waiter>& more = waiters[sets.front()];
      list.insert(list.end(), more.begin(), more.end());
    }
    for (auto& chosen : waits_) chosen.clear();
    for (const auto& [set, list] : waiters_)
      for (const Waiter& waiter : list) waits_[static_cast<size_t>(waiter.task)].emplace_back(waiter.lag, set);
  }

  // A signaller that every waiter comes after anyway (its own worker's tasks, or other waits) need not signal.
  void drop_implied_signals() {
    for (const auto& [set, list] : waiters_) {
      if (producers(set).size() < 2) continue;
      Clock floor[2];
      for (Clock& clock : floor) clock.assign(graph_.workers.size(), std::numeric_limits<int>::max());
      for (const Waiter& waiter : list) {
        Clock clock = clock_before(waiter.task);
        for (const auto& [lag, other] : waits_[static_cast<size_t>(waiter.task)])
          if (other != set || lag != waiter.lag) clock_join(clock.data(), joined(other, lag).data(), num_workers_);
        for (size_t w = 0; w < clock.size(); ++w) floor[waiter.lag][w] = std::min(floor[waiter.lag][w], clock[w]);
      }
      Producers& mine = producers_[static_cast<size_t>(set)];
      std::erase_if(mine.tasks, [&](int t) {
        const size_t w = static_cast<size_t>(task(t).worker);
        return floor[0][w] >= position(t, 0) && floor[1][w] >= position(t, 1);
      });
      MEGALITH_ASSERT(!mine.tasks.empty(), "an event was chosen that all its waiters do without");
      for (Clock& clock : mine.joined) clock.clear();
    }
  }

  void write_graph() {
    graph_.events.clear();
    graph_.gate.reset();
    for (Task& each : graph_.tasks) each.waits.clear(), each.signals.clear();

    std::vector<int> sets;  // of the events, in the order of their first signallers
    for (const auto& [set, list] : waiters_) sets.push_back(set);
    std::stable_sort(sets.begin(), sets.end(), [&](int a, int b) { return producers(a) < producers(b); });
    std::vector<int> event_of(producers_.size(), -1);
    for (size_t i = 0; i < sets.size(); ++i) {
      // Dropping signallers may have made two sets equal; equal sets are one event.
      const bool same = i > 0 && producers(sets[i]) == producers(sets[i - 1]);
      event_of[static_cast<size_t>(sets[i])] =
          same ? event_of[static_cast<size_t>(sets[i - 1])] : add_event(producers(sets[i]));
    }
    if (gate_task_) {
      const std::vector<int> alone = {*gate_task_};
      for (int set : sets)
        if (producers(set) == alone) graph_.gate = event_of[static_cast<size_t>(set)];
      if (!graph_.gate) graph_.gate = add_event(alone);
    }
    for (size_t t = 0; t < waits_.size(); ++t)
      for (const auto& [lag, set] : waits_[t]) {
        const int event = event_of[static_cast<size_t>(set)];
        std::vector<Wait>& waits = graph_.tasks[t].waits;
        if (std::any_of(waits.begin(), waits.end(), [&](const Wait& w) { return w.event == event && w.lag == lag; }))
          continue;
        waits.push_back({event, graph_.events[static_cast<size_t>(event)].arrivals, lag});
        ++report_.num_waits;
        report_.num_waits_carried += lag;
      }
    report_.num_events = static_cast<int64_t>(graph_.events.size());
  }

  int add_event(const std::vector<int>& signallers) {
    const int index = static_cast<int>(graph_.events.size());
    graph_.events.push_back({event_name(signallers), static_cast<int64_t>(signallers.size())});
    for (int t : signallers) graph_.tasks[static_cast<size_t>(t)].signals.push_back(index);
    report_.num_signals += static_cast<int64_t>(signallers.size());
    return index;
  }

  // One signaller: its name. Several: the operators they are tiles of.
  std::string event_name(const std::vector<int>& signallers) {
    std::string name = task(signallers.front()).name;
    if (signallers.size() > 1) {
      name.clear();
      std::string last;
      constexpr int kMaxStems = 3;
      int num_stems = 0;
      for (int t : signallers) {
        const std::string stem = task(t).name.substr(0, task(t).name.find('['));
        if (stem == last) continue;
        last = stem;
        if (++num_stems > kMaxStems) continue;
        if (!name.empty()) name += " + ";
        name += stem;
      }
      if (num_stems > kMaxStems) name += fmt::format(" + {} more", num_stems - kMaxStems);
    }
    std::string unique = name;
    for (int& number = names_[name]; !taken_.insert(unique).second;) unique = fmt::format("{} #{}", name, ++number + 1);
    return unique;
  }

  const Task& task(int t) const { return graph_.tasks[static_cast<size_t>(t)]; }
  const std::vector<int>& producers(int set) const { return producers_[static_cast<size_t>(set)].tasks; }

  TaskGraph& graph_;
  const Dependences& dependences_;
  const Order& order_;
  const std::optional<int> gate_task_;
  const int num_workers_;
  std::vector<int> next_clocks_;  // (tasks, workers), in the second iteration
  std::vector<Producers> producers_;
  std::unordered_map<std::string, int> producers_of_;    // by their tasks
  std::vector<int> cores_;                               // per set of the dependences
  std::vector<int> after_all_, after_writes_;            // per buffer: set that its writers, its readers come after
  std::vector<std::vector<std::pair<int, int>>> waits_;  // per task: (lag, set)
  std::map<int, std::vector<Waiter>> waiters_;           // per set that becomes an event
  std::unordered_map<std::string, int> names_;
  std::unordered_set<std::string> taken_;
  EventReport report_;
};

}  // namespace

void add_gate_dependence(Dependences& dependences, const std::vector<std::vector<int>>& workers, int gate_task) {
  std::vector<int> first_tasks;
  for (const std::vector<int>& list : workers)
    if (!list.empty() && list.front() < gate_task) first_tasks.push_back(list.front());
  if (first_tasks.empty()) return;
  std::sort(first_tasks.begin(), first_tasks.end());
  dependences.within[static_cast<size_t>(gate_task)].push_back(static_cast<int>(dependences.sets.size()));
  dependences.sets.push_back(std::move(first_tasks));
}

void make_events(TaskGraph& graph, const Dependences& dependences, const Order& order, std::optional<int> gate_task,
                 EventReport* report) {
  MEGALITH_ASSERT(!gate_task || (*gate_task >= 0 && *gate_task < static_cast<int>(graph.tasks.size())),
                  "the gate's task is {} of {}", *gate_task, graph.tasks.size());
  const EventReport counts = EventMaker(graph, dependences, order, gate_task).run();
  if (report) *report = counts;
}

}  // namespace megalith::task
