// What workers and their bodies take from a GPU and C++ has no words for: who a thread is, barriers, copies, loads and
// stores with an order and a scope, and what tensor cores calculate (PTX ISA 9.0, sections 8, 9.7.9, 9.7.13
// and 9.7.14). Plain functions here, everything built of them elsewhere: tests/support/block has this one file's names
// for threads of a host. On those the worker runs where ThreadSanitizer looks on, and bodies calculate. Only the
// multiplications of whole warpgroups stand elsewhere (arch/wgmma.cuh).
#pragma once

#include "megalith/kernels/cuda/arch/builtins.cuh"
#include "megalith/kernels/cuda/common/worker_config.cuh"
#include "megalith/kernels/shared_budget.h"
#include "megalith/kernels/stream_limits.h"

// needs them
#include "megalith/kernels/cpu/prelude.h"

namespace megalith::kernels {

// ---- the threads of a block --------------------------------------------------------------------

/// Threads that run bodies. 16 warps have enough loads in flight together; with the three warps beside them each thread
/// has 96 registers, since they are dealt to four warps at a time. With 8 warps Qwen3-0.6B took 6 % longer on an H200,
/// and Qwen3-8B 0.6 % less.
inline constexpr int kThreads = 512, kWarpLanes = 32, kWarps = kThreads / kWarpLanes;
/// A block has three warps more, with duties of their own (runtime/cuda/worker.cuh), and one that makes them four: only
/// so many give up registers together.
inline constexpr int kBlockThreads = kThreads + 4 * kWarpLanes;

/// The threads that run bodies take registers which those behind them give up: 104 and 64 instead of 96 each, in a block
/// that has 640 x 96. Each is called once, by all its warps, and nothing behind the one comes behind the other; only so
/// does the assembler deal them out (PTX ISA, setmaxnreg).
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
inline constexpr bool kTakesRegisters = kWorkerConfig.registers == 104;
#else
inline constexpr bool kTakesRegisters = false;
#endif
inline void registers_give() {
  if constexpr (kTakesRegisters) asm volatile("setmaxnreg.dec.sync.aligned.u32 64;");
}
inline void registers_take() {
  if constexpr (kTakesRegisters) asm volatile("setmaxnreg.inc.sync.aligned.u32 104;");
}
/// Tiles of weights for which a thread has registers while it waits for a row of activations (mainloop/gemv_mainloop.cuh).
/// With 96 registers they would spill, and beside bodies of many rows.
inline constexpr u32 kTilesAhead = kTakesRegisters && kWorkerConfig.stream_rows <= 2 ? 4 : 0;

/// Where weights stream, asked for again wherever it is used: what follows from it, of all bodies, the compiler else
/// works out before the first task and keeps, where there are no registers for it, in local memory. In the attention of
/// eight rows of Qwen3-8B that were 530 bytes of spills instead of 140, with one row 80 instead of 32.
inline u32 thread_index() {
  if constexpr (kWorkerConfig.stream_rows > 0) {
    u32 index;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
    return index;
  } else {
    return threadIdx.x;
  }
}
inline int thread() { return static_cast<int>(thread_index()); }
inline int lane() { return static_cast<int>(thread_index() % kWarpLanes); }
inline int warp() { return static_cast<int>(thread_index() / kWarpLanes); }

/// Among the threads that run bodies.
inline void block_sync() { asm volatile("bar.sync 1, %0;" : : "n"(kThreads) : "memory"); }
/// Among `num_threads` threads, those of part `part` of the block.
inline void part_sync(int part, int num_threads) {
  asm volatile("bar.sync %0, %1;" : : "r"(2 + part), "r"(num_threads) : "memory");
}
/// Among all threads of the block.
inline void whole_block_sync() { __syncthreads(); }
inline void warp_sync() { __syncwarp(); }
/// By all lanes of a warp.
inline bool all_of_warp(bool value) { return __all_sync(0xffffffffu, value) != 0; }
inline bool any_of_warp(bool value) { return __any_sync(0xffffffffu, value) != 0; }

/// The clock of profile records: of this multiprocessor, which no other shares.
inline u64 profile_clock() { return static_cast<u64>(clock64()); }
/// The GPU's own clock.
inline u64 global_clock_ns() {
  u64 value;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(value));
  return value;
}
inline void nap(u32 nanoseconds) { __nanosleep(nanoseconds); }

