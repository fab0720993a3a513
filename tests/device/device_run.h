// Runs a task graph on blocks of host threads (device/host_block.h): the worker, frames, ring, events and words are
// those of a GPU, memory and judge those of runtime/stress_run.h. Every task takes chunks of a stream as well, and has
// operands to be checked.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device/host_block.h"
#include "megalith/kernels/l2_layout.h"
#include "megalith/kernels/shared_budget.h"
#include "megalith/runtime/hang_report.h"
#include "megalith/runtime/mailbox.h"
#include "megalith/runtime/profile.h"
#include "runtime/stress_run.h"

namespace megalith::runtime {

struct DeviceOptions {
  uint64_t seed = 0;
  u32 num_iterations = 4;  // 0: until a body sets the stop word
  u32 first_iteration = 0;
  u32 most_chunks = 3;  // per task
  bool profiles = false;
  bool on_sides = false;    // streams, and blocks on multiprocessors; for an even number of workers, half of kBlocks
  int abort_after_us = -1;  // never
};

class DeviceRun {
 public:
  DeviceRun(const task::TaskGraph& graph, DeviceOptions options)
      : graph_(graph), options_(options), random_(options.seed + 1), sequential_(graph), parallel_(graph) {
    for (size_t t = 0; t < graph.tasks.size(); ++t) {
      host::TaskBody& body = bodies_.emplace_back();
      body.reads = elements(graph.tasks[t].reads, parallel_);
      body.writes = elements(graph.tasks[t].writes, parallel_);
      // Regions may overlap, and an element is written by one thread of the block.
      std::ranges::sort(body.writes, {}, &host::Element::at);
      const auto rest = std::ranges::unique(body.writes, {}, &host::Element::at);
      body.writes.erase(rest.begin(), rest.end());
      body.first_iteration = options_.first_iteration;
      body.num_tasks = static_cast<u32>(graph.tasks.size());
      body.index = static_cast<u32>(t);
      body.operands.push_back(&body);
      for (u64 n = random_() % (kFrameOperands - 1); n > 0; --n)
        body.operands.push_back(reinterpret_cast<void*>(static_cast<uintptr_t>(random_())));
      body.wrong = &wrong_;
      body.runs = &runs_;
    }
    run_in_order(options_.num_iterations);
    make_streams();
  }

  /// Whether a GPU's frames take the graph's tasks.
  static bool fits(const task::TaskGraph& graph) {
    return graph.workers.size() <= host::kBlocks && std::ranges::all_of(graph.tasks, [](const task::Task& task) {
             return task.waits.size() <= kFrameWaits && task.signals.size() <= kFrameSignals;
           });
  }

  /// Task `index` ends the token loop in the iteration `iteration`, counted from 0, and says what sizes the next one has.
  void stop_in(size_t index, u32 iteration) {
    for (host::TaskBody& body : bodies_) body.sizes = sizes_.data();
    for (u32 s = 0; s < kIterationSizes; ++s) sizes_[s] = host::TaskBody::size(0, s);
    bodies_[index].stop = &stop_;
    bodies_[index].stop_in = iteration;
    stop_task_ = static_cast<u32>(index);
    run_in_order(iteration + 1);
  }

  /// Task `index` finds a fault in the iteration `iteration`, counted from 0.
  void fault_in(size_t index, uint32_t iteration) { bodies_[index].fault_in = iteration; }
  /// What workers say after mismatches().
  const std::vector<WorkerStatus>& status() const { return status_; }

  /// Task `index` posts the number of each iteration.
  void post_from(size_t index, Mailbox* mailbox) { bodies_[index].mail = mailbox; }

  /// Task `index` loses the word of one element that it writes to an exchange, in the iteration `iteration`, counted from
  /// 0. Returns what the watchdog says once nothing moves any more; then the run is aborted.
  std::string report_of_lost(size_t index, size_t element, uint32_t iteration) {
    bodies_[index].lost = bodies_[index].writes.at(element).at;
    bodies_[index].lost_in = iteration;
    reports_ = true;
    mismatches();
    return report_;
  }

