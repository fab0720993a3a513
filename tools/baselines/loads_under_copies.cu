// What a load waits for while copies are under way: one thread of a block per multiprocessor copies chunks in bulk into
// shared memory, so many at a time, and now and then all other threads load 64 KB that every block wants and that lie
// in the L2, in one way or another. Prints a table of cycles: of a chunk, of the 64 KB, of a single load after them.
// For Hopper and newer:
//   nvcc -O3 -std=c++17 -arch=native -o loads_under_copies loads_under_copies.cu && ./loads_under_copies
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr int kReaders = 512, kThreads = kReaders + 32, kSlots = 8;
constexpr uint32_t kShared = kSlots * 16384 + 65536;
constexpr uint32_t kLoaded = 65536, kKinds = 8;   // bytes of a burst; bursts take turns among so many places
constexpr uint64_t kStride = uint64_t{64} << 20;  // of memory for each block
constexpr int kBursts = 100, kCyclesBetween = 6000;
constexpr unsigned kGiveUp = 1u << 26;  // polls before a stuck wait ends the kernel

/// How the 64 KB are loaded: by 16 bytes a thread, rows of 64 bytes or pieces of 512 a warp; through the first-level
/// cache, past it, past registers; in bulk. Words are 8 KB.
enum class Way { rows, rows_past_cache, rows_async, rows_async_cached, pieces, bulk, words };

/// What is copied meanwhile: chunks of so many bytes, `under_way` at a time, of memory or of what lies in the L2;
/// `ahead` chunks are asked into the L2 before.
struct Copies {
  const char* name;
  uint32_t bytes, under_way, ahead;
  bool of_memory;
};

void check(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return;
  std::fprintf(stderr, "loads_under_copies: %s: %s\n", what, cudaGetErrorString(code));
  std::exit(1);
}

__device__ uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }
__device__ void barrier_make(uint64_t* barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)));
}
__device__ void barrier_expect(uint64_t* barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}
__device__ void barrier_wait(uint64_t* barrier, uint32_t phase) {
  for (unsigned polls = 0; polls < kGiveUp; ++polls) {
    uint32_t passed = 0;
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(passed)
                 : "r"(shared_address(barrier)), "r"(phase)
                 : "memory");
    if (passed) return;
  }
  __trap();
}
__device__ void copy_in_bulk(void* to, const void* from, uint32_t bytes, uint64_t* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}
__device__ void readers_sync() { asm volatile("bar.sync 1, %0;" ::"n"(kReaders) : "memory"); }

template <Way way>
__device__ uint32_t load(const uint4* from) {
  uint4 v;
  if constexpr (way == Way::rows_past_cache)
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from)
                 : "memory");
  else if constexpr (way == Way::words)
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from)
                 : "memory");
  else
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from)
                 : "memory");
  return v.x ^ v.w;
}

/// A burst from `from`, by all readers; `to`: shared memory for it. Returns what keeps the loads alive.
template <Way way>
__device__ uint32_t burst(const uint4* from, unsigned char* to, uint64_t* barrier, uint32_t phase) {
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  constexpr bool kRows = way != Way::pieces && way != Way::words;
  constexpr int kCount = way == Way::words ? 1 : 8, kStep = kRows ? 64 : 512;
  const uint4* const mine = kRows ? from + lane / 4 * 512 + warp * 4 + lane % 4 : from + warp * 32 + lane;
  if constexpr (way == Way::bulk) {
    if (threadIdx.x == 0) {
      barrier_expect(barrier, kLoaded);
      for (uint32_t at = 0; at < kLoaded; at += 16384) copy_in_bulk(to + at, from + at / 16, 16384, barrier);
    }
    barrier_wait(barrier, phase);
    return 0;
  } else if constexpr (way == Way::rows_async || way == Way::rows_async_cached) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const uint32_t slot = shared_address(to) + (i * kReaders + threadIdx.x) * 16;
      if constexpr (way == Way::rows_async)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(slot), "l"(mine + i * kStep) : "memory");
      else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(slot), "l"(mine + i * kStep) : "memory");
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    return 0;
  } else {
    uint32_t parts[kCount], all = 0;
#pragma unroll
    for (int i = 0; i < kCount; ++i) parts[i] = load<way>(mine + i * kStep);
#pragma unroll
    for (int i = 0; i < kCount; ++i) all ^= parts[i];
    return all;
  }
}

struct Cycles {
  uint64_t chunk, burst, one;
};

