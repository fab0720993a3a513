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
/// Of a chunk with a hole, and of each of its pieces, what is copied (is_short()).
[[maybe_unused]] constexpr int kShortBytes = 15360, kShortPieceBytes = kShortBytes / kChunkPieces;
/// Piece `index` of the half `half` of a block.
constexpr int half_piece(int half, int index) { return 2 * index + ((index ^ half) & 1); }
/// Whether a chunk is 15 KB of weights and a hole: of 48 rows whole blocks of columns fill no more. On the sides of the
/// L2 the hole is not copied: its pieces have a sixteenth of it each at their end.
constexpr bool is_short(int chunk_rows) { return chunk_rows / 8 * wide_block_bytes(chunk_rows) == kShortBytes; }

}  // namespace megalith::stream
