// Reductions with an order that is fixed by the loop kernel alone. A result must not depend on how its operator is cut
// into tiles, on how many rows are done at a time, on the vector width of the machine or on what the compiler's
// vectoriser chooses; so the order is spelled out here and is one of two:
//   in lanes   terms k, k + 16, k + 32, ... are added one after the other in lane k mod 16 (counted from the first term),
//              then the lanes are added in a tree. Whole vectors for terms that lie side by side in memory.
//   in order   one term after the other. For terms that do not, and for several outputs side by side (sum_columns).
// `step(acc, k)` gives the sum so far plus term k; it is a lambda so that it can fuse a product with the addition.
#pragma once

#include "megalith/kernels/cpu/prelude.h"

namespace megalith::kernels {

/// Lanes of every reduction: one AVX-512 register of f32, two of AVX2, four of SSE or NEON.
constexpr int kLanes = 16;

inline f32 add_lanes(f32 (&lane)[kLanes]) {
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int l = 0; l < half; ++l) lane[l] += lane[l + half];
  return lane[0];
}

/// lane[l] = step(lane[l], k) for k = begin + l, begin + l + 16, ... below end.
template <class Step>
MEGALITH_INLINE inline void for_lanes(f32 (&lane)[kLanes], i64 begin, i64 end, Step step) {
  i64 k = begin;
  for (; k + kLanes <= end; k += kLanes) {
#pragma omp simd
    for (int l = 0; l < kLanes; ++l) lane[l] = step(lane[l], k + l);
  }
  for (int l = 0; k + l < end; ++l) lane[l] = step(lane[l], k + l);
}

template <class Step>
MEGALITH_INLINE inline f32 sum_in_lanes(i64 begin, i64 end, Step step) {
  f32 lane[kLanes] = {};
  for_lanes(lane, begin, end, step);
  return add_lanes(lane);
}

/// The largest (smallest) of term(k); -inf (+inf) if there is none. Any order gives the same result.
template <class Term>
MEGALITH_INLINE inline f32 max_in_lanes(i64 begin, i64 end, Term term) {
  f32 lane[kLanes];
  for (int l = 0; l < kLanes; ++l) lane[l] = -kInfinity;
  for_lanes(lane, begin, end, [&](f32 acc, i64 k) MEGALITH_INLINE { return max(acc, term(k)); });
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int l = 0; l < half; ++l) lane[l] = max(lane[l], lane[l + half]);
  return lane[0];
}
template <class Term>
MEGALITH_INLINE inline f32 min_in_lanes(i64 begin, i64 end, Term term) {
  f32 lane[kLanes];
  for (int l = 0; l < kLanes; ++l) lane[l] = kInfinity;
  for_lanes(lane, begin, end, [&](f32 acc, i64 k) MEGALITH_INLINE { return min(acc, term(k)); });
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int l = 0; l < half; ++l) lane[l] = min(lane[l], lane[l + half]);
  return lane[0];
}

/// Folds `step` over begin <= k < end, in order.
template <class T, class Step>
MEGALITH_INLINE inline T fold(T first, i64 begin, i64 end, Step step) {
  for (i64 k = begin; k < end; ++k) first = step(first, k);
  return first;
}

/// The k of the largest term(k), the lowest of several; 0 if there is none, or none above -inf.
template <class Term>
MEGALITH_INLINE inline i64 argmax(i64 begin, i64 end, Term term) {
  f32 best = -kInfinity;
  i64 at = end > begin ? begin : 0;
  for (i64 k = begin; k < end; ++k) {
    const f32 value = term(k);
    if (value > best) {
      best = value;
      at = k;
    }
  }
  return at;
}

}  // namespace megalith::kernels
