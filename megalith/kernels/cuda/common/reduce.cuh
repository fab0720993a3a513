// Reductions on a GPU, with an order that the loop kernel fixes alone, as on a CPU (kernels/cpu/reduce.h). Three kinds:
//   by a thread   one term after the other (fold, argmax); of a sum 64 at a time, then what those come to, which keeps
//                 the error of a long one small (sum_in_lanes)
//   by a warp     lane l adds terms l, l + 32, l + 64, ...; then lanes 16, 8, 4, 2 and 1 apart are added
//   by a block    thread t adds terms t, t + kThreads, ...; then each warp as above, then the warps in order, but for
//                 what is the same in any order, the largest and the like
// All threads of the level take part and all have the result: addition commutes, so both lanes of a pair get the same
// bits. Which kind a sum is formed by follows from the loop kernel and never from a tile or the number of workers.
#pragma once

#include "megalith/kernels/cuda/common/prelude.cuh"
#include "megalith/kernels/cuda/common/shared_variables.cuh"

namespace megalith::kernels {

// ---- by a thread -------------------------------------------------------------------------------

template <class T, class Step>
inline T fold(T first, i64 begin, i64 end, Step step) {
  for (i64 k = begin; k < end; ++k) first = step(first, k);
  return first;
}
template <class Step>
inline f32 sum_in_lanes(i64 begin, i64 end, Step step) {
  constexpr i64 kBlock = 64;
  f32 total = 0;
  for (i64 at = begin; at < end; at += kBlock) total += fold(0.0f, at, min(at + kBlock, end), step);
  return total;
}
template <class Step>
inline f32 max_in_lanes(i64 begin, i64 end, Step step) {
  return fold(-kInfinity, begin, end, step);
}
template <class Step>
inline f32 min_in_lanes(i64 begin, i64 end, Step step) {
  return fold(kInfinity, begin, end, step);
}

/// A candidate for the largest term; `at` below 0: there is none. Of equal terms the lowest place wins.
template <class T>
struct Best {
  T value;
  i64 at;
};
template <class T>
inline Best<T> better(Best<T> a, Best<T> b) {
  // All of it is looked at, without a branch: lanes differ.
  const bool is_better = (b.value > a.value) | ((b.value == a.value) & (b.at < a.at));
  const bool is_b = (a.at < 0) | ((b.at >= 0) & is_better);
  return {is_b ? b.value : a.value, is_b ? b.at : a.at};
}
template <class Term, class Holds>
inline auto best_of(i64 first, i64 end, i64 step, Term term, Holds holds) {
  Best<decltype(term(first))> best{0, -1};
  for (i64 k = first; k < end; k += step)
    if (holds(k)) best = better(best, {term(k), k});
  return best;
}
struct Always {
  bool operator()(i64) const { return true; }
};
template <class Term, class Holds = Always>
inline i64 argmax(i64 begin, i64 end, Term term, Holds holds = {}) {
  return max(best_of(begin, end, 1, term, holds).at, i64(0));
}

// ---- by a warp or a block ----------------------------------------------------------------------

struct Add {
  template <class T>
  T operator()(T a, T b) const {
    return a + b;
  }
};
struct Larger {
  static constexpr bool kIsSameInAnyOrder = true;  // and however often a term is taken
  template <class T>
  T operator()(T a, T b) const {
    return max(a, b);
  }
};
struct Smaller {
  static constexpr bool kIsSameInAnyOrder = true;
  template <class T>
  T operator()(T a, T b) const {
    return min(a, b);
  }
};
struct Better {
  static constexpr bool kIsSameInAnyOrder = true;
  template <class T>
  Best<T> operator()(Best<T> a, Best<T> b) const {
    return better(a, b);
  }
};

template <class T>
inline T from_lane(T value, int apart) {
  return __shfl_xor_sync(0xffffffffu, value, apart);
}
template <class T>
inline Best<T> from_lane(Best<T> best, int apart) {
  return {from_lane(best.value, apart), from_lane(best.at, apart)};
}

template <class T>
inline T of_first_lane(T value) {
  return __shfl_sync(0xffffffffu, value, 0);
}
template <class T>
inline Best<T> of_first_lane(Best<T> best) {
  return {of_first_lane(best.value), of_first_lane(best.at)};
}

template <class T, class Combine>
inline T warp_all(T value, Combine combine) {
  for (int apart = kWarpLanes / 2; apart > 0; apart /= 2) value = combine(value, from_lane(value, apart));
  return value;
}

/// The same of several values at once, which takes hardly longer than one.
template <class T, int kCount, class Combine>
inline void warp_all_of(T (&values)[kCount], Combine combine) {
#pragma unroll
  for (int apart = kWarpLanes / 2; apart > 0; apart /= 2) {
    T others[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) others[i] = from_lane(values[i], apart);
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = combine(values[i], others[i]);
  }
}

/// What each warp has of a reduction of the block.
template <class T>
using OfWarps = T[kWarps];

template <class T, class Combine>
inline T block_all(T value, Combine combine) {
  OfWarps<T>& of_warp = shared_variable<OfWarps<T>, place::kOfWarps, place::kAbortWord>();
  value = warp_all(value, combine);
  if (lane() == 0) of_warp[warp()] = value;
  block_sync();
  T result = of_warp[0];
  if constexpr (requires { Combine::kIsSameInAnyOrder; } && kWarps <= kWarpLanes) {
    // Of a NaN lanes may think differently.
    result = of_first_lane(warp_all(of_warp[min(lane(), kWarps - 1)], combine));
  } else {
    for (int w = 1; w < kWarps; ++w) result = combine(result, of_warp[w]);
  }
  block_sync();  // before the next reduction writes there
  return result;
}

/// Terms of one thread: `first`, first + stride, ... Eight loads are in flight while one sum is formed in order.
template <class T, class Step>
inline T strided(T acc, i64 first, i64 end, int stride, Step step) {
#pragma unroll 8
  for (i64 k = first; k < end; k += stride) acc = step(acc, k);
  return acc;
}

template <class T>
inline constexpr T kLeast = static_cast<T>(kLowest);
template <>
inline constexpr f32 kLeast<f32> = -kInfinity;
template <class T>
inline constexpr T kMax = static_cast<T>(kHighest);
template <>
inline constexpr f32 kMax<f32> = kInfinity;

template <class T, class Step>
inline T warp_sum(i64 begin, i64 end, Step step) {
  return warp_all(strided(T(0), begin + lane(), end, kWarpLanes, step), Add{});
}
template <class T, class Step>
inline T warp_max(i64 begin, i64 end, Step step) {
  return warp_all(strided(kLeast<T>, begin + lane(), end, kWarpLanes, step), Larger{});
}
template <class T, class Step>
inline T warp_min(i64 begin, i64 end, Step step) {
  return warp_all(strided(kMax<T>, begin + lane(), end, kWarpLanes, step), Smaller{});
}
template <class Term, class Holds = Always>
inline i64 warp_argmax(i64 begin, i64 end, Term term, Holds holds = {}) {
  return max(warp_all(best_of(begin + lane(), end, kWarpLanes, term, holds), Better{}).at, i64(0));
}

template <class T, class Step>
inline T block_sum(i64 begin, i64 end, Step step) {
  return block_all(strided(T(0), begin + thread(), end, kThreads, step), Add{});
}
template <class T, class Step>
inline T block_max(i64 begin, i64 end, Step step) {
  return block_all(strided(kLeast<T>, begin + thread(), end, kThreads, step), Larger{});
}
template <class T, class Step>
inline T block_min(i64 begin, i64 end, Step step) {
  return block_all(strided(kMax<T>, begin + thread(), end, kThreads, step), Smaller{});
}
template <class Term, class Holds = Always>
inline i64 block_argmax(i64 begin, i64 end, Term term, Holds holds = {}) {
  return max(block_all(best_of(begin + thread(), end, kThreads, term, holds), Better{}).at, i64(0));
}

}  // namespace megalith::kernels
