#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "megalith/task/verify_parts.h"

namespace megalith::task::verifier {

namespace {

// What tasks wait for without an event: the words of exchanges. One gather per buffer and box that is read, reached
// when all tasks that write into the box have run.
struct Gathers {
  struct Gather {
    int buffer;
    int64_t writers = 0;
  };
  std::vector<Gather> gathers;
  Lists<> waits, signals;  // per task
  static constexpr size_t kMaxSignallers = size_t{1} << 27;

  Gathers(const TaskGraph& graph, Budget& budget) {
    std::vector<bool> exchanges;  // by themselves they stay near, buffers do not
    for (const Buffer& buffer : graph.buffers) exchanges.push_back(buffer.memory == Memory::exchange);
    auto is_exchange = [&](const Region& region) {
      return exchanges[static_cast<size_t>(region.buffer)] && !touches_nothing(region.box);
    };
    struct Writers {
      std::vector<int> tasks;
      BoxIndex boxes;
    };
    std::map<int, Writers> writers;  // by buffer
    for (size_t t = 0; t < graph.tasks.size(); ++t)
      for (const Region& region : graph.tasks[t].writes)
        if (is_exchange(region)) {
          Writers& of_buffer = writers[region.buffer];
          of_buffer.tasks.push_back(static_cast<int>(t));
          of_buffer.boxes.add(region.box);
        }
    for (auto& [buffer, of_buffer] : writers) of_buffer.boxes.sort();
    struct Known {
      std::map<const loop::Box*, int, BoxOrder> gathers;
      const loop::Box* last = nullptr;  // most tasks read what the one before them reads
      int last_gather = -1;
    };
    std::vector<Known> known(graph.buffers.size());
    std::vector<std::pair<int, int>> signallers;  // (task, gather)
    for (const Task& task : graph.tasks) {
      for (const Region& region : task.reads) {
        if (!is_exchange(region) || budget.is_spent()) continue;
        Known& of_buffer = known[static_cast<size_t>(region.buffer)];
        if (!of_buffer.last || !(*of_buffer.last == region.box)) {
          const auto [entry, added] = of_buffer.gathers.try_emplace(&region.box, static_cast<int>(gathers.size()));
          const int gather = entry->second;
          of_buffer.last = entry->first, of_buffer.last_gather = gather;
          if (added) {
            gathers.push_back({region.buffer});
            const Writers& of_box = writers[region.buffer];
            of_box.boxes.visit(region.box, budget, 4, [&](size_t w) {
              signallers.emplace_back(of_box.tasks[w], gather);
              ++gathers.back().writers;
            });
            // What is kept of them is memory, not only time.
            if (signallers.size() > kMaxSignallers) budget.spend_all();
          }
        }
        waits.items.push_back(of_buffer.last_gather);
      }
      waits.end_list();
    }
    signals = Lists<>::sorted(graph.tasks.size(), [&](auto&& add) {
      for (const auto& [task, gather] : signallers) add(static_cast<size_t>(task), gather);
    });
  }
};

class Simulation {
 public:
  Simulation(const TaskGraph& graph, Budget& budget)
      : graph_(graph),
        gathers_(graph, budget),
        partners_(graph.events.size() + gathers_.gathers.size()),
        head_(graph.workers.size(), 0),
        held_(graph.workers.size(), 0),
        arrived_(partners_ + (has_partners(graph) ? graph.tasks.size() : 0), 0),
        wanted_(arrived_.size(), std::numeric_limits<int64_t>::max()),
        blocked_(arrived_.size()),
        done_(graph.tasks.size(), false) {}

  std::vector<int> run() {
    for (size_t w = graph_.workers.size(); w-- > 0;) ready_.push_back(w);
    while (!ready_.empty()) {
      const size_t w = ready_.back();
      ready_.pop_back();
      advance(w);
    }
    return std::move(order_);
  }

