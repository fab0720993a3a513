// Reductions with an order that is fixed by the loop kernel alone. A result must not depend on how its operator is cut
// into tiles, on how many rows are done at a time, on the vector width of the machine or on what the compiler's
// vectoriser chooses; so the order is spelled out here and is one of two:
//   in lanes   terms k, k + 16, k + 32, ... are added one after the other in lane k mod 16 (k from the first term on),
//              then the lanes are added in a tree. Whole vectors for terms that lie side by side in memory.
//   in order   one term after the other. For terms that do not, and for several outputs side by side (sum_columns).
// `step(acc, k)` gives the sum so far plus term k; it is a lambda so that it can fuse a product with the addition.
#pragma once

#include "megalith/kernels/cpu/prelude.h"

namespace megalith::kernels {

/// Lanes of every reduction: one AVX-512 register of f32, two of AVX2, four of SSE or NEON.
inline constexpr int kLanes = 16;

/// Of lanes l and l + kHalf one is made, and so on until there is one: a tree. Spelled out, since a loop over halves is
/// left a loop by g++.
template <int kHalf = kLanes / 2, class Combine>
MEGALITH_INLINE inline f32 combine_lanes(f32 (&lane)[kLanes], Combine combine) {
  for (int l = 0; l < kHalf; ++l) lane[l] = combine(lane[l], lane[l + kHalf]);
  if constexpr (kHalf > 1)
    return combine_lanes<kHalf / 2>(lane, combine);
  else
    return lane[0];
}

inline f32 add_lanes(f32 (&lane)[kLanes]) {
  return combine_lanes(lane, [](f32 a, f32 b) MEGALITH_INLINE { return a + b; });
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

/// The largest (smallest) term; -inf (+inf) if there is none. step(acc, k) is max(acc, term k); any order gives the
/// same.
template <class Step>
MEGALITH_INLINE inline f32 max_in_lanes(i64 begin, i64 end, Step step) {
  f32 lane[kLanes];
  for (int l = 0; l < kLanes; ++l) lane[l] = -kInfinity;
  for_lanes(lane, begin, end, step);
  return combine_lanes(lane, [](f32 a, f32 b) MEGALITH_INLINE { return max(a, b); });
}
template <class Step>
MEGALITH_INLINE inline f32 min_in_lanes(i64 begin, i64 end, Step step) {
  f32 lane[kLanes];
  for (int l = 0; l < kLanes; ++l) lane[l] = kInfinity;
  for_lanes(lane, begin, end, step);
  return combine_lanes(lane, [](f32 a, f32 b) MEGALITH_INLINE { return min(a, b); });
}

/// Folds `step` over begin <= k < end, in order.
template <class T, class Step>
MEGALITH_INLINE inline T fold(T first, i64 begin, i64 end, Step step) {
  for (i64 k = begin; k < end; ++k) first = step(first, k);
  return first;
}

/// The k of the largest term(k) among those that hold, the lowest of several; 0 if there is none.
template <class Term, class Holds>
MEGALITH_INLINE inline i64 argmax(i64 begin, i64 end, Term term, Holds holds) {
  i64 at = 0;
  bool found = false;
  decltype(term(begin)) best = 0;
  for (i64 k = begin; k < end; ++k) {
    if (!holds(k)) continue;
    const auto value = term(k);
    if (!found || value > best) {
      best = value;
      at = k;
      found = true;
    }
  }
  return at;
}
template <class Term>
MEGALITH_INLINE inline i64 argmax(i64 begin, i64 end, Term term) {
  if (begin >= end) return 0;
  if constexpr (__is_same(decltype(term(begin)), f32)) {
    // The largest in whole vectors, then where it stands first.
    const f32 best = max_in_lanes(begin, end, [&](f32 acc, i64 k) MEGALITH_INLINE { return max(acc, term(k)); });
    i64 k = begin;
    for (; k + kLanes <= end; k += kLanes) {
      i32 found = 0;
#pragma omp simd reduction(| : found)
      for (int l = 0; l < kLanes; ++l) found |= term(k + l) == best;
      if (found != 0) break;
    }
    for (; k < end; ++k)
      if (term(k) == best) return k;
    return begin;
  } else {
    auto best = term(begin);
    i64 at = begin;
    for (i64 k = begin + 1; k < end; ++k) {
      const auto value = term(k);
      if (value > best) {
        best = value;
        at = k;
      }
    }
    return at;
  }
}

// ---- several sums side by side -----------------------------------------------------------------

/// Columns whose sums are formed together: four AVX-512 registers, so that additions to one do not wait for each other,
/// and what does not depend on the column is worked out once for all.
inline constexpr int kColumns = 64;

/// What is worked out once for a term of all columns: subscripts that were checked, which a vector cannot do.
template <int N>
struct Places {
  i64 at[N];
};
struct NoPlaces {
  MEGALITH_INLINE NoPlaces operator()(i64) const { return {}; }
};

template <int N, class PlacesOf, class Step, class Store>
MEGALITH_INLINE inline void sum_column_block(i64 column, i64 begin, i64 end, PlacesOf places_of, Step step,
                                             Store store) {
  f32 sum[N] = {};
  for (i64 k = begin; k < end; ++k) {
    const auto places = places_of(k);
#pragma omp simd
    for (int l = 0; l < N; ++l) sum[l] = step(sum[l], k, column + l, places);
  }
#pragma omp simd
  for (int l = 0; l < N; ++l) store(column + l, sum[l]);
}

/// store(c, sum over begin <= k < end of step(acc, k, c, places_of(k))) for every column c; each sum is formed in order.
template <class PlacesOf, class Step, class Store>
MEGALITH_INLINE inline void sum_columns(i64 first, i64 last, i64 begin, i64 end, PlacesOf places_of, Step step,
                                        Store store) {
  i64 c = first;
  for (; c + kColumns <= last; c += kColumns) sum_column_block<kColumns>(c, begin, end, places_of, step, store);
  for (; c + kLanes <= last; c += kLanes) sum_column_block<kLanes>(c, begin, end, places_of, step, store);
  for (; c < last; ++c) sum_column_block<1>(c, begin, end, places_of, step, store);
}
/// The same of step(acc, k, c).
template <class Step, class Store>
MEGALITH_INLINE inline void sum_columns(i64 first, i64 last, i64 begin, i64 end, Step step, Store store) {
  const auto plain = [&](f32 acc, i64 k, i64 c, NoPlaces) MEGALITH_INLINE { return step(acc, k, c); };
  sum_columns(first, last, begin, end, NoPlaces{}, plain, store);
}

}  // namespace megalith::kernels
