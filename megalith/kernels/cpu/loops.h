// What scheduled loops use beyond prelude.h: elements side by side in memory that move at once, and on a CPU are computed at
// once, which is what loops are tagged `vec` for; maxima that keep NaN. Freestanding, as prelude.h.
#pragma once

#include "megalith/kernels/cpu/prelude.h"

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
/// One number in all of them. Less 0 is itself, -0 too.
template <int kCount, class T>
inline typename VectorOf<T, kCount>::type broadcast(T value) {
  return value - typename VectorOf<T, kCount>::type{};
}
#endif

}  // namespace megalith::kernels