  // From a worker that is stuck to the one that would have to go on first, until one comes up again.
  void explain(Findings& findings) {
    const size_t num_workers = graph_.workers.size();
    size_t w = 0;
    while (head_[w] == graph_.workers[w].size()) ++w;
    for (size_t i = 0; i < num_workers; ++i) w = worker_of(missing_signaller(w));  // now it is on the cycle
    std::string text;
    std::vector<int> tasks;
    const size_t start = w;
    int first_event = -1;
    do {
      const int head = graph_.workers[w][head_[w]];
      const Open wait = open_wait(w);
      const int signaller = missing_signaller(w);
      const size_t next = worker_of(signaller);
      const int next_head = graph_.workers[next][head_[next]];
      tasks.push_back(head);
      text += fmt::format("{}task \"{}\" on worker {} waits for ", text.empty() ? "" : "; ", name(head), w);
      if (wait.counter < graph_.events.size()) {
        if (first_event < 0) first_event = static_cast<int>(wait.counter);
        text += fmt::format("event \"{}\" ({} of {} signals), which task \"{}\" signals",
                            graph_.events[wait.counter].name, arrived_[wait.counter], wait.count, name(signaller));
      } else if (wait.counter >= partners_) {
        text += fmt::format("its partner \"{}\" to begin", name(signaller));
      } else {
        const int buffer = gathers_.gathers[wait.counter - graph_.events.size()].buffer;
        text += fmt::format("the exchange \"{}\", which task \"{}\" writes",
                            graph_.buffers[static_cast<size_t>(buffer)].name, name(signaller));
      }
      if (signaller != next_head) {
        tasks.push_back(signaller);
        text += fmt::format(" after task \"{}\" in the list of worker {}", name(next_head), next);
      }
      w = next;
    } while (w != start);
    findings.add(FindingKind::deadlock, std::move(tasks), first_event, -1, std::move(text));
  }

 private:
  static bool has_partners(const TaskGraph& graph) {
    return std::ranges::any_of(graph.tasks, [](const Task& task) { return task.partner >= 0; });
  }

  void advance(size_t w) {
    const std::vector<int>& list = graph_.workers[w];
    for (; head_[w] < list.size(); ++head_[w]) {
      const int t = list[head_[w]];
      const Task& task = graph_.tasks[static_cast<size_t>(t)];
      if (const Open wait = open_wait(w); wait.count > 0) {
        if (wait.counter >= partners_) meet(task);
        blocked_[wait.counter].push_back({w, wait.count});
        wanted_[wait.counter] = std::min(wanted_[wait.counter], wait.count);
        return;
      }
      if (task.partner >= 0) meet(task);
      held_[w] = 0;
      order_.push_back(t);
      done_[static_cast<size_t>(t)] = true;
      auto arrive = [&](size_t counter) {
        if (++arrived_[counter] >= wanted_[counter]) wake(counter);
      };
      for (int event : task.signals) arrive(static_cast<size_t>(event));
      for (int gather : gathers_.signals[static_cast<size_t>(t)])
        arrive(graph_.events.size() + static_cast<size_t>(gather));
    }
  }

  // All that the task waits for is there, but for its partner, which need not wait for it any longer.
  void meet(const Task& task) {
    const size_t counter = partners_ + static_cast<size_t>(task.partner);
    if (arrived_[counter] > 0) return;
    arrived_[counter] = 1;
    if (wanted_[counter] <= 1) wake(counter);
  }

  void wake(size_t e) {
    wanted_[e] = std::numeric_limits<int64_t>::max();
    std::erase_if(blocked_[e], [&](const Blocked& blocked) {
      if (arrived_[e] >= blocked.count) return ready_.push_back(blocked.worker), true;
      wanted_[e] = std::min(wanted_[e], blocked.count);
      return false;
    });
  }

  // What a worker's next task waits for that is not there: an event or, counted on from the events, a gather, or that its
  // partner begins. Count 0: nothing. What was found there stays there, so the next look begins behind it.
  struct Open {
    size_t counter = 0;
    int64_t count = 0;
  };
  Open open_wait(size_t w) {
    const int t = graph_.workers[w][head_[w]];
    const std::vector<Wait>& waits = graph_.tasks[static_cast<size_t>(t)].waits;
    const std::span<const int> gathers = gathers_.waits[static_cast<size_t>(t)];
    for (size_t& held = held_[w]; held < waits.size() + gathers.size(); ++held) {
      Open open;
      if (held < waits.size()) {
        const Wait& wait = waits[held];
        if (wait.lag == 0) open = {static_cast<size_t>(wait.event), wait.count};
      } else {
        const auto gather = static_cast<size_t>(gathers[held - waits.size()]);
        open = {graph_.events.size() + gather, gathers_.gathers[gather].writers};
      }
      if (open.count > 0 && arrived_[open.counter] < open.count) return open;
    }
    if (graph_.tasks[static_cast<size_t>(t)].partner >= 0)
      if (const size_t counter = partners_ + static_cast<size_t>(t); arrived_[counter] == 0) return {counter, 1};
    return {};
  }

