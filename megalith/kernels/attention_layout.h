// How the attention of a decoder lies in a GPU worker's shared memory (attention/attention.cuh): shared by the host,
// which sees to it that there is room, and the body.
//
// A warp takes a tile of kTilePositions positions at a time, all of their values, from the keys to the sum of the
// values, and hands others nothing before the end. Of few rows a block has one at a time, and all its warps work on
// that; of many, kParts of the block take a row and a group of heads each.
#pragma once

namespace megalith::attention {

constexpr int kWarps = 16;
constexpr int kTilePositions = 8;
/// Of a head, what the four lanes of a position have of it at a time: 16 bytes each.
constexpr int kRunValues = 32;
/// Query heads that share a key: the rows of the operand are theirs twice, once rounded and once what rounding left.
[[maybe_unused]] constexpr long long kMaxHeads = 8;

constexpr int runs(long long d) { return static_cast<int>(d) / kRunValues; }
/// A query, of which each two values are followed by what rounding left of them, and as much more as puts the next one
/// in other banks.
constexpr int query_bytes(long long d) { return static_cast<int>(4 * d + 16); }

/// Parts of a block that take a row and a group of heads each.
constexpr int kParts = 4;
/// A tile's keys, or its values, as a warp has them in shared memory: a position is so many bytes, whole lines of 128.
constexpr int tile_row_bytes(long long d) { return static_cast<int>((d + 63) / 64) * 128; }
constexpr int tile_bytes(long long d) { return kTilePositions * tile_row_bytes(d); }
/// Of a part: for each warp a tile of keys and one of values, then queries; in their place what the warps sum.
constexpr long long part_bytes(long long heads, long long d) {
  constexpr int kPartWarps = kWarps / kParts;
  const long long staged = kPartWarps * 2 * tile_bytes(d) + heads * query_bytes(d),
                  joined = kPartWarps * heads * (d + 2) * 4;
  return ((staged > joined ? staged : joined) + 127) / 128 * 128;
}
/// Where all positions are in the cache, rows of a text that look at them together, if there is room for their heads.
constexpr int rows_together(long long heads) { return 2 * heads <= kMaxHeads ? 2 : 1; }

/// Prompts, all of whose keys are in the cache, are worked on by tiles of queries (attention/query_tile.cuh): those of
/// as many tokens as have no more than kTileQueries together, by kTeams teams of warps, which have a part of the columns each
/// and all take a tile of kTileKeys keys at a time.
constexpr int kTileQueries = 128, kTileKeys = 64;
[[maybe_unused]] constexpr int kTeams = 2;
/// Of more tokens than that, heads of up to so many values.
constexpr int kMaxRowsOfParts = 128, kMaxTileValues = 128;
constexpr bool takes_query_tiles(long long rows, long long d) { return rows > kMaxRowsOfParts && d <= kMaxTileValues; }
/// Tiles of keys, or of values, that are there or on their way (pipeline/key_ring.cuh): two of each, in turn.
constexpr unsigned kKeySlots = 4;
/// Eight queries, keys or positions' values lie together. Where a head has 128 values a row's first half is 128 bytes side by
/// side, as the tensor cores turn them (arch/wgmma.cuh) and the copy engine writes them; the second halves lie behind the first
/// ones of all rows. Else it is eight values of each row, then the next eight a little further, so that who writes all of a row
/// meets all banks.
constexpr bool is_swizzled(long long d) { return d % 128 == 0; }
constexpr int kLeading = 144;
[[maybe_unused]] constexpr int kHalfRowBytes = 128, kSwizzledEightBytes = 8 * kHalfRowBytes;
constexpr int eight_bytes(long long d) { return static_cast<int>(is_swizzled(d) ? 16 * d : d / 8 * kLeading); }
/// Keys of a tile, or their values.
constexpr int key_tile_bytes(long long d) { return kTileKeys / 8 * eight_bytes(d); }
/// The ring of keys and values, then the queries.
constexpr long long query_tile_bytes(long long d) {
  return kKeySlots * key_tile_bytes(d) + kTileQueries / 8 * eight_bytes(d);
}

/// What a task of whole rows works in. Among tiles of queries rows that stand alone have parts of the block.
[[maybe_unused]] constexpr long long whole_bytes(long long rows, long long heads, long long d, bool all_cached) {
  const bool takes_tiles = all_cached && takes_query_tiles(rows, d);
  const long long parts = kParts * part_bytes(all_cached && !takes_tiles ? rows_together(heads) * heads : heads, d);
  return takes_tiles && query_tile_bytes(d) > parts ? query_tile_bytes(d) : parts;
}

/// Few rows have a way of their own: a whole block for each, with keys and values in registers. Longer heads have no
/// room there, and go the way of many rows.
[[maybe_unused]] constexpr long long kFewRows = 8;
constexpr bool is_row_alone(long long rows, long long d) { return rows <= kFewRows && d <= 128; }
/// Heads whose sums a warp has room for. If more share a key, two warps take a tile, some of the heads each.
constexpr long long kWarpHeads = 4;
constexpr int head_groups(long long heads) { return static_cast<int>((heads + kWarpHeads - 1) / kWarpHeads); }
/// A warp's heads are summed two at a time: sums of a pair, then of each its largest score and the weights' total.
constexpr int head_pairs(long long heads) {
  return static_cast<int>((heads < kWarpHeads ? heads + 1 : kWarpHeads) / 2);
}
constexpr int joined_floats(long long d) { return static_cast<int>(2 * (d + 2)); }
/// With room for several rows, where a smaller area makes a longer ring, half of the warps first hand what they summed
/// to the other half: of each lane its sums, the largest score and the total.
constexpr int joining_warps(long long rows) { return rows > 1 ? kWarps / 2 : kWarps; }
constexpr int handed_floats(long long d) { return (4 * runs(d) + 2) * 32; }
/// From one warp's to the next one's.
constexpr int joined_stride(long long rows, long long heads, long long d) {
  const int joined = head_pairs(heads) * joined_floats(d);
  return rows > 1 && handed_floats(d) > joined ? handed_floats(d) : joined;
}
constexpr long long joined_bytes(long long rows, long long heads, long long d) {
  return 4 * joining_warps(rows) * joined_stride(rows, heads, d);
}
/// What such a task works in: the above, then a row's queries, and of each row its key and its value.
constexpr long long row_alone_bytes(long long rows, long long heads, long long d) {
  return joined_bytes(rows, heads, d) + heads * query_bytes(d) + rows * 2 * 2 * d;
}

/// A row's chunks, at most: a warp weighs them together (combine.cuh), one a lane.
[[maybe_unused]] constexpr int kMaxChunks = 32;
/// Whether V chunks of `rows` rows, dealt to `dealt` of them at least, come to one for each.
constexpr bool each_has_a_chunk(long long chunks, long long rows, long long dealt) {
  return chunks >= rows && chunks >= dealt;
}
/// What a task of one of several chunks works in.
[[maybe_unused]] constexpr long long chunk_bytes(long long rows, long long heads, long long d) {
  return is_row_alone(rows, d) ? row_alone_bytes(rows, heads, d) : kParts * part_bytes(heads, d);
}

}  // namespace megalith::attention
