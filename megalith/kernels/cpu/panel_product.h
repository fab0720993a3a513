// Products of a few rows of f32 activations with panels of weights (kernels/panel_layout.h), each weight read once for
// all rows: the inner loops of decoding. From memory they are as fast as memory is.
//
// The sum of an output is formed in one order, however many rows there are and however rows of weights are cut into
// tasks. Of 256 columns: even ones one after the other, fused; odd ones likewise; then the one plus the other. What
// that gives is added block after block, so that a long sum loses no more than a short one. A row of weights is a lane,
// so the order is the same on every machine, and so are the bits. Rows in bf16 have an order of their own
// (kernels/cpu/pairs.h).
#pragma once

#include "megalith/kernels/cpu/pairs.h"

namespace megalith::kernels {

/// Rows of activations that share a weight while it is in a register, panels that are read side by side then, and how
/// many if there are fewer rows: more streams are faster to read, and the faster the loop is out of a cache, the less
/// it holds up memory. docs/cpu.md has what two, four and eight panels get of it.
#if defined(__AVX512F__)
inline constexpr int kProductRows = 4, kProductPanels = 2, kMaxPanels = panel::kMaxPanels;
#else
// 16 registers, of which a Lanes takes two or more. Two panels are those of two matrices.
inline constexpr int kProductRows = 2, kProductPanels = 1, kMaxPanels = 2;
#endif

/// How far ahead of the weights in hand memory is asked for. At the end of panels that is the beginning of those that
/// come next. With four panels 1 to 3 KB are alike; 4 KB costs 3 %, as every multiple of a page is the same set of the
/// first-level cache.
inline constexpr i64 kBytesAhead = 2048;

/// Columns whose products are added up by themselves before they are added to those before.
inline constexpr i64 kBlockColumns = 256;

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
/// Panels that are read side by side.
template <class AnyPanel>
struct Side {
  int count;  // 1, 2, 4 or kMaxPanels
  AnyPanel panels[kMaxPanels];
  const u8* next[kMaxPanels];  // what is read after each of them
};

/// The column, a multiple of `step`, from which on what comes next is asked for. Before, it is the panel in hand.
MEGALITH_INLINE inline i64 column_to_go_on(i64 K, i64 column_bytes, i64 step) {
  return max(i64(0), K - kBytesAhead / column_bytes) / step * step;
}

/// Sums of products of columns of one panel each with `Rows` rows.
template <int Rows, int Panels, class Weight>
struct PairSums {
  Lanes even[Rows][Panels], odd[Rows][Panels];

