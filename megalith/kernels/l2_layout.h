// Where weight tiles lie when streams are dealt to the two partitions of the L2 (runtime/cuda/sides.h): each worker reads
// from the partition that is near to its multiprocessor.
#pragma once

#include "megalith/kernels/gemm_layout.h"

namespace megalith::stream {

/// Where streams are dealt to the two sides of the L2 (runtime/cuda/sides.h), memory, of pages of 2 MB, is taken in
/// blocks of two chunks, a chunk for each side: pieces 0, 3, 4 and 7 of a block, and 1, 2, 5 and 6.
[[maybe_unused]] constexpr unsigned kPageBytes = 2 << 20;
[[maybe_unused]] constexpr int kPieceBytes = 4096, kChunkPieces = kChunkBytes / kPieceBytes,
                               kBlockBytes = 2 * kChunkBytes;
/// Sizes of chunks: of 48 or 96 rows whole slots of columns fill 12 KB, and the rest is a hole. On the sides of the L2 holes
/// are not copied: pieces have a share of it each at their end.
[[maybe_unused]] constexpr int kNumChunkSizes = 2;
constexpr int chunk_bytes(int size) { return size == 0 ? kChunkBytes : 12288; }
constexpr int piece_bytes(int size) { return chunk_bytes(size) / kChunkPieces; }
/// Number of the size of a chunk with so many rows.
constexpr int chunk_size(int chunk_rows) {
  const int bytes = chunk_rows / 8 * wide_block_bytes(chunk_rows);
  return bytes == chunk_bytes(1) ? 1 : 0;
}
/// What a word says of as many chunks, kKindBits of each: which half of its block, + 2 for each size.
[[maybe_unused]] constexpr int kKindBits = 4, kChunksOfWord = 32 / kKindBits, kNumKinds = 2 * kNumChunkSizes;
/// Piece `index` of the half `half` of a block.
constexpr int half_piece(int half, int index) { return 2 * index + ((index ^ half) & 1); }

}  // namespace megalith::stream
