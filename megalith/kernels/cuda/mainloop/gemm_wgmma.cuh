// Projections of batches and prompts: what becomes of the sums that gemm_mainloop.cuh forms.
#pragma once

#include "megalith/kernels/cuda/mainloop/gemm_own_rows.cuh"
#include "megalith/kernels/cuda/rowwise/rmsnorm.cuh"

namespace megalith::kernels {

/// All turns of a task that has a few rows of each of kMatrices matrices in a group: `put(args, row, column, y)` for each
/// pair of results, `y` of each matrix.
template <int kMatrices, class X, class Args, class Meanwhile, class Put>
inline void wide_run(const Args& args, X x, Meanwhile meanwhile, Put put) {
  if constexpr (stream::wide_parts(Args::T_largest) == 1) return wide_run_own_rows<kMatrices>(args, x, meanwhile, put);
  constexpr int kGroup = Args::kStream.group, kPairs = kGroup / 2,
                kGroups = wide_most_groups(static_cast<int>(Args::kStream.turn));
  const int n_end = static_cast<int>(args.n_end);
  const auto finish = [&](int first, int first_row, int last_row, auto sum) {
    for (int i = lane(); i < (last_row - first_row) * kPairs; i += kWarpLanes) {
      const int row = first_row + i / kPairs, n = i % kPairs * 2;
      float2 y[kMatrices];
#pragma unroll
      for (int m = 0; m < kMatrices; ++m) y[m] = sum(row, m * kGroup + n);
      if (first + n < n_end) put(args, row, first + n, y);
    }
  };
  wide_turns<kGroup * kMatrices, kGroups>(args, x, static_cast<int>(args.n_begin), n_end, kGroup, meanwhile, finish);
}

/// y = x weight^T.
template <class Args>
inline void gemm_linear(const Args& args) {
  wide_run<1>(
      args, wide_rows(args, args.x), [] {}, PutOutput<false>{});
}
/// part[s] = x weight^T over the columns of a slice: of every row that a worker multiplies it has fewer columns of the
/// activations, all of which come from the L2.
template <class Args>
inline void gemm_linear_splitk(const Args& args) {
  static_assert(Args::L % stream::wide_columns(Args::kStream.group) == 0, "whole chunks");
  wide_run<1>(
      args, slice_of_rows(args, args.x, static_cast<int>(args.s_begin)), [] {}, PutPart{});
}
/// logits = x weight^T, and the largest of each chunk of L columns with the lowest column that has it. A chunk is a
/// group of rows of weights.
template <class Args>
inline void gemm_linear_argmax(const Args& args) {
  constexpr int L = static_cast<int>(Args::L), V = static_cast<int>(Args::V), C = static_cast<int>(Args::C),
                kGroups = wide_most_groups(static_cast<int>(Args::kStream.turn)), kAtOnce = 4;
  static_assert(L <= 2 * kWarpLanes && L == Args::kStream.group);
  const auto finish = [&](int c, int first_row, int last_row, auto sum) {
    const int n = 2 * lane(), column = c * L + n;
    const bool has_pair = n < L && column < V;
#pragma unroll 1
    for (int first = first_row; first < last_row; first += kAtOnce) {
      f32 best[kAtOnce];
      int at[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int row = first + i;
        best[i] = -kInfinity;
        at[i] = 0x7fffffff;
        if (!has_pair || row >= last_row) continue;
        const float2 y = sum(row, n);
        *reinterpret_cast<float2*>(args.logits + i64(row) * V + column) = y;
        best[i] = y.y > y.x ? y.y : y.x;
        at[i] = y.y > y.x ? column + 1 : column;
      }
#pragma unroll
      for (int apart = kWarpLanes / 2; apart > 0; apart /= 2)
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          const f32 other = from_lane(best[i], apart);
          const int of_other = from_lane(at[i], apart);
          if (other > best[i] || (other == best[i] && of_other < at[i])) best[i] = other, at[i] = of_other;
        }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int row = first + i;
        if (lane() != 0 || row >= last_row) continue;
        put(args.value, row * C + c, best[i], args.epoch);
        // A chunk past the last column has none; the loop kernel says the first one of the chunk then.
        put(args.index, row * C + c, at[i] == 0x7fffffff ? c * L : at[i], args.epoch);
      }
    }
  };
  const auto nothing = [] {};
  wide_turns<L, kGroups>(args, wide_rows(args, args.x), static_cast<int>(args.c_begin), static_cast<int>(args.c_end), 1,
                         nothing, finish);
}

