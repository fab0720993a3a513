// How fast the tuned products read their weights, beside a loop that only reads, on one thread. Not part of the tests:
//   test_codegen --gtest_also_run_disabled_tests --gtest_filter='*Speed*'
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <functional>

#include "codegen/program.h"
#include "megalith/ops/packed.h"

namespace megalith::codegen::testing {
namespace {

constexpr const char* kReadLoop = R"(
extern "C" [[gnu::visibility("default")]] long long read_all(const void* bytes, long long count) {
  typedef long long Vector __attribute__((vector_size(64)));
  const Vector* const at = static_cast<const Vector*>(bytes);
  Vector sum[8] = {};
  for (long long i = 0; i + 8 <= count / 64; i += 8)
    for (int j = 0; j < 8; ++j) sum[j] |= at[i + j];
  for (int j = 1; j < 8; ++j) sum[0] |= sum[j];
  return sum[0][0];
}
)";

// Of the thread, not of the clock on the wall: whoever else uses the machine takes turns with us.
double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double seconds_of(const std::function<void()>& work) {
  const double begin = thread_seconds();
  work();
  return thread_seconds() - begin;
}

// Rows of bf16 weights in whole panels.
int64_t rows_of(int64_t bytes, int64_t columns) { return bytes / 2 / columns / 16 * 16; }

TEST(DISABLED_Speed, OfReadingWeights) {
  static const graph::TunedBody gemv{
      .target = "cpu", .file = "gemv.h", .name = "gemv", .applies = {}, .area_bytes = ops::activations_area("weight")};
  constexpr int64_t kLargest = 256 << 20;
  constexpr int64_t kInL2 = 512 << 10;
  std::vector<Spec> specs;
  for (const int64_t k : {576, 1024, 4096})
    for (const int64_t bytes : {kInL2, kLargest})
      specs.push_back({fmt::format("linear_{}_{}", k, rows_of(bytes, k)),
                       R"(
        parameter T dynamic
        input x: f32[T, K]
        input weight: bf16[N, K]
        output y: f32[T, N]
        { [t, n, k] : 0 <= t < T and 0 <= n < N and 0 <= k < K }
        y[t, n] = sum(k, f32(x[t, k]) * f32(weight[n, k])))",
                       {{"T", 16}, {"N", rows_of(bytes, k)}, {"K", k}},
                       {"n", "t"},
                       {},
                       &gemv});
  const Program program(specs, "c++", "-march=native", kReadLoop);
  const auto read_all = reinterpret_cast<long long (*)(const void*, long long)>(program.symbol("read_all"));

  void* weight = mmap(nullptr, kLargest, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(weight, MAP_FAILED);
  madvise(weight, kLargest, MADV_HUGEPAGE);
  std::fill_n(static_cast<uint16_t*>(weight), kLargest / 2, static_cast<uint16_t>(0x3c00));
  printf("%-18s %10s %5s %10s %10s %7s %9s\n", "kernel", "weights MB", "rows", "gemv GB/s", "read GB/s", "share",
         "GFLOP/s");
  for (const Spec& spec : specs)
    for (const runtime::i32 rows : {1, 4, 16}) {
      const int64_t n = spec.sizes.at("N"), bytes = n * spec.sizes.at("K") * 2;
      std::vector<float> x(static_cast<size_t>(16 * spec.sizes.at("K")), 1.0f);
      std::vector<float> y(static_cast<size_t>(16 * spec.sizes.at("N")));
      runtime::i32 num_rows = rows;
      runtime::TaskRecord task{};
      task.end[0] = static_cast<runtime::i32>(n);
      task.end[1] = rows;
      const std::vector<runtime::TaskRecord> tasks(static_cast<size_t>(bytes <= kInL2 ? 64 : 1), task);
      double ours = INFINITY, plain = INFINITY;
      volatile long long sink = 0;
      for (int round = 0; round < 9; ++round) {  // turn by turn, since the machine's speed drifts
        ours = std::min(ours, seconds_of([&] {
                          program.launch(spec.name, {x.data(), weight, y.data(), &num_rows}, tasks);
                        }));
        plain = std::min(plain, seconds_of([&] {
                           for (size_t i = 0; i < tasks.size(); ++i) sink = sink + read_all(weight, bytes);
                         }));
      }
      const double gigabytes = static_cast<double>(bytes) * static_cast<double>(tasks.size()) * 1e-9;
      printf("%-18s %10.1f %5d %10.1f %10.1f %6.0f%% %9.1f\n", spec.name.c_str(), static_cast<double>(bytes) * 1e-6,
             rows, gigabytes / ours, gigabytes / plain, 100 * plain / ours, gigabytes / ours * rows);
    }
  munmap(weight, kLargest);
}

}  // namespace
}  // namespace megalith::codegen::testing
