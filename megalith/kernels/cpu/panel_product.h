// Products of a few rows of f32 activations with panels of weights (kernels/panel_layout.h), each weight read once for
// all rows: the inner loops of decoding. From memory they are as fast as memory is.
//
// The sum of an output is formed in one order, however many rows there are and however rows of weights are cut into
// tasks: even columns one after the other, fused; odd ones likewise; then the one plus the other. With weights in int8
// that is so within each group of columns that share a scale, and what comes out, times the scale, is added group after
// group. A row of weights is a lane, so the order is the same on every machine, and so are the bits.
#pragma once

#include "megalith/kernels/cpu/panels.h"

namespace megalith::kernels {

/// Rows of activations that share a weight while it is in a register, and panels that are read side by side. Two panels
/// give as many sums in flight as a fused multiply-add takes cycles, even with one row, and two streams keep the
/// prefetcher of the hardware busy while one of them crosses a page.
#if defined(__AVX512F__)
inline constexpr int kProductRows = 4, kProductPanels = 2;
#else
inline constexpr int kProductRows = 2, kProductPanels = 1;  // 16 registers, of which a Lanes takes two or more
#endif

/// How far ahead of the weights in hand memory is asked for: the stream goes on over panels and the end of the task,
/// whose next one most likely reads on from there. Of short panels it is the same place of those that come next, where
/// 4 KB would be in the middle of the other one that is read side by side.
inline constexpr i64 kBytesAhead = 4096, kMostBytesAhead = 16384;

/// A number as a type, so that a lambda can be told how large its block is.
template <int N>
struct Count {
  static constexpr int value = N;
};

/// One panel of floats.
template <class Weight>
struct Panel {
  const Weight* weights;
};
/// One panel of int8, and the panel of its scales, one for each row and `Group` columns.
template <class Scale, i64 Group>
struct QuantPanel {
  const i8* weights;
  const Scale* scales;
};

/// Products of columns [begin, end) of one panel each with `Rows` rows; begin is even. `First`: weights come from
/// memory.
template <int Rows, bool First, int Panels, class Weight>
struct PairSums {
  Lanes even[Rows][Panels], odd[Rows][Panels];

