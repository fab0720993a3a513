// Matrix products with bf16 weights, one output feature after the other in memory (N, K), and f32 activations (T, K):
// what nearly all the time of decoding goes into. With one row the weights stream through once and the limit is memory;
// with several, blocks of rows share each weight that was loaded and widened.
//
// The sum of an output is formed as sum_in_lanes() does (kernels/cpu/reduce.h): lane k mod 16, fused, then the tree. It
// is the same for every T, tile and block, and the same bits as the generated body gives.
#pragma once

#include "megalith/kernels/cpu/lanes.h"

namespace megalith::kernels {

/// Outputs and activation rows at a time. Four outputs give as many sums in flight as a fused multiply-add takes
/// cycles, so that none waits for itself even with one row; four rows more give 16 sums, 4 weights and an activation,
/// which the 32 registers of AVX-512 hold. Eight outputs at once are no faster: 15.7 GB/s from DRAM where four give
/// 16.2 (one thread of a Sapphire Rapids, K = 1024; a loop that only reads: 17.2), 53 in L2 where four give 54.
inline constexpr int kProductOutputs = 4, kProductRows = 4;

/// A number as a type, so that a lambda can be told how large its block is.
template <int N>
struct Count {
  static constexpr int value = N;
};

/// y[r][c] = sum over k of x[r][k] * weight[c][k] for a block of `Rows` rows and `Outputs` outputs.
///
/// While it reads one block of weights it asks for the same place of the next, into L2. The hardware's prefetchers stop
/// at the end of a 4 KB page, and a block of a small model is a page or two; asked for by hand, the stream goes on over
/// rows, blocks and the end of the task, whose next one most likely reads on from there. From DRAM, one thread as
/// above: K = 576: 10.1 GB/s without, 16.4 with; K = 1024: 10.8, 16.2; K = 3072: 12.8, 16.3.
template <int Rows, int Outputs, class Store>
MEGALITH_INLINE inline void product_block(const f32* x, i64 x_stride, const bf16* weight, i64 K, Store store) {
  constexpr int kToL2 = 2;
  Lanes sum[Rows][Outputs];
  for (int r = 0; r < Rows; ++r)
    for (int c = 0; c < Outputs; ++c) sum[r][c] = Lanes::zero();
  i64 k = 0;
  for (; k + kLanes <= K; k += kLanes) {
    Lanes activation[Rows];
    for (int r = 0; r < Rows; ++r) activation[r] = Lanes::load(x + r * x_stride + k);
    for (int c = 0; c < Outputs; ++c) {
      const bf16* const at = weight + c * K + k;
      const Lanes w = Lanes::load(at);
      __builtin_prefetch(at + Outputs * K, 0, kToL2);
      for (int r = 0; r < Rows; ++r) sum[r][c].multiply_add(activation[r], w);
    }
  }
  if (k < K)
    for (int c = 0; c < Outputs; ++c) {
      const Lanes w = load_partly(weight + c * K + k, K - k);
      for (int r = 0; r < Rows; ++r) sum[r][c].multiply_add(load_partly(x + r * x_stride + k, K - k), w);
    }
  for (int r = 0; r < Rows; ++r)
    for (int c = 0; c < Outputs; ++c) store(r, c, sum[r][c].sum());
}

/// store(t, n, product) for all rows t in [0, num_rows) and outputs n in [n_begin, n_end). Blocks of outputs outside,
/// rows inside: a block of weights comes from memory once and is in the cache for all further rows.
template <class Store>
MEGALITH_INLINE inline void product(const f32* x, i64 num_rows, const bf16* weight, i64 K, i64 n_begin, i64 n_end,
                                    Store store) {
  auto block = [&](auto rows, auto outputs, i64 t, i64 n) MEGALITH_INLINE {
    product_block<rows.value, outputs.value>(
        x + t * K, K, weight + n * K, K, [&](int r, int c, f32 value) MEGALITH_INLINE { store(t + r, n + c, value); });
  };
  i64 n = n_begin;
  for (; n + kProductOutputs <= n_end; n += kProductOutputs) {
    i64 t = 0;
    for (; t + kProductRows <= num_rows; t += kProductRows)
      block(Count<kProductRows>{}, Count<kProductOutputs>{}, t, n);
    for (; t < num_rows; ++t) block(Count<1>{}, Count<kProductOutputs>{}, t, n);
  }
  for (; n < n_end; ++n)
    for (i64 t = 0; t < num_rows; ++t) block(Count<1>{}, Count<1>{}, t, n);
}

/// Rows of this task: its range where the rows are tiled, all of them where not.
template <class Args>
MEGALITH_INLINE inline i64 rows_begin(const Args& a) {
  if constexpr (requires { a.t_begin; }) return a.t_begin;
  return 0;
}
template <class Args>
MEGALITH_INLINE inline i64 rows_end(const Args& a) {
  if constexpr (requires { a.t_end; }) return a.t_end;
  return a.T;
}

/// y = x weight^T. Operator `linear`.
template <class Args>
inline void gemv(const Args& a) {
  const i64 t0 = rows_begin(a);
  product(a.x + t0 * Args::K, rows_end(a) - t0, a.weight, Args::K, a.n_begin, a.n_end,
          [&](i64 t, i64 n, f32 value) MEGALITH_INLINE { a.y[(t0 + t) * Args::N + n] = value; });
}

/// y = residual + x weight^T. Operator `linear_with_residual`.
template <class Args>
inline void gemv_with_residual(const Args& a) {
  const i64 t0 = rows_begin(a);
  product(a.x + t0 * Args::K, rows_end(a) - t0, a.weight, Args::K, a.n_begin, a.n_end,
          [&](i64 t, i64 n, f32 value) MEGALITH_INLINE {
            const i64 at = (t0 + t) * Args::N + n;
            a.y[at] = a.residual[at] + value;
          });
}

/// y = rmsnorm(x) weight^T. Operator `rmsnorm_linear`: a few rows are normalised at a time, into the stack.
template <class Args>
inline void rmsnorm_gemv(const Args& a) {
  constexpr i64 K = Args::K;
  alignas(64) f32 normed[kProductRows * K];
  for (i64 t0 = rows_begin(a); t0 < rows_end(a); t0 += kProductRows) {
    const i64 num_rows = min(i64(kProductRows), rows_end(a) - t0);
    for (i64 r = 0; r < num_rows; ++r) {
      const f32* const x = a.x + (t0 + r) * K;
      const f32 ss = sum_in_lanes(0, K, [&](f32 acc, i64 k) MEGALITH_INLINE { return fma(x[k], x[k], acc); });
      const f32 scale = rsqrt(ss / static_cast<f32>(K) + Args::eps);
      MEGALITH_INDEPENDENT
      for (i64 k = 0; k < K; ++k) normed[r * K + k] = x[k] * scale * to_f32(a.norm[k]);
    }
    product(normed, num_rows, a.weight, K, a.n_begin, a.n_end,
            [&](i64 t, i64 n, f32 value) MEGALITH_INLINE { a.y[(t0 + t) * Args::N + n] = value; });
  }
}

}  // namespace megalith::kernels
