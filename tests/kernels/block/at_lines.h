// Vectors that begin where whole lines of memory do, as memory of a GPU does.
#pragma once

#include <cstddef>
#include <new>

namespace megalith::kernels {

template <class T>
struct AtLines {
  using value_type = T;
  T* allocate(size_t count) { return static_cast<T*>(::operator new(count * sizeof(T), std::align_val_t(128))); }
  void deallocate(T* at, size_t) { ::operator delete(at, std::align_val_t(128)); }
  bool operator==(const AtLines&) const = default;
};

}  // namespace megalith::kernels