  /// The number of values that were not those of the sequential run, of wrong operands and of wrong weights.
  int mismatches() {
    LaunchImage image(graph_, parts());
    image.reset(options_.first_iteration);
    Launch launch = image.launch();
    launch.streams = chunks_.data();
    launch.stream = streams_.data();
    std::vector<u32> worker_of_sm, taken(graph_.workers.size());
    std::array<host::ChunkMap, stream::kNumKinds> maps;
    if (options_.on_sides) {
      for (int kind = 0; kind < stream::kNumKinds; ++kind) {
        maps[kind] = {chunks_.data(), stream::piece_bytes(kind / 2), {}};
        for (int i = 0; i < stream::kChunkPieces; ++i) maps[kind].pieces[i] = stream::half_piece(kind % 2, i);
      }
      for (u32 w = 0; w < graph_.workers.size(); ++w) worker_of_sm.push_back(w ^ static_cast<u32>(random_() % 2));
      launch.sides = {
          maps.data(), kinds_.data(), worker_of_sm.data(), taken.data(), static_cast<u32>(worker_of_sm.size()), 1};
    }
    std::vector<ProfileRecord> records;
    std::vector<ProfileClock> clocks(profile_clock_capacity(8) * graph_.workers.size());
    if (options_.profiles) {
      records.resize(graph_.workers.size() * 8);
      launch.profile = records.data();
      launch.profile_capacity = 8;
      launch.profile_clocks = clocks.data();
    }
    run_blocks(image, launch);
    status_.assign(launch.status, launch.status + launch.num_workers);
    const bool is_faulty = std::ranges::any_of(status_, [](const WorkerStatus& one) { return one.fault.found != 0; });
    if (options_.abort_after_us >= 0 || reports_ || is_faulty) return 0;
    for (size_t b = 0; b < graph_.buffers.size(); ++b)
      if (graph_.buffers[b].memory == task::Memory::exchange) strip_epochs(static_cast<int>(b));
    return wrong_ + (parallel_ == sequential_ ? 0 : 1);
  }
  /// How many tasks were run.
  int runs() const { return runs_; }

 private:
  std::vector<host::Element> elements(const std::vector<task::Region>& regions, const StressMemory& memory) const {
    std::vector<host::Element> result;
    for (const task::Region& region : regions) {
      const task::Buffer& buffer = graph_.buffers[static_cast<size_t>(region.buffer)];
      for_each_element(graph_, memory, region, [&](std::byte* at) {
        result.push_back({at, stress_bytes(buffer), buffer.memory == task::Memory::exchange});
      });
    }
    return result;
  }

  // The judge: tasks in index order, iteration after iteration.
  void run_in_order(u32 num_iterations) {
    for (u32 i = 0; i < num_iterations; ++i)
      for (size_t t = 0; t < graph_.tasks.size(); ++t) {
        std::vector<uint64_t>& expected = bodies_[t].expected.emplace_back();
        for (const host::Element& element : elements(graph_.tasks[t].reads, sequential_))
          expected.push_back(host::load(element));
        for (const host::Element& element : elements(graph_.tasks[t].writes, sequential_))
          host::store(element, bodies_[t].stamp(i));
      }
  }

  void make_streams() {
    u32 first = 0;
    first_chunks_.resize(graph_.tasks.size());
    for (size_t w = 0; w < graph_.workers.size(); ++w) {
      u32 count = 0;
      for (const int t : graph_.workers[w]) {
        host::TaskBody& body = bodies_[static_cast<size_t>(t)];
        body.num_chunks = random_() % 2 == 0 ? 0 : static_cast<u32>(random_() % (options_.most_chunks + 1));
        body.first_chunk = first_chunks_[static_cast<size_t>(t)] = count;
        body.stream_seed = static_cast<u32>(w);
        body.on_sides = options_.on_sides;
        count += body.num_chunks;
      }
      // On sides each worker has blocks of its own, of which it takes one half or the other.
      streams_.push_back({first, count, kinds_.size()});
      const size_t bytes_of_one = options_.on_sides ? stream::kBlockBytes : stream::kChunkBytes;
      chunks_.resize((first + count) * bytes_of_one);
      kinds_.resize(kinds_.size() + (count + stream::kChunksOfWord - 1) / stream::kChunksOfWord);
      for (u32 c = 0; c < count; ++c) {
        const int size = options_.on_sides ? host::chunk_size(static_cast<u32>(w), c) : 0;
        const u32 half = random_() % 2, piece_bytes = static_cast<u32>(stream::piece_bytes(size));
        kinds_[streams_.back().first_bits + c / stream::kChunksOfWord] |=
            (half + 2 * static_cast<u32>(size)) << c % stream::kChunksOfWord * stream::kKindBits;
        for (u32 at = 0; at < piece_bytes; ++at) {  // four pieces of words of four bytes
          const u32 word = host::chunk_word(static_cast<u32>(w), c, at);
          size_t place = at * 4;
          if (options_.on_sides)
            place = stream::half_piece(static_cast<int>(half), static_cast<int>(place / piece_bytes)) *
                        size_t{stream::kPieceBytes} +
                    place % piece_bytes;
          std::memcpy(&chunks_[(first + c) * bytes_of_one + place], &word, 4);
        }
      }
      first += count;
    }
  }