// ---- words that threads change as they come ----------------------------------------------------

/// Relaxed; what was there before.
inline i32 atomic_add(i32* word, i32 value) { return atomicAdd(word, value); }
inline u32 atomic_add(u32* word, u32 value) { return atomicAdd(word, value); }
inline i32 atomic_or(i32* word, i32 bits) { return atomicOr(word, bits); }
inline u64 atomic_add(u64* word, u64 value) { return atomicAdd(word, value); }

// ---- words of device memory, and of memory that the host shares --------------------------------

/// Words of 32 bits may lie in memory that the host shares, so their scope is the system.
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

/// Words of 64 bits, event counters and the exchange, never leave the device.
inline u64 load_acquire(const u64* word) {
  u64 value;
  asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}
inline void add_release(u64* word, u64 value) {
  asm volatile("red.release.gpu.global.add.u64 [%0], %1;" : : "l"(word), "l"(value) : "memory");
}
/// What was there. Relaxed.
inline u32 exchange(u32* word, u32 value) {
  u32 before;
  asm volatile("atom.relaxed.gpu.global.exch.b32 %0, [%1], %2;" : "=r"(before) : "l"(word), "r"(value) : "memory");
  return before;
}
inline u64 load_relaxed(const u64* word) {
  u64 value;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}
inline void store_relaxed(u64* word, u64 value) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" : : "l"(word), "l"(value) : "memory");
}
/// Two words side by side, each whole, in no order between them; aligned to 16 bytes.
inline void load_two_relaxed(u64& a, u64& b, const u64* words) {
  asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];" : "=l"(a), "=l"(b) : "l"(words) : "memory");
}
inline void store_two_relaxed(u64* words, u64 a, u64 b) {
  asm volatile("st.relaxed.gpu.global.v2.u64 [%0], {%1, %2};" : : "l"(words), "l"(a), "l"(b) : "memory");
}

/// A flag or a number in shared memory that threads look at while another changes it; it orders nothing.
inline u32 flag_value(const u32* flag) { return *static_cast<const volatile u32*>(flag); }
inline void flag_put(u32* flag, u32 value) { *static_cast<volatile u32*>(flag) = value; }
inline bool flag_is_set(const u32* flag) { return flag_value(flag) != 0; }
inline void flag_set(u32* flag) { flag_put(flag, 1); }

/// Which multiprocessor the block runs on. From 0 on, of as many as there are, on all that are known.
inline u32 multiprocessor() {
  u32 number;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(number));
  return number;
}

// ---- barriers in shared memory (mbarrier), and copies that complete on them --------------------

using Barrier = u64;  // opaque, in shared memory

/// Whether addresses in shared memory are known when a kernel is compiled, so that variables lie there, too
/// (common/shared_variables.cuh). On sm_90 shared memory begins with the system's kilobyte; then come kStaticBytes for
/// the compiler. With more rows than travel as words it costs spills, and time; and of very many there is no room.
#if __CUDA_ARCH__ == 900
inline constexpr bool kKnowsAddresses =
    kWorkerConfig.stream_rows <= stream::kMaxRowsOfWords && kWorkerConfig.table_rows <= 128;
#else
inline constexpr bool kKnowsAddresses = false;
#endif
// Where ptxas optimises little, what a launch asks for begins right behind the compiler's variables, whatever it is
// declared as. There is room for what it is short of (kernels/shared_budget.h).
#if defined(MEGALITH_UNALIGNED_SHARED_MEMORY)
extern __shared__ __align__(16) u8 dynamic_shared[];
inline u32 bytes_before_block_memory() {
  return (0u - static_cast<u32>(__cvta_generic_to_shared(dynamic_shared))) % 1024;
}
#else
extern __shared__ __align__(1024) u8 dynamic_shared[];
inline u32 bytes_before_block_memory() { return 0; }
#endif
/// Of a block's shared memory the byte `offset`, from a multiple of 1024 on.
inline void* block_memory(u32 offset) {
  if constexpr (kKnowsAddresses)
    return __cvta_shared_to_generic(stream::kSystemBytes + stream::kStaticBytes + offset);
  else
    return dynamic_shared + bytes_before_block_memory() + offset;
}

