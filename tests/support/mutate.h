// Every single way to break a task graph that the mutation campaigns know: one mutant each, made from a copy.
//
//   mutate_all(graph, [&](const task::TaskGraph& mutant, const Mutation& mutation) { ... });
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "megalith/task/task_graph.h"

namespace megalith::test {

struct Mutation {
  std::string kind;  // "drop wait"
  std::string text;  // what exactly, with names
};

struct MutateOptions {
  size_t most_per_kind = 0;  // 0: all; else so many of each kind, chosen by `seed`
  uint64_t seed = 0;
};

using MutantCallback = std::function<void(const task::TaskGraph& mutant, const Mutation& mutation)>;

namespace mutate_detail {

struct Step {
  std::string kind, text;
  std::function<void(task::TaskGraph&)> apply;
};

inline size_t at(int index) { return static_cast<size_t>(index); }

inline std::vector<Step> mutations_of_waits(const task::TaskGraph& graph) {
  std::vector<Step> steps;
  for (size_t t = 0; t < graph.tasks.size(); ++t)
    for (size_t i = 0; i < graph.tasks[t].waits.size(); ++i) {
      const task::Wait& wait = graph.tasks[t].waits[i];
      const std::string what =
          fmt::format("wait of \"{}\" for \"{}\"", graph.tasks[t].name, graph.events[at(wait.event)].name);
      steps.push_back({"drop wait", what, [t, i](task::TaskGraph& g) {
                         auto& waits = g.tasks[t].waits;
                         waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(i));
                       }});
      for (int64_t change : {-1, 1})
        steps.push_back({"change count", fmt::format("{} by {}", what, change),
                         [t, i, change](task::TaskGraph& g) { g.tasks[t].waits[i].count += change; }});
      steps.push_back(
          {"swap lag", what, [t, i](task::TaskGraph& g) { g.tasks[t].waits[i].lag = 1 - g.tasks[t].waits[i].lag; }});
    }
  return steps;
}

inline std::vector<Step> mutations_of_signals(const task::TaskGraph& graph) {
  std::vector<Step> steps;
  for (size_t t = 0; t < graph.tasks.size(); ++t)
    for (size_t i = 0; i < graph.tasks[t].signals.size(); ++i) {
      const int event = graph.tasks[t].signals[i];
      const std::string what =
          fmt::format("signal of \"{}\" to \"{}\"", graph.tasks[t].name, graph.events[at(event)].name);
      auto drop = [t, i](task::TaskGraph& g) {
        auto& signals = g.tasks[t].signals;
        signals.erase(signals.begin() + static_cast<std::ptrdiff_t>(i));
      };
      steps.push_back({"drop signal", what, drop});
      // The same with all counts made to fit: nothing but the order is wrong.
      steps.push_back({"drop signal, counts fit", what, [drop, event](task::TaskGraph& g) {
                         drop(g);
                         const int64_t arrivals = g.events[at(event)].arrivals--;
                         for (task::Task& task : g.tasks)
                           std::erase_if(task.waits, [&](task::Wait& wait) {
                             if (wait.event == event && wait.count == arrivals) --wait.count;
                             return wait.event == event && wait.count == 0;
                           });
                         if (arrivals > 1) return;
                         if (g.gate == event) g.gate.reset();
                         if (g.gate && *g.gate > event) --*g.gate;
                         g.events.erase(g.events.begin() + event);
                         for (task::Task& task : g.tasks) {
                           for (task::Wait& wait : task.waits) wait.event -= wait.event > event;
                           for (int& signal : task.signals) signal -= signal > event;
                         }
                       }});
    }
  for (size_t e = 0; e < graph.events.size(); ++e)
    for (int64_t change : {-1, 1})
      steps.push_back({"change arrivals", fmt::format("of \"{}\" by {}", graph.events[e].name, change),
                       [e, change](task::TaskGraph& g) { g.events[e].arrivals += change; }});
  return steps;
}

inline std::vector<Step> mutations_of_memory(const task::TaskGraph& graph) {
  std::vector<Step> steps;
  for (size_t a = 0; a < graph.buffers.size(); ++a)
    for (size_t b = 0; b < graph.buffers.size(); ++b) {
      const task::Buffer &x = graph.buffers[a], &y = graph.buffers[b];
      if (a == b || x.memory != task::Memory::arena || y.memory != task::Memory::arena) continue;
      if (x.offset < y.offset + y.bytes && y.offset < x.offset + x.bytes) continue;  // they share already
      steps.push_back(
          {"alias buffers", fmt::format("\"{}\" moved to \"{}\"", x.name, y.name), [a, b](task::TaskGraph& g) {
             g.buffers[a].offset = g.buffers[b].offset;
             g.arena_bytes = std::max(g.arena_bytes, g.buffers[a].offset + g.buffers[a].bytes);
           }});
    }
  return steps;
}

inline std::vector<Step> mutations_of_lists(const task::TaskGraph& graph) {
  std::vector<Step> steps;
  for (size_t w = 0; w < graph.workers.size(); ++w)
    for (size_t i = 0; i < graph.workers[w].size(); ++i) {
      const int t = graph.workers[w][i];
      const std::string& name = graph.tasks[at(t)].name;
      steps.push_back({"drop from list", fmt::format("\"{}\" of worker {}", name, w), [w, i](task::TaskGraph& g) {
                         g.workers[w].erase(g.workers[w].begin() + static_cast<std::ptrdiff_t>(i));
                       }});
      for (size_t j : {i + 1, i + 2, graph.workers[w].size() - 1})
        if (j > i && j < graph.workers[w].size())
          steps.push_back(
              {"move in list",
               fmt::format("\"{}\" of worker {} behind \"{}\"", name, w, graph.tasks[at(graph.workers[w][j])].name),
               [w, i, j](task::TaskGraph& g) {
                 auto begin = g.workers[w].begin();
                 std::rotate(begin + static_cast<std::ptrdiff_t>(i), begin + static_cast<std::ptrdiff_t>(i) + 1,
                             begin + static_cast<std::ptrdiff_t>(j) + 1);
               }});
      for (size_t v = 0; v < graph.workers.size(); ++v)
        if (v != w)
          steps.push_back(
              {"move to worker", fmt::format("\"{}\" from {} to {}", name, w, v), [w, i, v, t](task::TaskGraph& g) {
                 g.workers[w].erase(g.workers[w].begin() + static_cast<std::ptrdiff_t>(i));
                 auto& list = g.workers[v];
                 list.insert(std::lower_bound(list.begin(), list.end(), t), t);
                 g.tasks[at(t)].worker = static_cast<int>(v);
               }});
    }
  for (size_t t = 0; t < graph.tasks.size(); ++t)
    if (graph.tasks[t].partner >= 0)
      steps.push_back({"drop partner", graph.tasks[t].name, [t](task::TaskGraph& g) { g.tasks[t].partner = -1; }});
  if (graph.gate) steps.push_back({"drop gate", "", [](task::TaskGraph& g) { g.gate.reset(); }});
  return steps;
}

}  // namespace mutate_detail

/// Calls `callback` with one mutant after the other. Lists are expected in program order, as plan() leaves them.
inline void mutate_all(const task::TaskGraph& graph, const MutantCallback& callback,
                       const MutateOptions& options = {}) {
  using namespace mutate_detail;
  std::mt19937_64 random(options.seed);
  for (auto make : {mutations_of_waits, mutations_of_signals, mutations_of_memory, mutations_of_lists}) {
    std::vector<Step> steps = make(graph);
    if (options.most_per_kind) {
      std::shuffle(steps.begin(), steps.end(), random);
      std::vector<std::pair<std::string, size_t>> taken;
      std::erase_if(steps, [&](const Step& step) {
        auto entry =
            std::find_if(taken.begin(), taken.end(), [&](const auto& each) { return each.first == step.kind; });
        if (entry == taken.end()) entry = taken.insert(taken.end(), {step.kind, 0});
        return entry->second++ >= options.most_per_kind;
      });
    }
    for (const Step& step : steps) {
      task::TaskGraph mutant = graph;
      step.apply(mutant);
      callback(mutant, {step.kind, step.text});
    }
  }
}

}  // namespace megalith::test