  ImageParts parts() {
    ImageParts parts;
    for (const host::TaskBody& body : bodies_) {
      parts.bodies.push_back(0);
      parts.first_operands.push_back(static_cast<u32>(parts.operands.size()));
      parts.num_operands.push_back(static_cast<u32>(body.operands.size()));
      parts.operands.insert(parts.operands.end(), body.operands.begin(), body.operands.end());
    }
    for (size_t b = 0; b < graph_.buffers.size(); ++b)
      parts.exchanges.push_back(
          graph_.buffers[b].memory == task::Memory::exchange ? parallel_.buffer(static_cast<int>(b)) : nullptr);
    parts.first_chunks = first_chunks_;
    parts.num_iterations = options_.num_iterations;
    if (stop_task_ != kNone) {
      parts.stop = &stop_;
      parts.sizes = sizes_.data();
      parts.stop_task = stop_task_;
    }
    return parts;
  }

  // As the watchdog does, once no task has ended for a while and all have said what they wait for, which takes them
  // thousands of looks each.
  void wait_for_hang(const LaunchImage& image, const Launch& launch) {
    constexpr int kQuietTicks = 20, kMaxTicks = 3000;
    u32 last = 0;
    bool all_wait = false;
    for (int quiet = 0, tick = 0; tick < kMaxTicks && (quiet < kQuietTicks || !all_wait); ++quiet, ++tick) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      u32 done = 0;
      all_wait = true;
      for (u32 w = 0; w < launch.num_workers; ++w) {
        const WorkerStatus& status = launch.status[w];
        done += __atomic_load_n(&status.tasks_done, __ATOMIC_RELAXED);
        all_wait &= __atomic_load_n(&status.flag, __ATOMIC_RELAXED) != 0 ||
                    __atomic_load_n(&status.state, __ATOMIC_RELAXED) == static_cast<u32>(WorkerState::waiting);
      }
      if (std::exchange(last, done) != done) quiet = 0;
    }
    report_ = hang_report(image, launch.status, launch.events, kQuietTicks * 20, [](const void* address) {
      return __atomic_load_n(static_cast<const u64*>(address), __ATOMIC_RELAXED);
    });
    __atomic_store_n(&launch.control->abort, 1, __ATOMIC_RELAXED);
  }

  void run_blocks(const LaunchImage& image, const Launch& launch) {
    std::vector<host::Block> blocks(launch.num_workers);
    std::vector<std::thread> threads, engines;
    std::vector<int> under_way(launch.num_workers);
    for (u32 w = 0; w < launch.num_workers; ++w) {
      host::Block& block = blocks[w];
      code_of(w).prepare(&block);
      block.multiprocessor = static_cast<u32>(random_() % launch.num_workers);
      block.reset();
      const uint64_t seed = random_();
      engines.emplace_back(
          [&, w, seed] { under_way[w] = blocks[w].copies.run(seed, !host::is_weakened("copy", "complete")); });
      for (int index = 0; index < host::kThreads; ++index)
        threads.emplace_back([&, w, index, random = random_()] {
          host::self = {&blocks[w], index, random};
          code_of(w).thread(&launch, w);
        });
    }
    if (options_.abort_after_us >= 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(options_.abort_after_us));
      __atomic_store_n(&launch.control->abort, 1, __ATOMIC_RELAXED);
    }
    if (reports_) wait_for_hang(image, launch);
    for (std::thread& thread : threads) thread.join();
    for (host::Block& block : blocks) block.copies.stop();
    for (std::thread& engine : engines) engine.join();
    for (const int copies : under_way) wrong_ += copies;
  }

  // Only every second block copies by maps.
  const host::BlockCode& code_of(u32 w) const {
    return host::block_code(static_cast<int>(options_.on_sides ? 2 * w : w));
  }

  void strip_epochs(int buffer) {
    int64_t count = 1;
    for (const int64_t size : graph_.buffers[static_cast<size_t>(buffer)].shape) count *= size;
    auto* const words = reinterpret_cast<u64*>(parallel_.buffer(buffer));
    for (int64_t i = 0; i < count; ++i) words[i] &= 0xffffffffu;
  }

  const task::TaskGraph& graph_;
  DeviceOptions options_;
  std::mt19937_64 random_;
  StressMemory sequential_, parallel_;
  std::deque<host::TaskBody> bodies_;
  std::vector<u8> chunks_;
  std::vector<Stream> streams_;
  std::vector<u32> kinds_;
  std::vector<u32> first_chunks_;
  std::atomic<int> wrong_{0}, runs_{0};
  i32 stop_ = 0;
  std::array<i32, kIterationSizes> sizes_ = {};
  u32 stop_task_ = kNone;
  bool reports_ = false;
  std::string report_;
  std::vector<WorkerStatus> status_;
};

}  // namespace megalith::runtime
