// What the tensor cores of a multiprocessor make of narrow multiplications (wgmma m64nNk16 of bf16): N rows of weights
// from shared memory with 64 rows of activations, from registers or from shared memory, by one to four warpgroups that
// have `chains` sums each, two multiplications a sum between two waits. Prints cycles of a multiplication and the share
// of what 4096 operations a cycle would be. For Hopper:
//   nvcc -O3 -std=c++17 -gencode arch=compute_90a,code=sm_90a -o tensor_rates tensor_rates.cu && ./tensor_rates
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace {

constexpr int kRounds = 2000, kMaxWarpgroups = 4;
constexpr double kOperationsACycle = 4096;

void check(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return;
  std::fprintf(stderr, "tensor_rates: %s: %s\n", what, cudaGetErrorString(code));
  std::exit(1);
}

__device__ uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }
/// Of a matrix in blocks of 8 rows x 16 bytes, without a swizzle: blocks of columns 128 bytes apart, of rows 256.
__device__ uint64_t matrix_at(const void* p) {
  return uint64_t{shared_address(p) >> 4} | uint64_t{128 >> 4} << 16 | uint64_t{256 >> 4} << 32;
}

#define SUMS_8 "{%0, %1, %2, %3, %4, %5, %6, %7}"
#define SUMS_16 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}"
#define SUMS_32                                                                                                \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, " \
  "%23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define EIGHT(d, i)                                                                                           \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])

__device__ void multiply(float (&d)[8], uint4 a, uint64_t, uint64_t b, std::false_type) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 " SUMS_8 ", {%8, %9, %10, %11}, %12, 1, 1, 1, 0;"
               : EIGHT(d, 0)
               : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(b));
}
__device__ void multiply(float (&d)[8], uint4, uint64_t a, uint64_t b, std::true_type) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 " SUMS_8 ", %8, %9, 1, 1, 1, 0, 0;"
               : EIGHT(d, 0)
               : "l"(a), "l"(b));
}
__device__ void multiply(float (&d)[16], uint4 a, uint64_t, uint64_t b, std::false_type) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 " SUMS_16
               ", {%16, %17, %18, %19}, %20, 1, 1, 1, 0;"
               : EIGHT(d, 0), EIGHT(d, 8)
               : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(b));
}
__device__ void multiply(float (&d)[16], uint4, uint64_t a, uint64_t b, std::true_type) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 " SUMS_16 ", %16, %17, 1, 1, 1, 0, 0;"
               : EIGHT(d, 0), EIGHT(d, 8)
               : "l"(a), "l"(b));
}
__device__ void multiply(float (&d)[32], uint4 a, uint64_t, uint64_t b, std::false_type) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " SUMS_32
               ", {%32, %33, %34, %35}, %36, 1, 1, 1, 0;"
               : EIGHT(d, 0), EIGHT(d, 8), EIGHT(d, 16), EIGHT(d, 24)
               : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(b));
}
__device__ void multiply(float (&d)[32], uint4, uint64_t a, uint64_t b, std::true_type) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " SUMS_32 ", %32, %33, 1, 1, 1, 0, 0;"
               : EIGHT(d, 0), EIGHT(d, 8), EIGHT(d, 16), EIGHT(d, 24)
               : "l"(a), "l"(b));
}

template <int kColumns, int kChains, class FromShared>
__global__ void __launch_bounds__(128 * kMaxWarpgroups, 1) run(uint64_t* cycles, float* sink) {
  __shared__ __align__(1024) uint4 shared[1024];
  for (int i = threadIdx.x; i < 1024; i += blockDim.x) shared[i] = {0, 0, 0, 0};
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  float sums[kChains][kColumns / 2] = {};
  const uint4 a = {threadIdx.x & 0, 0, 0, 0};
  const uint64_t weights = matrix_at(shared), activations = matrix_at(shared + 512);
  const uint64_t begin = clock64();
#pragma unroll 1
  for (int round = 0; round < kRounds; ++round) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int chain = 0; chain < kChains; ++chain)
#pragma unroll
      for (int step = 0; step < 2; ++step) multiply(sums[chain], a, activations, weights, FromShared());
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
  }
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) cycles[blockIdx.x] = clock64() - begin;
  float all = 0;
  for (const auto& chain : sums)
    for (const float sum : chain) all += sum;
  if (all == 12345) *sink = all;
}

template <int kColumns, int kChains, class FromShared>
void row(const char* from, uint64_t* cycles, float* sink) {
  std::printf("| n%d, %s, %d |", kColumns, from, kChains);
  for (int warpgroups = 1; warpgroups <= kMaxWarpgroups; warpgroups *= 2) {
    run<kColumns, kChains, FromShared><<<1, 128 * warpgroups>>>(cycles, sink);
    check(cudaDeviceSynchronize(), "running");
    const double each = static_cast<double>(*cycles) / (2.0 * kChains * warpgroups * kRounds);
    std::printf(" %.1f (%.0f %%) |", each, 100 * 2 * 64 * 16 * kColumns / kOperationsACycle / each);
  }
  std::printf("\n");
}

}  // namespace

int main() {
  uint64_t* cycles = nullptr;
  float* sink = nullptr;
  check(cudaMallocManaged(&cycles, sizeof *cycles), "allocating");
  check(cudaMalloc(&sink, sizeof *sink), "allocating");
  std::printf("| columns, activations from, sums | 1 warpgroup | 2 | 4 |\n|---|--:|--:|--:|\n");
  row<16, 1, std::false_type>("registers", cycles, sink);
  row<16, 3, std::false_type>("registers", cycles, sink);
  row<32, 1, std::false_type>("registers", cycles, sink);
  row<32, 2, std::false_type>("registers", cycles, sink);
  row<64, 1, std::false_type>("registers", cycles, sink);
  row<16, 3, std::true_type>("shared memory", cycles, sink);
  row<32, 1, std::true_type>("shared memory", cycles, sink);
  row<32, 2, std::true_type>("shared memory", cycles, sink);
  row<64, 1, std::true_type>("shared memory", cycles, sink);
}