  /// Columns [begin, end), of which those from `last` on ask for what comes next; begin and last are even.
  MEGALITH_INLINE void set(const f32* x, i64 x_stride, const Side<Panel<Weight>>& side, i64 begin, i64 end, i64 last) {
    constexpr i64 kColumnBytes = kLanes * sizeof(Weight);
    for (int r = 0; r < Rows; ++r)
      for (int p = 0; p < Panels; ++p) even[r][p] = odd[r][p] = Lanes::zero();
    auto columns = [&](i64 from, i64 to, auto asked) MEGALITH_INLINE {
      for (i64 k = from; k < to; k += 2) {
        Lanes x_even[Rows], x_odd[Rows];
        for (int r = 0; r < Rows; ++r) {
          x_even[r] = Lanes::broadcast(x[r * x_stride + k]);
          x_odd[r] = Lanes::broadcast(x[r * x_stride + k + 1]);
        }
        for (int p = 0; p < Panels; ++p) {
          const Weight* const at = side.panels[p].weights + k * kLanes;
          for (i64 line = 0; line < 2 * kColumnBytes; line += 64)
            __builtin_prefetch(asked(p, reinterpret_cast<const u8*>(at), (k - last) * kColumnBytes) + line);
          const LanePair weight = two_columns(at);
          for (int r = 0; r < Rows; ++r) {
            even[r][p].multiply_add(x_even[r], weight.even);
            odd[r][p].multiply_add(x_odd[r], weight.odd);
          }
        }
      }
    };
    const i64 whole = end - (end - begin) % 2, cut = clamp(last, begin, whole);
    columns(begin, cut, [&](int, const u8* at, i64) MEGALITH_INLINE { return at + kBytesAhead; });
    columns(cut, whole, [&](int p, const u8*, i64 byte) MEGALITH_INLINE { return side.next[p] + byte; });
    if (whole < end)
      for (int p = 0; p < Panels; ++p) {
        const Lanes weight = one_column(side.panels[p].weights + whole * kLanes);
        for (int r = 0; r < Rows; ++r) even[r][p].multiply_add(Lanes::broadcast(x[r * x_stride + whole]), weight);
      }
  }
};

/// to[r][p] = the sums of the 16 outputs of panel p for row r.
template <int Rows, int Panels, class Weight>
MEGALITH_INLINE inline void panel_block(f32* to, const f32* x, i64 x_stride, const Side<Panel<Weight>>& side, i64 K) {
  const i64 last = column_to_go_on(K, kLanes * sizeof(Weight), 2);
  Lanes total[Rows][Panels];
  for (auto& of_row : total)
    for (Lanes& one : of_row) one = Lanes::zero();
  for (i64 begin = 0; begin < K; begin += kBlockColumns) {
    PairSums<Rows, Panels, Weight> sums;
    sums.set(x, x_stride, side, begin, min(begin + kBlockColumns, K), last);
    for (int r = 0; r < Rows; ++r)
      for (int p = 0; p < Panels; ++p) total[r][p] = sum(total[r][p], sum(sums.even[r][p], sums.odd[r][p]));
  }
  for (int r = 0; r < Rows; ++r)
    for (int p = 0; p < Panels; ++p) total[r][p].store(to + (r * Panels + p) * kLanes);
}

/// The same for rows in bf16, which have an even number of columns; weights of the one behind an odd K are zeros.
template <int Rows, int Panels>
MEGALITH_INLINE inline void panel_block(f32* to, const bf16* x, i64 x_stride, const Side<Panel<bf16>>& side, i64 K) {
  constexpr i64 kStep = 2 * kLanes, kStepBytes = kStep * sizeof(bf16);
  PairSum sum[Rows][Panels];
  auto steps = [&](i64 begin, i64 end, auto asked) MEGALITH_INLINE {
    for (i64 first = begin; first < end; first += kStepsOfSum) {
      const i64 last = min(first + kStepsOfSum, end);
      for (i64 step = first; step < last; ++step) {
        Pairs activation[Rows];
        for (int r = 0; r < Rows; ++r) activation[r] = broadcast_pair(x + r * x_stride + 2 * step);
        for (int p = 0; p < Panels; ++p) {
          const bf16* const at = side.panels[p].weights + step * kStep;
          __builtin_prefetch(asked(p, reinterpret_cast<const u8*>(at), (step - begin) * kStepBytes));
          const Pairs weight = load_pairs(at);
          for (int r = 0; r < Rows; ++r) sum[r][p].multiply_add(activation[r], weight);
        }
      }
      for (auto& of_row : sum)
        for (PairSum& one : of_row) one.fold();
    }
  };
  const i64 cut = column_to_go_on(K, kLanes * sizeof(bf16), kUsesTiles ? 2 * kStepsOfSum : 2) / 2;
  steps(0, cut, [&](int, const u8* at, i64) MEGALITH_INLINE { return at + kBytesAhead; });
  steps(cut, (K + 1) / 2, [&](int p, const u8*, i64 byte) MEGALITH_INLINE { return side.next[p] + byte; });
  for (int r = 0; r < Rows; ++r)
    for (int p = 0; p < Panels; ++p) sum[r][p].total().store(to + (r * Panels + p) * kLanes);
}

/// Rows one behind the other, `stride` elements apart.
template <class X>
struct PlainRows {
  const X* x;
  i64 stride, count;
};

/// f(Count<panels>) for as many as there are side by side.
template <int Most, class F>
MEGALITH_INLINE inline void for_count(int count, F f) {
  if constexpr (Most >= 8)
    if (count == 8) return f(Count<8>{});
  if constexpr (Most >= 4)
    if (count == 4) return f(Count<4>{});
  count == 2 ? f(Count<2>{}) : f(Count<1>{});
}

/// panel_block() of `rows` rows, kProductRows or 1. One function for all operators: what is inlined into each of them
/// takes as long to compile as it is large.
template <class Weight, class X>
MEGALITH_SHARED void panel_sums(f32* to, i64 rows, const X* x, i64 x_stride, const Side<Panel<Weight>>& side, i64 K) {
  if (rows > 1)
    return for_count<2>(side.count, [&](auto panels) MEGALITH_INLINE {
      panel_block<kProductRows, panels.value>(to, x, x_stride, side, K);
    });
  for_count<kMaxPanels>(side.count,
                        [&](auto panels) MEGALITH_INLINE { panel_block<1, panels.value>(to, x, x_stride, side, K); });
}

/// Panels that are read side by side for so many rows: two at most unless they are multiplied one at a time.
template <class X>
MEGALITH_INLINE inline int panels_at_a_time(const PlainRows<X>& rows) {
  return rows.count < kProductRows && kMaxPanels > 2 ? kMaxPanels : kProductPanels;
}

/// store(t, p, sums of 16 outputs) for any number of rows: weights come from memory with the first of them, and are in
/// the cache for the rest.
template <class X, class AnyPanel, class Store>
MEGALITH_INLINE inline void panel_rows(const PlainRows<X>& plain, const Side<AnyPanel>& side, i64 K, Store store) {
  alignas(64) f32 sums[kProductRows * kMaxPanels * kLanes];
  for (i64 t = 0, rows = 0; t < plain.count; t += rows) {
    rows = plain.count - t >= kProductRows ? kProductRows : 1;
    panel_sums(sums, rows, plain.x + t * plain.stride, plain.stride, side, K);
    for (i64 r = 0; r < rows; ++r)
      for (int p = 0; p < side.count; ++p)
        store(t + r, p, static_cast<const f32*>(sums + (r * side.count + p) * kLanes));
  }
}

/// Panels of a matrix of K columns.
template <i64 K, class Weight>
MEGALITH_INLINE inline auto panels_of(const Weight* weight) {
  return [=](i64 n) MEGALITH_INLINE {
    return Panel<Weight>{weight + n / kLanes * panel::panel_elements(K, kTogether<Weight>)};
  };
}

}  // namespace megalith::kernels
