// The few operations on shared words that the protocol is made of, for a CPU: loads, adds, and the futex to sleep on.
// The workers are written in these names alone, so a device version gives the same names and nothing else changes.
// Freestanding: compiled into generated kernels, which link against nothing but libc's syscall(). ThreadSanitizer knows
// every access here; there are no fences and no assembly that orders memory.
#pragma once

#include "megalith/runtime/protocol.h"

extern "C" long syscall(long number, ...) noexcept;  // libc's, declared by hand: generated kernels see no libc header

namespace megalith::runtime {

inline u32 load_relaxed(const u32* word) { return __atomic_load_n(word, __ATOMIC_RELAXED); }
inline u32 load_acquire(const u32* word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }
inline u64 load_acquire(const u64* word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }
inline u64 add_release(u64* word, u64 value) { return __atomic_fetch_add(word, value, __ATOMIC_RELEASE); }  // old value
inline u64 add_relaxed(u64* word, u64 value) { return __atomic_fetch_add(word, value, __ATOMIC_RELAXED); }
inline u32 load_ordered(const u32* word) { return __atomic_load_n(word, __ATOMIC_SEQ_CST); }
inline void store_relaxed(u32* word, u32 value) { __atomic_store_n(word, value, __ATOMIC_RELAXED); }
inline void store_release(u32* word, u32 value) { __atomic_store_n(word, value, __ATOMIC_RELEASE); }
inline void store_ordered(u32* word, u32 value) { __atomic_store_n(word, value, __ATOMIC_SEQ_CST); }
inline void add_ordered(u32* word, u32 value) { __atomic_fetch_add(word, value, __ATOMIC_SEQ_CST); }

/// Tells the core that this is a spin loop: it saves power and leaves the pipeline to the sibling thread.
inline void spin_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

#if defined(__x86_64__)
constexpr long kSysFutex = 202, kSysClockGettime = 228;
#elif defined(__aarch64__) || (defined(__riscv) && __riscv_xlen == 64)
constexpr long kSysFutex = 98, kSysClockGettime = 113;
#else
#error "no numbers of the futex and clock_gettime system calls for this processor in runtime/cpu/sync.h"
#endif
constexpr long kFutexWaitPrivate = 0 | 128, kFutexWakePrivate = 1 | 128;

/// CLOCK_MONOTONIC, as std::chrono::steady_clock has it.
inline u64 monotonic_ns() {
  struct {
    i64 seconds, nanoseconds;
  } now = {};
  syscall(kSysClockGettime, 1, &now);
  return static_cast<u64>(now.seconds) * 1000000000u + static_cast<u64>(now.nanoseconds);
}

/// The clock of profile records: the processor's own counter, because a system call for each task would be part of what
/// it measures. Its rate is the host's to find out.
inline u64 profile_clock() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  u64 ticks;
  __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
#else
  return monotonic_ns();
#endif
}

/// Sleeps while *word == value, until a wake, a signal, or `nanoseconds` later, whichever is first.
inline void word_sleep(const u32* word, u32 value, u64 nanoseconds) {
  struct {
    i64 seconds, nanoseconds;
  } timeout = {static_cast<i64>(nanoseconds / 1000000000u), static_cast<i64>(nanoseconds % 1000000000u)};
  syscall(kSysFutex, word, kFutexWaitPrivate, value, &timeout, nullptr, 0);
}

/// A kernel wakes who reads its mailbox.
inline constexpr bool kWakesReaders = true;
/// Wakes all who sleep on `word`.
inline void word_wake(const u32* word) { syscall(kSysFutex, word, kFutexWakePrivate, 0x7fffffff, nullptr, nullptr, 0); }

}  // namespace megalith::runtime
