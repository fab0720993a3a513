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
  u32 tiles;  // that came before this request: which slot is next, and in which phase
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

/// By all lanes of the copy warp, what a task has asked for; `tile`: how many there were before. A lane looks up the page of
/// a position, and copies of every eighth position of eight every fourth piece of 16 bytes.
template <int kKeys = attention::kTileKeys>
inline void copy_keys(u32& tile) {
  static_assert(kKeys == kWarpLanes);
  const KeysRequest request = key_ring.request;
  // Past the last position zeros come, since a weight of 0 takes no value that is none.
  const auto place_of = [&](int at) {
    const int position = min(at + lane(), request.count - 1),
              page = inside_32(request.faults, request.pages[position / request.page_positions], request.num_pages,
                               request.check);
    return page * request.page_positions + position % request.page_positions;
  };
  const u32 tile_bytes = static_cast<u32>(attention::key_tile_bytes(request.values_of_head)),
            eight_bytes = tile_bytes / (kKeys / 8);
  int place = place_of(0);
#pragma unroll 1
  for (int at = 0; at < request.count; at += kKeys, ++tile) {
    const int next = at + kKeys < request.count ? place_of(at + kKeys) : 0;
    const u32 slot = key_slot(tile);
    while (!all_of_warp(barrier_passed(&key_ring.empty[slot], key_parity(tile) ^ 1))) {}
    const u32 to =
        shared_address(shared_area()) + slot * 2 * tile_bytes + static_cast<u32>(lane() / 8 * 128 + lane() % 8 * 16);
#pragma unroll
    for (int eight = 0; eight < kKeys / 8; ++eight) {
      const int key = eight * 8 + lane() % 8;
      const i64 from = i64(__shfl_sync(0xffffffffu, place, key)) * request.position_stride + lane() / 8 * 8;
      const u32 bytes = at + key < request.count ? 16 : 0, to_eight = to + static_cast<u32>(eight) * eight_bytes;
#pragma unroll
      for (int value = 0; value < attention::kMaxTileValues; value += attention::kRunValues)
        if (value < request.values_of_head) {
          copy_begin(to_eight + value * 16, request.keys + from + value, bytes);
          copy_begin(to_eight + tile_bytes + value * 16, request.values + from + value, bytes);
        }
    }
    copies_arrive(&key_ring.full[slot]);
    place = next;
  }
}

}  // namespace megalith::kernels
