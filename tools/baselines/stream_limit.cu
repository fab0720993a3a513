// How fast this GPU's memory can be read at all, in the way in which the persistent kernel reads weights: one block per
// multiprocessor, one thread of it copying 32 KB chunks in bulk into a ring of four in shared memory, the other warps
// reading every byte of them. Prints JSON. For Hopper and newer:
//   nvcc -O3 -std=c++17 -arch=native -o stream_limit stream_limit.cu && ./stream_limit
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr int kChunk = 32 << 10, kSlots = 4, kReaders = 256, kThreads = kReaders + 32;
constexpr int kWarps = kReaders / 32;
constexpr int kRounds = 15;
constexpr uint64_t kLeastBytes = uint64_t{8} << 30;  // far more than the caches hold
constexpr unsigned kGiveUp = 1u << 26;               // polls before a stuck wait ends the kernel

void check(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return;
  std::fprintf(stderr, "stream_limit: %s: %s\n", what, cudaGetErrorString(code));
  std::exit(1);
}

__device__ uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ void barrier_make(uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals));
}
__device__ void barrier_arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
__device__ void barrier_wait(uint64_t* barrier, uint32_t phase) {
  for (unsigned polls = 0; polls < kGiveUp; ++polls) {
    uint32_t passed = 0;
    asm volatile(
        "{ .reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p; }"
        : "=r"(passed)
        : "r"(shared_address(barrier)), "r"(phase)
        : "memory");
    if (passed) return;
  }
  __trap();
}
__device__ void copy_in_bulk(void* to, const void* from, uint64_t* barrier) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(kChunk)
               : "memory");
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(from), "r"(kChunk), "r"(shared_address(barrier))
               : "memory");
}

// Block b reads chunks_per_block chunks that lie side by side, and leaves the exclusive or of all their words.
__global__ void __launch_bounds__(kThreads, 1)
    read_all(const unsigned char* data, uint64_t chunks_per_block, uint32_t* result) {
  extern __shared__ __align__(128) unsigned char ring[];
  __shared__ uint64_t full[kSlots], empty[kSlots];
  if (threadIdx.x == 0) {
    for (int i = 0; i < kSlots; ++i) barrier_make(&full[i], 1), barrier_make(&empty[i], kWarps);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  const unsigned char* mine = data + blockIdx.x * chunks_per_block * kChunk;
  if (threadIdx.x >= kReaders) {
    if (threadIdx.x != kReaders) return;
    for (uint64_t i = 0; i < chunks_per_block; ++i) {
      const int slot = static_cast<int>(i % kSlots);
      const uint32_t lap = static_cast<uint32_t>(i / kSlots);
      if (lap > 0) barrier_wait(&empty[slot], (lap - 1) & 1);
      copy_in_bulk(ring + slot * kChunk, mine + i * kChunk, &full[slot]);
    }
    return;
  }
  uint32_t all = 0;
  for (uint64_t i = 0; i < chunks_per_block; ++i) {
    const int slot = static_cast<int>(i % kSlots);
    barrier_wait(&full[slot], static_cast<uint32_t>(i / kSlots) & 1);
    const uint4* words = reinterpret_cast<const uint4*>(ring + slot * kChunk);
#pragma unroll
    for (int k = 0; k < kChunk / 16 / kReaders; ++k) {
      const uint4 v = words[k * kReaders + threadIdx.x];
      all ^= v.x ^ v.y ^ v.z ^ v.w;
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(&empty[slot]);
  }
  atomicXor(&result[blockIdx.x], all);
}

// Word i holds a mix of i, so that a chunk that was skipped or read twice changes the result.
__host__ __device__ uint32_t word_at(uint64_t i) {
  const uint64_t mixed = (i + 1) * 0x9e3779b97f4a7c15ull;
  return static_cast<uint32_t>(mixed >> 32);
}
__global__ void fill(uint32_t* words, uint64_t count) {
  for (uint64_t i = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x; i < count; i += uint64_t{gridDim.x} * blockDim.x)
    words[i] = word_at(i);
}
__global__ void expected_of(uint64_t words_per_block, uint32_t* result) {
  uint32_t all = 0;
  for (uint64_t i = threadIdx.x; i < words_per_block; i += blockDim.x) all ^= word_at(blockIdx.x * words_per_block + i);
  atomicXor(&result[blockIdx.x], all);
}

}  // namespace

int main() {
  cudaDeviceProp device;
  check(cudaGetDeviceProperties(&device, 0), "asking for the GPU");
  const int blocks = device.multiProcessorCount;
  const uint64_t chunks_per_block = (kLeastBytes + uint64_t{kChunk} * blocks - 1) / (uint64_t{kChunk} * blocks);
  const uint64_t bytes = chunks_per_block * kChunk * blocks;
  unsigned char* data = nullptr;
  uint32_t* results = nullptr;  // found, wanted
  check(cudaMalloc(&data, bytes), "allocating what is read");
  check(cudaMalloc(&results, 2 * blocks * sizeof(uint32_t)), "allocating the results");
  check(cudaMemset(results, 0, 2 * blocks * sizeof(uint32_t)), "clearing the results");
  fill<<<4 * blocks, 1024>>>(reinterpret_cast<uint32_t*>(data), bytes / 4);
  expected_of<<<blocks, 1024>>>(chunks_per_block * kChunk / 4, results + blocks);
  check(cudaFuncSetAttribute(read_all, cudaFuncAttributeMaxDynamicSharedMemorySize, kSlots * kChunk),
        "asking for shared memory");

  std::vector<float> times;
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "making an event");
  check(cudaEventCreate(&end), "making an event");
  for (int round = 0; round < kRounds + 2; ++round) {
    check(cudaEventRecord(begin), "recording an event");
    read_all<<<blocks, kThreads, kSlots * kChunk>>>(data, chunks_per_block, results);
    check(cudaEventRecord(end), "recording an event");
    check(cudaEventSynchronize(end), "reading");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "reading the time");
    if (round >= 2) times.push_back(ms);
  }
  // An odd number of rounds: an even one would cancel itself out.
  static_assert((kRounds + 2) % 2 == 1);
  std::vector<uint32_t> host(2 * blocks);
  check(cudaMemcpy(host.data(), results, host.size() * sizeof(uint32_t), cudaMemcpyDeviceToHost), "fetching results");
  for (int b = 0; b < blocks; ++b)
    if (host[b] != host[blocks + b]) {
      std::fprintf(stderr, "stream_limit: block %d read %08x, want %08x\n", b, host[b], host[blocks + b]);
      return 1;
    }
  std::sort(times.begin(), times.end());
  auto rate = [&](float ms) { return bytes / (ms * 1e6); };
  std::printf("{\"device\": \"%s\", \"bytes\": %llu, \"median_gbs\": %.1f, \"best_gbs\": %.1f, \"worst_gbs\": %.1f}\n",
              device.name, static_cast<unsigned long long>(bytes), rate(times[times.size() / 2]), rate(times.front()),
              rate(times.back()));
}
