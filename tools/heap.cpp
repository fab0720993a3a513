#include "tools/heap.h"

#include <cstdlib>

#ifdef __GLIBC__
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#endif

namespace megalith::tools {

void grow_heap_in_large_pages() {
#ifdef __GLIBC__
  constexpr int kLargestOnHeap = 32 << 20;  // the most that mallopt(3) takes
  constexpr int kHeapBytes = 64 << 20;
  constexpr std::uintptr_t kLargePage = 2 << 20;
  mallopt(M_MMAP_THRESHOLD, kLargestOnHeap);
  mallopt(M_TRIM_THRESHOLD, 2 * kHeapBytes);
  mallopt(M_TOP_PAD, kHeapBytes);
  void* const first = std::malloc(kLargestOnHeap / 2);  // more than what is there: the heap grows
  const auto begin = (reinterpret_cast<std::uintptr_t>(first) + kLargePage - 1) / kLargePage * kLargePage;
  const auto end = reinterpret_cast<std::uintptr_t>(sbrk(0)) / kLargePage * kLargePage;
  if (begin < end) {
    madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);  // a hint: refused is as before
  }
  std::free(first);
#endif
}

}  // namespace megalith::tools
