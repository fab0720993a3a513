// Random task lists, planned: forks, joins and diamonds over arena, state and constant buffers, boxes that overlap in
// part, in-place writes, one or several operators' tiles, with and without a gate; where asked for, tiles that hand
// their results on through exchanges, scatter rows, or are partners two and two. The same seed gives the same graph.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "megalith/task/plan.h"

namespace megalith::test {

struct RandomTaskGraphOptions {
  int max_tasks = 60;
  int max_workers = 5;
  double gate_probability = 0.4;
  double exchange_probability = 0;  // that an operator in tiles writes an exchange
  double scatter_probability = 0;   // that one that writes a state scatters rows
  double partner_probability = 0;   // that tiles of one that does not are partners
};

struct RandomTaskList {
  std::vector<task::Task> tasks;
  std::vector<task::Buffer> buffers;
  task::PlanOptions options;
};

/// What plan() takes. Every arena buffer is small (at most 64 elements), so that tests may look at single bytes.
inline RandomTaskList random_task_list(uint64_t seed, const RandomTaskGraphOptions& limits = {}) {
  std::mt19937_64 random(seed * 0x9e3779b97f4a7c15ull + 1);
  auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  auto chance = [&](double p) { return static_cast<double>(random() >> 11) * 0x1p-53 < p; };

  RandomTaskList list;
  list.options.name = fmt::format("random.{}", seed);
  list.options.num_workers = 1 + static_cast<int>(below(limits.max_workers));
  const int64_t num_tasks = chance(0.15) ? 1 + below(4) : 1 + below(limits.max_tasks);

  const int64_t num_buffers = 1 + below(2 + num_tasks / 3);
  const double state_share = chance(0.5) ? 0.1 : 0.4;
  for (int64_t b = 0; b < num_buffers; ++b) {
    task::Buffer buffer;
    constexpr DType kDtypes[] = {DType::bf16, DType::f16, DType::f32, DType::i32};
    buffer.dtype = kDtypes[below(4)];
    constexpr int64_t kMaxElements = 64;
    int64_t elements = 1;
    for (int64_t rank = below(4); rank > 0; --rank) {
      const int64_t size = 1 + below(std::min<int64_t>(8, kMaxElements / elements));
      buffer.shape.push_back(size);
      elements *= size;
    }
    if (chance(state_share))
      buffer.memory = task::Memory::state;
    else if (chance(0.12))
      buffer.memory = task::Memory::constant;
    buffer.name = fmt::format("{}{}",
                              buffer.memory == task::Memory::arena   ? "x"
                              : buffer.memory == task::Memory::state ? "state"
                                                                     : "weight",
                              b);
    list.buffers.push_back(std::move(buffer));
  }

  auto random_box = [&](int b) {
    loop::Box box;
    for (int64_t size : list.buffers[static_cast<size_t>(b)].shape) {
      int64_t lo = 0, hi = size;
      if (chance(0.5)) lo = below(size), hi = lo + 1 + below(size - lo);
      box.lo.push_back(lo);
      box.hi.push_back(hi);
    }
    return box;
  };
  auto whole_box = [&](int b) {
    loop::Box box;
    for (int64_t size : list.buffers[static_cast<size_t>(b)].shape) box.lo.push_back(0), box.hi.push_back(size);
    return box;
  };
  auto writable = [&](int b) { return list.buffers[static_cast<size_t>(b)].memory != task::Memory::constant; };
  // Buffers behind num_buffers are exchanges, each written whole by the tiles of one operator. Those that exist may be
  // read by whoever comes later.
  auto random_exchange = [&]() -> std::optional<int> {
    const int64_t exchanges = static_cast<int64_t>(list.buffers.size()) - num_buffers;
    if (exchanges == 0 || !chance(0.5)) return {};
    return static_cast<int>(num_buffers + below(exchanges));
  };

  // Buffers are used roughly in order, so that early ones die and the arena has something to share.
  const bool ordered = chance(0.7);
  int node = 0;
  while (static_cast<int64_t>(list.tasks.size()) < num_tasks) {
    const double progress = static_cast<double>(list.tasks.size()) / static_cast<double>(num_tasks);
    auto random_buffer = [&] {
      if (!ordered) return static_cast<int>(below(num_buffers));
      const int64_t window = std::max<int64_t>(2, num_buffers / 4);
      const int64_t first = static_cast<int64_t>(progress * static_cast<double>(num_buffers));
      return static_cast<int>(std::clamp<int64_t>(first - window + below(2 * window), 0, num_buffers - 1));
    };
    const std::string name = fmt::format("op{}", node);
    const double cost = 1 + static_cast<double>(below(1000));
    auto add = [&](task::Task task) {
      task.node = node;
      if (task.cost_ns == 0) task.cost_ns = cost;
      list.tasks.push_back(std::move(task));
    };

    if (chance(0.4)) {
      // An operator in tiles along one dimension: reads all of something, writes a tile each (in place now and then).
      int out = random_buffer();
      const int in = random_buffer(), other = random_buffer();
      const std::optional<int> words = random_exchange();
      const bool exchanges = limits.exchange_probability > 0 && chance(limits.exchange_probability);
      if (exchanges) {
        task::Buffer buffer = list.buffers[static_cast<size_t>(out)];
        buffer.memory = task::Memory::exchange;
        buffer.name = fmt::format("words{}", list.buffers.size());
        out = static_cast<int>(list.buffers.size());
        list.buffers.push_back(std::move(buffer));
      }
      const loop::Box all = whole_box(out);
      const bool scatters = limits.scatter_probability > 0 &&
                            list.buffers[static_cast<size_t>(out)].memory == task::Memory::state &&
                            chance(limits.scatter_probability);
      const bool in_place = !exchanges && !scatters && chance(0.2), same_tile = chance(0.3), reads_other = chance(0.3);
      if (!writable(out)) continue;
      const size_t d = all.lo.empty() ? 0 : static_cast<size_t>(below(static_cast<int64_t>(all.lo.size())));
      const int64_t size = all.lo.empty() ? 1 : all.hi[d];
      const int64_t tile = 1 + below(size);
      const bool has_partners = limits.partner_probability > 0 && !scatters && list.options.num_workers > 1 &&
                                chance(limits.partner_probability);
      const size_t first = list.tasks.size();
      for (int64_t begin = 0; begin < size; begin += tile) {
        const int64_t end = std::min(size, begin + tile);
        task::Task task;
        task.name = fmt::format("{}[n={}:{}]", name, begin, end);
        task.tile = {{"n", begin, end}};
        loop::Box box = all;
        if (!box.lo.empty()) box.lo[d] = begin, box.hi[d] = end;
        task.writes.push_back({out, scatters ? all : box});
        if (scatters) {  // now and then a row that the tile before has, too
          task.writes.back().row_begin = begin > 0 && chance(0.2) ? begin - 1 : begin;
          task.writes.back().row_end = end;
        }
        if (in_place) task.reads.push_back({out, box});
        if (in != out) {
          loop::Box input = whole_box(in);
          if (same_tile && d < input.lo.size()) {
            input.lo[d] = std::min(begin, input.hi[d] - 1);
            input.hi[d] = std::max(input.lo[d] + 1, std::min(end, input.hi[d]));
          }
          task.reads.push_back({in, input});
        }
        if (reads_other && other != out) task.reads.push_back({other, random_box(other)});
        if (words) task.reads.push_back({*words, random_box(*words)});
        add(std::move(task));
      }
      for (size_t t = first; has_partners && t + 1 < list.tasks.size(); t += 2) {
        list.tasks[t].partner = static_cast<int>(t) + 1;
        list.tasks[t + 1].partner = static_cast<int>(t);
      }
    } else {
      // One task of any shape: several reads, several writes, nothing at all.
      task::Task task;
      task.name = name;
      // Each buffer is one operand, so that what is read of it and written may be anything.
      for (int64_t n = below(4); n > 0; --n) {
        const int b = random_buffer();
        task.reads.push_back({b, random_box(b), b});
      }
      if (const std::optional<int> words = random_exchange()) task.reads.push_back({*words, random_box(*words)});
      for (int64_t n = chance(0.1) ? 0 : 1 + below(2); n > 0; --n) {
        const int b = random_buffer();
        if (writable(b)) task.writes.push_back({b, random_box(b), b});
      }
      if (chance(0.1)) task.cost_ns = cost * 10;
      add(std::move(task));
    }
    ++node;
  }
  list.tasks.resize(static_cast<size_t>(std::min<int64_t>(num_tasks, static_cast<int64_t>(list.tasks.size()))));
  for (task::Task& task : list.tasks)
    if (task.partner >= static_cast<int>(list.tasks.size())) task.partner = -1;
  if (chance(limits.gate_probability))
    list.options.gate_task = chance(0.6) ? static_cast<int>(num_tasks) - 1 : static_cast<int>(below(num_tasks));
  // Who opens the gate waits for all others to end.
  if (list.options.gate_task)
    if (int& partner = list.tasks[static_cast<size_t>(*list.options.gate_task)].partner; partner >= 0)
      list.tasks[static_cast<size_t>(partner)].partner = -1, partner = -1;
  return list;
}

/// The planned (and therefore verified) graph of that list.
inline task::TaskGraph random_task_graph(uint64_t seed, const RandomTaskGraphOptions& limits = {}) {
  RandomTaskList list = random_task_list(seed, limits);
  return task::plan(std::move(list.tasks), std::move(list.buffers), list.options);
}

}  // namespace megalith::test