inline u32 shared_address(const void* at) { return static_cast<u32>(__cvta_generic_to_shared(at)); }

/// A phase ends when `arrivals` have arrived, and the bytes expected have, too.
inline void barrier_init(Barrier* barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" : : "r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
/// After the inits: the copy engine sees them, too.
inline void barriers_are_made() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
#endif
}
/// Release; pairs with barrier_passed(). `at`: shared_address() of a barrier.
inline void barrier_arrive_at(u32 at) {
  asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" : : "r"(at) : "memory");
}
inline void barrier_arrive(Barrier* barrier) { barrier_arrive_at(shared_address(barrier)); }
/// Whether the phases of these parities have all ended. Acquire. The barriers are asked together; `at`: their
/// shared_address().
#if __CUDA_ARCH__ >= 900
#define MEGALITH_BARRIER_LOOK "mbarrier.try_wait.parity.shared.b64"
#else
#define MEGALITH_BARRIER_LOOK "mbarrier.test_wait.parity.shared.b64"
#endif
inline bool barriers_passed(const u32 (&at)[1], const u32 (&parity)[1]) {
  u32 passed;
  asm volatile("{ .reg .pred p; " MEGALITH_BARRIER_LOOK " p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(passed)
               : "r"(at[0]), "r"(parity[0])
               : "memory");
  return passed != 0;
}
inline bool barriers_passed(const u32 (&at)[2], const u32 (&parity)[2]) {
  u32 passed;
  asm volatile("{ .reg .pred p, q; " MEGALITH_BARRIER_LOOK " p, [%1], %3; " MEGALITH_BARRIER_LOOK
               " q, [%2], %4; and.pred p, p, q; selp.u32 %0, 1, 0, p; }"
               : "=r"(passed)
               : "r"(at[0]), "r"(at[1]), "r"(parity[0]), "r"(parity[1])
               : "memory");
  return passed != 0;
}
inline bool barriers_passed(const u32 (&at)[4], const u32 (&parity)[4]) {
  u32 passed;
  asm volatile("{ .reg .pred p, q, r, s; " MEGALITH_BARRIER_LOOK " p, [%1], %5; " MEGALITH_BARRIER_LOOK
               " q, [%2], %6; " MEGALITH_BARRIER_LOOK " r, [%3], %7; " MEGALITH_BARRIER_LOOK
               " s, [%4], %8; and.pred p, p, q; and.pred r, r, s; and.pred p, p, r; selp.u32 %0, 1, 0, p; }"
               : "=r"(passed)
               : "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(parity[0]), "r"(parity[1]), "r"(parity[2]),
                 "r"(parity[3])
               : "memory");
  return passed != 0;
}
#undef MEGALITH_BARRIER_LOOK
/// The same of one barrier.
inline bool barrier_passed(Barrier* barrier, u32 parity) {
  return barriers_passed({shared_address(barrier)}, {parity});
}

/// The same of one barrier, and back at once whatever the answer is; barrier_passed() may wait a little.
inline bool barrier_is_past(Barrier* barrier, u32 parity) {
  u32 passed;
  asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(passed)
               : "r"(shared_address(barrier)), "r"(parity)
               : "memory");
  return passed != 0;
}

/// The thread arrives at `barrier` when all that it has begun is there, of copies past registers (copy_begin() below).
inline void copies_arrive(Barrier* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" : : "r"(shared_address(barrier)) : "memory");
}

/// Between what this thread has read of shared memory and what the copy engine writes there later (PTX ISA, "Async
/// proxy").
inline void fence_reads_before_copies() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
#endif
}

