// The threads of a block for the worker's protocol (support/block/): words, barriers and copies have the orders that PTX
// gives them and none stronger, one of which a test may take away (device/host_block.h). No body calculates here, so
// nothing of that is needed: tests/kernels has threads that do (kernels/block/block_threads.h), and waits for nothing.
#pragma once

#include <cstdlib>

#include "device/host_block.h"
#include "megalith/kernels/cuda/arch/ptx.cuh"
#include "megalith/kernels/l2_layout.h"

namespace megalith::kernels {

using Order = std::memory_order;

inline constexpr int kThreads = host::kConsumers, kWarpLanes = host::kLanes, kWarps = host::kConsumerWarps;
inline constexpr int kBlockThreads = host::kThreads;
inline void registers_give() {}
inline void registers_take() {}

inline int thread() { return host::self.index; }
inline int lane() { return thread() % kWarpLanes; }
inline int warp() { return thread() / kWarpLanes; }

inline void block_sync(const char* function = __builtin_FUNCTION(), int line = __builtin_LINE()) {
  host::meet(host::self.block->consumers, thread(), "block_sync", function, line);
}
inline void whole_block_sync(const char* function = __builtin_FUNCTION(), int line = __builtin_LINE()) {
  host::meet(host::self.block->whole, thread(), "whole_block_sync", function, line);
}
inline void warp_sync(const char* function = __builtin_FUNCTION(), int line = __builtin_LINE()) {
  host::meet(host::self.block->warps[static_cast<size_t>(warp())], lane(), "warp_sync", function, line);
}

inline bool any_of_warp(bool value) { return host::self.block->any_of_lanes(value); }
inline bool all_of_warp(bool value) { return !any_of_warp(!value); }

inline u64 profile_clock() { return ++host::self.random; }
inline u64 global_clock_ns() { return 0; }  // time stands still: a busy host is no hang
inline void nap(u32) { host::dawdle(); }

inline u32 load_relaxed(const u32* word) {
  host::dawdle();
  return __atomic_load_n(word, __ATOMIC_RELAXED);
}
inline u32 load_acquire(const u32* word) {
  host::dawdle();
  return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}
inline void store_relaxed(u32* word, u32 value) { __atomic_store_n(word, value, __ATOMIC_RELAXED); }
inline void store_release(u32* word, u32 value) { __atomic_store_n(word, value, __ATOMIC_RELEASE); }
/// A change of one word that all share, since ThreadSanitizer does not know fences.
inline void fence_ordered() {
  static int word = 0;
  __atomic_fetch_add(&word, 1, __ATOMIC_SEQ_CST);
}

inline u64 look_at(const u64* word, u64 value) {
  host::look(host::high_half(word), static_cast<u32>(value >> 32));
  return value;
}
inline u64 load_acquire(const u64* word) {
  host::dawdle();
  if (host::is_weakened("load_acquire", "u64")) return look_at(word, __atomic_load_n(word, __ATOMIC_RELAXED));
  return look_at(word, __atomic_load_n(word, __ATOMIC_ACQUIRE));
}
inline void add_release(u64* word, u64 value) {
  host::dawdle();
  if (host::is_weakened("add_release", "u64"))
    __atomic_fetch_add(word, value, __ATOMIC_RELAXED);
  else
    __atomic_fetch_add(word, value, __ATOMIC_RELEASE);
  host::wake(host::high_half(word));
}
inline u64 load_relaxed(const u64* word) {
  host::dawdle();
  return look_at(word, __atomic_load_n(word, __ATOMIC_RELAXED));
}
inline void store_relaxed(u64* word, u64 value) {
  __atomic_store_n(word, value, __ATOMIC_RELAXED);
  host::wake(host::high_half(word));
}
using Barrier = u64;

inline uint64_t* barrier_word(Barrier* barrier) { return reinterpret_cast<uint64_t*>(barrier); }
inline void barrier_init(Barrier* barrier, u32 arrivals) { *barrier = host::PhaseBarrier::fresh(arrivals); }
inline void barriers_are_made() {}
inline void barrier_arrive(Barrier* barrier) {
  host::dawdle();
  const bool weak = host::is_weakened("arrive", host::self.block->name_of(barrier));
  host::PhaseBarrier::change(barrier_word(barrier), 1, 0, weak ? std::memory_order_relaxed : std::memory_order_release);
}
inline bool barrier_passed(Barrier* barrier, u32 parity) {
  host::dawdle();
  const bool weak = host::is_weakened("wait", host::self.block->name_of(barrier));
  if (weak && host::dropped) return true;
  const u64 word = weak ? __atomic_load_n(barrier, __ATOMIC_RELAXED) : __atomic_load_n(barrier, __ATOMIC_ACQUIRE);
  look_at(barrier, word);
  return host::PhaseBarrier::passed(word, parity);
}

inline bool barrier_is_past(Barrier* barrier, u32 parity) { return barrier_passed(barrier, parity); }
// No block has a partner here.
inline u32 at_partner(u32) { std::abort(); }
inline void partner_arrive_at(u32) { std::abort(); }
inline bool partner_barrier_passed(Barrier*, u32) { std::abort(); }
inline void cluster_sync() { std::abort(); }
inline void prefetch(const void*, u32) {}
inline u32 multiprocessor() { return host::self.block->multiprocessor; }
inline u32 exchange(u32* word, u32 value) { return __atomic_exchange_n(word, value, __ATOMIC_RELAXED); }

// Every second block is of the older kind, whose lanes copy and must be of one mind.
#if MEGALITH_BLOCK % 2 == 0
inline constexpr u32 kCopyLanes = 1;
inline bool any_of_copy_lanes(bool value) { return value; }
inline void copy_begin(void* to, const void* from, u32 bytes, Barrier* full) {
  host::dawdle();
  host::PhaseBarrier::change(barrier_word(full), 1, bytes, std::memory_order_release);
  host::self.block->copies.begin(to, from, bytes, 0, barrier_word(full));
}
inline constexpr bool kCopiesByMap = true;
/// A map is a host::ChunkMap here.
inline constexpr u32 kMapBytes = sizeof(host::ChunkMap);
inline void copy_begin_by_map(void* to, const void* map, u32 box, u32 bytes, Barrier* full) {
  host::dawdle();
  host::PhaseBarrier::change(barrier_word(full), 1, bytes, std::memory_order_release);
  const auto& chunk = *static_cast<const host::ChunkMap*>(map);
  for (int i = 0; i < stream::kChunkPieces; ++i)
    host::self.block->copies.begin(
        static_cast<u8*>(to) + i * chunk.piece_bytes,
        chunk.memory + u64{box} * stream::kBlockBytes + chunk.pieces[i] * stream::kPieceBytes,
        static_cast<u32>(chunk.piece_bytes), 0, barrier_word(full));
}
inline void prefetch_by_map(const void*, u32) {}
inline void map_is_written(const void*) {}
#else
inline constexpr bool kCopiesByMap = false;
inline constexpr u32 kMapBytes = 0;
inline void copy_begin_by_map(void*, const void*, u32, u32, Barrier*) {}
inline void prefetch_by_map(const void*, u32) {}
inline void map_is_written(const void*) {}
inline constexpr u32 kCopyLanes = kWarpLanes;
inline bool any_of_copy_lanes(bool value) { return host::self.block->any_of_lanes(value); }
inline void copy_begin(void* to, const void* from, u32 bytes, Barrier* full) {
  host::dawdle();
  const u32 mine = static_cast<u32>(lane()) * 16;
  host::self.block->copies.begin(static_cast<u8*>(to) + mine, static_cast<const u8*>(from) + mine, bytes - mine,
                                 kWarpLanes * 16, barrier_word(full));
}
#endif

/// No kernel here has the rings that these are for.
inline void pieces_begin(u32, Barrier*) {}
inline void piece_begin(void*, const void*, u32, Barrier*) {}
inline void pieces_end(Barrier*) {}
inline uint4 load_quad(const void*) { return {}; }
inline void store_shared(u32, uint4) {}
inline void fence_writes_before_copies() {}
inline void fence_reads_before_copies() {}
inline void bytes_will_come(u32, Barrier*) {}
inline void box_begin(u32, const void*, u32, u32, Barrier*) {}
inline void copy_begin(u32, const bf16*, u32) {}
inline u32 shared_address(const void*) { return 0; }
template <class T>
T __shfl_sync(u32, T value, int) {
  return value;
}
inline void copies_arrive(Barrier*) {}

}  // namespace megalith::kernels
