// What an exchange between all workers takes at least: a block per multiprocessor writes its share of a row of bf16 as
// words of 8 bytes, payload and number of the round, and looks at the whole row until all of it is of this round, 16
// warps a share each. Prints nanoseconds a round: bare; with sums of all warps and a second barrier, as a product has
// them; and of one word between two blocks. For Hopper and newer:
//   nvcc -O3 -std=c++17 -arch=native -o exchange exchange.cu && ./exchange
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {

constexpr int kWarps = 16, kThreads = kWarps * 32, kWriters = 128, kBuffers = 4;
constexpr int kRounds = 20000, kWarmUp = 10;
constexpr int kLargestRow = 4096;
constexpr unsigned kGiveUp = 1u << 24;  // looks before a stuck wait ends the kernel

void check(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return;
  std::fprintf(stderr, "exchange: %s: %s\n", what, cudaGetErrorString(code));
  std::exit(1);
}

struct Two {
  uint64_t a, b;
};
__device__ Two look(const uint64_t* at) {
  Two two;
  asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];" : "=l"(two.a), "=l"(two.b) : "l"(at) : "memory");
  return two;
}
__device__ void put(uint64_t* at, uint64_t word) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" : : "l"(at), "l"(word) : "memory");
}
__device__ uint64_t nanoseconds() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now) : : "memory");
  return now;
}
__device__ bool is_of(Two two, int round) {
  return static_cast<uint32_t>(two.a >> 32) == static_cast<uint32_t>(round) &&
         static_cast<uint32_t>(two.b >> 32) == static_cast<uint32_t>(round);
}

/// `words` [kBuffers, kColumns / 2]; `taken`: what the first block took for kRounds.
template <int kColumns, bool kSums>
__global__ void __launch_bounds__(kThreads, 1) exchange(uint64_t* words, uint64_t* taken) {
  constexpr int kWords = kColumns / 2, kOfWarp = kWords / kWarps, kOfWriter = kWords / kWriters;
  constexpr int kLooks = (kOfWarp + 63) / 64;
  __shared__ float sums[kWarps][8];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, writer = blockIdx.x;
  uint64_t begin = 0;
  for (int round = 1; round <= kRounds + kWarmUp; ++round) {
    if (round == kWarmUp + 1) begin = nanoseconds();
    uint64_t* const row = words + round % kBuffers * kWords;
    if (writer < kWriters && threadIdx.x < kOfWriter)
      put(row + writer * kOfWriter + threadIdx.x, static_cast<uint64_t>(round) << 32 | threadIdx.x);
    Two seen[kLooks];
    for (unsigned looks = 0;; ++looks) {
      bool is_there = true;
#pragma unroll
      for (int i = 0; i < kLooks; ++i)
        if (const int word = 64 * i + 2 * lane; word < kOfWarp) {
          seen[i] = look(row + warp * kOfWarp + word);
          is_there = is_there && is_of(seen[i], round);
        }
      if (__all_sync(0xffffffffu, is_there)) break;
      if (looks == kGiveUp) __trap();
    }
    if (kSums) {
      if (lane < 8) sums[warp][lane] = static_cast<float>(static_cast<uint32_t>(seen[0].a));
      __syncthreads();
      float total = 0;
      if (threadIdx.x < 8)
        for (int w = 0; w < kWarps; ++w) total += sums[w][threadIdx.x];
      if (total < 0) taken[1] = round;  // never: but the compiler does not know
    }
    __syncthreads();
  }
  if (writer == 0 && threadIdx.x == 0) *taken = nanoseconds() - begin;
}

/// Two blocks hand one word to each other, each to a line of its own.
__global__ void ping_pong(uint64_t* words, uint64_t* taken) {
  if (threadIdx.x != 0) return;
  uint64_t *const mine = words + blockIdx.x * 64, *const other = words + (1 - blockIdx.x) * 64;
  uint64_t begin = 0;
  for (int round = 1; round <= kRounds + kWarmUp; ++round) {
    if (round == kWarmUp + 1) begin = nanoseconds();
    if (blockIdx.x == 0) put(other, round);
    for (unsigned looks = 0; look(mine).a != static_cast<uint64_t>(round); ++looks)
      if (looks == kGiveUp) __trap();
    if (blockIdx.x == 1) put(other, round);
  }
  if (blockIdx.x == 0) *taken = nanoseconds() - begin;
}

struct Memory {
  uint64_t *words, *taken;

  double nanoseconds_a_round() const {
    check(cudaDeviceSynchronize(), "run");
    uint64_t all = 0;
    check(cudaMemcpy(&all, taken, sizeof all, cudaMemcpyDeviceToHost), "copy");
    return static_cast<double>(all) / kRounds;
  }
  void clear() const { check(cudaMemset(words, 0, kBuffers * kLargestRow / 2 * sizeof(uint64_t)), "clear"); }
};

template <int kColumns, bool kSums>
void run(Memory memory, int blocks) {
  memory.clear();
  void* arguments[] = {&memory.words, &memory.taken};
  check(cudaLaunchCooperativeKernel(reinterpret_cast<void*>(exchange<kColumns, kSums>), blocks, kThreads, arguments, 0,
                                    nullptr),
        "launch");
  std::printf("%-10s %4d columns  %6.1f ns\n", kSums ? "with sums" : "bare", kColumns, memory.nanoseconds_a_round());
}

}  // namespace

int main() {
  int blocks = 0;
  check(cudaDeviceGetAttribute(&blocks, cudaDevAttrMultiProcessorCount, 0), "ask");
  if (blocks < kWriters) {
    std::fprintf(stderr, "exchange: %d multiprocessors: want %d or more\n", blocks, kWriters);
    return 1;
  }
  Memory memory = {};
  check(cudaMalloc(&memory.words, kBuffers * kLargestRow / 2 * sizeof(uint64_t)), "allocate");
  check(cudaMalloc(&memory.taken, 2 * sizeof(uint64_t)), "allocate");
  for (int turn = 0; turn < 2; ++turn) {
    run<1024, false>(memory, blocks);
    run<2048, false>(memory, blocks);
    run<4096, false>(memory, blocks);
    run<1024, true>(memory, blocks);
    run<2048, true>(memory, blocks);
    memory.clear();
    ping_pong<<<2, 32>>>(memory.words, memory.taken);
    std::printf("a word from one block to another  %6.1f ns\n", memory.nanoseconds_a_round() / 2);
  }
}