#if __CUDA_ARCH__ >= 900
/// Lanes of a warp that copy together; each arrives at `full`.
inline constexpr u32 kCopyLanes = 1;
inline bool any_of_copy_lanes(bool value) { return value; }
/// Copies by the copy engine: one lane asks, `full` ends its phase when the bytes are there. What is streamed is not
/// read again before the next iteration, so it makes way first in the L2.
inline void copy_begin(void* to, const void* from, u32 bytes, Barrier* full) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;"
               :
               : "r"(shared_address(full)), "r"(bytes)
               : "memory");
  u64 policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;"
      :
      : "r"(shared_address(to)), "l"(from), "r"(bytes), "r"(shared_address(full)), "l"(policy)
      : "memory");
}
/// The same of pieces of what other workers read, too, which stay in the L2 like anything else: `full` ends its phase when all
/// `bytes` of them are there.
inline void pieces_begin(u32 bytes, Barrier* full) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;"
               :
               : "r"(shared_address(full)), "r"(bytes)
               : "memory");
}
inline void pieces_end(Barrier*) {}
inline void piece_begin(void* to, const void* from, u32 bytes, Barrier* full) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               :
               : "r"(shared_address(to)), "l"(from), "r"(bytes), "r"(shared_address(full))
               : "memory");
}
/// Between what threads of any block wrote and this one has learned of, and what the copy engine reads for it from here on
/// (PTX ISA, "Async proxy").
inline void fence_writes_before_copies() { asm volatile("fence.proxy.async.global;" : : : "memory"); }
/// Into the L2, by the lanes that copy.
inline void prefetch(const void* from, u32 bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" : : "l"(from), "r"(bytes) : "memory");
}
/// The same of box `box` of a tensor map, `bytes` that need not lie side by side: cuTensorMapEncodeTiled()'s, of five
/// dimensions, of which the last counts boxes.
inline constexpr bool kCopiesByMap = true;
inline constexpr u32 kMapBytes = 128;
inline void copy_begin_by_map(void* to, const void* map, u32 box, u32 bytes, Barrier* full) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;"
               :
               : "r"(shared_address(full)), "r"(bytes)
               : "memory");
  u64 policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%2, %2, %2, %2, %3}], [%4], %5;"
      :
      : "r"(shared_address(to)), "l"(map), "r"(0), "r"(box), "r"(shared_address(full)), "l"(policy)
      : "memory");
}
inline void prefetch_by_map(const void* map, u32 box) {
  asm volatile("cp.async.bulk.prefetch.tensor.5d.L2.global.tile [%0, {%1, %1, %1, %1, %2}];"
               :
               : "l"(map), "r"(0), "r"(box)
               : "memory");
}
/// `full` does not end its phase before the copy engine has brought so many bytes more; nobody arrives by that.
inline void bytes_will_come(u32 bytes, Barrier* full) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;"
               :
               : "r"(shared_address(full)), "r"(bytes)
               : "memory");
}
/// The same of a map of three dimensions, of a box that begins at column 0 of `line` of `row`, told of by bytes_will_come().
inline void box_begin(u32 to, const void* map, u32 line, u32 row, Barrier* full) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];"
      :
      : "r"(to), "l"(map), "r"(0), "r"(line), "r"(row), "r"(shared_address(full))
      : "memory");
}
/// Once, before a map that the host has written is used.
inline void map_is_written(const void* map) {
  asm volatile("fence.proxy.tensormap::generic.acquire.sys [%0], 128;" : : "l"(map) : "memory");
}
#else
inline constexpr bool kCopiesByMap = false;
inline constexpr u32 kMapBytes = 128;
inline void copy_begin_by_map(void*, const void*, u32, u32, Barrier*) {}
inline void prefetch_by_map(const void*, u32) {}
inline void bytes_will_come(u32, Barrier*) {}
inline void box_begin(u32, const void*, u32, u32, Barrier*) {}
inline void map_is_written(const void*) {}
inline constexpr u32 kCopyLanes = kWarpLanes;
inline bool any_of_copy_lanes(bool value) { return any_of_warp(value); }
/// Copies by the lanes of a warp, 16 bytes at a time; each arrives when its own have.
inline void pieces_begin(u32, Barrier*) {}
inline void pieces_end(Barrier* full) { copies_arrive(full); }
inline void piece_begin(void* to, const void* from, u32 bytes, Barrier*) {
  for (u32 at = static_cast<u32>(lane()) * 16; at < bytes; at += kWarpLanes * 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 :
                 : "r"(shared_address(to) + at), "l"(static_cast<const u8*>(from) + at)
                 : "memory");
}
inline void copy_begin(void* to, const void* from, u32 bytes, Barrier* full) {
  piece_begin(to, from, bytes, full);
  pieces_end(full);
}
inline void fence_writes_before_copies() {}
inline void prefetch(const void* from, u32 bytes) {
  for (u32 at = static_cast<u32>(lane()) * 128; at < bytes; at += kWarpLanes * 128)
    asm volatile("prefetch.global.L2 [%0];" : : "l"(static_cast<const u8*>(from) + at));
}
#endif

