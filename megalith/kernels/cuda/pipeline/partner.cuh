// Partners: two blocks that form sums together, each over half of the columns, and finish half of them each. They are a
// cluster, so what one hands the other goes into its shared memory and not through the L2: 64 KB each way take 6,500
// cycles of an H100, of which 3,000 are two arrivals that both wait for.
//
// What is handed over lies where activations came to (pipeline/activation_ring.cuh), which a warp says is free when it has
// multiplied them: `ready` has passed when all warps of the other block have. `full` has passed when all of them have written.
#pragma once

#include "megalith/kernels/cuda/arch/cluster.cuh"
#include "megalith/kernels/cuda/pipeline/barrier.cuh"
#include "megalith/kernels/cuda/pipeline/ll_buffer.cuh"

namespace megalith::kernels {

inline constexpr bool kHasPartners = kWorkerConfig.has_partners;

struct PartnerState {
  Barrier ready, full;  // the other block's warps arrive
  u32 parity;           // of both, in the task that runs
};
__shared__ PartnerState partner_state;

/// Before the first task, by one thread.
inline void make_partner_state() {
  barrier_init(&partner_state.ready, kWarps * kArrivalsOfWarp);
  barrier_init(&partner_state.full, kWarps * kArrivalsOfWarp);
  partner_state.parity = 1;
}
/// As a task of both's begins, by one thread.
inline void partners_begin() { partner_state.parity ^= 1; }

/// By a warp that has met: at the other block's barrier that is this one's `barrier`.
inline void partner_arrive(Barrier* barrier) {
  if (kEveryThreadArrives || lane() == 0) partner_arrive_at(at_partner(shared_address(barrier)));
}
/// By a warp: false if the run was aborted, and then the other block may be gone from the task.
inline bool partner_wait(Barrier* barrier) {
  constexpr u32 kRoundsBetweenLooks = 64;
  for (u32 round = 1; !all_of_warp(partner_barrier_passed(barrier, partner_state.parity)); ++round) {
    bool is_over = flag_is_set(&stopped());
    if (!is_over && round % kRoundsBetweenLooks == 0 && load_relaxed(abort_word()) != 0) {
      flag_set(&stopped());
      is_over = true;
    }
    if (any_of_warp(is_over)) return false;
  }
  return true;
}
/// By a warp that has no part in what is handed over. It waits nevertheless: a block with no tokens at all would be two tasks ahead,
/// and both barriers two phases, before the other one has looked for the first.
inline void hand_nothing_over() {
  warp_sync();
  partner_arrive(&partner_state.ready);
  partner_arrive(&partner_state.full);
  partner_wait(&partner_state.full);
}

}  // namespace megalith::kernels
