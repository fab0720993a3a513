// Runs a task graph on real memory with bodies that do what the tasks declare and nothing else: read every element of
// the regions read, spin for a random while, write every element of the regions written. All plain accesses: if the
// protocol or the graph leaves two of them unordered, a read finds another writer's stamp, or ThreadSanitizer sees the
// race. The judge is a sequential run: tasks in index order, iteration after iteration.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "megalith/runtime/launcher.h"
#include "runtime/test_kernel.h"

namespace megalith::runtime {

/// Of an element in memory; of an exchange, a word.
inline int64_t stress_bytes(const task::Buffer& buffer) {
  return buffer.memory == task::Memory::exchange ? 8 : dtype_bytes(buffer.dtype);
}

/// The graph's buffers: those of the arena at their offsets in one block, every other one on its own.
class StressMemory {
 public:
  explicit StressMemory(const task::TaskGraph& graph) : arena_(static_cast<size_t>(graph.arena_bytes) / 8 + 1) {
    for (const task::Buffer& buffer : graph.buffers) {
      int64_t bytes = stress_bytes(buffer);
      for (const int64_t size : buffer.shape) bytes *= size;
      own_.emplace_back(buffer.memory == task::Memory::arena ? 0 : static_cast<size_t>(bytes) / 8 + 1);
    }
    for (size_t b = 0; b < graph.buffers.size(); ++b) {
      const task::Buffer& buffer = graph.buffers[b];
      auto* arena = reinterpret_cast<std::byte*>(arena_.data());
      buffers_.push_back(buffer.memory == task::Memory::arena ? arena + buffer.offset
                                                              : reinterpret_cast<std::byte*>(own_[b].data()));
    }
  }
  std::byte* buffer(int index) const { return buffers_[static_cast<size_t>(index)]; }
  bool operator==(const StressMemory& other) const { return arena_ == other.arena_ && own_ == other.own_; }

 private:
  std::vector<uint64_t> arena_;
  std::vector<std::vector<uint64_t>> own_;
  std::vector<std::byte*> buffers_;
};

/// Calls visit(address) for each element of the region, in row-major order.
template <class Visit>
void for_each_element(const task::TaskGraph& graph, const StressMemory& memory, const task::Region& region,
                      Visit visit) {
  const task::Buffer& buffer = graph.buffers[static_cast<size_t>(region.buffer)];
  const int64_t element_bytes = stress_bytes(buffer);
  loop::Corner index = region.box.lo;
  for (size_t d = 0; d < index.size(); ++d)
    if (region.box.hi[d] <= region.box.lo[d]) return;
  for (;;) {
    int64_t flat = 0;
    for (size_t d = 0; d < index.size(); ++d) flat = flat * buffer.shape[d] + index[d];
    visit(memory.buffer(region.buffer) + flat * element_bytes);
    size_t d = index.size();
    while (d > 0 && ++index[d - 1] == region.box.hi[d - 1]) --d, index[d] = region.box.lo[d];
    if (d == 0) return;
  }
}

// Buffers that share arena bytes may have elements of different sizes.
using StressU16 = uint16_t __attribute__((may_alias));
using StressU32 = uint32_t __attribute__((may_alias));
using StressU64 = uint64_t __attribute__((may_alias));

inline uint64_t stress_load(const std::byte* element, int64_t bytes) {
  if (bytes == 2) return *reinterpret_cast<const StressU16*>(element);
  if (bytes == 4) return *reinterpret_cast<const StressU32*>(element);
  return *reinterpret_cast<const StressU64*>(element);
}

inline void stress_store(std::byte* element, int64_t bytes, uint64_t stamp) {
  if (bytes == 2)
    *reinterpret_cast<StressU16*>(element) = static_cast<uint16_t>(stamp);
  else if (bytes == 4)
    *reinterpret_cast<StressU32*>(element) = static_cast<uint32_t>(stamp);
  else
    *reinterpret_cast<StressU64*>(element) = stamp;
}

struct StressOptions {
  uint64_t seed = 0;
  u32 num_iterations = 4;
  u32 first_iteration = 0;
  int max_delay_us = 20;
  std::vector<int> delay_us;  // per task, instead of a random one
};

class StressRun {
 public:
  StressRun(const task::TaskGraph& graph, StressOptions options)
      : graph_(graph), options_(std::move(options)), expected_(graph.tasks.size() * options_.num_iterations) {}

  /// The number of elements that were read with another value than in the sequential run, or differ at the end.
  int mismatches() {
    StressMemory sequential(graph_), parallel(graph_);
    for (u32 i = 0; i < options_.num_iterations; ++i)
      for (size_t t = 0; t < graph_.tasks.size(); ++t)
        run_task(t, i, sequential, [&](uint64_t value) { expected_[slot(t, i)].push_back(value); });

    ImageParts parts;
    std::vector<TaskFunction> functions;
    for (size_t t = 0; t < graph_.tasks.size(); ++t)
      functions.push_back([this, t, &parallel](u32 iteration) {
        const u32 i = iteration - options_.first_iteration;
        const uint64_t* next = expected_[slot(t, i)].data();
        int wrong = 0;
        delay(t, i);
        run_task(t, i, parallel, [&](uint64_t value) { wrong += value != *next++; });
        if (wrong != 0) mismatches_.fetch_add(wrong, std::memory_order_relaxed);
      });
    for (size_t t = 0; t < graph_.tasks.size(); ++t) {
      parts.bodies.push_back(0);
      parts.first_operands.push_back(static_cast<u32>(t));
      parts.operands.push_back(&functions[t]);
    }
    parts.num_iterations = options_.num_iterations;
    LaunchImage image(graph_, std::move(parts));
    Launcher(test_entry, image).run(options_.first_iteration);
    return mismatches_ + (parallel == sequential ? 0 : 1);
  }

 private:
  size_t slot(size_t task, u32 iteration) const { return iteration * graph_.tasks.size() + task; }

  template <class Check>
  void run_task(size_t index, u32 iteration, const StressMemory& memory, Check check) {
    const task::Task& task = graph_.tasks[index];
    auto bytes = [&](const task::Region& r) { return stress_bytes(graph_.buffers[static_cast<size_t>(r.buffer)]); };
    for (const task::Region& region : task.reads)
      for_each_element(graph_, memory, region, [&](std::byte* e) { check(stress_load(e, bytes(region))); });
    const uint64_t stamp = slot(index, iteration) + 1;  // who wrote it, and when
    for (const task::Region& region : task.writes)
      for_each_element(graph_, memory, region, [&](std::byte* e) { stress_store(e, bytes(region), stamp); });
  }

  void delay(size_t task, u32 iteration) const {
    uint64_t hash = (options_.seed + 1) * 0x9e3779b97f4a7c15u + slot(task, iteration) * 0xbf58476d1ce4e5b9u;
    hash = (hash ^ (hash >> 31)) * 0x94d049bb133111ebu;
    const auto us = options_.delay_us.empty() ? static_cast<int64_t>((hash >> 33) % (options_.max_delay_us + 1u))
                                              : options_.delay_us[task];
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(us);
    while (std::chrono::steady_clock::now() < end) spin_pause();
  }

  const task::TaskGraph& graph_;
  StressOptions options_;
  std::vector<std::vector<uint64_t>> expected_;  // per iteration and task: the values read
  std::atomic<int> mismatches_{0};
};

}  // namespace megalith::runtime