// ---- calculations ------------------------------------------------------------------------------

/// The hardware's functions, good to about 2^-22.
inline f32 fast_rsqrt(f32 x) {
  f32 y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
/// Numbers below the normal ones are zero: to treat them as __expf() and __fdividef() do takes three instructions more.
inline f32 fast_exp2(f32 x) {
  f32 y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
/// The larger one, in one instruction.
inline f32 fast_max(f32 a, f32 b) {
  f32 y;
  asm("max.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
inline constexpr f32 kLog2E = 1.4426950408889634f;
inline f32 fast_exp(f32 x) { return fast_exp2(x * kLog2E); }
inline f32 fast_divide(f32 a, f32 b) {
  f32 y;
  asm("div.approx.ftz.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
inline u32 pack_bf16(f32 low, f32 high) {
  u32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
/// The same of f16; beyond its range the largest of them.
inline u32 pack_f16(f32 low, f32 high) {
  u32 pair;
  asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
/// Two whole numbers less two others, where that is exact.
inline u32 minus_bf16(u32 a, u32 b) {
  u32 pair;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(pair) : "r"(b), "r"(0xbf80bf80u), "r"(a));
  return pair;
}
inline u32 minus_f16(u32 a, u32 b) {
  u32 pair;
  asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(pair) : "r"(a), "r"(b));
  return pair;
}
inline u32 times_bf16(u32 a, u32 b) {
  u32 pair;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(pair) : "r"(a), "r"(b), "r"(0x80008000u));
  return pair;
}
inline u32 times_f16(u32 a, u32 b) {
  u32 pair;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(pair) : "r"(a), "r"(b));
  return pair;
}
inline f32 low_of_f16(u32 pair) {
  f32 value;
  asm("{ .reg .b16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, low; }" : "=f"(value) : "r"(pair));
  return value;
}
inline f32 high_of_f16(u32 pair) {
  f32 value;
  asm("{ .reg .b16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, high; }" : "=f"(value) : "r"(pair));
  return value;
}
/// The same register from now on: no working out again.
inline u32 keep(u32 value) {
  asm volatile("" : "+r"(value));
  return value;
}
inline const f32* keep(const f32* address) {
  asm volatile("" : "+l"(address));
  return address;
}

/// d += a b: a 16 x 16 of weights, b 16 x 8 of activations (mma, PTX ISA section 9.7.14).
inline void multiply_accumulate(f32 (&d)[4], uint4 a, u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}
/// The same of either kind of floats.
inline void multiply_accumulate(bf16, f32 (&d)[4], uint4 a, u32 b0, u32 b1) { multiply_accumulate(d, a, b0, b1); }
inline void multiply_accumulate(f16, f32 (&d)[4], uint4 a, u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}
/// d += a b: a 16 x 8, b 8 x 8 (mma, PTX ISA section 9.7.14).
inline void multiply_accumulate_half(f32 (&d)[4], u32 a0, u32 a1, u32 b) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a0), "r"(a1), "r"(b));
}
/// An 8 x 8 of bf16 turned: a lane had two values of row lane / 4, and gets two of column lane / 4.
inline u32 transposed(u32 pair) {
  u32 turned;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(pair));
  return turned;
}

// ---- loads and stores of what only calculations are made of ------------------------------------

