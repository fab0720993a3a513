// A second opinion on task graphs, made in another way than the verifier and without its shortcuts: the workers are
// run, with counters that count as task_graph.h says, over several iterations. For each pair of accesses that conflict,
// the first task is made to take for ever; if the second starts all the same, nothing orders them. Since counters only
// grow and lists are fixed, one such run shows everything that can possibly start, so this is exact for the iterations
// looked at: it also sees what partial counts order and what an overrun counter does not.
//
// A task begins only when the words of this iteration that it reads from exchanges are there, and ends only when its partner
// has begun. That is how a run that nobody holds up goes. Seeing a word orders nothing else, however (what its writer wrote
// before may still be on its way), and neither does meeting a partner; so where orders are looked for, words are there from
// the beginning, and nobody waits for a partner.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "megalith/task/task_graph.h"

namespace megalith::test {

/// Which tasks touch the same bytes, byte by byte, one of them writing; and whether sharing loses values. Depends on
/// regions and offsets only: one for all mutants of a graph that leave those alone.
class OracleMemory {
 public:
  explicit OracleMemory(const task::TaskGraph& graph)
      : num_tasks_(graph.tasks.size()),
        conflicts_(num_tasks_ * num_tasks_),
        conflicts_within_(conflicts_.size()),
        writers_of_words_(num_tasks_) {
    struct Touch {
      size_t task, buffer;
      bool writes;
      int64_t begin, end;  // bytes
      int64_t row_begin, row_end;

      bool has_row_of(const Touch& other) const {
        for (int64_t row = row_begin; row < row_end; ++row)
          if (other.row_begin <= row && row < other.row_end) return true;
        return false;
      }
    };
    std::vector<Touch> touches;
    std::vector<int64_t> base(graph.buffers.size());
    int64_t next = graph.arena_bytes;  // other memory behind the arena, each buffer its own
    for (size_t b = 0; b < graph.buffers.size(); ++b) {
      const task::Buffer& buffer = graph.buffers[b];
      base[b] = buffer.memory == task::Memory::arena ? buffer.offset : next;
      if (buffer.memory != task::Memory::arena) next += buffer.bytes;
    }
    for (size_t t = 0; t < num_tasks_; ++t)
      for (bool writes : {false, true})
        for (const task::Region& region : writes ? graph.tasks[t].writes : graph.tasks[t].reads) {
          const size_t b = static_cast<size_t>(region.buffer);
          const task::Buffer& buffer = graph.buffers[b];
          if (buffer.memory == task::Memory::constant) continue;
          for_each_run(buffer.shape, region.box, [&](int64_t begin, int64_t end) {
            const int64_t size = dtype_bytes(buffer.dtype);
            touches.push_back(
                {t, b, writes, base[b] + begin * size, base[b] + end * size, region.row_begin, region.row_end});
          });
        }

    // Bytes that every touch takes whole or not at all are one cell.
    std::vector<int64_t> cuts;
    for (const Touch& touch : touches) cuts.push_back(touch.begin), cuts.push_back(touch.end);
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    std::vector<std::vector<const Touch*>> cells(cuts.size());
    for (const Touch& touch : touches) {
      auto cell = std::lower_bound(cuts.begin(), cuts.end(), touch.begin);
      for (; *cell < touch.end; ++cell) cells[static_cast<size_t>(cell - cuts.begin())].push_back(&touch);
    }
    for (const std::vector<const Touch*>& cell : cells) {
      for (const Touch* x : cell)
        for (const Touch* y : cell) {
          if (!x->writes && !y->writes) continue;
          // Who reads a word waits for it by itself.
          if (graph.buffers[x->buffer].memory == task::Memory::exchange && x->writes && !y->writes) {
            writers_of_words_[y->task].push_back(x->task);
            continue;
          }
          if (x->task != y->task) {
            const bool scatter = x->writes && y->writes && x->row_end > 0 && y->row_end > 0 &&
                                 graph.tasks[x->task].node == graph.tasks[y->task].node;
            conflicts_[x->task * num_tasks_ + y->task] = true;
            if (!scatter || x->has_row_of(*y)) conflicts_within_[x->task * num_tasks_ + y->task] = true;
          } else if (x->buffer != y->buffer) {
            harm_ = fmt::format("task \"{}\" touches two buffers at the same bytes", graph.tasks[x->task].name);
          }
        }
      // The values: run in program order, reads of a task before its writes (touches stand so), twice round.
      size_t writer_of_bytes = SIZE_MAX;
      std::map<size_t, size_t> writer_of_buffer;
      for (int round = 0; round < 2; ++round)
        for (const Touch* touch : cell) {
          const size_t now = static_cast<size_t>(round) * num_tasks_ + touch->task;
          if (touch->writes)
            writer_of_bytes = writer_of_buffer[touch->buffer] = now;
          else if (auto own = writer_of_buffer.find(touch->buffer);
                   own != writer_of_buffer.end() && own->second != writer_of_bytes)
            harm_ = fmt::format("task \"{}\" reads bytes of \"{}\" that task \"{}\" wrote through another buffer",
                                graph.tasks[touch->task].name, graph.buffers[touch->buffer].name,
                                graph.tasks[writer_of_bytes % num_tasks_].name);
        }
    }
  }

  /// Of one iteration, or of two. Rows of one scatter go to different bytes within one.
  bool conflict(size_t a, size_t b, bool within) const {
    return (within ? conflicts_within_ : conflicts_)[a * num_tasks_ + b];
  }
  /// The tasks that write words which this one reads.
  const std::vector<size_t>& writers_of_words(size_t t) const { return writers_of_words_[t]; }
  const std::string& harm() const { return harm_; }

