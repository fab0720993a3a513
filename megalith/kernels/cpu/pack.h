// Elements side by side in memory that move at once: what generated loops are tagged `vec` for. Freestanding, as prelude.h.
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

}  // namespace megalith::kernels
