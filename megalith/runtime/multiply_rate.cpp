#include "megalith/runtime/multiply_rate.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "megalith/base/amx.h"
#include "megalith/base/error.h"
#include "megalith/base/threads.h"
#include "megalith/runtime/topology.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace megalith::runtime {

namespace {

using Clock = std::chrono::steady_clock;

// Operands of a turn: small enough for the first-level cache, long enough that filling the registers is nothing.
constexpr int kSteps = 64, kTurns = 2000;
// Four products of tiles take as long as two or three steps of the other loops.
constexpr int kStepsOfTiles = 2;
constexpr size_t kMaxTurns = 100'000;

struct alignas(64) Operands {
  float left[kSteps * 16], right[kSteps * 2 * 16];  // so many for every kind of loop
};

/// A loop over kTurns * kSteps steps; returns something of its sums, so that they must be formed.
struct Loop {
  float (*run)(const Operands& operands) = nullptr;
  double flops = 0;  // of a step
};

// Twelve rows by two registers of columns: 24 sums are more than two units with four or five cycles each need, and with
// the two registers and what is broadcast they fit into 32.
constexpr int kRows = 12, kColumns = 2;

#if defined(__x86_64__)
[[gnu::target("avx512f")]] float multiply_avx512(const Operands& operands) {
  __m512 sum[kRows][kColumns] = {};
  for (int turn = 0; turn < kTurns; ++turn)
    for (int step = 0; step < kSteps; ++step) {
      const float* const right = operands.right + step * 32;
      const __m512 b0 = _mm512_load_ps(right), b1 = _mm512_load_ps(right + 16);
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r) {
        const __m512 a = _mm512_set1_ps(operands.left[step * 16 + r]);
        sum[r][0] = _mm512_fmadd_ps(a, b0, sum[r][0]);
        sum[r][1] = _mm512_fmadd_ps(a, b1, sum[r][1]);
      }
    }
  __m512 all = sum[0][0];
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) all = _mm512_add_ps(all, _mm512_add_ps(sum[r][0], sum[r][1]));
  return _mm512_cvtss_f32(all);
}

[[gnu::target("avx512f,avx512bf16")]] float multiply_bf16(const Operands& operands) {
  __m512 sum[kRows][kColumns] = {};
  for (int turn = 0; turn < kTurns; ++turn)
    for (int step = 0; step < kSteps; ++step) {
      const float* const right = operands.right + step * 32;
      const auto b0 = reinterpret_cast<__m512bh>(_mm512_load_si512(right));
      const auto b1 = reinterpret_cast<__m512bh>(_mm512_load_si512(right + 16));
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r) {
        const auto a = reinterpret_cast<__m512bh>(_mm512_set1_ps(operands.left[step * 16 + r]));
        sum[r][0] = _mm512_dpbf16_ps(sum[r][0], a, b0);
        sum[r][1] = _mm512_dpbf16_ps(sum[r][1], a, b1);
      }
    }
  __m512 all = sum[0][0];
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) all = _mm512_add_ps(all, _mm512_add_ps(sum[r][0], sum[r][1]));
  return _mm512_cvtss_f32(all);
}

// Four tiles of sums, of 16 rows by 16 columns; two of rows and two of columns, all of them the same 1 KB.
float multiply_tiles(const Operands& operands) {
  struct alignas(64) {
    uint8_t palette = 1, reserved[15] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } const shape;
  constexpr long kRowBytes = 64;
  alignas(64) float all[16 * 16];
  __asm__ volatile(
      "ldtilecfg %0\n\ttilezero %%tmm0\n\ttilezero %%tmm1\n\ttilezero %%tmm2\n\ttilezero %%tmm3" ::"m"(shape));
  for (int i = 0; i < kTurns * kSteps / kStepsOfTiles; ++i)
    __asm__ volatile(
        "tileloadd (%0,%1,1), %%tmm4\n\ttileloadd (%0,%1,1), %%tmm5\n\t"
        "tileloadd (%0,%1,1), %%tmm6\n\ttileloadd (%0,%1,1), %%tmm7\n\t"
        "tdpbf16ps %%tmm6, %%tmm4, %%tmm0\n\ttdpbf16ps %%tmm7, %%tmm4, %%tmm1\n\t"
        "tdpbf16ps %%tmm6, %%tmm5, %%tmm2\n\ttdpbf16ps %%tmm7, %%tmm5, %%tmm3" ::"r"(operands.left),
        "r"(kRowBytes)
        : "memory");
  __asm__ volatile("tilestored %%tmm0, (%0,%1,1)\n\ttilerelease" ::"r"(all), "r"(kRowBytes) : "memory");
  return all[0];
}

