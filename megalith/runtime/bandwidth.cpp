#include "megalith/runtime/bandwidth.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "megalith/base/error.h"
#include "megalith/base/threads.h"
#include "megalith/runtime/memory.h"
#include "megalith/runtime/topology.h"

namespace megalith::runtime {

namespace {

using Clock = std::chrono::steady_clock;

// A pass must miss every cache: at least this much a thread, and twice what the largest caches hold together, of which
// a stream that goes round and round finds next to nothing left.
constexpr int64_t kBytesPerThread = 128 << 20;
constexpr int64_t kTimesTheCaches = 2;
// Of memory that is still free, the buffer takes no more than this share.
constexpr int64_t kShareOfFree = 4;

// Two streams, a page each in turn: a second one keeps the prefetcher busy while the first crosses a page, more than
// two bring nothing.
constexpr int64_t kPage = 4096, kStreams = 2, kStep = kPage * kStreams;

using Vector = uint64_t __attribute__((vector_size(64)));

[[gnu::always_inline]] inline uint64_t read_streams(const std::byte* begin, int64_t bytes) {
  Vector seen[kStreams] = {};
  for (int64_t at = 0; at < bytes; at += kStep)
    for (int64_t i = 0; i < kPage; i += static_cast<int64_t>(sizeof(Vector)))
      for (int64_t s = 0; s < kStreams; ++s) seen[s] |= *reinterpret_cast<const Vector*>(begin + at + s * kPage + i);
  Vector both = seen[0] | seen[1];
  uint64_t bits = 0;
  for (int i = 0; i < 8; ++i) bits |= both[i];
  return bits;
}

// As wide as the processor loads: narrow loads do not keep up where two threads share a core.
#if defined(__x86_64__)
[[gnu::target("avx512f")]] uint64_t read_avx512(const std::byte* begin, int64_t bytes) {
  return read_streams(begin, bytes);
}
[[gnu::target("avx2")]] uint64_t read_avx2(const std::byte* begin, int64_t bytes) { return read_streams(begin, bytes); }
#endif
uint64_t read_plain(const std::byte* begin, int64_t bytes) { return read_streams(begin, bytes); }

using Reader = uint64_t (*)(const std::byte* begin, int64_t bytes);

Reader best_reader() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return read_avx512;
  if (__builtin_cpu_supports("avx2")) return read_avx2;
#endif
  return read_plain;
}

int64_t cache_bytes(const CpuTopology& topology) {
  int64_t largest = 0;
  for (const CpuCache& cache : topology.caches) {
    const auto instances = static_cast<int64_t>(topology.cores.size()) / std::max(1, cache.num_sharing);
    largest = std::max(largest, cache.bytes * std::max<int64_t>(1, instances));
  }
  return largest;
}

int64_t bytes_per_thread(const CpuTopology& topology, const BandwidthOptions& options) {
  const int num_threads = options.num_threads;
  const int64_t wanted = options.bytes_per_thread > 0
                             ? options.bytes_per_thread
                             : std::max(kBytesPerThread, kTimesTheCaches * cache_bytes(topology) / num_threads);
  const int64_t bytes = std::min(wanted, memory_available_bytes() / kShareOfFree / num_threads);
  return std::max(bytes / kStep, int64_t{1}) * kStep;
}

}  // namespace

double cpu_read_bandwidth_gbs(const BandwidthOptions& options) {
  const int num_threads = options.num_threads;
  MEGALITH_CHECK(num_threads >= 1, "[bandwidth] {} threads, want at least 1", num_threads);
  const CpuTopology topology = cpu_topology();
  const int64_t bytes = bytes_per_thread(topology, options);
  const Mapping buffer(bytes * num_threads, "the buffer of the bandwidth measurement");
  const Reader read = best_reader();

  // A pass is over when the last thread is through: as in a decoder, whose steps wait for the slowest worker.
  std::atomic<uint64_t> seen = 0;
  std::atomic<bool> over = false;
  double best_seconds = 0;
  Clock::time_point first, begin;
  int passes = 0;
  std::barrier turn(num_threads, [&]() noexcept {
    const Clock::time_point now = Clock::now();
    const double seconds = std::chrono::duration<double>(now - begin).count();
    if (passes == 0) first = now;
    if (passes > 0 && (passes == 1 || seconds < best_seconds)) best_seconds = seconds;
    begin = now;
    over = passes >= 2 && std::chrono::duration<double>(now - first).count() >= options.seconds;
    ++passes;
  });
  auto work = [&](int thread) {
    if (num_threads <= topology.num_usable()) pin_this_thread(topology.cores[static_cast<size_t>(thread)]);
    std::byte* const own = buffer.data() + bytes * thread;
    std::memset(own, 1, static_cast<size_t>(bytes));  // by its reader, so that it lies in the memory near that core
    turn.arrive_and_wait();
    while (!over) {
      seen |= read(own, bytes);
      turn.arrive_and_wait();
    }
  };
  run_together("the measurement of bandwidth", num_threads, work);
  MEGALITH_ASSERT(seen == 0x0101010101010101u, "[bandwidth] read {:x}, want what was written", seen.load());
  return static_cast<double>(bytes * num_threads) / best_seconds / 1e9;
}

}  // namespace megalith::runtime
