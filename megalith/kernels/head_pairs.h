// How the heads of a cache lie on the two sides of a GPU's L2 (runtime/cuda/sides.h): even ones on one, odd ones on the other.
// Memory is dealt to the sides in pieces of 4 KB, of which two side by side always belong to different ones. Of such a pair one piece
// has rows of even heads, the other of odd ones: of a page those of the first head, position by position, then those of the third,
// and so on. Which piece is which follows from the address: within a page of the GPU's memory, 2 MB, from a mask of its bits, the
// same everywhere, and from page to page from a bit each. Mask and bits stand in a table behind the cache. A table of zeros is as
// good as another: heads are in pairs then, and that is all.
//
// Shared by the bodies, and by the host, which lays such a cache out and takes it apart.
#pragma once

namespace megalith::head_pairs {

/// A pair of pieces, and pairs of a page of the GPU's memory, 2 MB.
[[maybe_unused]] constexpr unsigned kPieceBytes = 4096, kPairBytes = 2 * kPieceBytes, kPairsOfMemoryPage = 256;
/// Words of the table: bits of the cache's memory pages, then the mask, of the number of a pair within one of those.
[[maybe_unused]] constexpr unsigned kTableWords = 16, kMaskWord = kTableWords - 1;
[[maybe_unused]] constexpr unsigned kMaxMemoryPages = 32 * kMaskWord;

/// Pages of a cache: positions, heads, and bytes that a head has of a position.
struct PageShape {
  unsigned positions, heads, row_bytes;
};

/// Whether a cache of `pages` pages may lie so: as many even heads as odd ones, which have whole pieces of it, and of a page a head's
/// rows in one of them.
constexpr bool fits(long long pages, long long positions, long long heads, long long row_bytes) {
  const long long run = positions * row_bytes, half = pages * (heads / 2) * run;
  return half > 0 && heads % 2 == 0 && half % kPieceBytes == 0 && kPieceBytes % run == 0 &&
         2 * half <= static_cast<long long>(kMaxMemoryPages) << 21;
}

/// Where a row is, before it is known which piece of a pair is on which side.
struct Place {
  unsigned pair, byte;  // and of the piece which byte
};
constexpr Place place_of(PageShape shape, unsigned page, unsigned position, unsigned head) {
  const unsigned byte = ((page * (shape.heads / 2) + head / 2) * shape.positions + position) * shape.row_bytes;
  return {byte / kPieceBytes, byte % kPieceBytes};
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
/// Which piece of the memory, counted from its start, is a head's in this pair.
constexpr unsigned piece_of(unsigned head, unsigned pair, unsigned side_of_first) {
  return 2 * pair + ((head & 1) ^ side_of_first);
}

}  // namespace megalith::head_pairs
