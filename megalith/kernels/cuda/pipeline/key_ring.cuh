// The ring through which keys and values of the cache come to attention of prompts (attention/query_tile.cuh): tiles of
// kTileKeys positions of a sequence, for one group of heads, laid out as the tensor cores want them (arch/wgmma.cuh). A tile
// of keys is followed by that of their values, so that room for the next keys is there while those values are still multiplied.
//
// The copy warp looks pages up. Where a map describes the caches (runtime::CacheMap) the copy engine brings whole tiles, which
// takes the multiprocessors of an H100 half as long when all of them copy. Else, and of a tile that is not whole, each lane copies
// 16 bytes at a time (cp.async). Those copies arrive at a tile's barrier by themselves: a warp that waited for one tile after the
// other to announce it made a task of 512 tokens of Qwen3-8B take 21 us instead of 18.
#pragma once

#include "megalith/kernels/attention_layout.h"
#include "megalith/kernels/cuda/arch/swizzle.cuh"
#include "megalith/kernels/cuda/attention/kv_pages.cuh"
#include "megalith/kernels/cuda/common/check.cuh"
#include "megalith/kernels/cuda/pipeline/copy_request.cuh"
#include "megalith/kernels/cuda/pipeline/weight_ring.cuh"
#include "megalith/runtime/protocol.h"

namespace megalith::kernels {

/// What a task wants: of a sequence's positions the first `count`.
struct KeysRequest {
  const bf16 *keys,
      *values;  // of position 0 of page 0, of the group; or if heads lie in pairs (kernels/head_pairs.h) the caches
  const u32 *table_of_keys, *table_of_values;  // of those; else nullptr
  int heads, head;
  const i32* pages;  // of the sequence
  FaultNote faults;
  u32 check;  // of a page's number
  int num_pages, page_positions, row_stride, values_of_head, count;
};
struct KeyRingState {
  Barrier full[attention::kKeySlots], empty[attention::kKeySlots];
  KeysRequest request;
  u32 tiles;  // that came before this request, as after_tiles() counts them
};
__shared__ KeyRingState key_ring;

/// Before the first task, by one thread.
inline void make_key_ring() {
  for (u32 i = 0; i < attention::kKeySlots; ++i) {
    barrier_init(&key_ring.full[i], kWarpLanes);
    barrier_init(&key_ring.empty[i], kWarps * kArrivalsOfWarp);
  }
  key_ring.tiles = 0;
}
/// Tile number `tile` of all lies in a slot, in a phase of this parity.
inline u32 key_slot(u32 tile) { return tile % attention::kKeySlots; }
inline u32 key_parity(u32 tile) { return tile / attention::kKeySlots & 1; }
/// The number behind `count` tiles from `tile` on. It begins anew where slot and parity do: a count that went on would end in the
/// middle of a round.
inline u32 after_tiles(u32 tile, u32 count) { return (tile + count) % (2 * attention::kKeySlots); }
/// Of keys and of values.
inline u32 tiles_of_keys(int count) {
  return 2 * (static_cast<u32>(count + attention::kTileKeys - 1) / static_cast<u32>(attention::kTileKeys));
}

/// Where the halves of heads that a task wants are, to a map of the caches that describes them. Rows are positions, or heads of
/// them if those lie in pairs.
struct BoxesOfKeys {
  static constexpr int kRows = runtime::CacheMap::kBoxRows, kOfTile = attention::kTileKeys / kRows;

  const runtime::CacheMap* map;
  bool fits;  // else there is no map, or it describes other heads or pages
  u32 line[2],
      first[2];  // of keys and of values: which run of 128 bytes of a row, the lane's half, and the row they begin with

  inline BoxesOfKeys(const KeysRequest& request, const runtime::CacheMap* of, bool is_swizzled)
      : map(of), line{}, first{} {
    const u32 row_bytes = 2 * static_cast<u32>(request.row_stride), lines_of_row = row_bytes / attention::kHalfRowBytes;
    fits = kCopiesByMap && is_swizzled && map != nullptr && map->row_bytes == row_bytes &&
           request.page_positions % kRows == 0;
    if (!fits) return;
    fence_writes_before_copies();
    fence_reads_before_copies();
    map_is_written(map);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const auto* const at = reinterpret_cast<const u8*>(i == 0 ? request.keys : request.values);
      const u32 lines = static_cast<u32>(static_cast<u64>(at - map->begin) / attention::kHalfRowBytes);
      line[i] = lines % lines_of_row + static_cast<u32>(lane()) % 2;
      first[i] = lines / lines_of_row;
    }
  }
};

