#include "megalith/runtime/cuda/limits.h"

#include <algorithm>
#include <vector>

#include "megalith/jit/cuda/driver.h"
#include "megalith/jit/cuda/nvrtc.h"
#include "megalith/runtime/cuda/memory.h"

namespace megalith::runtime {

namespace {

using jit::CudaDriver;

constexpr unsigned kThreads = 512, kBlocksPerMultiprocessor = 2;
// Enough to miss the L2 of any GPU that there is, if that much is free.
constexpr int64_t kBufferBytes = int64_t{2} << 30, kPartsOfFree = 4;
// What a block reads at a time lies side by side: spread over all of the buffer an H200 reads it at 3.9 TB/s, not 4.5.
constexpr int64_t kPieceBytes = 8 * kThreads * 16;
constexpr int kPasses = 8, kTurns = 9;
constexpr int kMultiplications = 1 << 14, kSums = 8;  // of a warp in a turn: kSums side by side
constexpr double kFlopsOfOne = 2.0 * 16 * 8 * 16;

constexpr const char* kSource = R"(
extern "C" __global__ void read_all(const uint4* from, unsigned long long count, unsigned* to) {
  uint4 seen = {0, 0, 0, 0};
  const unsigned long long piece = 8ull * blockDim.x;
  for (unsigned long long first = blockIdx.x * piece + threadIdx.x; first < count; first += gridDim.x * piece) {
    uint4 part[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) part[i] = __ldcs(from + first + i * blockDim.x);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      seen.x |= part[i].x; seen.y |= part[i].y; seen.z |= part[i].z; seen.w |= part[i].w;
    }
  }
  if ((seen.x | seen.y | seen.z | seen.w) != 0) *to = seen.x;  // memory is zero: never, but the compiler cannot know
}

extern "C" __global__ void multiply(int times, float* to) {
  float sums[8][4] = {};
  const unsigned a = threadIdx.x, b = blockIdx.x;  // bits of tiny numbers
  for (int i = 0; i < times; ++i)
#pragma unroll
    for (int s = 0; s < 8; ++s)
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %4, %4, %4}, {%5, %5}, {%0, %1, %2, %3};"
          : "+f"(sums[s][0]), "+f"(sums[s][1]), "+f"(sums[s][2]), "+f"(sums[s][3])
          : "r"(a), "r"(b));
  float all = 0;
  for (int s = 0; s < 8; ++s) all += sums[s][0] + sums[s][1] + sums[s][2] + sums[s][3];
  if (all == 1.0f) *to = all;
}
)";

// The source on this machine's GPU, and a clock for its kernels.
class Probe {
 public:
  Probe() : device_(jit::cuda_device()), context_(device_.ordinal) {
    const jit::NvrtcResult compiled = jit::nvrtc_compile(kSource, "limits", device_.architecture, {"--std=c++20"});
    driver_.check(driver_.module_load(module_.out(), compiled.cubin.data()),
                  "loading the kernels that measure the GPU");
    driver_.check(driver_.stream_create(stream_.out(), 0), "making a stream");
    for (CudaEventOwner* event : {&begin_, &end_})
      driver_.check(driver_.event_create(event->out(), 0), "making an event");
  }

  unsigned num_blocks() const { return kBlocksPerMultiprocessor * static_cast<unsigned>(device_.num_multiprocessors); }

  double seconds(const char* name, void** parameters) {
    jit::CudaFunction function = nullptr;
    driver_.check(driver_.module_function(&function, module_.get(), name), name);
    const jit::CudaLaunchConfig config{num_blocks(), 1, 1, kThreads, 1, 1, 0, stream_.get(), nullptr, 0};
    driver_.check(driver_.event_record(begin_.get(), stream_.get()), name);
    driver_.check(driver_.launch(&config, function, parameters, nullptr), name);
    driver_.check(driver_.event_record(end_.get(), stream_.get()), name);
    driver_.check(driver_.event_synchronize(end_.get()), name);
    float milliseconds = 0;
    driver_.check(driver_.event_elapsed(&milliseconds, begin_.get(), end_.get()), name);
    return static_cast<double>(milliseconds) / 1000;
  }

  int64_t free_bytes() const {
    size_t free = 0, total = 0;
    driver_.check(driver_.memory_info(&free, &total), "asking for free memory");
    return static_cast<int64_t>(free);
  }

 private:
  const CudaDriver& driver_ = CudaDriver::get();
  jit::CudaDeviceInfo device_;
  CudaContextGuard context_;
  CudaModuleOwner module_;
  CudaStreamOwner stream_;
  CudaEventOwner begin_, end_;
};

}  // namespace

const char* cuda_limits_source() { return kSource; }

double cuda_read_bandwidth_gbs() {
  Probe probe;
  const int64_t bytes = std::min(kBufferBytes, probe.free_bytes() / kPartsOfFree) / kPieceBytes * kPieceBytes;
  const DeviceMemory buffer(bytes, "the buffer that is read"), seen(sizeof(unsigned), "the result");
  jit::CudaAddress from = buffer.address(), to = seen.address();
  unsigned long long count = static_cast<unsigned long long>(bytes) / 16;
  void* parameters[] = {&from, &count, &to};
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass)
    best = std::max(best, static_cast<double>(bytes) / probe.seconds("read_all", parameters) / 1e9);
  return best;
}

double cuda_multiply_rate_gflops() {
  Probe probe;
  const DeviceMemory seen(sizeof(float), "the result");
  int times = kMultiplications / kSums;
  jit::CudaAddress to = seen.address();
  void* parameters[] = {&times, &to};
  const double flops = kFlopsOfOne * kMultiplications * (kThreads / 32) * probe.num_blocks();
  std::vector<double> rates;
  for (int turn = 0; turn < kTurns; ++turn) rates.push_back(flops / probe.seconds("multiply", parameters) / 1e9);
  std::ranges::sort(rates);
  return rates[rates.size() / 2];
}

}  // namespace megalith::runtime