/// y = residual + x weight^T, with a copy that has the next norm's weight, and squares, where warpgroups have parts of the sums. What is not needed while it multiplies is looked up behind that:
/// activations need the registers.
template <class Args>
inline void gemm_linear_residual_rmsnorm_parts_of_parts(const Args& args) {
  constexpr int kGroup = static_cast<int>(Args::L), kPairs = kGroup / 2, K = static_cast<int>(Args::K);
  constexpr int kRowsAtOnce = kThreads / kPairs,
                kPasses = (static_cast<int>(Args::T_largest) + kRowsAtOnce - 1) / kRowsAtOnce,
                kParts = stream::wide_parts(Args::T_largest);
  static_assert(kGroup == Args::kStream.group && Args::kStream.turn == 1);
  const auto of_task = [task = args.task] { return Args::of(*task); };
  const auto x = wide_rows(args, args.x);
  const int rows = static_cast<int>(args.T), end = static_cast<int>(args.c_end);
  RingPlace ring = args.ring;
  inputs_are_ready(args.epoch);
  using Shared = SharesOf<Args, 1>;
  using Weights = WeightsOf<decltype(wide_operand(args))>;
  using Sums = WideSums<kGroup, Shared, Weights>;
  ActivationsAhead<kGroup, Weights::kSpans, Shared, decltype(x)> activations(x, 0, rows, K);
  // Behind the sums, (rows, kGroup).
  f32* const before = Sums::sums_at(kParts, 0);
  if (Weights::kAreInt8) block_sync();  // nobody needs what was in the area
#pragma unroll 1
  for (int c = static_cast<int>(args.c_begin); c < end; ++c) {
    // What is added to the sums is on its way while they are formed.
    constexpr int kFours = kGroup / 4;
#pragma unroll 1
    for (int i = thread(); i < rows * kFours; i += kThreads) {
      const int row = i / kFours, n = i % kFours * 4;
      copy_four(before + row * kGroup + n, of_task().residual + row * (Args::C * Args::L) + c * kGroup + n);
    }
    copy_commit();
    Sums sums;
    sums.multiply(ring, activations, 1, c + 1 >= end);
    ring = ring.any_further(static_cast<u32>(activations.count()));
    sums.put();
    copy_wait<0>();
    block_sync();
    const Args now = of_task();
    const int first_row = thread() / kPairs, n = thread() % kPairs * 2, column = c * kGroup + n;
    const u32 norm = *reinterpret_cast<const u32*>(now.norm + column);
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      if (i * kRowsAtOnce >= rows) break;
      const int row = first_row + i * kRowsAtOnce;
      const float2 y = Sums::sum(row, n), of_row = *reinterpret_cast<const float2*>(before + row * kGroup + n);
      put_rmsnorm_parts(now, row < rows, row, column, {of_row.x + y.x, of_row.y + y.y}, norm);
    }
    if (c + 1 < end) block_sync();  // they were read
  }
}

template <class Args>
inline void gemm_linear_residual_rmsnorm_parts(const Args& args) {
  if constexpr (stream::wide_parts(Args::T_largest) == 1)
    gemm_linear_residual_rmsnorm_parts_own_rows(args);
  else
    gemm_linear_residual_rmsnorm_parts_of_parts(args);
}

/// y = x weight^T, scaled row by row.
template <class Args>
inline void gemm_deferred_rmsnorm_linear(const Args& args) {
  wide_run<1>(
      args, wide_rows(args, args.x), [&] { find_scales(args); }, PutOutput<true>{});
}
/// What an epilogue makes of x gate^T and x up^T.
template <class Args>
inline void gemm_gate_up(const Args& args) {
  wide_run<2>(
      args, wide_rows(args, args.x), [] {}, PutOutput<false>{});
}
/// The same of both scaled row by row.
template <class Args>
inline void gemm_deferred_rmsnorm_gate_up(const Args& args) {
  wide_run<2>(
      args, wide_rows(args, args.x), [&] { find_scales(args); }, PutOutput<true>{});
}

}  // namespace megalith::kernels