/// What a task has asked for, of heads of kRuns * kRunValues values. By all lanes of the copy warp.
template <int kRuns>
class CopiesOfKeys {
  static constexpr int kKeys = attention::kTileKeys, kLooks = kKeys / kWarpLanes,
                       kPieces = kRuns * attention::kRunValues / 8;  // of 16 bytes, of a row
  // Lanes side by side copy what lies side by side, of as few positions as that takes: with eight positions of 16 bytes each a
  // tile of 16 KB took an H100 1,780 cycles instead of 310.
  static constexpr int kAcross = kRuns % 4 == 0 ? 16 : kRuns % 2 == 0 ? 8 : 4, kRows = kWarpLanes / kAcross;
  static constexpr bool kSwizzled = attention::is_swizzled(8 * kPieces);
  static constexpr u32 kTileBytes = attention::key_tile_bytes(8 * kPieces), kHalves = kKeys * attention::kHalfRowBytes,
                       kEightBytes = kSwizzled ? attention::kSwizzledEightBytes : attention::eight_bytes(8 * kPieces);
  static_assert(kKeys == 2 * kWarpLanes && kKeys == 4 * BoxesOfKeys::kRows && 8 % kRows == 0);

 public:
  CopiesOfKeys(const KeysRequest& request, const runtime::CacheMap* map)
      : request_(request), boxes_(request, map, kSwizzled), mine_(lane()), count_(request.count) {
    const int row = mine_ / kAcross, piece = mine_ % kAcross;
    // A row of a swizzled tile is further by so much, and what that turns.
    ring_ = shared_address(shared_area()) +
            static_cast<u32>(kSwizzled ? piece / 8 * kHalves + swizzle128(row * 128 + piece % 8 * 16)
                                       : piece * attention::kLeading + row * 16);
  }

  /// `tile`: the next one's number.
  void run(u32& tile) {
#pragma unroll 1
    for (int at = 0; at < count_; at += kKeys) {
      u32 place[kLooks];
#pragma unroll
      for (int look = 0; look < kLooks; ++look) place[look] = place_of(at + look * kWarpLanes);
#pragma unroll 1
      for (int i = 0; i < 2; ++i) {
        if (i == 1) {
#pragma unroll
          for (u32& of_lane : place) of_lane = InPairs::of_values(of_lane);
        }
        const u32 slot = key_slot(tile);
        while (!all_of_warp(barrier_passed(&key_ring.empty[slot], key_parity(tile) ^ 1))) {}
        if (boxes_.fits && at + kKeys <= count_)
          copy_boxes(i, place, slot);
        else
          copy_rows(i, place, slot, at);
        tile = after_tiles(tile, 1);
      }
    }
  }

 private:
  using InPairs = RowInPairs<kPieces * 16>;

