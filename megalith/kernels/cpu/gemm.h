// Matrix products with weights in panels (kernels/panel_layout.h) and many rows of activations, those of a prompt: a
// block of rows against a few panels, all sums in registers. A register of weights is widened once for all rows of the
// block and an activation is broadcast once for all panels, so the fused multiply-adds are what takes time.
//
// A sum is formed as in kernels/cpu/gemv.h: even columns one after the other, each term fused; odd ones likewise; then
// the one plus the other. The same bits for any number of rows, any block, tile, worker and machine.
//
// Activations keep their 24 bits. vdpbf16ps would round them to 8; on a Sapphire Rapids it is no gain either: a core
// makes 155 GFLOP/s of fused multiply-adds and 86 of dot products (tests/codegen/speed_test.cpp).
#pragma once

#include "megalith/kernels/cpu/panels.h"
#include "megalith/kernels/row_layout.h"

namespace megalith::kernels {

namespace gemm {

// Rows of a block beside one panel and beside two. AVX-512 has 32 registers: 24 sums, two of weights, an activation.
// AVX2 has 16 of half the width: 12 halves of sums, two of weights, one or two of activations.
#if defined(__AVX512F__) && defined(__AVX512BW__)
inline constexpr int kRowsByOne = 12, kRowsByTwo = 12, kPanels = 2;
#else
inline constexpr int kRowsByOne = 6, kRowsByTwo = 3, kPanels = 1;
#endif
static_assert(rows::kRun == kLanes && kRowsByOne <= rows::kBlock);

/// A number as a type.
template <int N>
struct Size {
  static constexpr int value = N;
};

/// Column `Parity` of a pair, for the 16 rows of a panel.
template <int Parity, class Weight>
MEGALITH_INLINE inline Lanes column_of_pair(const Weight* at) {
  if constexpr (kTogether<Weight> == 1) return one_column(at + Parity * kLanes);
  const LanePair pair = two_columns(at);
  return Parity == 0 ? pair.even : pair.odd;
}

/// Pairs of columns whose even columns are worked through before their odd ones: a register holds sums of the one or of
/// the other. Two panels of bf16 are 16 KB, which stay in the first-level cache for the second time.
inline constexpr i64 kStepsAtATime = 128;

/// sum[r][p][i] = sum over k of x[r][k] * panel[p][k][i], for a block of rows packed by pack_rows(). While it reads these
/// panels it asks for the same place of those that stand `ahead` elements further on: the hardware's prefetchers stop at
/// the end of a page.
template <int Rows, int Panels, class Weight>
[[gnu::noinline]] void tile(f32* sum, const f32* x, const Weight* const* panel, i64 columns, i64 ahead) {
  constexpr int kToL2 = 2;
  constexpr i64 kStep = 2 * kLanes, kSums = Rows * Panels * kLanes, kRunSteps = rows::kRun / 2;
  alignas(64) f32 halves[2][kSums] = {};
  auto half = [&](auto parity, i64 begin, i64 end) MEGALITH_INLINE {
    Lanes part[Rows][Panels];
    for (int r = 0; r < Rows; ++r)
      for (int p = 0; p < Panels; ++p) part[r][p] = Lanes::load(halves[parity.value] + (r * Panels + p) * kLanes);
    auto column = [&](i64 step, const f32* at) MEGALITH_INLINE {
      Lanes w[Panels];
      for (int p = 0; p < Panels; ++p) {
        const Weight* const from = panel[p] + step * kStep;
        w[p] = column_of_pair<parity.value>(from);
        if constexpr (parity.value == 0) __builtin_prefetch(from + ahead, 0, kToL2);
      }
      for (int r = 0; r < Rows; ++r) {
        const Lanes activation = Lanes::broadcast(at[r * rows::kRun]);
        for (int p = 0; p < Panels; ++p) part[r][p].multiply_add(activation, w[p]);
      }
    };
    const f32* run = x + begin / kRunSteps * (Rows * rows::kRun) + parity.value;
    i64 step = begin;
    for (; step + kRunSteps <= end; step += kRunSteps, run += Rows * rows::kRun)
      for (int i = 0; i < kRunSteps; ++i) column(step + i, run + 2 * i);
    for (; step < end; ++step, run += 2) column(step, run);
    for (int r = 0; r < Rows; ++r)
      for (int p = 0; p < Panels; ++p) part[r][p].store(halves[parity.value] + (r * Panels + p) * kLanes);
  };
  // The last column of an odd number of them stands alone where columns do not stand in pairs.
  const i64 even_steps = (columns + 1) / 2, odd_steps = kTogether<Weight> == 1 ? columns / 2 : even_steps;
  for (i64 begin = 0; begin < even_steps; begin += kStepsAtATime) {
    half(Size<0>{}, begin, min(begin + kStepsAtATime, even_steps));
    half(Size<1>{}, begin, min(begin + kStepsAtATime, odd_steps));
  }
  MEGALITH_INDEPENDENT
  for (i64 i = 0; i < kSums; ++i) sum[i] = halves[0][i] + halves[1][i];
}

/// Blocks of rows as tile() is made for, the largest first: run(Size<rows>{}, first row).
template <int Most, class Run>
MEGALITH_INLINE inline void for_blocks(i64 count, Run run) {
  i64 r = 0;
  auto take = [&](auto rows) MEGALITH_INLINE {
    if constexpr (rows.value <= Most)
      for (; r + rows.value <= count; r += rows.value) run(rows, r);
  };
  take(Size<12>{});
  take(Size<8>{});
  take(Size<6>{});
  take(Size<4>{});
  take(Size<3>{});
  take(Size<2>{});
  take(Size<1>{});
}

/// Packs `count` rows for blocks of at most `Most`. value(r) gives a function of the column.
template <int Most, class Value>
MEGALITH_INLINE inline void pack_rows(f32* packed, i64 count, i64 columns, Value value) {
  for_blocks<Most>(count, [&](auto block, i64 first) MEGALITH_INLINE {
    for (int r = 0; r < block.value; ++r) {
      const auto at = value(first + r);
      f32* to = packed + first * rows::packed_row_elements(columns) + r * rows::kRun;
      i64 k = 0;
      for (; k + rows::kRun <= columns; k += rows::kRun, to += block.value * rows::kRun) {
        MEGALITH_INDEPENDENT
        for (i64 i = 0; i < rows::kRun; ++i) to[i] = at(k + i);
      }
      if (k < columns)
        for (i64 i = 0; i < rows::kRun; ++i) to[i] = k + i < columns ? at(k + i) : 0.0f;
    }
  });
}

/// store(r, n, sums, count): what `count` outputs from n on sum up to for row r, for all packed rows and the outputs in
/// [n_begin, n_end). n_begin is a multiple of 16.
template <class Weight, class Store>
MEGALITH_INLINE inline void product(const f32* packed, i64 num_rows, const Weight* weight, i64 columns, i64 n_begin,
                                    i64 n_end, Store store) {
  constexpr int kMost = kPanels == 1 ? kRowsByOne : kRowsByTwo;
  const i64 elements = panel::panel_elements(columns, kTogether<Weight>), end = panel::panels(n_end);
  for (i64 p0 = n_begin / kLanes; p0 < end; p0 += kPanels) {
    const Weight* panels[kPanels];
    for (int p = 0; p < kPanels; ++p) panels[p] = weight + min(p0 + p, end - 1) * elements;
    for_blocks<kMost>(num_rows, [&](auto block, i64 first) MEGALITH_INLINE {
      alignas(64) f32 sum[block.value * kPanels * kLanes];
      tile<block.value, kPanels>(sum, packed + first * rows::packed_row_elements(columns), panels, columns,
                                 kPanels * elements);
      for (int r = 0; r < block.value; ++r)
        for (int p = 0; p < kPanels && p0 + p < end; ++p) {
          const i64 n = (p0 + p) * kLanes;
          store(first + r, n, sum + (r * kPanels + p) * kLanes, min(i64(kLanes), n_end - n));
        }
    });
  }
}

/// The same of two matrices at a time: store(r, n, sums of the one, sums of the other, count).
template <class Weight, class Store>
MEGALITH_INLINE inline void product_of_two(const f32* packed, i64 num_rows, const Weight* one, const Weight* other,
                                           i64 columns, i64 n_begin, i64 n_end, Store store) {
  const i64 elements = panel::panel_elements(columns, kTogether<Weight>);
  for (i64 n = n_begin; n < n_end; n += kLanes) {
    const Weight* const panels[] = {one + n / kLanes * elements, other + n / kLanes * elements};
    for_blocks<kRowsByTwo>(num_rows, [&](auto block, i64 first) MEGALITH_INLINE {
      alignas(64) f32 sum[block.value * 2 * kLanes];
      tile<block.value, 2>(sum, packed + first * rows::packed_row_elements(columns), panels, columns, elements);
      for (int r = 0; r < block.value; ++r)
        store(first + r, n, sum + r * 2 * kLanes, sum + (r * 2 + 1) * kLanes, min(i64(kLanes), n_end - n));
    });
  }
}

}  // namespace gemm

}  // namespace megalith::kernels