  // A task that has not signalled what this stuck worker waits for. There is one: counts are at most arrivals.
  int missing_signaller(size_t w) {
    const size_t counter = open_wait(w).counter, num_events = graph_.events.size();
    if (counter >= partners_) return graph_.tasks[counter - partners_].partner;
    for (size_t t = 0; t < graph_.tasks.size(); ++t) {
      const bool is_event = counter < num_events;
      const std::span<const int> signals = is_event ? graph_.tasks[t].signals : gathers_.signals[t];
      const int wanted = static_cast<int>(is_event ? counter : counter - num_events);
      if (!done_[t] && std::find(signals.begin(), signals.end(), wanted) != signals.end()) return static_cast<int>(t);
    }
    return graph_.workers[w][head_[w]];
  }

  size_t worker_of(int t) const { return static_cast<size_t>(graph_.tasks[static_cast<size_t>(t)].worker); }
  const std::string& name(int t) const { return graph_.tasks[static_cast<size_t>(t)].name; }

  struct Blocked {
    size_t worker;
    int64_t count;
  };

  const TaskGraph& graph_;
  const Gathers gathers_;
  const size_t partners_;         // from here on counters of tasks: 1 once the partner has begun
  std::vector<size_t> head_;      // per worker: how much of its list has run
  std::vector<size_t> held_;      // likewise: how much of what its next task waits for was found there
  std::vector<int64_t> arrived_;  // per event, then per gather, then per task if any has a partner
  std::vector<int64_t> wanted_;   // likewise: the smallest count that somebody blocked waits for
  std::vector<std::vector<Blocked>> blocked_;
  std::vector<bool> done_;
  std::vector<size_t> ready_;
  std::vector<int> order_;
};

void join(int* clock, const int* other, size_t num_workers) {
  for (size_t w = 0; w < num_workers; ++w) clock[w] = clock[w] > other[w] ? clock[w] : other[w];
}

}  // namespace

std::vector<int> simulate(const TaskGraph& graph, Budget& budget, Findings& findings) {
  Simulation simulation(graph, budget);
  if (budget.is_spent()) return {};
  std::vector<int> order = simulation.run();
  if (order.size() < graph.tasks.size()) simulation.explain(findings);
  return order;
}

Clocks::Clocks(const TaskGraph& graph, const std::vector<int>& order)
    : worker_(graph.tasks.size()),
      position_(graph.tasks.size()),
      length_(graph.workers.size()),
      clock_(graph.tasks.size()) {
  const size_t stride = graph.workers.size();
  for (size_t w = 0; w < graph.workers.size(); ++w) {
    length_[w] = static_cast<int>(graph.workers[w].size());
    for (size_t i = 0; i < graph.workers[w].size(); ++i) {
      worker_[static_cast<size_t>(graph.workers[w][i])] = static_cast<int>(w);
      position_[static_cast<size_t>(graph.workers[w][i])] = static_cast<int>(i) + 1;
    }
  }

  // Of each task the full waits and the signals, one behind the other: the run goes from worker to worker, and a task's
  // own lists would be fetched from memory each time, twice.
  struct Edge {
    int event, lag;
  };
  Lists<Edge> waits;
  Lists<> signals;
  for (const Task& task : graph.tasks) {
    for (const Wait& wait : task.waits)
      if (wait.count == graph.events[static_cast<size_t>(wait.event)].arrivals)
        waits.items.push_back({wait.event, wait.lag});
    waits.end_list();
    signals.items.insert(signals.items.end(), task.signals.begin(), task.signals.end());
    signals.end_list();
  }

  constexpr auto kNowhere = std::numeric_limits<size_t>::max();
  std::vector<int> now(stride * stride, 0);  // per worker its clock
  std::vector<int> events[2];                // by iteration: per event what precedes its last signal
  for (std::vector<int>& clocks : events) clocks.assign(graph.events.size() * stride, 0);
  const std::vector<size_t> nowhere(graph.events.size(), kNowhere);
  std::vector<size_t> known_of_event[2] = {nowhere, nowhere};  // likewise: where it stands
  for (int iteration = 0; iteration < 2; ++iteration) {
    if (iteration == 1 && graph.gate)
      for (size_t w = 0; w < stride; ++w)
        join(&now[w * stride], &events[0][static_cast<size_t>(*graph.gate) * stride], stride);
    std::vector<size_t> known(stride, kNowhere);  // per worker where its clock stands
    for (int t : order) {
      const size_t w = static_cast<size_t>(worker(t));
      int* mine = &now[w * stride];
      for (const Edge& wait : waits[static_cast<size_t>(t)])
        if (wait.lag <= iteration)
          join(mine, &events[iteration - wait.lag][static_cast<size_t>(wait.event) * stride], stride);
      mine[w] = moment(t, iteration);
      for (int event : signals[static_cast<size_t>(t)])
        join(&events[iteration][static_cast<size_t>(event) * stride], mine, stride);
      if (iteration == 0) continue;
      size_t& at = known[w];
      const auto is_same = [&](const int* other) {  // but for its own moment
        return std::equal(mine, mine + w, other) && std::equal(mine + w + 1, mine + stride, other + w + 1);
      };
      const auto keep = [&](const int* clock) {
        clocks_.insert(clocks_.end(), clock, clock + stride);
        return clocks_.size() - stride;
      };
      const auto list = waits[static_cast<size_t>(t)];
      if (at == kNowhere || (!list.empty() && !is_same(&clocks_[at]))) {
        // Mostly what the event told all that wait for it.
        at = kNowhere;
        for (const Edge& wait : list) {
          const int* const told = &events[1 - wait.lag][static_cast<size_t>(wait.event) * stride];
          if (!is_same(told)) continue;
          size_t& of_event = known_of_event[1 - wait.lag][static_cast<size_t>(wait.event)];
          if (of_event == kNowhere) of_event = keep(told);
          at = of_event;
        }
        if (at == kNowhere) at = keep(mine);
      }
      clock_[static_cast<size_t>(t)] = at;
    }
  }
}

void check_overrun(const TaskGraph& graph, const Clocks& clocks, Findings& findings) {
  const size_t stride = clocks.num_workers();
  std::vector<std::vector<int>> signallers(graph.events.size());
  std::vector<std::vector<std::pair<int, int>>> waiters(graph.events.size());  // (task, lag), full waits only
  for (size_t t = 0; t < graph.tasks.size(); ++t) {
    for (int event : graph.tasks[t].signals) signallers[static_cast<size_t>(event)].push_back(static_cast<int>(t));
    for (const Wait& wait : graph.tasks[t].waits)
      if (wait.count == graph.events[static_cast<size_t>(wait.event)].arrivals)
        waiters[static_cast<size_t>(wait.event)].emplace_back(static_cast<int>(t), wait.lag);
  }

  // The gate needs no look: no worker begins iteration i + 1, let alone signals in it, before all signals of i are in.
  std::vector<int> all_signals(stride), all_waits(stride);
  auto covered = [&](const std::vector<int>& moments, int t) { return clocks.late_worker(moments, t) < 0; };
  for (size_t e = 0; e < graph.events.size() && !findings.full(); ++e) {
    if (signallers[e].size() < 2 || waiters[e].empty()) continue;
    std::fill(all_signals.begin(), all_signals.end(), 0);
    std::fill(all_waits.begin(), all_waits.end(), 0);
    for (int t : signallers[e]) {
      int& last = all_signals[static_cast<size_t>(clocks.worker(t))];
      last = std::max(last, clocks.moment(t, 0));
    }
    for (const auto& [t, lag] : waiters[e]) {
      int& last = all_waits[static_cast<size_t>(clocks.worker(t))];
      last = std::max(last, clocks.moment(t, lag));  // the wait for iteration 0
    }
    for (int fast : signallers[e]) {
      if (covered(all_signals, fast) || covered(all_waits, fast)) continue;
      const int slow = *std::find_if(signallers[e].begin(), signallers[e].end(),
                                     [&](int t) { return !clocks.precedes(t, 0, fast); });
      const auto [waiter, lag] = *std::find_if(waiters[e].begin(), waiters[e].end(), [&](const auto& each) {
        return !clocks.precedes(each.first, each.second, fast);
      });
      findings.add(FindingKind::overrun, {fast, slow, waiter}, static_cast<int>(e), -1,
                   fmt::format("event \"{}\" may count the next iteration's signal of task \"{}\" in place of this "
                               "iteration's of task \"{}\", so that task \"{}\" goes on too early{}",
                               graph.events[e].name, graph.tasks[static_cast<size_t>(fast)].name,
                               graph.tasks[static_cast<size_t>(slow)].name,
                               graph.tasks[static_cast<size_t>(waiter)].name, lag ? " (it waits with lag 1)" : ""));
      break;
    }
  }
}

}  // namespace megalith::task::verifier
