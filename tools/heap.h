#pragma once

namespace megalith::tools {

// Lets the heap grow in pages of 2 MiB where the kernel grants them on request (madvise(2), MADV_HUGEPAGE). Planning a model
// touches some 50 MiB once; in pages of 4 KiB the faults alone are a sixth of a compilation that finds all else in the cache.
// Call it first in main. Does nothing without glibc.
void grow_heap_in_large_pages();

}  // namespace megalith::tools