  /// Which row the lane's position of those from number `at` on is of the cache of keys, as RowInPairs has it. A lane knows the first row of a page, of 32 pages at a time. Past the last position it is that again.
  u32 place_of(int at) {
    const int position = min(at + mine_, count_ - 1), number = position / request_.page_positions;
    if (any_of_warp(number >= first_page_ + kWarpLanes)) {
      first_page_ = __shfl_sync(0xffffffffu, number, 0);
      const int looked_up = min(first_page_ + mine_, (count_ - 1) / request_.page_positions);
      first_row_ =
          first_row_of(inside_32(request_.faults, request_.pages[looked_up], request_.num_pages, request_.check));
    }
    return __shfl_sync(0xffffffffu, first_row_, number - first_page_) +
           static_cast<u32>(position - number * request_.page_positions);
  }
  u32 first_row_of(int page) const {
    const auto positions = static_cast<u32>(request_.page_positions);
    if (request_.table_of_keys == nullptr) return static_cast<u32>(page) * positions;
    return InPairs::find(positions, static_cast<u32>(request_.heads), static_cast<u32>(page), 0,
                         static_cast<u32>(request_.head), [&](u32 word) {
                           return word < head_pairs::kTableWords
                                      ? request_.table_of_keys[word]
                                      : request_.table_of_values[word - head_pairs::kTableWords];
                         });
  }
  /// A whole tile of keys (i is 0) or values (1) by the copy engine, a box a lane.
  void copy_boxes(int i, const u32 (&place)[kLooks], u32 slot) const {
    constexpr int kBoxRows = BoxesOfKeys::kRows, kBoxes = BoxesOfKeys::kOfTile;
    const u32 box = static_cast<u32>(mine_) / 2 % kBoxes, half = static_cast<u32>(mine_) % 2;
    const u32 on_page = __shfl_sync(0xffffffffu, InPairs::number(place[0]), static_cast<int>(box) % 2 * kBoxRows),
              on_next =
                  __shfl_sync(0xffffffffu, InPairs::number(place[kLooks - 1]), static_cast<int>(box) % 2 * kBoxRows);
    if (mine_ == 0) bytes_will_come(kTileBytes, &key_ring.full[slot]);
    warp_sync();
    if (mine_ < 2 * kBoxes)
      box_begin(shared_address(shared_area()) + slot * kTileBytes + half * kHalves +
                    box * kBoxRows * attention::kHalfRowBytes,
                boxes_.map, i == 0 ? boxes_.line[0] : boxes_.line[1],
                (i == 0 ? boxes_.first[0] : boxes_.first[1]) + (box < 2 ? on_page : on_next), &key_ring.full[slot]);
    warp_sync();
    barrier_arrive(&key_ring.full[slot]);
  }
  /// The same from number `at` on by the lanes. Past the last position zeros come, since a weight of 0 takes no value that is
  /// none.
  void copy_rows(int i, const u32 (&place)[kLooks], u32 slot, int at) const {
    const int row = mine_ / kAcross, piece = mine_ % kAcross;
    const bf16* const of = (i == 0 ? request_.keys : request_.values) + piece * 8;
    const u32 to = ring_ + slot * kTileBytes, stride = static_cast<u32>(request_.row_stride);
#pragma unroll 1
    for (int look = 0; look < kLooks; ++look) {
      const int begin = look * kWarpLanes;
      const u32 looked = InPairs::number(look == 0 ? place[0] : place[kLooks - 1]);
      const u32 to_rows = to + static_cast<u32>(begin) / 8 * kEightBytes;
      u64 from[kWarpLanes / kRows];
#pragma unroll
      for (int r = 0; r < kWarpLanes / kRows; ++r)
        from[r] = u64{__shfl_sync(0xffffffffu, looked, r * kRows + row)} * stride;
#pragma unroll
      for (int first = 0; first < kWarpLanes; first += kRows) {
        const u32 bytes = at + begin + first + row < count_ ? 16 : 0,
                  to_row = (kSwizzled ? (to_rows ^ first % 8 * 16) + first % 8 * 128 : to_rows + first % 8 * 16) +
                           first / 8 * kEightBytes;
#pragma unroll
        for (int across = 0; across < kPieces; across += kAcross)
          copy_begin(to_row + across * attention::kLeading, of + from[first / kRows] + across * 8, bytes);
      }
    }
    copies_arrive(&key_ring.full[slot]);
  }

  const KeysRequest& request_;
  const BoxesOfKeys boxes_;
  const int mine_, count_;  // asked once, where nobody wants the registers
  u32 ring_, first_row_ = 0;
  int first_page_ = -kWarpLanes;
};

/// By all lanes of the copy warp, what a task has asked for; `tile`: the next one's number.
template <int kRuns = attention::kMaxTileValues / attention::kRunValues>
inline void copy_keys(const runtime::CacheMap* map, u32& tile) {
  const KeysRequest& request = key_ring.request;
  if constexpr (kRuns > 1)
    if (request.values_of_head < kRuns * attention::kRunValues) return copy_keys<kRuns - 1>(map, tile);
  CopiesOfKeys<kRuns>(request, map).run(tile);
}

}  // namespace megalith::kernels
