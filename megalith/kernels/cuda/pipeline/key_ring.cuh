// The ring through which keys and values of the cache come to attention of prompts (attention/query_tile.cuh): tiles of
// kTileKeys positions of a sequence, for one group of heads, laid out as the tensor cores want them (arch/wgmma.cuh).
//
// The copy warp looks pages up and copies 16 bytes a lane (cp.async), since eight positions, which are apart in a page, are
// side by side in a tile. Copies of a tile arrive at its barrier by themselves: a warp that waited for one tile after the other
// to announce it made a task of 512 tokens of Qwen3-8B take 21 us instead of 18 on an H100.
#pragma once

#include "megalith/kernels/attention_layout.h"
#include "megalith/kernels/cuda/common/check.cuh"
#include "megalith/kernels/cuda/pipeline/copy_request.cuh"
#include "megalith/kernels/cuda/pipeline/weight_ring.cuh"

namespace megalith::kernels {

/// What a task wants: of a sequence's positions the first `count`.
struct KeysRequest {
  const bf16 *keys, *values;  // of position 0 of page 0, of the group
  const i32* pages;           // of the sequence
  FaultNote faults;
  u32 check;  // of a page's number
  int num_pages, page_positions, position_stride, values_of_head, count;
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
    barrier_init(&key_ring.empty[i], kWarps / attention::kTeams * kArrivalsOfWarp);
  }
  key_ring.tiles = 0;
}
/// Tile number `tile` of all lies in a slot, in a phase of this parity.
inline u32 key_slot(u32 tile) { return tile % attention::kKeySlots; }
inline u32 key_parity(u32 tile) { return tile / attention::kKeySlots & 1; }
/// The number behind `count` tiles from `tile` on. It begins anew where slot and parity do: a count that went on would end in the
/// middle of a round.
inline u32 after_tiles(u32 tile, u32 count) { return (tile + count) % (2 * attention::kKeySlots); }
inline u32 tiles_of_keys(int count) {
  return static_cast<u32>(count + attention::kTileKeys - 1) / static_cast<u32>(attention::kTileKeys);
}

/// By all lanes of the copy warp, what a task has asked for, of heads of kRuns * kRunValues values; `tile`: the next one's number.
/// A lane looks up the page of a position. Eight lanes side by side copy what lies side by side, of as few positions as
/// that takes: with eight positions of 16 bytes each a tile of 16 KB took an H100 1,780 cycles instead of 310.
template <int kRuns>
inline void copy_keys_of(const KeysRequest& request, u32& tile) {
  constexpr int kKeys = attention::kTileKeys, kPieces = kRuns * attention::kRunValues / 8,  // of 16 bytes, of a row
      kAcross = kRuns % 4 == 0   ? 16
                : kRuns % 2 == 0 ? 8
                                 : 4,
                kRows = kWarpLanes / kAcross;
  constexpr u32 kTileBytes = attention::key_tile_bytes(8 * kPieces), kEightBytes = attention::eight_bytes(8 * kPieces);
  static_assert(kWarpLanes % kKeys == 0 && kKeys % 8 == 0 && 8 % kRows == 0);
  // Asked once, where nobody wants the registers.
  const int mine = lane(), row = mine / kAcross, piece = mine % kAcross;
  // Of so many pages from first_page on, each lane has one: a load for each tile would stand behind the copies before it.
  int first_page = -kWarpLanes, page = 0;
  // Past the last position zeros come, since a weight of 0 takes no value that is none.
  const auto place_of = [&](int at) {
    const int position = min(at + mine, request.count - 1), number = position / request.page_positions;
    if (any_of_warp(number >= first_page + kWarpLanes)) {
      first_page = __shfl_sync(0xffffffffu, number, 0);
      const int looked_up = min(first_page + mine, (request.count - 1) / request.page_positions);
      page = inside_32(request.faults, request.pages[looked_up], request.num_pages, request.check);
    }
    return __shfl_sync(0xffffffffu, page, number - first_page) * request.page_positions +
           (position - number * request.page_positions);
  };
  const bf16 *const keys = request.keys + piece * 8, *const values = request.values + piece * 8;
  const u32 ring = shared_address(shared_area()) + static_cast<u32>(piece * attention::kLeading + row * 16),
            stride = static_cast<u32>(request.position_stride);
  int place = place_of(0);
#pragma unroll 1
  for (int at = 0; at < request.count; at += kKeys, tile = after_tiles(tile, 1)) {
    const u32 slot = key_slot(tile), to = ring + slot * 2 * kTileBytes;
    while (!all_of_warp(barrier_passed(&key_ring.empty[slot], key_parity(tile) ^ 1))) {}
    // All of them before the first copy: a row at a time each copy would wait for what a lane tells the others.
    u64 from[kKeys / kRows];
#pragma unroll
    for (int i = 0; i < kKeys / kRows; ++i)
      from[i] = u64{static_cast<u32>(__shfl_sync(0xffffffffu, place, at % kWarpLanes + i * kRows + row))} * stride;
#pragma unroll
    for (int first = 0; first < kKeys; first += kRows) {
      const u32 bytes = at + first + row < request.count ? 16 : 0,
                to_row = to + static_cast<u32>(first / 8 * kEightBytes + first % 8 * 16);
#pragma unroll
      for (int i = 0; i < kPieces; i += kAcross) {
        copy_begin(to_row + i * attention::kLeading, keys + from[first / kRows] + i * 8, bytes);
        copy_begin(to_row + kTileBytes + i * attention::kLeading, values + from[first / kRows] + i * 8, bytes);
      }
    }
    copies_arrive(&key_ring.full[slot]);
    if ((at + kKeys) % kWarpLanes == 0) place = place_of(at + kKeys);
  }
}
template <int kRuns = attention::kMaxTileValues / attention::kRunValues>
inline void copy_keys(u32& tile) {
  const KeysRequest request = key_ring.request;
  if constexpr (kRuns > 1)
    if (request.values_of_head < kRuns * attention::kRunValues) return copy_keys<kRuns - 1>(tile);
  copy_keys_of<kRuns>(request, tile);
}

}  // namespace megalith::kernels