  MEGALITH_INLINE void add(const f32* x, i64 x_stride, const Weight* const (&panels)[Panels], i64 begin, i64 end,
                           i64 ahead) {
    for (int r = 0; r < Rows; ++r)
      for (int p = 0; p < Panels; ++p) even[r][p] = odd[r][p] = Lanes::zero();
    i64 k = begin;
    for (; k + 2 <= end; k += 2) {
      Lanes x_even[Rows], x_odd[Rows];
      for (int r = 0; r < Rows; ++r) {
        x_even[r] = Lanes::broadcast(x[r * x_stride + k]);
        x_odd[r] = Lanes::broadcast(x[r * x_stride + k + 1]);
      }
      for (int p = 0; p < Panels; ++p) {
        const Weight* const at = panels[p] + k * kLanes;
        if (First)
          for (u64 line = 0; line < 2 * kLanes * sizeof(Weight); line += 64)
            __builtin_prefetch(reinterpret_cast<const u8*>(at) + ahead + line);
        const LanePair weight = two_columns(at);
        for (int r = 0; r < Rows; ++r) {
          even[r][p].multiply_add(x_even[r], weight.even);
          odd[r][p].multiply_add(x_odd[r], weight.odd);
        }
      }
    }
    if (k < end)
      for (int p = 0; p < Panels; ++p) {
        const Lanes weight = one_column(panels[p] + k * kLanes);
        for (int r = 0; r < Rows; ++r) even[r][p].multiply_add(Lanes::broadcast(x[r * x_stride + k]), weight);
      }
  }
};

/// to[r][p] = the sums of the 16 outputs of panel p for row r.
template <int Rows, bool First, class Weight, int Panels>
MEGALITH_INLINE inline void panel_block(f32* to, const f32* x, i64 x_stride, const Panel<Weight> (&panels)[Panels],
                                        i64 K, i64 ahead) {
  const Weight* weights[Panels];
  for (int p = 0; p < Panels; ++p) weights[p] = panels[p].weights;
  PairSums<Rows, First, Panels, Weight> sums;
  sums.add(x, x_stride, weights, 0, K, ahead);
  for (int r = 0; r < Rows; ++r)
    for (int p = 0; p < Panels; ++p) sum(sums.even[r][p], sums.odd[r][p]).store(to + (r * Panels + p) * kLanes);
}

template <int Rows, bool First, class Scale, i64 Group, int Panels>
MEGALITH_INLINE inline void panel_block(f32* to, const f32* x, i64 x_stride,
                                        const QuantPanel<Scale, Group> (&panels)[Panels], i64 K, i64 ahead) {
  static_assert(Group % 2 == 0);
  const i8* weights[Panels];
  Lanes total[Rows][Panels];
  for (int p = 0; p < Panels; ++p) {
    weights[p] = panels[p].weights;
    for (int r = 0; r < Rows; ++r) total[r][p] = Lanes::zero();
  }
  auto group = [&](i64 g, const Lanes(&scales)[Panels]) MEGALITH_INLINE {
    PairSums<Rows, First, Panels, i8> sums;
    sums.add(x, x_stride, weights, g * Group, min((g + 1) * Group, K), ahead);
    for (int r = 0; r < Rows; ++r)
      for (int p = 0; p < Panels; ++p) total[r][p].multiply_add(scales[p], sum(sums.even[r][p], sums.odd[r][p]));
  };
  i64 g = 0;
  for (; (g + 1) * Group < K; g += 2) {
    Lanes even[Panels], odd[Panels];
    for (int p = 0; p < Panels; ++p) {
      const LanePair scales = two_columns(panels[p].scales + g * kLanes);
      even[p] = scales.even;
      odd[p] = scales.odd;
    }
    group(g, even);
    group(g + 1, odd);
  }
  if (g * Group < K) {
    Lanes last[Panels];
    for (int p = 0; p < Panels; ++p) last[p] = one_column(panels[p].scales + g * kLanes);
    group(g, last);
  }
  for (int r = 0; r < Rows; ++r)
    for (int p = 0; p < Panels; ++p) total[r][p].store(to + (r * Panels + p) * kLanes);
}

/// Rows one behind the other, `stride` elements apart.
struct PlainRows {
  const f32* x;
  i64 stride, count;
};

template <class Weight>
Weight weight_of(const Weight* weights);

/// panel_block() of `rows` rows, kProductRows or 1. One function for all operators: what is inlined into each of them
/// takes as long to compile as it is large.
template <class AnyPanel, int Panels>
[[gnu::noinline]] void panel_sums(f32* to, i64 rows, bool first, const f32* x, i64 x_stride,
                                  const AnyPanel (&panels)[Panels], i64 K) {
  using Weight = decltype(weight_of(panels[0].weights));
  const i64 bytes = panel::panel_elements(K, kTogether<Weight>) * static_cast<i64>(sizeof(Weight));
  const bool neighbours = Panels == 2 && panels[Panels - 1].weights == panels[0].weights + bytes / i64(sizeof(Weight));
  const i64 next = neighbours ? 2 * bytes : bytes, ahead = next <= kMostBytesAhead ? next : kBytesAhead;
  if (rows > 1)
    first ? panel_block<kProductRows, true>(to, x, x_stride, panels, K, ahead)
          : panel_block<kProductRows, false>(to, x, x_stride, panels, K, ahead);
  else
    first ? panel_block<1, true>(to, x, x_stride, panels, K, ahead)
          : panel_block<1, false>(to, x, x_stride, panels, K, ahead);
}

/// store(t, p, sums of 16 outputs) for any number of rows: weights come from memory with the first of them, and are in
/// the cache for the rest.
template <class AnyPanel, int Panels, class Store>
MEGALITH_INLINE inline void panel_rows(const PlainRows& plain, const AnyPanel (&panels)[Panels], i64 K, Store store) {
  alignas(64) f32 sums[kProductRows * Panels * kLanes];
  for (i64 t = 0, rows = 0; t < plain.count; t += rows) {
    rows = plain.count - t >= kProductRows ? kProductRows : 1;
    panel_sums(sums, rows, t == 0, plain.x + t * plain.stride, plain.stride, panels, K);
    for (i64 r = 0; r < rows; ++r)
      for (int p = 0; p < Panels; ++p) store(t + r, p, static_cast<const f32*>(sums + (r * Panels + p) * kLanes));
  }
}

/// Panels of a matrix of K columns.
template <i64 K, class Weight>
MEGALITH_INLINE inline auto panels_of(const Weight* weight) {
  return [=](i64 n) MEGALITH_INLINE {
    return Panel<Weight>{weight + n / kLanes * panel::panel_elements(K, kTogether<Weight>)};
  };
}
template <i64 K, i64 Group, class Scale>
MEGALITH_INLINE inline auto panels_of(const i8* weight, const Scale* scale) {
  return [=](i64 n) MEGALITH_INLINE {
    return QuantPanel<Scale, Group>{
        weight + n / kLanes * panel::panel_elements(K, panel::kSingle),
        scale + n / kLanes * panel::panel_elements((K + Group - 1) / Group, kTogether<Scale>)};
  };
}

}  // namespace megalith::kernels
