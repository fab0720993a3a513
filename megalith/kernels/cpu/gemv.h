// The operators that are matrix products with weights in panels: what comes before the product, and what is done with
// it. A few rows of activations are taken as they are (kernels/cpu/panel_product.h), many are packed
// (kernels/cpu/gemm.h, and kernels/cpu/tiles.h where there are tile registers); the sums have the same order and the
// same bits. For weights in int8 they become whole numbers (kernels/cpu/quant_product.h).
#pragma once

#include "megalith/kernels/cpu/gemm.h"
#include "megalith/kernels/cpu/quant_product.h"
#include "megalith/kernels/cpu/tiles.h"
#include "megalith/kernels/cpu/workspace.h"

namespace megalith::kernels {

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

/// The most rows that there may be at a time.
template <class Args>
constexpr i64 rows_most() {
  if constexpr (requires { Args::T_largest; })
    return Args::T_largest;
  else
    return Args::T;
}

/// What rows are packed for: blocks of so many for one panel or for two at a time, or products with int8.
enum class Pack { for_one, for_two, digits };
constexpr int block_rows(Pack pack) { return pack == Pack::for_two ? gemm::kRowsByTwo : gemm::kRowsByOne; }

/// Rows of digits that are worked on together.
template <class Digits, i64 kRows>
struct DigitSpace {
  alignas(64) i32 words[kRows * Digits::kRowWords];
  digits::Block blocks[kRows * Digits::kBlocks];
};

/// What activations become before they are multiplied with the weights of a task.
template <class Args>
constexpr auto weights_of(const Args& a) {
  if constexpr (requires { a.weight; })
    return a.weight;
  else
    return a.gate;
}
template <class Weight>
Activation<Weight> activation_for(const Weight*);
template <class Args>
using ActivationOf = decltype(activation_for(weights_of(*static_cast<const Args*>(nullptr))));

/// f(t0, rows) for the rows from t0 on, a few or many at a time. value(t) gives a function of the column.
template <Pack kPack, class Args, class Value, class F>
MEGALITH_INLINE inline void with_values(const Args& a, Value value, F f) {
  constexpr i64 K = Args::K;
  const i64 begin = rows_begin(a), end = rows_end(a);
  if constexpr (kPack == Pack::digits) {
    typedef digits::Rows<K, Args::L> Digits;
    constexpr i64 kMany = digit_layout::together(rows_most<Args>(), K, Args::L, kDigitRows);
    auto* const space = workspace<DigitSpace<Digits, kMany>, 1>(a);
    for (i64 t0 = begin; t0 < end; t0 += kMany) {
      const Digits rows{space->words, space->blocks, min(kMany, end - t0)};
      for (i64 r = 0; r < rows.count; ++r) rows.set(r, value(t0 + r));
      f(t0, rows);
    }
  } else {
    typedef ActivationOf<Args> X;
    constexpr bool kInTiles = kUsesTiles && __is_same(X, bf16);
    constexpr i64 kMany = rows::together(rows_most<Args>(), K, sizeof(X));
    if constexpr (kInTiles && rows_most<Args>() >= rows::kFewest) {
      if (end - begin >= rows::kFewest) {
        constexpr i64 kTogether = rows::in_tiles_together(rows_most<Args>(), K);
        constexpr i64 kElements = kTogether * rows::tile_row_elements(K);
        bf16* const packed = workspace<bf16, rows::tile_bytes(rows_most<Args>(), K) / sizeof(bf16)>(a);
        for (i64 t0 = begin; t0 < end; t0 += kTogether) {
          const i64 count = min(kTogether, end - t0);
          const auto* const x = a.x + t0 * K;
          tiles::pack_rows(
              packed, count, K, [&](i64 r, i64 k) MEGALITH_INLINE { prefetch_columns(x + r * K + k); },
              [&](i64 r) MEGALITH_INLINE { return value(t0 + r); });
          f(t0, tiles::Rows{packed, reinterpret_cast<f32*>(packed + kElements), count});
        }
        return;
      }
    } else if constexpr (kMany >= rows::kFewest) {
      if (end - begin >= rows::kFewest) {
        X* const packed = workspace<X, kMany * rows::packed_row_elements(K)>(a);
        for (i64 t0 = begin; t0 < end; t0 += kMany) {
          const i64 count = min(kMany, end - t0);
          gemm::pack_rows<block_rows(kPack)>(packed, count, K, [&](i64 r) MEGALITH_INLINE { return value(t0 + r); });
          f(t0, PackedRows<block_rows(kPack), X>{packed, count});
        }
        return;
      }
    }
    constexpr i64 kStride = rows::staged_row_elements(K), kFew = rows::staged(rows_most<Args>());
    X* const plain = workspace<X, kFew * kStride>(a);
    for (i64 t0 = begin; t0 < end; t0 += kFew) {
      const i64 count = min(kFew, end - t0);
      for (i64 r = 0; r < count; ++r) {
        const auto at = value(t0 + r);
        MEGALITH_INDEPENDENT
        for (i64 k = 0; k < K; ++k) put(plain[r * kStride + k], at(k));
        if constexpr (K % 2 == 1) plain[r * kStride + K] = {};
      }
      f(t0, PlainRows<X>{plain, kStride, count});
    }
  }
}

/// The rows of x as they are.
template <Pack kPack, class Args, class F>
MEGALITH_INLINE inline void with_rows(const Args& a, F f) {
  if constexpr (kPack != Pack::digits) {
    typedef ActivationOf<Args> X;
    if constexpr (__is_same(decltype(a.x), const X*) && (__is_same(X, f32) || Args::K % 2 == 0))
      if (rows_end(a) - rows_begin(a) < rows::kFewest) {
        const i64 t0 = rows_begin(a);
        f(t0, PlainRows<X>{a.x + t0 * Args::K, Args::K, rows_end(a) - t0});
        return;
      }
  }
  with_values<kPack>(
      a,
      [&](i64 t) MEGALITH_INLINE {
        const auto* const x = a.x + t * Args::K;
        return [=](i64 k) MEGALITH_INLINE { return to_f32(x[k]); };
      },
      f);
}

/// The rows of x normalised: x / rms(x) * norm.
template <Pack kPack, class Args, class F>
MEGALITH_INLINE inline void with_normed_rows(const Args& a, F f) {
  constexpr i64 K = Args::K;
  with_values<kPack>(
      a,
      [&](i64 t) MEGALITH_INLINE {
        const auto* const x = a.x + t * K;
        const auto* const norm = a.norm;
        const f32 ss =
            sum_in_lanes(0, K, [&](f32 acc, i64 k) MEGALITH_INLINE { return fma(to_f32(x[k]), to_f32(x[k]), acc); });
        const f32 scale = rsqrt(ss / static_cast<f32>(K) + Args::eps);
        return [=](i64 k) MEGALITH_INLINE { return to_f32(x[k]) * scale * to_f32(norm[k]); };
      },
      f);
}

/// f(panels, n) for outputs n of [n_begin, n_end): as many panels at a time as suit the rows, of `each` matrices side
/// by side, and fewer at the end.
template <class Rows, class F>
MEGALITH_INLINE inline void for_panels(const Rows& rows, int each, i64 n_begin, i64 n_end, F f) {
  int panels = max(panels_at_a_time(rows) / each, 1);
  for (i64 n = n_begin; n < n_end; n += panels * kLanes) {
    while (panels > 1 && n + (panels - 1) * kLanes >= n_end) panels /= 2;
    f(panels, n);
  }
}

template <class AnyPanel>
MEGALITH_INLINE inline const u8* bytes_of(const AnyPanel& panel) {
  return reinterpret_cast<const u8*>(panel.weights);
}

/// Where the panels begin that this worker's next product reads first (runtime/weights_ahead.h).
template <class Args>
MEGALITH_INLINE inline const u8* const* weights_ahead(const Args& a) {
  if constexpr (requires { a.ahead; }) return a.ahead;
  return nullptr;
}

/// panel_rows(), which only tiles ask with: see there.
template <class Rows, class AnyPanel, class Ask, class Store>
MEGALITH_INLINE inline void multiply_panels(const Rows& rows, const Side<AnyPanel>& side, i64 K, Ask ask, Store store) {
  if constexpr (__is_same(Rows, tiles::Rows))
    panel_rows(rows, side, K, ask, store);
  else
    panel_rows(rows, side, K, store);
}

/// store(t, n, sums, count) for all rows t and outputs n to n + count, at most 16, of [n_begin, n_end). n_begin is a
/// multiple of 16, and n_end as well unless it is the last. ask(t, n) may be called before that. `panel_at(n)`: the panel
/// that begins with row n. `ahead`: what is read after the last panels, if that is known.
template <class Rows, class PanelAt, class Ask, class Store>
MEGALITH_INLINE inline void product(const Rows& rows, PanelAt panel_at, i64 K, i64 n_begin, i64 n_end,
                                    const u8* const* ahead, Ask ask, Store store) {
  for_panels(rows, 1, n_begin, n_end, [&](int count, i64 n) MEGALITH_INLINE {
    Side<decltype(panel_at(n))> side{};
    side.count = count;
    const bool last = ahead && n + count * kLanes >= n_end;
    for (int p = 0; p < count; ++p) {
      side.panels[p] = panel_at(n + p * kLanes);
      side.next[p] = last ? ahead[p] : bytes_of(panel_at(n + (count + p) * kLanes));
    }
    multiply_panels(
        rows, side, K, [&](i64 t, int p) MEGALITH_INLINE { ask(t, n + p * kLanes); },
        [&](i64 t, int p, const f32* sums)
            MEGALITH_INLINE { store(t, n + p * kLanes, sums, min(i64(kLanes), n_end - n - p * kLanes)); });
  });
}

/// How rows are packed for product(): for as many panels as it takes at a time.
inline constexpr Pack kProductPack = kProductPanels == 2 ? Pack::for_two : Pack::for_one;

template <class Args, class PanelAt, class Rows>
MEGALITH_INLINE inline void linear_rows(const Args& a, PanelAt weight, i64 t0, const Rows& rows) {
  product(
      rows, weight, Args::K, a.n_begin, a.n_end, weights_ahead(a),
      [&](i64 t, i64 n) MEGALITH_INLINE { prefetch_output(a.y + (t0 + t) * Args::N + n); },
      [&](i64 t, i64 n, const f32* sums, i64 outputs)
          MEGALITH_INLINE { put_lanes(a.y + (t0 + t) * Args::N + n, Lanes::load(sums), outputs); });
}

/// Panels of the two matrices in turn.
template <class Args, class PanelAt, class Rows>
MEGALITH_INLINE inline void gate_up_rows(const Args& a, PanelAt gate_at, PanelAt up_at, i64 t0, const Rows& rows) {
  const u8* const* const ahead = weights_ahead(a);
  for_panels(rows, 2, a.n_begin, a.n_end, [&](int count, i64 n0) MEGALITH_INLINE {
    Side<decltype(gate_at(n0))> side{};
    side.count = 2 * count;
    const bool last = ahead && n0 + count * kLanes >= a.n_end;
    for (int p = 0; p < count; ++p) {
      side.panels[2 * p] = gate_at(n0 + p * kLanes);
      side.panels[2 * p + 1] = up_at(n0 + p * kLanes);
      side.next[2 * p] = last ? ahead[2 * p] : bytes_of(gate_at(n0 + (count + p) * kLanes));
      side.next[2 * p + 1] = last ? ahead[2 * p + 1] : bytes_of(up_at(n0 + (count + p) * kLanes));
    }
    f32 gate[kLanes];
    multiply_panels(
        rows, side, Args::K,
        [&](i64 t, int p) MEGALITH_INLINE {
          if (p % 2 == 0) prefetch_output(a.y + (t0 + t) * Args::N + n0 + p / 2 * kLanes);
        },
        [&](i64 t, int p, const f32* sums) MEGALITH_INLINE {
          if (p % 2 == 0) {
            for (int l = 0; l < kLanes; ++l) gate[l] = sums[l];
            return;
          }
          const i64 n = n0 + p / 2 * kLanes, outputs = min(i64(kLanes), a.n_end - n);
          put_gated_lanes(a.y + (t0 + t) * Args::N + n, gate, sums, outputs);
        });
  });
}

/// y = x weight^T. Operator `linear`.
template <class Args>
inline void gemv(const Args& a) {
  with_rows<kProductPack>(
      a, [&](i64 t0, const auto& rows) MEGALITH_INLINE { linear_rows(a, panels_of<Args::K>(a.weight), t0, rows); });
}
template <class Args>
inline void gemv_int8(const Args& a) {
  with_rows<Pack::digits>(a, [&](i64 t0, const auto& rows) MEGALITH_INLINE {
    linear_rows(a, panels_of<Args::K, Args::L>(a.weight, a.scale), t0, rows);
  });
}

/// y = rmsnorm(x) weight^T. Operator `rmsnorm_linear`.
template <class Args>
inline void rmsnorm_gemv(const Args& a) {
  with_normed_rows<kProductPack>(
      a, [&](i64 t0, const auto& rows) MEGALITH_INLINE { linear_rows(a, panels_of<Args::K>(a.weight), t0, rows); });
}
template <class Args>
inline void rmsnorm_gemv_int8(const Args& a) {
  with_normed_rows<Pack::digits>(a, [&](i64 t0, const auto& rows) MEGALITH_INLINE {
    linear_rows(a, panels_of<Args::K, Args::L>(a.weight, a.scale), t0, rows);
  });
}

/// What an epilogue makes of x gate^T and x up^T. Operator `gate_up`, and those of other gates.
template <class Args>
inline void gate_up_gemv(const Args& a) {
  with_rows<Pack::for_two>(a, [&](i64 t0, const auto& rows) MEGALITH_INLINE {
    gate_up_rows(a, panels_of<Args::K>(a.gate), panels_of<Args::K>(a.up), t0, rows);
  });
}
template <class Args>
inline void gate_up_gemv_int8(const Args& a) {
  with_rows<Pack::digits>(a, [&](i64 t0, const auto& rows) MEGALITH_INLINE {
    gate_up_rows(a, panels_of<Args::K, Args::L>(a.gate, a.gate_scale), panels_of<Args::K, Args::L>(a.up, a.up_scale),
                 t0, rows);
  });
}

/// The same of rmsnorm(x). Operator `rmsnorm_gate_up`.
template <class Args>
inline void rmsnorm_gate_up_gemv(const Args& a) {
  with_normed_rows<Pack::for_two>(a, [&](i64 t0, const auto& rows) MEGALITH_INLINE {
    gate_up_rows(a, panels_of<Args::K>(a.gate), panels_of<Args::K>(a.up), t0, rows);
  });
}
template <class Args>
inline void rmsnorm_gate_up_gemv_int8(const Args& a) {
  with_normed_rows<Pack::digits>(a, [&](i64 t0, const auto& rows) MEGALITH_INLINE {
    gate_up_rows(a, panels_of<Args::K, Args::L>(a.gate, a.gate_scale), panels_of<Args::K, Args::L>(a.up, a.up_scale),
                 t0, rows);
  });
}

}  // namespace megalith::kernels
