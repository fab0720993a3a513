// What a multiplication of 64 rows of activations with a stream of weights takes by chunk of 16 KB, the way that
// megalith/mainloop/gemm_wgmma.cuh does it: a block per multiprocessor, whose producer copies chunks of memory into a
// ring while four warpgroups multiply them (wgmma), with activations from registers that are loaded from the L2 a few
// blocks ahead. Chunks have 32 or 64 rows of weights; a warpgroup has whole chunks or a quarter of each one's columns;
// copies are whole, or of 512 bytes, or none, when a chunk counts as there at once. Then with clusters of two blocks
// that share activations: each copies one half to both, past registers. Prints a table of nanoseconds. For Hopper:
//   nvcc -O3 -std=c++17 -gencode arch=compute_90a,code=sm_90a -o products streamed_products.cu && ./products
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {

// A warp copies weights; where activations are shared two more copy those, for two warpgroups each.
constexpr int kWarpgroups = 4, kConsumers = 128 * kWarpgroups, kThreads = kConsumers + 3 * 32;
constexpr int kSlots = 9, kChunk = 16384, kColumns = 4096, kTurns = 100, kAhead = 4;
constexpr uint64_t kStride = uint64_t{64} << 20;  // of memory for each block
constexpr unsigned kGiveUp = 1u << 24;            // looks before a stuck wait ends the kernel

void check(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return;
  std::fprintf(stderr, "streamed_products: %s: %s\n", what, cudaGetErrorString(code));
  std::exit(1);
}

struct Given {
  const uint8_t *weights, *activations;
  uint32_t copied;  // bytes of a chunk
  int under_way;    // copies
  float* sink;
};

__device__ uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }
__device__ void barrier_init(uint64_t* barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" : : "r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
__device__ void barrier_arrive(uint64_t* barrier) {
  asm volatile("{ .reg .b64 s; mbarrier.arrive.shared.b64 s, [%0]; }" : : "r"(shared_address(barrier)) : "memory");
}
__device__ bool barrier_passed(uint64_t* barrier, uint32_t parity) {
  uint32_t passed;
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(passed)
               : "r"(shared_address(barrier)), "r"(parity)
               : "memory");
  return passed != 0;
}
__device__ void barrier_wait(uint64_t* barrier, uint32_t parity) {
  for (unsigned looks = 0; !barrier_passed(barrier, parity); ++looks)
    if (looks > kGiveUp) __trap();
}

/// The same at the barrier in this one's place in block `rank` of the cluster.
__device__ void barrier_arrive_at(uint64_t* barrier, uint32_t rank) {
  asm volatile(
      "{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; "
      "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there]; }"
      :
      : "r"(shared_address(barrier)), "r"(rank)
      : "memory");
}
__device__ uint32_t rank_in_cluster() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
/// By all threads of both blocks: neither ends while the other writes to it.
__device__ void cluster_sync() { asm volatile("barrier.cluster.arrive; barrier.cluster.wait;" : : : "memory"); }

/// A place in the ring, and the parity of the phase in which a chunk is there.
struct Place {
  uint32_t slot, parity;
  __device__ void go_on(uint32_t count) {
    slot += count;
    if (slot >= kSlots) slot -= kSlots, parity ^= 1;
  }
};

struct Ring {
  uint64_t full[kSlots], empty[kSlots];
};
__device__ void ring_init(Ring& ring) {
  for (int i = 0; i < kSlots; ++i) barrier_init(&ring.full[i], 1), barrier_init(&ring.empty[i], kConsumers / 32);
}

/// Activations that two blocks share: for each warpgroup pieces of two times 32 columns, as they come.
constexpr int kPieces = 2, kBlockBytes = 4096, kPieceBytes = 2 * kBlockBytes;
struct Pieces {
  uint64_t full[kWarpgroups][kPieces], empty[kWarpgroups][kPieces];
};

__device__ void produce(const Given& given, Ring& ring, uint8_t* slots, uint32_t num_chunks) {
  const uint8_t* const from = given.weights + blockIdx.x * kStride;
  Place next = {0, 1}, oldest = {0, 0};
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  for (uint32_t chunk = 0; chunk < num_chunks + given.under_way; ++chunk) {
    if (chunk >= static_cast<uint32_t>(given.under_way)) {
      barrier_wait(&ring.full[oldest.slot], oldest.parity);
      oldest.go_on(1);
    }
    if (chunk >= num_chunks) continue;
    barrier_wait(&ring.empty[next.slot], next.parity);
    const uint32_t full = shared_address(&ring.full[next.slot]);
    if (given.copied == 0) {
      barrier_arrive(&ring.full[next.slot]);
    } else {
      asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" : : "r"(full), "r"(given.copied) : "memory");
      asm volatile(
          "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;"
          :
          : "r"(shared_address(slots + next.slot * kChunk)), "l"(from + chunk * uint64_t{kChunk} % kStride),
            "r"(given.copied), "r"(full), "l"(policy)
          : "memory");
    }
    next.go_on(1);
  }
}

