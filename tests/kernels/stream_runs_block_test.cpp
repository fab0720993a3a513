// A worker's stream that lies in runs (runtime/cuda/stream_source.cuh), as those of more rows of activations than a task
// multiplies do: each chunk comes from where its run says, iteration after iteration.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

// What is __shared__ is a variable here, and a block has other lanes than another test's, so names are this file's own.
#define megalith megalith_stream_runs
#define MEGALITH_BLOCK_WARPS 16
#define MEGALITH_BLOCK_LANES 32
#include "megalith/kernels/cuda/common/worker_config.cuh"
namespace megalith::kernels {
inline constexpr WorkerConfig kWorkerConfig = {.shared_bytes = 128 << 10, .stream_rows = 512};
}

#include "megalith/kernels/cuda/pipeline/weight_ring.cuh"
namespace megalith::kernels {
__attribute__((aligned(1024))) u8 dynamic_shared[kWorkerConfig.shared_bytes];
// What the loader warp copies by: here at once.
inline constexpr u32 kMapBytes = 0;
inline void copy_begin(void* to, const void* from, u32 bytes, Barrier*) { std::memcpy(to, from, bytes); }
inline void copy_begin_by_map(void*, const void*, u32, u32, Barrier*) {}
inline void prefetch(const void*, u32) {}
inline void prefetch_by_map(const void*, u32) {}
}  // namespace megalith::kernels
#include "megalith/runtime/cuda/stream_source.cuh"

namespace megalith::runtime {
namespace {

static_assert(kHasRuns);

// Chunks are small numbers, whose first word is theirs; runs are of one chunk or several, some of them the same ones.
TEST(StreamSource, FollowsRunsRoundAndRound) {
  std::mt19937 random(1);
  const auto below = [&](u64 n) { return random() % n; };
  for (int round = 0; round < 50; ++round) {
    const u64 packed = 1 + below(12);
    std::vector<u8> chunks(packed * stream::kChunkBytes);
    for (u64 c = 0; c < packed; ++c) std::memcpy(&chunks[c * stream::kChunkBytes], &c, sizeof(c));
    // Another worker's runs stand before.
    std::vector<StreamRun> runs(below(3), StreamRun{99, 1});
    Stream stream = {0, 0, 0, runs.size()};
    std::vector<u64> wanted;
    for (u64 n = 1 + below(5); n > 0; --n) {
      const u64 first = below(packed), count = 1 + below(packed - first);
      runs.push_back({first - wanted.size(), wanted.size() + count});
      for (u64 c = 0; c < count; ++c) wanted.push_back(first + c);
    }
    stream.num_chunks = wanted.size();
    runs.push_back({77, 1000});  // and another's behind
    Launch launch = {};
    launch.streams = chunks.data();
    launch.stream_runs = runs.data();
    StreamSource source(launch, stream);
    std::vector<u8> slot(stream::kChunkBytes);
    for (int iteration = 0; iteration < 3; ++iteration)
      for (u64 at = 0; at < stream.num_chunks; ++at) {
        source.copy_begin(slot.data(), nullptr, at, nullptr);
        u64 found = 0;
        std::memcpy(&found, slot.data(), sizeof(found));
        ASSERT_EQ(found, wanted[at]) << "chunk " << at << " of iteration " << iteration;
      }
  }
}

}  // namespace
}  // namespace megalith::runtime
