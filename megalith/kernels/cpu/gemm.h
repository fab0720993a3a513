// Matrix products with packed bf16 weights (kernels/panel_layout.h) and f32 activations: a block of rows of activations
// against a few panels, all sums in registers. A register of weights is widened once for all rows of the block, an
// activation is broadcast once for all panels; so with enough rows the fused multiply-adds are what takes time, and
// with one row it is memory.
//
// A sum is formed as in kernels/cpu/gemv.h: even columns one after the other, each term fused; odd ones likewise; then the
// one plus the other. The same bits for any number of rows, any block, tile, worker and machine. Activations keep their 24 bits. vdpbf16ps would round them to 8, and on a Sapphire Rapids gains nothing
// for it: it multiplies 32 pairs a cycle, as two fused multiply-adds do (docs/performance/README.md).
#pragma once

#include "megalith/kernels/cpu/lanes.h"
#include "megalith/kernels/panel_layout.h"

namespace megalith::kernels {

namespace gemm {

// Rows of a block at most, and panels beside it. AVX-512: 24 sums, 4 registers of weights, an activation. AVX2 has half
// as many registers of half the width.
#if defined(__AVX512F__) && defined(__AVX512BW__)
inline constexpr int kRows = 12, kPanels = 2;
#else
inline constexpr int kRows = 4, kPanels = 1;
#endif

/// A number as a type.
template <int N>
struct Count {
  static constexpr int value = N;
};

/// Columns that lie together for each row of packed activations: whole vectors are copied, and the rows of a block stand
/// close enough to share few sets of the cache.
inline constexpr i64 kRun = kLanes;
constexpr i64 runs(i64 columns) { return (columns + kRun - 1) / kRun; }

/// Rows whose packed activations are worked on together: so many that they stay in the second-level cache beside the
/// panels, 512 KB of 1 MB, while each panel passes by once.
constexpr i64 rows_together(i64 columns, i64 rows) {
  const i64 fit = (512 << 10) / (runs(columns) * kRun * 4) / kRows * kRows;
  const i64 wanted = fit < kRows ? kRows : fit;
  return rows < wanted ? rows : wanted;
}
/// Scratch for them.
constexpr i64 packed_bytes(i64 columns, i64 rows) { return rows_together(columns, rows) * runs(columns) * kRun * 4; }

/// Column `Parity` of a pair, for the 16 rows of a panel. A bf16 is the upper half of an f32.
template <int Parity>
MEGALITH_INLINE inline Lanes column_of_pair(const bf16* w) {
  [[maybe_unused]] auto widen = [](auto both) MEGALITH_INLINE { return Parity == 0 ? both << 16 : both & 0xffff0000u; };
#if defined(__AVX512F__) && defined(__AVX512BW__)
  typedef u32 Words __attribute__((vector_size(64), aligned(4), may_alias));
  return {reinterpret_cast<Lanes::Vector>(widen(*reinterpret_cast<const Words*>(w)))};
#elif defined(__AVX2__) && defined(__FMA__)
  typedef u32 Words __attribute__((vector_size(32), aligned(4), may_alias));
  return {reinterpret_cast<Lanes::Half>(widen(reinterpret_cast<const Words*>(w)[0])),
          reinterpret_cast<Lanes::Half>(widen(reinterpret_cast<const Words*>(w)[1]))};
#else
  Lanes column;
  for (int l = 0; l < kLanes; ++l) column.v[l] = to_f32(w[2 * l + Parity]);
  return column;
#endif
}

/// Pairs of columns whose even columns are worked through before their odd ones: a register holds sums of the one or of
/// the other, and of two panels they are 16 KB, which stay in the first-level cache for the second time.
inline constexpr i64 kStepsAtATime = 128;

/// sum[r][p][i] = sum over k of x[r][k] * panel[p][k][i], for a block of rows packed by pack_rows() and `steps` pairs of
/// columns. While it reads these panels it asks for the same place of those that stand `ahead` elements further on:
/// the hardware's prefetchers stop at the end of a page.
template <int Rows, int Panels>
[[gnu::noinline]] void tile(f32* sum, const f32* x, const bf16* const* panel, i64 steps, i64 ahead) {
  constexpr int kToL2 = 2;
  constexpr i64 kStep = panel::kRows * panel::kPair, kSums = Rows * Panels * kLanes;
  alignas(64) f32 halves[2][kSums] = {};
  auto half = [&](auto parity, i64 begin, i64 end) MEGALITH_INLINE {
    Lanes part[Rows][Panels];
    for (int r = 0; r < Rows; ++r)
      for (int p = 0; p < Panels; ++p) part[r][p] = Lanes::load(halves[parity.value] + (r * Panels + p) * kLanes);
    auto column = [&](i64 step, const f32* at) MEGALITH_INLINE {
      Lanes w[Panels];
      for (int p = 0; p < Panels; ++p) {
        const bf16* const from = panel[p] + step * kStep;
        w[p] = column_of_pair<parity.value>(from);
        if constexpr (parity.value == 0) __builtin_prefetch(from + ahead, 0, kToL2);
      }
      for (int r = 0; r < Rows; ++r) {
        const Lanes activation = Lanes::broadcast(at[r * kRun]);
        for (int p = 0; p < Panels; ++p) part[r][p].multiply_add(activation, w[p]);
      }
    };
    const f32* run = x + begin / (kRun / 2) * (Rows * kRun) + parity.value;
    i64 step = begin;
    for (; step + kRun / 2 <= end; step += kRun / 2, run += Rows * kRun)
      for (int i = 0; i < kRun / 2; ++i) column(step + i, run + 2 * i);
    for (; step < end; ++step, run += 2) column(step, run);
    for (int r = 0; r < Rows; ++r)
      for (int p = 0; p < Panels; ++p) part[r][p].store(halves[parity.value] + (r * Panels + p) * kLanes);
  };
  for (i64 begin = 0; begin < steps; begin += kStepsAtATime) {
    half(Count<0>{}, begin, min(begin + kStepsAtATime, steps));
    half(Count<1>{}, begin, min(begin + kStepsAtATime, steps));
  }
  MEGALITH_INDEPENDENT
  for (i64 i = 0; i < kSums; ++i) sum[i] = halves[0][i] + halves[1][i];
}

/// The sizes of blocks that tile() is made for, from the largest on, over `count` rows: run(Count<rows>{}, first row).
template <class Run>
MEGALITH_INLINE inline void for_blocks(i64 count, Run run) {
  i64 r = 0;
  auto take = [&](auto rows) MEGALITH_INLINE {
    if constexpr (rows.value <= kRows)
      for (; r + rows.value <= count; r += rows.value) run(rows, r);
  };
  take(Count<12>{});
  take(Count<8>{});
  take(Count<6>{});
  take(Count<4>{});
  take(Count<3>{});
  take(Count<2>{});
  take(Count<1>{});
}

/// Packs rows for tile(): block after block, of each run of columns the rows one after the other. `row(r, to, stride)`
/// writes row r: run i of its columns to to[i * stride], padded with zeros.
template <class Row>
MEGALITH_INLINE inline void pack_rows(f32* packed, i64 count, i64 columns, Row row) {
  for_blocks(count, [&](auto rows, i64 first) MEGALITH_INLINE {
    for (int r = 0; r < rows.value; ++r)
      row(first + r, packed + first * runs(columns) * kRun + r * kRun, rows.value * kRun);
  });
}

/// Copies `columns` values as pack_rows() wants them, each as value(k).
template <class Value>
MEGALITH_INLINE inline void pack_row(f32* to, i64 stride, i64 columns, Value value) {
  i64 k = 0;
  for (; k + kRun <= columns; k += kRun, to += stride) {
    MEGALITH_INDEPENDENT
    for (i64 i = 0; i < kRun; ++i) to[i] = value(k + i);
  }
  if (k < columns)
    for (i64 i = 0; i < kRun; ++i) to[i] = k + i < columns ? value(k + i) : 0.0f;
}

/// store(r, n, sums, count): the sums of `count` outputs from n on for row r, for all rows in [0, count_rows) and outputs
/// in [n_begin, n_end).
template <class Store>
MEGALITH_INLINE inline void product(const f32* packed, i64 num_rows, const bf16* weight, i64 columns, i64 n_begin,
                                    i64 n_end, Store store) {
  const i64 panel_elements = panel::panel_elements(columns, panel::kPair);
  const i64 steps = panel::steps(columns, panel::kPair);
  const i64 end_panel = panel::panels(n_end);
  auto over = [&](auto rows, i64 first, i64 p0) MEGALITH_INLINE {
    alignas(64) f32 sum[rows.value * kPanels * kLanes];
    const bf16* panel[kPanels];
    for (int p = 0; p < kPanels; ++p) panel[p] = weight + min(p0 + p, end_panel - 1) * panel_elements;
    tile<rows.value, kPanels>(sum, packed + first * runs(columns) * kRun, panel, steps, kPanels * panel_elements);
    for (int r = 0; r < rows.value; ++r)
      for (int p = 0; p < kPanels && p0 + p < end_panel; ++p) {
        const i64 n = (p0 + p) * kLanes, begin = max(n, n_begin), end = min(n + kLanes, n_end);
        store(first + r, begin, sum + (r * kPanels + p) * kLanes + (begin - n), end - begin);
      }
  };
  for (i64 p = n_begin / kLanes; p < end_panel; p += kPanels)
    for_blocks(num_rows, [&](auto rows, i64 first) MEGALITH_INLINE { over(rows, first, p); });
}

}  // namespace gemm

}  // namespace megalith::kernels