/// Of each piece of a warpgroup's chunks, and of the next one's, one half, to both blocks of the cluster.
template <int kRows>
__device__ void produce_activations(const Given& given, Pieces& pieces, uint8_t* to, int first_warpgroup) {
  constexpr int kBlocks = kChunk / 2 / kRows / 32, kChunks = kColumns / 32 / kBlocks;
  const uint32_t rank = rank_in_cluster();
  uint32_t slot = 0, parity = 1;
  for (int turn = 0; turn < kTurns; ++turn)
    for (int first = 0; first < kChunks; first += kWarpgroups)
      for (int block = 0; block < kBlocks; block += 2) {
        for (int warpgroup = first_warpgroup; warpgroup < first_warpgroup + 2; ++warpgroup) {
          barrier_wait(&pieces.empty[warpgroup][slot], parity);
          const uint32_t full = shared_address(&pieces.full[warpgroup][slot]);
          asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" : : "r"(full), "r"(kPieceBytes) : "memory");
          asm volatile(
              "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, "
              "[%3], %4;"
              :
              : "r"(shared_address(to + (warpgroup * kPieces + slot) * kPieceBytes + rank * kBlockBytes)),
                "l"(given.activations + ((first + warpgroup) * kBlocks + block + rank) * kBlockBytes), "r"(kBlockBytes),
                "r"(full), "h"(static_cast<uint16_t>(3))
              : "memory");
        }
        if (++slot == kPieces) slot = 0, parity ^= 1;
      }
}

#define SUMS_16 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}"
#define SUMS_32                                                                                                \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, " \
  "%23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define EIGHT(d, i)                                                                                           \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
__device__ void multiply(float (&d)[16], uint4 a, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 " SUMS_16
               ", {%16, %17, %18, %19}, %20, 1, 1, 1, 0;"
               : EIGHT(d, 0), EIGHT(d, 8)
               : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(b));
}
__device__ void multiply(float (&d)[32], uint4 a, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " SUMS_32
               ", {%32, %33, %34, %35}, %36, 1, 1, 1, 0;"
               : EIGHT(d, 0), EIGHT(d, 8), EIGHT(d, 16), EIGHT(d, 24)
               : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(b));
}
__device__ uint4 load(const uint4* from) {
  uint4 value;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from)
               : "memory");
  return value;
}

/// Blocks of 32 columns: of each chunk the warpgroup has kMine, of which kAhead are in registers or on their way.
template <int kRows, bool kWhole, bool kLoads>
__device__ void consume(const Given& given, Ring& ring, uint8_t* slots) {
  constexpr int kBlocks = kChunk / 2 / kRows / 32, kMine = kWhole ? kBlocks : kBlocks / kWarpgroups;
  constexpr int kRound = kMine > kAhead ? kMine : kAhead, kStep = kWhole ? kWarpgroups : 1;
  constexpr int kChunks = kColumns / 32 / kBlocks;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warpgroup = warp / 4;
  const auto* const from = reinterpret_cast<const uint4*>(given.activations) + warp % 4 * 64 + lane;
  const int first = kWhole ? warpgroup : 0, begin = kWhole ? 0 : warpgroup * kMine;
  uint4 ahead[kAhead][2] = {};
  int next_chunk = first, next_block = 0;
  const auto fetch = [&](int place) {
    if (kLoads) {
      const uint4* const at = from + (next_chunk * kBlocks + begin + next_block) * 256;
      ahead[place][0] = load(at);
      ahead[place][1] = load(at + 32);
    }
    if (++next_block < kMine) return;
    next_block = 0;
    next_chunk = next_chunk + kStep < kChunks ? next_chunk + kStep : first;
  };
#pragma unroll
  for (int i = 0; i < kAhead; ++i) fetch(i);
  Place place = {static_cast<uint32_t>(first), 0};
  float all = 0;
#pragma unroll 1
  for (int turn = 0; turn < kTurns; ++turn) {
    float sums[kRows / 2] = {};
#pragma unroll 1
    for (int chunk = first; chunk < kChunks; chunk += kStep * (kRound / kMine))
#pragma unroll
      for (int i = 0; i < kRound; ++i) {
        if (i % kMine == 0)
          for (unsigned looks = 0; !__all_sync(~0u, barrier_passed(&ring.full[place.slot], place.parity)); ++looks)
            if (looks > kGiveUp) __trap();
        const uint32_t weights = shared_address(slots + place.slot * kChunk) + (begin + i % kMine) * 512;
        asm volatile("wgmma.fence.sync.aligned;" : : : "memory");
#pragma unroll
        for (uint32_t step = 0; step < 2; ++step) {
          uint64_t matrix;
          asm("mov.b64 %0, {%1, %2};"
              : "=l"(matrix)
              : "r"((weights >> 4 | 128 >> 4 << 16) + step * 16), "r"(kBlocks * 512 >> 4));
          multiply(sums, ahead[i % kAhead][step], matrix);
        }
        asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
        if (i % kMine > 0) {
          asm volatile("wgmma.wait_group.sync.aligned 1;" : : : "memory");
          fetch((i + kAhead - 1) % kAhead);
        }
        if (i % kMine < kMine - 1) continue;
        asm volatile("wgmma.wait_group.sync.aligned 0;" : : : "memory");
        if (lane < (kWhole ? kWarpgroups : 1)) barrier_arrive(&ring.empty[place.slot]);
        fetch(i % kAhead);
        place.go_on(kStep);
      }
    for (const float sum : sums) all += sum;
  }
  if (all == 12345) *given.sink = all;
}