/// 16 bytes through the first-level cache, even if nobody reads them again: a warp that takes 64 bytes of each of eight
/// rows has the other half of their lines from there. Past it (L1::no_allocate) attention of 512 positions takes half a
/// microsecond more: Qwen3-0.6B 0.467 ms instead of 0.452.
inline uint4 load_quad(const void* from) {
  uint4 value;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from)
               : "memory");
  return value;
}
/// The same of what nobody reads again in this iteration, by whole lines: it makes way first in the L2.
inline uint4 load_quad_once(const void* from) {
  u64 policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  uint4 value;
  asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from), "l"(policy)
               : "memory");
  return value;
}
inline u32 load_pair(const void* from) {
  u32 pair;
  asm volatile("ld.global.u32 %0, [%1];" : "=r"(pair) : "l"(from) : "memory");
  return pair;
}
/// Into the L2, a line of 128 bytes.
inline void prefetch_line(const void* from) { asm volatile("prefetch.global.L2 [%0];" : : "l"(from)); }
/// All lines of `bytes` bytes, by a warp.
inline void prefetch_lines(const void* from, u32 bytes) {
  for (u32 at = static_cast<u32>(lane()) * 128; at < bytes; at += kWarpLanes * 128)
    prefetch_line(static_cast<const u8*>(from) + at);
}

/// Of shared memory; `at`: shared_address().
inline uint4 load_shared(u32 at) {
  uint4 value;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(at)
               : "memory");
  return value;
}
inline uint2 load_shared_eight(u32 at) {
  uint2 value;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(value.x), "=r"(value.y) : "r"(at) : "memory");
  return value;
}
inline u32 load_shared_pair(u32 at) {
  u32 pair;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(pair) : "r"(at) : "memory");
  return pair;
}
inline void store_shared(u32 at, f32 value) {
  asm volatile("st.shared.f32 [%0], %1;" : : "r"(at), "f"(value) : "memory");
}
inline void store_shared(u32 at, u32 value) {
  asm volatile("st.shared.u32 [%0], %1;" : : "r"(at), "r"(value) : "memory");
}
inline void store_shared(u32 at, uint4 value) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};"
               :
               : "r"(at), "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w)
               : "memory");
}
/// If `puts`: *at = sum, or with `adds` += sum. Without a branch.
inline void put_sum(bool puts, u32 at, f32 sum, bool adds) {
  asm volatile(
      "{ .reg .pred p, q; .reg .f32 old; setp.ne.u32 p, %2, 0; setp.ne.and.u32 q, %3, 0, p; mov.f32 old, 0f00000000; "
      "@q ld.shared.f32 old, [%0]; add.f32 old, old, %1; @p st.shared.f32 [%0], old; }"
      :
      : "r"(at), "f"(sum), "r"(static_cast<u32>(puts)), "r"(static_cast<u32>(adds))
      : "memory");
}
/// Four 8 x 8 of 16 bits: lane 8 j + r says where row r of number j lies, and gets of each two values of row lane / 4.
inline uint4 load_matrices(u32 row) {
  uint4 value;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(row)
               : "memory");
  return value;
}
/// Four 8 x 8 of bf16, turned: lane 8 j + r says where row r of number j lies, and gets of each two of column lane / 4.
inline uint4 load_transposed(u32 row) {
  uint4 value;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(row)
               : "memory");
  return value;
}

// Past registers into shared memory (cp.async, PTX ISA section 9.7.9.25).
/// 16 bytes, or zeros in their place if `bytes` is 0.
inline void copy_begin(u32 to, const bf16* from, u32 bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"(to), "l"(from), "r"(bytes) : "memory");
}
/// Four values.
inline void copy_four(f32* to, const f32* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" : : "r"(shared_address(to)), "l"(from) : "memory");
}
inline void copy_commit() { asm volatile("cp.async.commit_group;" : : : "memory"); }
/// Until at most `kLeft` of what this thread committed are under way.
template <int kLeft>
inline void copy_wait() {
  asm volatile("cp.async.wait_group %0;" : : "n"(kLeft) : "memory");
}

}  // namespace megalith::kernels