 private:
  // The contiguous runs of elements of a box in row-major order.
  template <class Visit>
  static void for_each_run(const std::vector<int64_t>& shape, const loop::Box& box, Visit visit) {
    for (size_t d = 0; d < box.lo.size(); ++d)
      if (box.lo[d] >= box.hi[d]) return;
    loop::Corner at = box.lo;
    for (;;) {
      int64_t element = 0;
      for (size_t d = 0; d < at.size(); ++d) element = element * shape[d] + at[d];
      if (at.empty()) return visit(0, 1);
      const size_t last = at.size() - 1;
      visit(element, element + box.hi[last] - box.lo[last]);
      size_t d = last;
      while (d > 0 && ++at[d - 1] == box.hi[d - 1]) --d, at[d] = box.lo[d];
      if (d == 0) return;
    }
  }

  size_t num_tasks_;
  std::vector<bool> conflicts_, conflicts_within_;  // (tasks, tasks): the first must come first
  std::vector<std::vector<size_t>> writers_of_words_;
  std::string harm_;
};

class Oracle {
 public:
  Oracle(const task::TaskGraph& graph, const OracleMemory& memory) : graph_(graph), memory_(memory) {}

  /// "" if no speeds of the workers can go wrong in the iterations looked at; else what goes wrong.
  std::string harm() {
    if (!memory_.harm().empty()) return memory_.harm();
    constexpr int kIterations = 4;
    // A deadlock in a late iteration only may be the end of the run, after which nobody signals any more.
    tasks_meet_ = true;
    run(kIterations + 2, SIZE_MAX, 0);
    tasks_meet_ = false;
    for (int i = 0; i < kIterations; ++i)
      for (size_t t = 0; t < graph_.tasks.size(); ++t)
        if (!started(i, t)) return fmt::format("task \"{}\" never runs in iteration {}", graph_.tasks[t].name, i);

    for (size_t x = 0; x < graph_.tasks.size(); ++x) {
      bool any = false;
      for (size_t y = 0; y < graph_.tasks.size(); ++y) any = any || memory_.conflict(x, y, false);
      for (int frozen = 0; any && frozen < 2; ++frozen) {
        run(kIterations, x, frozen);
        for (int i = frozen; i < kIterations; ++i)
          for (size_t y = i == frozen ? x + 1 : 0; y < graph_.tasks.size(); ++y)
            if (memory_.conflict(x, y, i == frozen) && started(i, y))
              return fmt::format("task \"{}\" of iteration {} need not wait for task \"{}\" of iteration {}",
                                 graph_.tasks[y].name, i, graph_.tasks[x].name, frozen);
      }
    }
    return "";
  }

 private:
  bool started(int iteration, size_t t) const {
    return started_[static_cast<size_t>(iteration) * graph_.tasks.size() + t];
  }

  // Everything that can start although task `frozen` never ends in its iteration.
  void run(int iterations, size_t frozen, int frozen_iteration) {
    started_.assign(static_cast<size_t>(iterations) * graph_.tasks.size(), false);
    arrived_.assign(graph_.events.size(), 0);
    runs_.assign(graph_.tasks.size(), 0);
    struct Worker {
      int iteration = 0;
      size_t next = 0;
      bool frozen = false;
    };
    std::vector<Worker> workers(graph_.workers.size());
    for (bool progress = true; progress;) {
      progress = false;
      for (size_t w = 0; w < workers.size(); ++w) {
        Worker& worker = workers[w];
        const std::vector<int>& list = graph_.workers[w];
        while (!worker.frozen && !list.empty() && worker.iteration < iterations) {
          if (worker.next == 0 && graph_.gate) {
            const size_t gate = static_cast<size_t>(*graph_.gate);
            if (arrived_[gate] < graph_.events[gate].arrivals * worker.iteration) break;
          }
          const size_t t = static_cast<size_t>(list[worker.next]);
          if (!started(worker.iteration, t)) {
            if (!can_start(t, worker.iteration)) break;
            started_[static_cast<size_t>(worker.iteration) * graph_.tasks.size() + t] = progress = true;
          }
          const int partner = graph_.tasks[t].partner;
          if (tasks_meet_ && partner >= 0 && !started(worker.iteration, static_cast<size_t>(partner))) break;
          progress = true;
          worker.frozen = t == frozen && worker.iteration == frozen_iteration;
          if (worker.frozen) break;
          ++runs_[t];
          for (int event : graph_.tasks[t].signals) ++arrived_[static_cast<size_t>(event)];
          if (++worker.next == list.size()) worker.next = 0, ++worker.iteration;
        }
      }
    }
  }

  bool can_start(size_t t, int iteration) const {
    if (tasks_meet_)
      for (size_t writer : memory_.writers_of_words(t))
        if (runs_[writer] <= iteration) return false;
    return std::all_of(graph_.tasks[t].waits.begin(), graph_.tasks[t].waits.end(), [&](const task::Wait& wait) {
      const size_t event = static_cast<size_t>(wait.event);
      return iteration < wait.lag ||
             arrived_[event] >= graph_.events[event].arrivals * (iteration - wait.lag) + wait.count;
    });
  }

  const task::TaskGraph& graph_;
  const OracleMemory& memory_;
  std::vector<bool> started_;     // (iterations, tasks)
  std::vector<int64_t> arrived_;  // per event
  std::vector<int> runs_;         // per task, how often it has run
  bool tasks_meet_ = false;
};

}  // namespace megalith::test