__device__ uint4 load_shared(uint32_t at) {
  uint4 value;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(at)
               : "memory");
  return value;
}
/// Whole chunks, with activations that two blocks share.
template <int kRows>
__device__ void consume_shared(const Given& given, Ring& ring, uint8_t* slots, Pieces& pieces, uint8_t* activations) {
  constexpr int kBlocks = kChunk / 2 / kRows / 32, kChunks = kColumns / 32 / kBlocks;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warpgroup = warp / 4;
  const uint32_t other = rank_in_cluster() ^ 1;
  const uint32_t mine = shared_address(activations) + warpgroup * kPieces * kPieceBytes + warp % 4 * 1024 + lane * 16;
  const auto wait = [](uint64_t* barrier, uint32_t parity) {
    for (unsigned looks = 0; !__all_sync(~0u, barrier_passed(barrier, parity)); ++looks)
      if (looks > kGiveUp) __trap();
  };
  Place place = {static_cast<uint32_t>(warpgroup), 0};
  uint32_t piece = 0, parity = 0;
  float all = 0;
#pragma unroll 1
  for (int turn = 0; turn < kTurns; ++turn) {
    float sums[kRows / 2] = {};
#pragma unroll 1
    for (int chunk = warpgroup; chunk < kChunks; chunk += kWarpgroups) {
      wait(&ring.full[place.slot], place.parity);
      uint4 operands[2][4];
#pragma unroll
      for (int i = 0; i < kBlocks / 2; ++i) {
        wait(&pieces.full[warpgroup][piece], parity);
#pragma unroll
        for (int k = 0; k < 4; ++k)
          operands[i % 2][k] = load_shared(mine + piece * kPieceBytes + k / 2 * kBlockBytes + k % 2 * 512);
        const uint32_t weights = shared_address(slots + place.slot * kChunk) + i * 1024;
        asm volatile("wgmma.fence.sync.aligned;" : : : "memory");
#pragma unroll
        for (uint32_t k = 0; k < 4; ++k) {
          uint64_t matrix;
          asm("mov.b64 %0, {%1, %2};"
              : "=l"(matrix)
              : "r"((weights >> 4 | 128 >> 4 << 16) + k * 16), "r"(kBlocks * 512 >> 4));
          multiply(sums, operands[i % 2][k], matrix);
        }
        asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
        // What was in the piece is in registers.
        if (lane == 0) {
          barrier_arrive(&pieces.empty[warpgroup][piece]);
          barrier_arrive_at(&pieces.empty[warpgroup][piece], other);
        }
        if (++piece == kPieces) piece = 0, parity ^= 1;
        asm volatile("wgmma.wait_group.sync.aligned 1;" : : : "memory");
      }
      asm volatile("wgmma.wait_group.sync.aligned 0;" : : : "memory");
      if (lane < kWarpgroups) barrier_arrive(&ring.empty[place.slot]);
      place.go_on(kWarpgroups);
    }
    for (const float sum : sums) all += sum;
  }
  if (all == 12345) *given.sink = all;
}

