// In the place of megalith/kernels/cuda/arch/ptx.cuh: a block of the host's threads, for bodies that take of a GPU who
// a thread is, barriers, words, shuffles and what tensor cores calculate. Who includes this says how many warps there
// are, and lanes of each, and what is __shared__ are variables of that file. Lanes are threads of their own, which meet
// where a warp does something together; nothing else orders them, so ThreadSanitizer sees what a body leaves to chance.
#pragma once

#include <array>
#include <barrier>
#include <cmath>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "megalith/kernels/cpu/prelude.h"

#define __shared__
#define __align__(bytes) __attribute__((aligned(bytes)))

namespace megalith::kernels {

struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }

inline constexpr int kWarps = MEGALITH_BLOCK_WARPS, kWarpLanes = MEGALITH_BLOCK_LANES, kThreads = kWarps * kWarpLanes;

inline thread_local int self = 0;

inline int thread() { return self; }
inline int lane() { return self % kWarpLanes; }
inline int warp() { return self / kWarpLanes; }

struct WarpBarrier : std::barrier<> {
  WarpBarrier() : barrier(kWarpLanes) {}
};
inline std::barrier<> block_barrier(kThreads);
inline std::array<WarpBarrier, kWarps> warp_barriers;

inline void block_sync() { block_barrier.arrive_and_wait(); }
/// Of a part the threads are always as many.
inline void part_sync(int part, int num_threads) {
  struct Part {
    std::once_flag is_made;
    std::optional<std::barrier<>> barrier;
  };
  static std::array<Part, kWarps> parts;
  Part& mine = parts[static_cast<size_t>(part)];
  std::call_once(mine.is_made, [&] { mine.barrier.emplace(num_threads); });
  mine.barrier->arrive_and_wait();
}
inline void warp_sync() { warp_barriers[static_cast<size_t>(warp())].arrive_and_wait(); }

/// body(), by every thread of a block.
template <class Body>
void by_block(const Body& body) {
  std::vector<std::jthread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&body, t] {
      self = t;
      body();
    });
}

// ---- what the lanes of a warp do together ------------------------------------------------------

struct alignas(16) Given {
  unsigned char bytes[48];
};
// By turns, so that who is ahead does not write what others still read: it cannot be two exchanges ahead.
inline std::array<std::array<Given, kThreads>, 2> given;
inline thread_local size_t turn = 0;

/// What each lane of the warp gave, until this one's next but one exchange.
template <class T>
struct OfLanes {
  const Given* of_warp;
  T operator[](int lane) const {
    T value;
    std::memcpy(&value, of_warp[lane].bytes, sizeof value);
    return value;
  }
};
template <class T>
OfLanes<T> exchange(const T& mine) {
  static_assert(sizeof(T) <= sizeof(Given));
  turn = 1 - turn;
  std::memcpy(given[turn][static_cast<size_t>(self)].bytes, &mine, sizeof mine);
  warp_sync();
  return {&given[turn][static_cast<size_t>(self - lane())]};
}

inline bool all_of_warp(bool value) {
  const auto values = exchange(value);
  for (int l = 0; l < kWarpLanes; ++l)
    if (!values[l]) return false;
  return true;
}
inline bool any_of_warp(bool value) { return !all_of_warp(!value); }

// ---- words and barriers ------------------------------------------------------------------------

template <class T>
T atomic_add(T* word, T value) {
  return __atomic_fetch_add(word, value, __ATOMIC_RELAXED);
}
inline i32 atomic_or(i32* word, i32 bits) { return __atomic_fetch_or(word, bits, __ATOMIC_RELAXED); }

template <class T>
T load_relaxed(const T* word) {
  return __atomic_load_n(word, __ATOMIC_RELAXED);
}
template <class T>
void store_relaxed(T* word, T value) {
  __atomic_store_n(word, value, __ATOMIC_RELAXED);
}
inline void load_two_relaxed(u64& a, u64& b, const u64* words) {
  a = load_relaxed(words);
  b = load_relaxed(words + 1);
}
inline void store_two_relaxed(u64* words, u64 a, u64 b) {
  store_relaxed(words, a);
  store_relaxed(words + 1, b);
}
inline u32 flag_value(const u32* flag) { return load_relaxed(flag); }
inline bool flag_is_set(const u32* flag) { return load_relaxed(flag) != 0; }
inline void flag_set(u32* flag) { store_relaxed(flag, 1u); }
inline u64 profile_clock() { return 0; }

