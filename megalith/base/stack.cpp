#include "megalith/base/stack.h"

#include <pthread.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace megalith {

namespace {

// What an error takes that is thrown there and comes back up, with its text. Of a small stack no more than a half.
constexpr size_t kReserveBytes = 48 << 10;

// The lowest address that may be used; 0 if nobody knows. Of the first thread the system says how far its stack may grow.
uintptr_t lowest_address() {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return 0;
  void* begin = nullptr;
  size_t bytes = 0, guard_bytes = 0;
  pthread_attr_getstack(&attributes, &begin, &bytes);
  pthread_attr_getguardsize(&attributes, &guard_bytes);
  pthread_attr_destroy(&attributes);
  return reinterpret_cast<uintptr_t>(begin) + guard_bytes + std::min(kReserveBytes, bytes / 2);
}

}  // namespace

bool stack_has_room() {
  static thread_local const uintptr_t lowest = lowest_address();
  return reinterpret_cast<uintptr_t>(__builtin_frame_address(0)) > lowest;
}

}  // namespace megalith
