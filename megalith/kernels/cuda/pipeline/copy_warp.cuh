// The warp that copies what tasks ask for, besides weights: activations of more than 128 tokens (pipeline/activation_ring.cuh),
// keys and values of prompts (pipeline/key_ring.cuh). A task asks for one of them at most, once its inputs are there, and
// takes all of it; so both rings may lie in the same memory.
#pragma once

#include "megalith/kernels/cuda/pipeline/activation_ring.cuh"
#include "megalith/kernels/cuda/pipeline/key_ring.cuh"

namespace megalith::kernels {

inline constexpr bool kHasCopyWarp = kHasActivationRing || kWorkerConfig.table_rows > attention::kMaxRowsOfParts;

/// Before the first task, by one thread.
inline void make_copied_rings() {
  barrier_init(&copy_request.made, kArrivalsOfBlock);
  make_activation_ring();
  make_key_ring();
}

/// Task after task, until `is_over()`. `map`: of caches, or nullptr.
template <class IsOver>
inline void copy_warp_run(IsOver is_over, const runtime::CacheMap* map = nullptr) {
  u32 slot = 0, parity = 0, tile = 0;
  for (u32 asked = 0;; asked ^= 1) {
    while (!all_of_warp(barrier_passed(&copy_request.made, asked)))
      if (any_of_warp(is_over())) return;
    if (copy_request.what == Copied::keys)
      copy_keys(map, tile);
    else
      copy_activations(slot, parity);
    warp_sync();
  }
}

}  // namespace megalith::kernels
