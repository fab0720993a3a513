// The operations on shared words for a GPU, under the names of runtime/cpu/sync.h. Words of 32 bits (mailbox, abort)
// may lie in memory that the host shares, so their scope is the system; event counters (64 bits) never leave the
// device. Nobody sleeps here: a futex is the host's, and the host polls.
#pragma once

#include "megalith/runtime/protocol.h"

namespace megalith::runtime {

inline u32 load_relaxed(const u32* word) {
  u32 value;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
}
inline u32 load_acquire(const u32* word) {
  u32 value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
}
inline void store_relaxed(u32* word, u32 value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" : : "l"(word), "r"(value) : "memory");
}
inline void store_release(u32* word, u32 value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" : : "l"(word), "r"(value) : "memory");
}
inline void fence_ordered() { asm volatile("fence.sc.sys;" : : : "memory"); }
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

/// Acquire within the device; pairs with add_release().
inline u64 load_acquire(const u64* word) {
  u64 value;
  asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}
inline void add_release(u64* word, u64 value) {
  asm volatile("red.release.gpu.global.add.u64 [%0], %1;" : : "l"(word), "l"(value) : "memory");
}

/// The host polls its mailbox: nobody looks at the bell, and each look at the host's memory takes a microsecond.
inline constexpr bool kWakesReaders = false;
inline void spin_pause() { __nanosleep(32); }
inline void word_sleep(const u32*, u32, u64) { __nanosleep(1000); }
inline void word_wake(const u32*) {}

/// By the GPU's own clock; the host puts it beside its own (engine/cuda_machine.cpp).
inline u64 monotonic_ns() {
  u64 value;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(value));
  return value;
}

}  // namespace megalith::runtime
