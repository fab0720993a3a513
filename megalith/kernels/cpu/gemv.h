// The operators that are matrix products with weights in panels, for a few rows of activations: what comes before the
// product, and what is done with it.
#pragma once

#include "megalith/kernels/cpu/panel_product.h"

namespace megalith::kernels {

/// Rows of activations that are worked out beforehand, e.g. normalised, before weights are read.
inline constexpr i64 kStagedRows = 16;

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

MEGALITH_INLINE inline void put(f32& to, f32 value) { to = value; }
MEGALITH_INLINE inline void put(bf16& to, f32 value) { to = to_bf16(value); }
MEGALITH_INLINE inline void put(f16& to, f32 value) { to = to_f16(value); }

/// f(t0, rows, count): the rows [t0, t0 + count) of `x` in f32 at `rows`, a few at a time unless they are f32 already.
template <class Args, class Element, class F>
MEGALITH_INLINE inline void with_rows(const Args& a, const Element* x, F f) {
  alignas(64) f32 wide[kStagedRows * Args::K];
  for (i64 t0 = rows_begin(a); t0 < rows_end(a); t0 += kStagedRows) {
    const i64 count = min(kStagedRows, rows_end(a) - t0);
    MEGALITH_INDEPENDENT
    for (i64 i = 0; i < count * Args::K; ++i) wide[i] = to_f32(x[t0 * Args::K + i]);
    f(t0, static_cast<const f32*>(wide), count);
  }
}
template <class Args, class F>
MEGALITH_INLINE inline void with_rows(const Args& a, const f32* x, F f) {
  const i64 t0 = rows_begin(a);
  f(t0, x + t0 * Args::K, rows_end(a) - t0);
}

/// The same of normalised rows: x / rms(x) * norm.
template <class Args, class F>
MEGALITH_INLINE inline void with_normed_rows(const Args& a, F f) {
  constexpr i64 K = Args::K;
  alignas(64) f32 normed[kStagedRows * K];
  for (i64 t0 = rows_begin(a); t0 < rows_end(a); t0 += kStagedRows) {
    const i64 count = min(kStagedRows, rows_end(a) - t0);
    for (i64 r = 0; r < count; ++r) {
      const auto* const x = a.x + (t0 + r) * K;
      const f32 ss =
          sum_in_lanes(0, K, [&](f32 acc, i64 k) MEGALITH_INLINE { return fma(to_f32(x[k]), to_f32(x[k]), acc); });
      const f32 scale = rsqrt(ss / static_cast<f32>(K) + Args::eps);
      MEGALITH_INDEPENDENT
      for (i64 k = 0; k < K; ++k) normed[r * K + k] = to_f32(x[k]) * scale * to_f32(a.norm[k]);
    }
    f(t0, static_cast<const f32*>(normed), count);
  }
}

template <class Args, class PanelAt>
MEGALITH_INLINE inline void linear_rows(const Args& a, PanelAt weight, i64 t0, const f32* x, i64 count) {
  product(x, count, weight, Args::K, a.n_begin, a.n_end,
          [&](i64 t, i64 n, const f32* sums, i64 outputs) MEGALITH_INLINE {
            for (i64 l = 0; l < outputs; ++l) put(a.y[(t0 + t) * Args::N + n + l], sums[l]);
          });
}

template <class Args, class PanelAt>
MEGALITH_INLINE inline void residual_rows(const Args& a, PanelAt weight) {
  with_rows(a, a.x, [&](i64 t0, const f32* x, i64 count) MEGALITH_INLINE {
    product(x, count, weight, Args::K, a.n_begin, a.n_end,
            [&](i64 t, i64 n, const f32* sums, i64 outputs) MEGALITH_INLINE {
              const i64 at = (t0 + t) * Args::N + n;
              for (i64 l = 0; l < outputs; ++l) put(a.y[at + l], to_f32(a.residual[at + l]) + sums[l]);
            });
  });
}

/// A panel of each of the two matrices at a time.
template <class Args, class PanelAt>
MEGALITH_INLINE inline void gate_up_rows(const Args& a, PanelAt gate_at, PanelAt up_at) {
  with_normed_rows(a, [&](i64 t0, const f32* x, i64 count) MEGALITH_INLINE {
    for (i64 n = a.n_begin; n < a.n_end; n += kLanes) {
      const i64 outputs = min(i64(kLanes), a.n_end - n);
      const decltype(gate_at(n)) panels[] = {gate_at(n), up_at(n)};
      f32 gate[kLanes];
      panel_rows(x, Args::K, count, panels, Args::K, [&](i64 t, int p, const f32* sums) MEGALITH_INLINE {
        if (p == 0) {
          for (int l = 0; l < kLanes; ++l) gate[l] = sums[l] / (1.0f + exp(-sums[l]));
          return;
        }
        for (i64 l = 0; l < outputs; ++l) put(a.y[(t0 + t) * Args::N + n + l], gate[l] * sums[l]);
      });
    }
  });
}

/// y = x weight^T. Operator `linear`.
template <class Args>
inline void gemv(const Args& a) {
  with_rows(a, a.x, [&](i64 t0, const f32* x, i64 count) MEGALITH_INLINE {
    linear_rows(a, panels_of<Args::K>(a.weight), t0, x, count);
  });
}
template <class Args>
inline void gemv_int8(const Args& a) {
  with_rows(a, a.x, [&](i64 t0, const f32* x, i64 count) MEGALITH_INLINE {
    linear_rows(a, panels_of<Args::K, Args::L>(a.weight, a.scale), t0, x, count);
  });
}

/// y = residual + x weight^T. Operator `linear_with_residual`.
template <class Args>
inline void gemv_with_residual(const Args& a) {
  residual_rows(a, panels_of<Args::K>(a.weight));
}
template <class Args>
inline void gemv_with_residual_int8(const Args& a) {
  residual_rows(a, panels_of<Args::K, Args::L>(a.weight, a.scale));
}

/// y = rmsnorm(x) weight^T. Operator `rmsnorm_linear`.
template <class Args>
inline void rmsnorm_gemv(const Args& a) {
  with_normed_rows(a, [&](i64 t0, const f32* x, i64 count)
                          MEGALITH_INLINE { linear_rows(a, panels_of<Args::K>(a.weight), t0, x, count); });
}
template <class Args>
inline void rmsnorm_gemv_int8(const Args& a) {
  with_normed_rows(a, [&](i64 t0, const f32* x, i64 count) MEGALITH_INLINE {
    linear_rows(a, panels_of<Args::K, Args::L>(a.weight, a.scale), t0, x, count);
  });
}

/// y = silu(rmsnorm(x) gate^T) * (rmsnorm(x) up^T). Operator `rmsnorm_gate_up`.
template <class Args>
inline void rmsnorm_gate_up_gemv(const Args& a) {
  gate_up_rows(a, panels_of<Args::K>(a.gate), panels_of<Args::K>(a.up));
}
template <class Args>
inline void rmsnorm_gate_up_gemv_int8(const Args& a) {
  gate_up_rows(a, panels_of<Args::K, Args::L>(a.gate, a.gate_scale), panels_of<Args::K, Args::L>(a.up, a.up_scale));
}

}  // namespace megalith::kernels