/// Where variables of the block lie, then the ring and the area; of the including file.
inline constexpr bool kKnowsAddresses = true;
extern u8 dynamic_shared[];
inline void* block_memory(u32 offset) { return dynamic_shared + offset; }

using Barrier = u64;
bool barrier_passed(Barrier*, u32);  // of who includes this

// Shared memory has addresses of 32 bits, as even as they are: how far from here something lies.
alignas(1024) inline u8 shared_origin;
inline u32 shared_address(const void* at) {
  return static_cast<u32>(reinterpret_cast<u64>(at) - reinterpret_cast<u64>(&shared_origin));
}
template <class T>
T* shared_at(u32 address) {
  return reinterpret_cast<T*>(reinterpret_cast<u64>(&shared_origin) + static_cast<u64>(static_cast<i32>(address)));
}
/// Of memory that was filled before: every phase has ended, and who arrives is counted.
template <int kCount>
bool barriers_passed(const u32 (&)[kCount], const u32 (&)[kCount]) {
  return true;
}
inline void barrier_arrive(Barrier* barrier) { __atomic_fetch_add(barrier, 1, __ATOMIC_RELEASE); }
inline void fence_reads_before_copies() {}
inline void barrier_arrive_at(u32 at) { barrier_arrive(shared_at<Barrier>(at)); }

// ---- calculations ------------------------------------------------------------------------------

inline f32 fast_rsqrt(f32 x) { return 1 / std::sqrt(x); }
inline f32 fast_exp(f32 x) { return std::exp(x); }
inline f32 fast_divide(f32 a, f32 b) { return a / b; }
inline u32 pack_bf16(f32 low, f32 high) { return to_bf16(low).bits | static_cast<u32>(to_bf16(high).bits) << 16; }
template <class T = bf16>
f32 one_of(u32 pair, int which) {
  return to_f32(T{static_cast<u16>(pair >> 16 * which)});
}
inline u32 pack_f16(f32 low, f32 high) {
  constexpr f32 kLargest = 65504;
  const auto pack = [](f32 x) {
    return static_cast<u32>(to_f16(x > kLargest ? kLargest : x < -kLargest ? -kLargest : x).bits);
  };
  return pack(low) | pack(high) << 16;
}
inline f32 low_of_f16(u32 pair) { return one_of<f16>(pair, 0); }
inline f32 high_of_f16(u32 pair) { return one_of<f16>(pair, 1); }
inline u32 minus_bf16(u32 a, u32 b) { return pack_bf16(one_of(a, 0) - one_of(b, 0), one_of(a, 1) - one_of(b, 1)); }
inline u32 minus_f16(u32 a, u32 b) { return pack_f16(low_of_f16(a) - low_of_f16(b), high_of_f16(a) - high_of_f16(b)); }
inline u32 times_bf16(u32 a, u32 b) { return pack_bf16(one_of(a, 0) * one_of(b, 0), one_of(a, 1) * one_of(b, 1)); }
inline u32 times_f16(u32 a, u32 b) { return pack_f16(low_of_f16(a) * low_of_f16(b), high_of_f16(a) * high_of_f16(b)); }
inline u32 keep(u32 value) { return value; }
inline const f32* keep(const f32* address) { return address; }

/// Where the PTX ISA has what (section 9.7.14, m16n8k16): of the first operand register r has row g + 8 (r % 2),
/// columns 2 t + 8 (r / 2) and the next, of the second rows 2 t + 8 r and the next, column g; of the sum number i is in
/// row g + 8 (i / 2), column 2 t + i % 2; g = lane / 4, t = lane % 4.
template <class T>
void multiply_accumulate_of(f32 (&d)[4], uint4 a, u32 b0, u32 b1) {
  struct Operands {
    u32 a[4], b[2];
  };
  const auto of_lanes = exchange(Operands{{a.x, a.y, a.z, a.w}, {b0, b1}});
  for (int i = 0; i < 4; ++i) {
    f64 sum = d[i];
    for (int t = 0; t < 4; ++t) {
      const Operands row = of_lanes[lane() / 4 * 4 + t], column = of_lanes[(lane() % 4 * 2 + i % 2) * 4 + t];
      for (int k = 0; k < 4; ++k)
        sum += f64(one_of<T>(row.a[i / 2 + k / 2 * 2], k % 2)) * f64(one_of<T>(column.b[k / 2], k % 2));
    }
    d[i] = static_cast<f32>(sum);
  }
}
inline void multiply_accumulate(f32 (&d)[4], uint4 a, u32 b0, u32 b1) { multiply_accumulate_of<bf16>(d, a, b0, b1); }
template <class T>
void multiply_accumulate(T, f32 (&d)[4], uint4 a, u32 b0, u32 b1) {
  multiply_accumulate_of<T>(d, a, b0, b1);
}
/// The same of m16n8k8: of the first operand register r has row g + 8 r, columns 2 t and the next, of the second rows 2 t
/// and the next.
inline void multiply_accumulate_half(f32 (&d)[4], u32 a0, u32 a1, u32 b) {
  multiply_accumulate(d, {a0, a1, 0, 0}, b, 0);
}
inline u32 transposed(u32 pair) {
  const auto of_lanes = exchange(pair);
  const auto value = [&](int row) { return of_lanes[row * 4 + lane() / 8] >> lane() / 4 % 2 * 16 & 0xffff; };
  return value(lane() % 4 * 2) | value(lane() % 4 * 2 + 1) << 16;
}

