// How much room the attention of a CPU works in (kernels/cpu/attention.h). Shared by the host, which sees to it that
// there is so much, and the bodies. Freestanding.
#pragma once

namespace megalith::attention_workspace {

/// Positions whose scores are worked out together: with kQueries of them 16 KB, a third of a small first-level cache.
constexpr int kPositions = 256;
/// Queries of a block. Keys come from the second-level cache once for all of them.
constexpr int kQueries = 16;
/// And with tiles: two of them, and from the scores of one to those of the next, a line more than there are, or a few places
/// of a cache would have to hold them all.
constexpr int kTileQueries = 32, kScoreStride = kPositions + 16;
/// Keys behind the last one, at most, that there are pointers to.
constexpr int kMaxTile = 16;

constexpr long long lines(long long bytes) { return (bytes + 63) / 64 * 64; }

/// Pointers to keys and values, both gathered where a chunk is worked on in one go, and a block of queries with sums and
/// scores.
constexpr long long lane_bytes(long long width, long long chunk, long long element_bytes) {
  const long long gathered = chunk <= kPositions ? chunk : 0, lanes = (width + 15) / 16 * 16;
  return lines((2 * kPositions + kMaxTile) * 8) + 2 * lines((gathered * width + 1) * element_bytes) +
         lines(8 + kQueries * (8 + 4 + 4)) + lines(kQueries * 2 * lanes * 4) + kQueries * kPositions * 4 + 64;
}
/// The same with tiles (kernels/cpu/attention_tiles.h): keys and values are rounded and padded.
constexpr long long tile_bytes(long long width, long long chunk) {
  const long long positions = ((chunk < kPositions ? chunk : kPositions) + 31) / 32 * 32,
                  columns = (width + 31) / 32 * 32;
  return 2 * kPositions * 8 + 2 * positions * columns * 2 + lines(16 + kTileQueries * (4 + 4 + 4)) +
         kTileQueries * (2 + 4) * columns + kTileQueries * (kScoreStride * 4 + kPositions * 2) + 64;
}
/// Heads of `width` values, which are `element_bytes` long in the cache, and chunks of `chunk` positions, either way.
constexpr long long partial_bytes(long long width, long long chunk, long long element_bytes) {
  const long long lanes = lane_bytes(width, chunk, element_bytes), tiles = tile_bytes(width, chunk);
  return lanes > tiles ? lanes : tiles;
}

/// A factor for each chunk, and the sum of a head.
constexpr long long merge_bytes(long long chunks, long long width) { return lines(chunks * 4) + lines(width * 4); }

}  // namespace megalith::attention_workspace