// Six rows: 16 registers hold 12 sums.
[[gnu::target("avx2,fma")]] float multiply_avx2(const Operands& operands) {
  __m256 sum[6][2] = {};
  for (int turn = 0; turn < kTurns; ++turn)
    for (int step = 0; step < kSteps; ++step) {
      const float* const right = operands.right + step * 16;
      const __m256 b0 = _mm256_load_ps(right), b1 = _mm256_load_ps(right + 8);
#pragma GCC unroll 6
      for (int r = 0; r < 6; ++r) {
        const __m256 a = _mm256_set1_ps(operands.left[step * 16 + r]);
        sum[r][0] = _mm256_fmadd_ps(a, b0, sum[r][0]);
        sum[r][1] = _mm256_fmadd_ps(a, b1, sum[r][1]);
      }
    }
  __m256 all = sum[0][0];
#pragma GCC unroll 6
  for (int r = 0; r < 6; ++r) all = _mm256_add_ps(all, _mm256_add_ps(sum[r][0], sum[r][1]));
  return _mm256_cvtss_f32(all);
}
#endif

// Vectors of the compiler's: four f32 fit a register of any machine that has them.
float multiply_plain(const Operands& operands) {
  typedef float Vector __attribute__((vector_size(16)));
  Vector sum[4][2] = {};
  for (int turn = 0; turn < kTurns; ++turn)
    for (int step = 0; step < kSteps; ++step) {
      const auto* const right = reinterpret_cast<const Vector*>(operands.right) + step * 2;
#pragma GCC unroll 4
      for (int r = 0; r < 4; ++r)
        for (int c = 0; c < 2; ++c) sum[r][c] += operands.left[step * 16 + r] * right[c];
    }
  Vector all = {};
  for (auto& row : sum) all += row[0] + row[1];
  return all[0];
}

std::vector<Loop> loops([[maybe_unused]] bool f32_alone) {
  std::vector<Loop> result;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) result.push_back({multiply_avx512, 2.0 * kRows * kColumns * 16});
  if (!f32_alone && __builtin_cpu_supports("avx512bf16"))
    result.push_back({multiply_bf16, 2.0 * kRows * kColumns * 32});
  if (result.empty() && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    result.push_back({multiply_avx2, 2.0 * 6 * 2 * 8});
  if (!f32_alone && amx_is_usable()) result.push_back({multiply_tiles, 2.0 * 4 * 16 * 16 * 32 / kStepsOfTiles});
#endif
  if (result.empty()) result.push_back({multiply_plain, 2.0 * 4 * 2 * 4});
  return result;
}

double rate_of(const Loop& loop, const MultiplyRateOptions& options) {
  const CpuTopology topology = cpu_topology();
  std::atomic<bool> over = false;
  std::atomic<float> seen = 0;
  std::vector<double> turns;
  turns.reserve(kMaxTurns);
  Clock::time_point first, begin;
  // A turn is over when the last thread is through, as in runtime/bandwidth.cpp.
  std::barrier turn(options.num_threads, [&]() noexcept {
    const Clock::time_point now = Clock::now();
    if (begin == Clock::time_point{})
      first = now;
    else
      turns.push_back(std::chrono::duration<double>(now - begin).count());
    begin = now;
    const bool late = std::chrono::duration<double>(now - first).count() >= options.seconds;
    over = turns.size() == kMaxTurns || (!turns.empty() && late);
  });
  auto work = [&](int thread) {
    if (options.num_threads <= topology.num_usable()) pin_this_thread(topology.cores[static_cast<size_t>(thread)]);
    Operands operands;
    std::fill(std::begin(operands.left), std::end(operands.left), 0.5f);
    std::fill(std::begin(operands.right), std::end(operands.right), 0.25f);
    turn.arrive_and_wait();
    while (!over) {
      seen = loop.run(operands);
      turn.arrive_and_wait();
    }
  };
  run_together("the measurement of products", options.num_threads, work);
  MEGALITH_ASSERT(seen > 0, "[multiply rate] the sums came out as {}", seen.load());
  std::nth_element(turns.begin(), turns.begin() + static_cast<std::ptrdiff_t>(turns.size() / 2), turns.end());
  return loop.flops * kTurns * kSteps * options.num_threads / turns[turns.size() / 2] / 1e9;
}

}  // namespace

double cpu_multiply_rate_gflops(const MultiplyRateOptions& options) {
  MEGALITH_CHECK(options.num_threads >= 1, "[multiply rate] {} threads, want at least 1", options.num_threads);
  double best = 0;
  for (const Loop& loop : loops(options.f32_alone)) best = std::max(best, rate_of(loop, options));
  return best;
}

}  // namespace megalith::runtime
