// How the pages of a cache lie on the two sides of a GPU's L2 (runtime/cuda/sides.h): an even page on one, an odd one on
// the other. Pages 2 i and 2 i + 1 share their memory: of each two pieces of 4 KB side by side, which always belong to
// different sides, one is the even page's and the other the odd one's. Which is which follows from the address: within a
// page of the GPU's memory, 2 MB, from a mask of its bits, the same everywhere, and from page to page from a bit each.
// Mask and bits stand in a table behind the cache. A table of zeros is as good as another: pages are in pairs then, and
// that is all.
//
// Shared by the bodies, and by the host, which lays such a cache out and takes it apart.
#pragma once

namespace megalith::page_pairs {

/// A pair of pieces, and pairs of a page of the GPU's memory, 2 MB.
[[maybe_unused]] constexpr unsigned kPieceBytes = 4096, kPairBytes = 2 * kPieceBytes, kPairsOfMemoryPage = 256;
/// Words of the table: bits of the cache's memory pages, then the mask, of the number of a pair within one of those.
[[maybe_unused]] constexpr unsigned kTableWords = 16, kMaskWord = kTableWords - 1;
[[maybe_unused]] constexpr unsigned kMaxMemoryPages = 32 * kMaskWord;

/// Whether a cache of `pages` pages may lie so: a page whole pieces and a fraction of a memory page, and rows of a head
/// in one piece.
constexpr bool fits(long long pages, long long page_bytes, long long row_bytes) {
  const auto divides = [](long long a, long long b) { return a > 0 && b % a == 0; };
  return pages % 2 == 0 && divides(kPieceBytes, page_bytes) &&
         divides(2 * page_bytes, static_cast<long long>(kPairsOfMemoryPage) * kPairBytes) &&
         divides(row_bytes, kPieceBytes) && pages * page_bytes <= static_cast<long long>(kMaxMemoryPages) << 21;
}

/// The pair of pieces in which byte `byte` of page `page` is.
constexpr unsigned pair_of(unsigned page, unsigned byte, unsigned page_bytes) {
  return page / 2 * (page_bytes / kPieceBytes) + byte / kPieceBytes;
}
/// The memory page of a pair.
constexpr unsigned memory_page(unsigned pair) { return pair / kPairsOfMemoryPage; }
constexpr unsigned parity(unsigned bits) {
  bits ^= bits >> 4;  // of a byte
  return 0x6996u >> (bits & 15) & 1;
}
/// On which side the first piece of a pair is. `bits`: the table's word for its memory page.
constexpr unsigned side_of_first(unsigned pair, unsigned mask, unsigned bits) {
  return parity(pair & mask) ^ (bits >> memory_page(pair) % 32 & 1);
}
/// Which piece of the memory, counted from its start, is that of page `page` in this pair.
constexpr unsigned piece_of(unsigned page, unsigned pair, unsigned side_of_first) {
  return 2 * pair + ((page & 1) ^ side_of_first);
}

}  // namespace megalith::page_pairs
