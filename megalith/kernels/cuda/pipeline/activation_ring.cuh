// The ring through which activations of many rows come to bodies whose warps each have 16 of the rows to themselves
// (mainloop/gemm_own_rows.cuh): blocks of columns of all rows, as kernels/row_blocks.h has them. Beside that many sums there
// are no registers for them, so the tensor cores read them where they lie.
//
// A warp of its own copies (pipeline/copy_warp.cuh). A task says what, once its inputs are there, and takes all of it.
#pragma once

#include "megalith/kernels/cuda/pipeline/copy_request.cuh"
#include "megalith/kernels/cuda/pipeline/weight_ring.cuh"
#include "megalith/kernels/gemm_layout.h"

namespace megalith::kernels {

inline constexpr bool kHasActivationRing = stream::wide_parts(kWorkerConfig.stream_rows) == 1;
inline constexpr u32 kActivationSlots = stream::activation_slots(kScaleBytes > 0), kSlotBlocks = stream::kSlotBlocks;

/// In kernels for racecheck lanes load and store, since that takes a copy by no map for a write of the thread that asks for it,
/// and what cp.async brought for under way when a partner writes there.
inline constexpr bool kLanesCopyActivations = kEveryThreadArrives;
inline constexpr u32 kActivationLanes = kLanesCopyActivations ? kWarpLanes : kCopyLanes;

/// What a task wants, `turns` times: `slots` slots of kSlotBlocks blocks, which are `stride` bytes apart, of each block the
/// first `bytes`; of those past `last` that one again.
struct ActivationRequest {
  const u8* from;
  u32 bytes, stride;
  int slots, last, turns;
};
struct ActivationRingState {
  Barrier full[kActivationSlots], empty[kActivationSlots];
  ActivationRequest request;
  u32 slot, parity;  // of the next task's first block
};
__shared__ ActivationRingState activation_ring;

/// Before the first task, by one thread.
inline void make_activation_ring() {
  for (u32 i = 0; i < kActivationSlots; ++i) {
    barrier_init(&activation_ring.full[i], kActivationLanes);
    barrier_init(&activation_ring.empty[i], kWarps * kArrivalsOfWarp);
  }
  activation_ring.slot = activation_ring.parity = 0;
}

inline void next_activation_slot(u32& slot, u32& parity) {
  if (++slot == kActivationSlots) slot = 0, parity ^= 1;
}
/// What a slot has room for of a block that is so many bytes in memory, of which a task wants kTileRows rows at most: a
/// multiplication takes 64 at a time, whoever's they are.
constexpr u32 activation_block_bytes(u32 in_memory) { return static_cast<u32>(stream::slot_rows(in_memory / 64)) * 64; }
inline u8* activation_slot(u32 slot, u32 block_bytes) { return shared_area() + slot * kSlotBlocks * block_bytes; }

inline void copy_by_lanes(u8* to, const u8* from, u32 bytes) {
  for (u32 at = static_cast<u32>(lane()) * 16; at < bytes; at += kWarpLanes * 16)
    store_shared(shared_address(to) + at, load_quad(from + at));
}
/// By the warp that copies, what a task has asked for; `slot` and `parity`: of the next one.
inline void copy_activations(u32& slot, u32& parity) {
  if (lane() >= static_cast<int>(kActivationLanes)) return;
  const ActivationRequest request = activation_ring.request;
  const u32 in_slot = activation_block_bytes(request.stride);
  fence_writes_before_copies();
  for (int turns = request.turns; turns > 0; --turns)
    for (int i = 0; i < request.slots; ++i) {
      barrier_wait(&activation_ring.empty[slot], parity ^ 1);
      Barrier* const full = &activation_ring.full[slot];
      if (!kLanesCopyActivations) pieces_begin(kSlotBlocks * request.bytes, full);
#pragma unroll
      for (int block = 0; block < static_cast<int>(kSlotBlocks); ++block) {
        u8* const to = activation_slot(slot, in_slot) + static_cast<u32>(block) * in_slot;
        const u8* const from =
            request.from + i64(min(i * static_cast<int>(kSlotBlocks) + block, request.last)) * request.stride;
        if (kLanesCopyActivations)
          copy_by_lanes(to, from, request.bytes);
        else
          piece_begin(to, from, request.bytes, full);
      }
      if (kLanesCopyActivations)
        barrier_arrive(full);
      else
        pieces_end(full);
      next_activation_slot(slot, parity);
    }
}

}  // namespace megalith::kernels
