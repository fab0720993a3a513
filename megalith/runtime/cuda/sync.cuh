// The operations on shared words for a GPU, under the names of runtime/cpu/sync.h. Words of 32 bits (mailbox, abort)
// may lie in memory that the host shares, so their scope is the system; event counters (64 bits) never leave the
// device. Nobody sleeps here: a futex is the host's, and the host polls.
#pragma once

#include "megalith/kernels/cuda/arch/ptx.cuh"
#include "megalith/runtime/protocol.h"

namespace megalith::runtime {

using kernels::add_release;
using kernels::fence_ordered;
using kernels::load_acquire;
using kernels::load_relaxed;
using kernels::store_relaxed;
using kernels::store_release;

inline u32 load_ordered(const u32* word) {
  fence_ordered();
  return load_acquire(word);
}
inline void store_ordered(u32* word, u32 value) {
  fence_ordered();
  store_relaxed(word, value);
}
/// A load and a store: only the mailbox's bell is added to, by one writer at a time, and not every host link has
/// atomics.
inline void add_ordered(u32* word, u32 value) { store_ordered(word, load_relaxed(word) + value); }

/// The host polls its mailbox: nobody looks at the bell, and each look at the host's memory takes a microsecond.
inline constexpr bool kWakesReaders = false;
inline void spin_pause() { kernels::nap(32); }
inline void word_sleep(const u32*, u32, u64) { kernels::nap(1000); }
inline void word_wake(const u32*) {}

/// By the GPU's own clock; the host puts it beside its own (engine/cuda_machine.cpp).
inline u64 monotonic_ns() { return kernels::global_clock_ns(); }

}  // namespace megalith::runtime