template <Way way>
__global__ void __launch_bounds__(kThreads, 1)
    run(const unsigned char* data, uint32_t num_chunks, Copies copies, const uint4* loaded, Cycles* result) {
  extern __shared__ __align__(1024) unsigned char shared[];
  __shared__ uint64_t full[kSlots], there;
  __shared__ volatile uint32_t is_over;
  if (threadIdx.x == 0) {
    for (uint64_t& barrier : full) barrier_make(&barrier);
    barrier_make(&there);
    is_over = 0;
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  if (threadIdx.x >= kReaders) {
    if (threadIdx.x != kReaders || copies.under_way == 0) return;
    const unsigned char* const mine = data + blockIdx.x * (copies.of_memory ? kStride : num_chunks * uint64_t{16384});
    const auto chunk_at = [&](uint32_t n) { return mine + uint64_t{n % num_chunks} * copies.bytes; };
    const auto ask = [&](uint32_t n) {
      asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(chunk_at(n)), "r"(copies.bytes) : "memory");
    };
    const auto wait = [&](uint32_t n) { barrier_wait(&full[n % copies.under_way], n / copies.under_way & 1); };
    for (uint32_t n = 0; n < copies.ahead; ++n) ask(n);
    const uint64_t begin = clock64();
    uint32_t n = 0;
    for (; is_over == 0 || n < copies.under_way; ++n) {
      if (n >= copies.under_way) wait(n - copies.under_way);
      uint64_t* const barrier = &full[n % copies.under_way];
      barrier_expect(barrier, copies.bytes);
      copy_in_bulk(shared + n % copies.under_way * 16384, chunk_at(n), copies.bytes, barrier);
      if (copies.ahead > 0) ask(n + copies.ahead);
    }
    for (uint32_t i = n - copies.under_way; i < n; ++i) wait(i);
    result[blockIdx.x].chunk = (clock64() - begin) / n;
    return;
  }
  uint64_t bursts = 0, ones = 0;
  uint32_t kept = 0;
  for (int i = 0; i < kBursts; ++i) {
    for (const uint64_t begin = clock64(); clock64() - begin < kCyclesBetween;) {}
    readers_sync();
    const uint64_t begin = clock64();
    kept ^= burst<way>(loaded + i % kKinds * (kLoaded / 16), shared + kSlots * 16384, &there, i & 1);
    if (kept == 0x12345679) result[0].one = 1;
    readers_sync();
    const uint64_t end = clock64();
    if (threadIdx.x == 0) {
      if (load<Way::words>(loaded + i * 64 % (kKinds * kLoaded / 16)) == 0x12345678) result[0].one = 2;
      ones += clock64() - end;
      bursts += end - begin;
    }
  }
  if (threadIdx.x != 0) return;
  result[blockIdx.x].burst = bursts / kBursts;
  result[blockIdx.x].one = ones / kBursts;
  is_over = 1;
}

struct Card {
  int blocks = 0;
  unsigned char* data = nullptr;
  uint4* loaded = nullptr;
  Cycles* result = nullptr;

  Card() {
    check(cudaDeviceGetAttribute(&blocks, cudaDevAttrMultiProcessorCount, 0), "asking for multiprocessors");
    check(cudaMalloc(&data, kStride * blocks), "allocating memory to copy");
    check(cudaMemset(data, 1, kStride * blocks), "filling it");
    check(cudaMalloc(&loaded, kKinds * kLoaded), "allocating memory to load");
    check(cudaMemset(loaded, 1, kKinds * kLoaded), "filling it");
    check(cudaMallocManaged(&result, blocks * sizeof(Cycles)), "allocating results");
  }

  /// Medians of the blocks, of a second run.
  template <Way way>
  Cycles measure(const Copies& copies) const {
    check(cudaFuncSetAttribute(run<way>, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared), "asking for memory");
    for (int i = 0; i < 2; ++i) {
      const uint32_t num_chunks = copies.of_memory ? kStride / copies.bytes : 16;
      run<way><<<blocks, kThreads, kShared>>>(data, num_chunks, copies, loaded, result);
      check(cudaDeviceSynchronize(), "running");
    }
    const auto median = [&](uint64_t Cycles::*field) {
      std::vector<uint64_t> values;
      for (int b = 0; b < blocks; ++b) values.push_back(result[b].*field);
      std::nth_element(values.begin(), values.begin() + blocks / 2, values.end());
      return values[blocks / 2];
    };
    return {copies.under_way > 0 ? median(&Cycles::chunk) : 0, median(&Cycles::burst), median(&Cycles::one)};
  }

  template <Way way>
  void row(const char* name, const std::vector<Copies>& all) const {
    std::printf("| %s |", name);
    for (const Copies& copies : all) {
      const Cycles cycles = measure<way>(copies);
      std::printf(" %llu (%llu, %llu) |", static_cast<unsigned long long>(cycles.burst),
                  static_cast<unsigned long long>(cycles.one), static_cast<unsigned long long>(cycles.chunk));
    }
    std::printf("\n");
  }
};

}  // namespace

int main() {
  const Card card;
  const std::vector<Copies> all = {{"none", 16384, 0, 0, false},
                                   {"1 of memory", 16384, 1, 0, true},
                                   {"2", 16384, 2, 0, true},
                                   {"3", 16384, 3, 0, true},
                                   {"4", 16384, 4, 0, true},
                                   {"2 of 8 KB", 8192, 2, 0, true},
                                   {"3 of 8 KB", 8192, 3, 0, true},
                                   {"2 of the L2", 16384, 2, 0, false},
                                   {"4 of the L2", 16384, 4, 0, false},
                                   {"2, 16 ahead", 16384, 2, 16, true}};
  std::printf("64 KB in cycles (a load after them, a chunk)\n\n| copies under way |");
  for (const Copies& copies : all) std::printf(" %s |", copies.name);
  std::printf("\n|---|");
  for (size_t i = 0; i < all.size(); ++i) std::printf("--:|");
  std::printf("\n");
  card.row<Way::rows>("rows of 64 bytes", all);
  card.row<Way::rows_past_cache>("... past the first-level cache", all);
  card.row<Way::rows_async>("... past registers", all);
  card.row<Way::rows_async_cached>("... past registers, through the cache", all);
  card.row<Way::pieces>("pieces of 512 bytes", all);
  card.row<Way::bulk>("in bulk", all);
  card.row<Way::words>("8 KB of words", all);
}
