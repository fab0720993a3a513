// Elements side by side in memory that move at once, and on a CPU are computed at once: what generated loops are tagged `vec`
// for. Freestanding, as prelude.h.
#pragma once

namespace megalith::kernels {

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
