// How the attention of a decoder lies in a GPU worker's shared memory (kernels/cuda/attention.cuh): shared by the host,
// which sees to it that there is room, and the body.
//
// One multiply-accumulate takes kTilePositions positions. Where a block has one row, a warp takes all of a head for the
// scores and kRunValues of it for the sum of the values; so a head's warps work out the same scores, and hand each
// other nothing. Where it has several, kParts of the block take a row each.
#pragma once

namespace megalith::attention {

constexpr int kWarps = 16;
constexpr int kTilePositions = 8;
/// Of the head that a warp sums values of: 16 bytes a lane, four lanes a position.
constexpr int kRunValues = 32;
/// Query heads that share a key: the rows of the tile are theirs twice, once rounded and once what rounding left.
[[maybe_unused]] constexpr long long kMostHeads = 8;

/// Warps of a tile of positions, and tiles that are under way at once, for heads of `d` values.
constexpr int runs(long long d) { return static_cast<int>(d) / kRunValues; }
constexpr int tiles(long long d) { return kWarps / runs(d); }
/// From one head of bf16 to the next: two of them side by side are in different banks.
constexpr int stride(long long d) { return static_cast<int>(d % 64 == 0 ? d + kRunValues : d); }

/// Queries twice, then a key and a value for each row of the iteration that is there at a time.
constexpr long long staged_bytes(long long heads, long long rows, long long d) {
  return 2 * stride(d) * (2 * heads + 2 * rows);
}
/// What tiles hand to their sum: of each head d values, the largest score and the total of the weights.
constexpr long long joined_bytes(long long heads, long long d) { return tiles(d) * heads * (d + 2) * 4; }

/// Parts of a block that take a row each.
constexpr int kParts = 4;
/// A tile's keys, or its values, as a warp has them in shared memory: a position is so many bytes, whole lines of 128.
constexpr int tile_row_bytes(long long d) { return static_cast<int>((d + 63) / 64) * 128; }
constexpr int tile_bytes(long long d) { return kTilePositions * tile_row_bytes(d); }
/// Of a part: for each warp a tile of keys and one of values, then queries twice; in their place what the warps sum.
constexpr long long part_bytes(long long heads, long long d) {
  constexpr int kPartWarps = kWarps / kParts;
  const long long staged = kPartWarps * 2 * tile_bytes(d) + 2 * heads * stride(d) * 2,
                  joined = kPartWarps * heads * (d + 2) * 4;
  return ((staged > joined ? staged : joined) + 127) / 128 * 128;
}
/// What a task of one row works in.
[[maybe_unused]] constexpr long long one_row_bytes(long long heads, long long d) {
  return staged_bytes(heads, 1, d) + joined_bytes(heads, d);
}

}  // namespace megalith::attention