// ---- loads and stores --------------------------------------------------------------------------

inline uint4 load_quad(const void* from) {
  uint4 value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
inline u32 load_pair(const void* from) {
  u32 pair;
  std::memcpy(&pair, from, sizeof pair);
  return pair;
}
inline constexpr u32 kCopyLanes = 1;
inline void prefetch_line(const void*) {}
inline void prefetch_lines(const void*, u32) {}
/// Copies past registers: made when they are waited for, as late as they may be.
struct Copy {
  void* to;
  const void* from;  // nullptr: zeros
};
inline thread_local std::vector<Copy> not_committed;
inline thread_local std::deque<std::vector<Copy>> under_way;
inline void copy_four(f32* to, const f32* from) { not_committed.push_back({to, from}); }
inline void copy_begin(u32 to, const bf16* from, u32 bytes) {
  not_committed.push_back({shared_at<void>(to), bytes == 0 ? nullptr : from});
}
inline void copy_commit() { under_way.push_back(std::exchange(not_committed, {})); }
template <size_t kLeft>
void copy_wait() {
  for (; under_way.size() > kLeft; under_way.pop_front())
    for (const auto [to, from] : under_way.front())
      if (from != nullptr)
        std::memcpy(to, from, 16);
      else
        std::memset(to, 0, 16);
}
inline uint4 load_shared(u32 at) { return *shared_at<uint4>(at); }
inline uint2 load_shared_eight(u32 at) { return *shared_at<uint2>(at); }
inline u32 load_shared_pair(u32 at) { return *shared_at<u32>(at); }
inline void store_shared(u32 at, f32 value) { *shared_at<f32>(at) = value; }
inline void store_shared(u32 at, uint4 value) { *shared_at<uint4>(at) = value; }
inline void store_shared(u32 at, u32 value) { *shared_at<u32>(at) = value; }
/// ldmatrix with .trans (section 9.7.14.5.15): number j is where lanes 8 j to 8 j + 7 say.
inline uint4 load_transposed(u32 row) {
  const auto of_lanes = exchange(row);
  const auto number = [&](int j) {
    const auto value = [&](int r) { return shared_at<u16>(of_lanes[8 * j + r])[lane() / 4]; };
    return value(lane() % 4 * 2) | static_cast<u32>(value(lane() % 4 * 2 + 1)) << 16;
  };
  return {number(0), number(1), number(2), number(3)};
}
inline void put_sum(bool puts, u32 at, f32 sum, bool adds) {
  if (puts) *shared_at<f32>(at) = (adds ? *shared_at<f32>(at) : 0) + sum;
}

// ---- names that CUDA has of its own ------------------------------------------------------------

struct ThreadIndex {
  operator u32() const { return static_cast<u32>(self); }
};
inline constexpr struct { ThreadIndex x; } threadIdx;
inline constexpr struct { u32 x = 1; } blockDim;  // of a kernel that one thread runs

template <class T>
T __shfl_xor_sync(u32, T value, int apart) {
  return exchange(value)[lane() ^ apart];
}
template <class T>
T __shfl_sync(u32, T value, int from) {
  return exchange(value)[from % kWarpLanes];
}
template <class T>
T __ldg(const T* at) {
  return *at;
}
inline u32 __ballot_sync(u32, bool value) {
  const auto values = exchange(value);
  u32 bits = 0;
  for (int l = 0; l < kWarpLanes; ++l) bits |= u32{values[l]} << l;
  return bits;
}
inline int __popc(u32 x) { return __builtin_popcount(x); }
inline int __popcll(long long x) { return __builtin_popcountll(static_cast<u64>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<u32>(x)); }

}  // namespace megalith::kernels
