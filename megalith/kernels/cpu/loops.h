// What kernels of one's own use beyond prelude.h: elements side by side in memory that move at once, and on a CPU are computed
// at once, which is what loops are tagged `vec` for; sums, maxima and the like in the order of the text, which keep NaN.
// Freestanding, as prelude.h.
#pragma once

#include "megalith/kernels/inside.h"

namespace megalith::kernels {

// The larger (smaller) one, NaN if either is. On a GPU an instruction, since sm_80.
#if defined(__CUDACC_RTC__) && __CUDA_ARCH__ >= 800
inline f32 larger(f32 a, f32 b) {
  f32 result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
inline f32 smaller(f32 a, f32 b) {
  f32 result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
#else
inline f32 larger(f32 a, f32 b) { return a > b || a != a ? a : b; }
inline f32 smaller(f32 a, f32 b) { return a < b || a != a ? a : b; }
#endif

// ---- what data decides ---------------------------------------------------------------------------

/// The first of a call that is wrong: a subscript that is not below `extent`, or (kNoExtent) a divisor that is 0. The caller has
/// set `found` to 0, and looks at it afterwards.
struct LoopFault {
  u32 found, check;
  i64 value, extent;
};
struct FaultNote {
  LoopFault* fault;
};

inline void note_fault(FaultNote note, u32 check, i64 value, i64 extent) {
#if defined(__CUDACC_RTC__)
  if (atomicCAS(&note.fault->found, 0u, 1u) != 0) return;
#else
  if (note.fault->found != 0) return;
  note.fault->found = 1;
#endif
  note.fault->check = check;
  note.fault->value = value;
  note.fault->extent = extent;
}
/// Folds `step` over begin <= k < end, in order.
template <class T, class Step>
MEGALITH_INLINE inline T fold(T first, i64 begin, i64 end, Step step) {
  for (i64 k = begin; k < end; ++k) first = step(first, k);
  return first;
}
template <class T, class Step>
MEGALITH_INLINE inline T fold_unrolled(T first, i64 begin, i64 end, Step step) {
#if defined(__CUDACC_RTC__)
#pragma unroll
#else
#pragma GCC unroll 64
#endif
  for (i64 k = begin; k < end; ++k) first = step(first, k);
  return first;
}

struct Always {
  MEGALITH_INLINE bool operator()(i64) const { return true; }
};
/// The k of the largest term(k) among those that hold and are numbers, the lowest of several; 0 if there is none.
template <class Term, class Holds = Always>
MEGALITH_INLINE inline i64 argmax(i64 begin, i64 end, Term term, Holds holds = {}) {
  i64 at = 0;
  bool found = false;
  decltype(term(begin)) best = 0;
  for (i64 k = begin; k < end; ++k) {
    if (!holds(k)) continue;
    const auto value = term(k);
    const bool is_first_number = best != best && value == value;
    if (!found || value > best || is_first_number) {
      best = value;
      at = k;
      found = true;
    }
  }
  return at;
}

/// Begins at a multiple of its size.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
  T at[kCount];
};

template <int kCount, class T>
inline Pack<T, kCount> load_pack(const T* from) {
  return *reinterpret_cast<const Pack<T, kCount>*>(from);
}
template <class T, int kCount>
inline void store_pack(T* to, const Pack<T, kCount>& pack) {
  *reinterpret_cast<Pack<T, kCount>*>(to) = pack;
}

#if !defined(__CUDACC_RTC__)
/// The compiler's own vectors, which begin anywhere. Operators are of each element; the other side may be one number.
template <class T, int kCount>
struct VectorOf {
  typedef T type __attribute__((vector_size(sizeof(T) * kCount), aligned(sizeof(T)), may_alias));
};
template <int kCount, class T>
inline typename VectorOf<T, kCount>::type load_vector(const T* from) {
  return *reinterpret_cast<const typename VectorOf<T, kCount>::type*>(from);
}
template <int kCount, class T>
inline void store_vector(T* to, typename VectorOf<T, kCount>::type values) {
  *reinterpret_cast<typename VectorOf<T, kCount>::type*>(to) = values;
}

/// How many floats the machine's vectors have.
#if defined(__AVX512F__)
inline constexpr int kVectorFloats = 16;
#elif defined(__AVX__)
inline constexpr int kVectorFloats = 8;
#else
inline constexpr int kVectorFloats = 4;
#endif

/// Past the caches, where the vector begins at a multiple of its size; else as store_vector() does it. A line that is written
/// whole is not read from memory first. finish_streams() before anybody else is told of it.
template <int kCount>
inline void stream_vector(f32* to, typename VectorOf<f32, kCount>::type values) {
  constexpr int kPart = kCount < kVectorFloats ? kCount : kVectorFloats;
  if (kPart < 4 || reinterpret_cast<u64>(to) % (sizeof(f32) * kPart) != 0) return store_vector<kCount>(to, values);
  const f32* const from = reinterpret_cast<const f32*>(&values);
  for (int at = 0; at < kCount; at += kPart) {
    [[maybe_unused]] const typename VectorOf<f32, kPart>::type part = load_vector<kPart>(from + at);
#if defined(__clang__)
    typedef f32 Aligned __attribute__((vector_size(sizeof(f32) * kPart)));
    __builtin_nontemporal_store(__builtin_bit_cast(Aligned, part), reinterpret_cast<Aligned*>(to + at));
#else
#if defined(__AVX512F__)
    if constexpr (kPart == 16) __builtin_ia32_movntps512(to + at, part);
#endif
#if defined(__AVX__)
    if constexpr (kPart == 8) __builtin_ia32_movntps256(to + at, part);
#endif
#if defined(__SSE__)
    if constexpr (kPart == 4) __builtin_ia32_movntps(to + at, part);
#else
    store_vector<kPart>(to + at, part);
#endif
#endif
  }
}
/// What was stored past the caches is there before what this thread stores next.
inline void finish_streams() {
#if defined(__SSE__)
  __builtin_ia32_sfence();
#endif
}

template <int... kAt>
struct Lanes {};
template <int kCount, int... kAt>
struct LanesTo : LanesTo<kCount - 1, kCount - 1, kAt...> {};
template <int... kAt>
struct LanesTo<0, kAt...> {
  using type = Lanes<kAt...>;
};
// Of squares of kStep x kStep next to each other in two rows, the second of the first row and the first of the second row
// change places.
template <int kStep, int... kAt>
inline void swap_squares(typename VectorOf<f32, sizeof...(kAt)>::type& a,
                         typename VectorOf<f32, sizeof...(kAt)>::type& b, Lanes<kAt...>) {
  constexpr int kCount = sizeof...(kAt);
  const typename VectorOf<f32, kCount>::type first = a, second = b;
#if defined(__clang__)
  a = __builtin_shufflevector(first, second, ((kAt & kStep) != 0 ? kCount + kAt - kStep : kAt)...);
  b = __builtin_shufflevector(first, second, ((kAt & kStep) != 0 ? kCount + kAt : kAt + kStep)...);
#else
  using Places = typename VectorOf<i32, kCount>::type;
  a = __builtin_shuffle(first, second, Places{((kAt & kStep) != 0 ? kCount + kAt - kStep : kAt)...});
  b = __builtin_shuffle(first, second, Places{((kAt & kStep) != 0 ? kCount + kAt : kAt + kStep)...});
#endif
}
template <int kCount, int kStep = kCount / 2>
MEGALITH_INLINE inline void transpose_vectors(typename VectorOf<f32, kCount>::type (&rows)[kCount]) {
#pragma GCC unroll 64
  for (int row = 0; row < kCount; ++row)
    if ((row & kStep) == 0) swap_squares<kStep>(rows[row], rows[row + kStep], typename LanesTo<kCount>::type{});
  if constexpr (kStep > 1) transpose_vectors<kCount, kStep / 2>(rows);
}

/// Rows and columns of kCount x kCount elements change places: in registers, as far as those are wide enough.
template <int kCount>
MEGALITH_INLINE inline void transpose_pack(f32* pack) {
  constexpr int kPart = kCount < kVectorFloats ? kCount : kVectorFloats;
  using V = typename VectorOf<f32, kPart>::type;
#pragma GCC unroll 64
  for (int row = 0; row < kCount; row += kPart) {
#pragma GCC unroll 64
    for (int column = 0; column <= row; column += kPart) {
      V here[kPart], there[kPart];
#pragma GCC unroll 64
      for (int i = 0; i < kPart; ++i) {
        here[i] = load_vector<kPart>(pack + (row + i) * kCount + column);
        there[i] = load_vector<kPart>(pack + (column + i) * kCount + row);
      }
      transpose_vectors<kPart>(here);
      if (column < row) transpose_vectors<kPart>(there);
#pragma GCC unroll 64
      for (int i = 0; i < kPart; ++i) {
        store_vector<kPart>(pack + (column + i) * kCount + row, here[i]);
        if (column < row) store_vector<kPart>(pack + (row + i) * kCount + column, there[i]);
      }
    }
  }
}

/// One number in all of them. Less 0 is itself, -0 too.
template <int kCount, class T>
inline typename VectorOf<T, kCount>::type broadcast(T value) {
  return value - typename VectorOf<T, kCount>::type{};
}
#endif

}  // namespace megalith::kernels