template <int kRows>
__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(kThreads, 1) run_shared(Given given) {
  extern __shared__ __align__(1024) uint8_t slots[];
  __shared__ Ring ring;
  __shared__ Pieces pieces;
  if (threadIdx.x == 0) {
    ring_init(ring);
    for (int g = 0; g < kWarpgroups; ++g)
      for (int i = 0; i < kPieces; ++i) barrier_init(&pieces.full[g][i], 1), barrier_init(&pieces.empty[g][i], 8);
    asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
  }
  __syncthreads();
  cluster_sync();
  uint8_t* const activations = slots + kSlots * kChunk;
  const int warp = threadIdx.x / 32, helper = warp - kConsumers / 32;
  if (helper < 0)
    consume_shared<kRows>(given, ring, slots, pieces, activations);
  else if (threadIdx.x % 32 == 0 && helper == 0)
    produce(given, ring, slots, kTurns * (kColumns * kRows * 2 / kChunk));
  else if (threadIdx.x % 32 == 0)
    produce_activations<kRows>(given, pieces, activations, 2 * (helper - 1));
  __syncwarp();
  cluster_sync();
}

template <int kRows, bool kWhole, bool kLoads>
__global__ void __launch_bounds__(kThreads, 1) run(Given given) {
  extern __shared__ __align__(1024) uint8_t slots[];
  __shared__ Ring ring;
  if (threadIdx.x == 0) {
    ring_init(ring);
    asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
  }
  __syncthreads();
  if (threadIdx.x < kConsumers) return consume<kRows, kWhole, kLoads>(given, ring, slots);
  if (threadIdx.x == kConsumers) produce(given, ring, slots, kTurns * (kColumns * kRows * 2 / kChunk));
}

void row(const char* name, void (*kernel)(Given), int rows, int shared_bytes, Given given, int num_blocks) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes), "shared memory");
  std::printf("| %s |", name);
  constexpr struct {
    uint32_t copied;
    int under_way;
  } kCases[] = {{kChunk, 2}, {kChunk, 3}, {kChunk, 4}, {512, 4}, {0, 4}};
  for (const auto& [copied, under_way] : kCases) {
    given.copied = copied, given.under_way = under_way;
    cudaEvent_t begin, end;
    check(cudaEventCreate(&begin), "an event"), check(cudaEventCreate(&end), "an event");
    float best = 1e9f;
    for (int repetition = 0; repetition < 3; ++repetition) {
      check(cudaEventRecord(begin), "timing");
      kernel<<<num_blocks, kThreads, shared_bytes>>>(given);
      check(cudaGetLastError(), "launching");
      check(cudaEventRecord(end), "timing");
      check(cudaEventSynchronize(end), "running");
      float milliseconds;
      check(cudaEventElapsedTime(&milliseconds, begin, end), "timing");
      best = std::min(best, milliseconds);
    }
    std::printf(" %.0f |", best * 1e6 / (kTurns * (kColumns * rows * 2 / kChunk)));
  }
  std::printf("\n");
}

}  // namespace

int main() {
  int num_blocks = 0;
  check(cudaDeviceGetAttribute(&num_blocks, cudaDevAttrMultiProcessorCount, 0), "finding a GPU");
  uint8_t *weights = nullptr, *activations = nullptr;
  Given given = {};
  check(cudaMalloc(&weights, kStride * num_blocks), "allocating weights");
  check(cudaMalloc(&activations, 64 * kColumns * 2), "allocating activations");
  check(cudaMalloc(&given.sink, sizeof(float)), "allocating");
  check(cudaMemset(weights, 0x3c, kStride * num_blocks), "setting weights");
  check(cudaMemset(activations, 0x3d, 64 * kColumns * 2), "setting activations");
  given.weights = weights, given.activations = activations;
  std::printf("| ns a chunk, copies under way | 2 | 3 | 4 | 4 of 512 bytes | none |\n|---|--:|--:|--:|--:|--:|\n");
  constexpr int kRing = kSlots * kChunk, kWithPieces = kRing + kWarpgroups * kPieces * kPieceBytes;
  row("64 rows, whole chunks, no activations", run<64, true, false>, 64, kRing, given, num_blocks);
  row("64 rows, whole chunks", run<64, true, true>, 64, kRing, given, num_blocks);
  row("64 rows, a quarter of each chunk", run<64, false, true>, 64, kRing, given, num_blocks);
  row("64 rows, whole chunks, shared by two", run_shared<64>, 64, kWithPieces, given, num_blocks);
  row("32 rows, whole chunks", run<32, true, true>, 32, kRing, given, num_blocks);
  row("32 rows, a quarter of each chunk", run<32, false, true>, 32, kRing, given, num_blocks);
  row("32 rows, whole chunks, shared by two", run_shared<32>, 32, kWithPieces, given, num_blocks);
}
