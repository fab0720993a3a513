// Products of many rows of activations, those of a prompt, with panels of weights (kernels/panel_layout.h): a block
// of rows against one or two panels, all sums in registers. A register of weights is widened once for all rows of the
// block and an activation is broadcast once for all panels, so the fused multiply-adds are what takes time.
//
// A sum is formed as in kernels/cpu/panel_product.h: of 256 columns even ones one after the other, each term fused; odd
// ones likewise; the one plus the other; and block after block. The same bits for any number of rows, any block, tile,
// worker and machine. Rows in bf16 are a loop of their own, with sums as in kernels/cpu/pairs.h.
#pragma once

#include "megalith/kernels/cpu/panel_product.h"
#include "megalith/kernels/row_layout.h"

namespace megalith::kernels {

namespace gemm {

// Rows of a block beside two panels and beside one. AVX-512 has 32 registers: 24 sums, two of weights, an activation.
// AVX2 has 16 of half the width: 12 halves of sums, two of weights, one or two of activations.
#if defined(__AVX512F__) && defined(__AVX512BW__)
inline constexpr int kRowsByTwo = 12, kRowsByOne = 12;
#else
inline constexpr int kRowsByTwo = 3, kRowsByOne = 6;
#endif
static_assert(rows::kRun == kLanes && kRowsByOne <= rows::kBlock);

/// Column `Parity` of a pair, for the 16 rows of a panel.
template <int Parity, class Weight>
MEGALITH_INLINE inline Lanes column_of_pair(const Weight* at) {
  if constexpr (kTogether<Weight> == 1) return one_column(at + Parity * kLanes);
  const LanePair pair = two_columns(at);
  return Parity == 0 ? pair.even : pair.odd;
}

/// Pairs of columns whose even columns are worked through before their odd ones: a register holds sums of the one or of
/// the other. Two panels of bf16 are 16 KB, which stay in the first-level cache for the second time.
inline constexpr i64 kStepsAtATime = kBlockColumns / 2;

/// What a block asks for while it is worked on: its share of the panels that come next. All at once, with the first
/// block, they would come no faster and hold up what that block needs itself.
struct Ahead {
  const u8* next[2];  // of each panel
  i64 lines_a_run;    // while a run of columns is worked on
};

/// to[r][p][i] = sum over k of x[r][k] * panel[p][k][i], for a block of rows packed by pack_rows().
template <int Rows, int Panels, class Weight>
MEGALITH_INLINE inline void tile(f32* to, const f32* x, const Weight* const* panel, i64 columns, Ahead ahead) {
  constexpr int kToL2 = 2;
  constexpr i64 kStep = 2 * kLanes, kSums = Rows * Panels * kLanes, kRunSteps = rows::kRun / 2;
  alignas(64) f32 evens[kSums];
  auto half = [&](auto parity, i64 begin, i64 end) MEGALITH_INLINE {
    Lanes part[Rows][Panels];
    for (int r = 0; r < Rows; ++r)
      for (int p = 0; p < Panels; ++p) part[r][p] = Lanes::zero();
    auto column = [&](i64 step, const f32* at) MEGALITH_INLINE {
      Lanes w[Panels];
      for (int p = 0; p < Panels; ++p) { w[p] = column_of_pair<parity.value>(panel[p] + step * kStep); }
      for (int r = 0; r < Rows; ++r) {
        const Lanes activation = Lanes::broadcast(at[r * rows::kRun]);
        for (int p = 0; p < Panels; ++p) part[r][p].multiply_add(activation, w[p]);
      }
    };
    const f32* run = x + begin / kRunSteps * (Rows * rows::kRun) + parity.value;
    for (i64 step = begin; step < end; run += Rows * rows::kRun) {
      if constexpr (parity.value == 0)
        for (i64 line = 0; line < ahead.lines_a_run; ++line)
          for (int p = 0; p < Panels; ++p) {
            __builtin_prefetch(ahead.next[p], 0, kToL2);
            ahead.next[p] += 64;
          }
      if constexpr (parity.value == 0) {
        // Into the first-level cache, for the next run.
        for (int r = 0; r < Rows; ++r) __builtin_prefetch(run + (Rows + r) * rows::kRun);
        for (int p = 0; p < Panels; ++p)
          for (int i = 0; i < kRunSteps; ++i) __builtin_prefetch(panel[p] + (step + kRunSteps + i) * kStep);
      }
      const i64 next = min(step + kRunSteps, end);
      for (const f32* at = run; step < next; ++step, at += 2) column(step, at);
    }
    for (int r = 0; r < Rows; ++r)
      for (int p = 0; p < Panels; ++p) {
        f32 *const even = evens + (r * Panels + p) * kLanes, *const all = to + (r * Panels + p) * kLanes;
        if constexpr (parity.value == 0) {
          part[r][p].store(even);
          if (begin == 0) Lanes::zero().store(all);
        } else {
          sum(Lanes::load(all), sum(Lanes::load(even), part[r][p])).store(all);
        }
      }
  };
  // The last column of an odd number of them stands alone where columns do not stand in pairs.
  const i64 even_steps = (columns + 1) / 2, odd_steps = kTogether<Weight> == 1 ? columns / 2 : even_steps;
  for (i64 begin = 0; begin < even_steps; begin += kStepsAtATime) {
    half(Count<0>{}, begin, min(begin + kStepsAtATime, even_steps));
    half(Count<1>{}, begin, min(begin + kStepsAtATime, odd_steps));
  }
}

/// The same for rows in bf16: a pair of columns of a row and of 16 weights at a time, from the first to the last. Sums
/// of tiles are formed in kernels/cpu/tiles.h.
template <int Rows, int Panels>
MEGALITH_INLINE inline void tile(f32* to, const bf16* x, const bf16* const* panel, i64 columns, Ahead ahead) {
  constexpr int kToL2 = 2;
  constexpr i64 kStep = 2 * kLanes, kRunSteps = rows::kRun / 2;
  PairSum sum[Rows][Panels];
  const bf16* run = x;
  const i64 steps = (columns + 1) / 2;
  for (i64 step = 0; step < steps; run += Rows * rows::kRun) {
    for (i64 line = 0; line < ahead.lines_a_run; ++line)
      for (int p = 0; p < Panels; ++p) {
        __builtin_prefetch(ahead.next[p], 0, kToL2);
        ahead.next[p] += 64;
      }
    // Into the first-level cache, for the next run.
    constexpr i64 kRunBytes = Rows * rows::kRun * sizeof(bf16);
    for (i64 byte = 0; byte < kRunBytes; byte += 64)
      __builtin_prefetch(reinterpret_cast<const u8*>(run) + kRunBytes + byte);
    for (int p = 0; p < Panels; ++p)
      for (int i = 0; i < kRunSteps; ++i) __builtin_prefetch(panel[p] + (step + kRunSteps + i) * kStep);
    const i64 next = min(step + kRunSteps, steps);
    for (const bf16* at = run; step < next; ++step, at += 2) {
      Pairs w[Panels];
      for (int p = 0; p < Panels; ++p) w[p] = load_pairs(panel[p] + step * kStep);
      for (int r = 0; r < Rows; ++r) {
        const Pairs activation = broadcast_pair(at + r * rows::kRun);
        for (int p = 0; p < Panels; ++p) sum[r][p].multiply_add(activation, w[p]);
      }
    }
  }
  for (int r = 0; r < Rows; ++r)
    for (int p = 0; p < Panels; ++p) sum[r][p].total().store(to + (r * Panels + p) * kLanes);
}

/// Rows of the next block where `count` are left: the blocks that tile() is made for.
template <int Most>
MEGALITH_INLINE inline i64 next_block(i64 count) {
  return count >= Most ? Most : Most > 8 && count >= 8 ? 8 : Most > 4 && count >= 4 ? 4 : count >= 2 ? 2 : 1;
}

/// tile() of a block that next_block() chose.
template <int Most, int Panels, class Weight, class X>
MEGALITH_SHARED void any_tile(i64 block, f32* sum, const X* x, const Weight* const* panel, i64 columns, Ahead ahead) {
  if (block == Most) return tile<Most, Panels>(sum, x, panel, columns, ahead);
  if constexpr (Most > 8)
    if (block == 8) return tile<8, Panels>(sum, x, panel, columns, ahead);
  if constexpr (Most > 4)
    if (block == 4) return tile<4, Panels>(sum, x, panel, columns, ahead);
  block == 2 ? tile<2, Panels>(sum, x, panel, columns, ahead) : tile<1, Panels>(sum, x, panel, columns, ahead);
}

/// Packs `count` rows for blocks of at most `Most`. value(r) gives a function of the column.
template <int Most, class X, class Value>
MEGALITH_INLINE inline void pack_rows(X* packed, i64 count, i64 columns, Value value) {
  for (i64 first = 0, block = 0; first < count; first += block) {
    block = next_block<Most>(count - first);
    for (i64 r = 0; r < block; ++r) {
      const auto at = value(first + r);
      X* to = packed + first * rows::packed_row_elements(columns) + r * rows::kRun;
      i64 k = 0;
      for (; k + rows::kRun <= columns; k += rows::kRun, to += block * rows::kRun) {
        MEGALITH_INDEPENDENT
        for (i64 i = 0; i < rows::kRun; ++i) put(to[i], at(k + i));
      }
      if (k < columns)
        for (i64 i = 0; i < rows::kRun; ++i) put(to[i], k + i < columns ? at(k + i) : 0.0f);
    }
  }
}

}  // namespace gemm

/// Rows as gemm::pack_rows() leaves them, for blocks of at most Most.
template <int Most, class X>
struct PackedRows {
  const X* x;
  i64 count;
};

template <int Most, class X>
MEGALITH_INLINE inline int panels_at_a_time(const PackedRows<Most, X>&) {
  return kProductPanels;
}

/// panel_rows() of kernels/cpu/panel_product.h for packed rows.
template <int Most, class X, class Weight, class Store>
MEGALITH_INLINE inline void panel_rows(const PackedRows<Most, X>& packed, const Side<Panel<Weight>>& side, i64 K,
                                       Store store) {
  // A panel that is left alone is multiplied twice: once in a while that takes longer, and each tile more takes its
  // time to compile, always.
  constexpr int kPanels = Most <= gemm::kRowsByTwo ? 2 : 1;
  const Weight* weights[kPanels];
  const u8* next[kPanels];
  for (int p = 0; p < kPanels; ++p) {
    weights[p] = side.panels[p < side.count ? p : 0].weights;
    next[p] = side.next[p < side.count ? p : 0];
  }
  const i64 panel_bytes = panel::panel_elements(K, kTogether<Weight>) * static_cast<i64>(sizeof(Weight));
  const i64 num_runs = rows::runs(K), num_blocks = (packed.count + Most - 1) / Most;
  gemm::Ahead ahead{{}, (panel_bytes / 64 + num_runs * num_blocks - 1) / (num_runs * num_blocks)};
  alignas(64) f32 sum[Most * kPanels * kLanes];
  for (i64 first = 0, block = 0; first < packed.count; first += block) {
    block = gemm::next_block<Most>(packed.count - first);
    for (int p = 0; p < kPanels; ++p) ahead.next[p] = next[p] + panel_bytes * (first / Most) / num_blocks;
    gemm::any_tile<Most, kPanels>(block, sum, packed.x + first * rows::packed_row_elements(K), weights, K, ahead);
    for (i64 r = 0; r < block; ++r)
      for (int p = 0; p < side.count; ++p)
        store(first + r, p, static_cast<const f32*>(sum + (r * kPanels + p) * kLanes));
  }
}

}  // namespace megalith::kernels
