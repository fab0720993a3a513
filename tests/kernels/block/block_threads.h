// The threads of a block for bodies that calculate (support/block/): they meet, exchange what lanes of a warp have, and
// do together what tensor cores do. A test says how many warps there are, and lanes of each. Nothing but where they meet
// orders them (lanes.h), so ThreadSanitizer sees what a body leaves to chance.
//
// Memory was filled before a body runs: barriers of the ring have passed, and loads are just loads. The worker's own
// waits are looked at in tests/device, whose threads are of another kind (device/block/block_threads.h).
#pragma once

#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "lanes.h"
#include "megalith/kernels/cuda/arch/ptx.cuh"
#include "megalith/runtime/protocol.h"

namespace megalith::kernels {

inline constexpr int kWarps = MEGALITH_BLOCK_WARPS, kWarpLanes = MEGALITH_BLOCK_LANES, kThreads = kWarps * kWarpLanes;

inline int thread() { return self; }
inline int lane() { return self % kWarpLanes; }
inline int warp() { return self / kWarpLanes; }

struct WarpBarrier : Meeting {
  WarpBarrier() : Meeting(kWarpLanes) {}
};
inline Meeting block_barrier(kThreads);
/// Of the block's, and of one more: that of a test whose warp beside the block copies.
inline std::array<WarpBarrier, kWarps + 1> warp_barriers;

inline void block_sync() { block_barrier.arrive_and_wait(); }
/// Parts of as many threads are told apart by their number.
inline void part_sync(int part, int num_threads) {
  struct Part {
    std::once_flag is_made;
    std::optional<Meeting> barrier;
  };
  static std::array<std::array<Part, kWarps + 1>, kWarps> parts;  // by threads, in warps
  Part& mine = parts[static_cast<size_t>(part)][static_cast<size_t>(num_threads) / kWarpLanes];
  std::call_once(mine.is_made, [&] { mine.barrier.emplace(num_threads); });
  mine.barrier->arrive_and_wait();
}
inline void warp_sync() { warp_barriers[static_cast<size_t>(warp())].arrive_and_wait(); }

/// body(), by every thread of a block.
template <class Body>
void by_block(const Body& body) {
  run_threads(kThreads, body);
}
/// The same, beside a warp that runs body `copy(is_over)`.
template <class Copy, class Body>
void by_block_beside(const Copy& copy, const Body& body) {
  std::atomic<int> num_left = kThreads;
  const auto is_over = [&] {
    if (num_left > 0) give_way();
    return num_left == 0;
  };
  run_threads(kThreads + kWarpLanes, [&] {
    if (thread() >= kThreads) return copy(is_over);
    body();
    --num_left;
  });
}

// ---- what the lanes of a warp do together ------------------------------------------------------

struct alignas(16) Given {
  unsigned char bytes[48];
};
// By turns, so that who is ahead does not write what others still read: it cannot be two exchanges ahead.
inline std::array<std::array<Given, kThreads + kWarpLanes>, 2> given;
inline std::array<size_t, kThreads + kWarpLanes> given_turns{};

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
  size_t& turn = given_turns[static_cast<size_t>(self)];
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

inline i32 atomic_or(i32* word, i32 bits) { return __atomic_fetch_or(word, bits, __ATOMIC_RELAXED); }

template <class T>
T load_relaxed(const T* word) {
  return __atomic_load_n(word, __ATOMIC_RELAXED);
}
template <class T>
void store_relaxed(T* word, T value) {
  __atomic_store_n(word, value, __ATOMIC_RELAXED);
}
inline u64 profile_clock() { return 0; }

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
inline void barrier_init(Barrier* barrier, u32) { *barrier = 0; }
inline bool barrier_is_past(Barrier* barrier, u32 parity) { return barrier_passed(barrier, parity); }
inline void barrier_arrive(Barrier* barrier) { __atomic_fetch_add(barrier, 1, __ATOMIC_RELEASE); }
inline void fence_reads_before_copies() {}
inline void barrier_arrive_at(u32 at) { barrier_arrive(shared_at<Barrier>(at)); }

// ---- the other block of a cluster, which runs before or after this one -------------------------

/// What this block hands the other one, and what the other one has handed this one; by address.
inline std::map<u32, float4> handed_to_partner, handed_by_partner;
inline std::mutex handing_over;
inline u32 at_partner(u32 at) { return at; }
inline void partner_arrive_at(u32) {}
inline bool partner_barrier_passed(Barrier*, u32) { return true; }
inline void partner_store(u32 at, float4 value) {
  const std::lock_guard lock(handing_over);
  handed_to_partner[at] = value;
}
inline float4 load_from_partner(u32 at) {
  const std::lock_guard lock(handing_over);
  return handed_by_partner[at];
}

// ---- calculations ------------------------------------------------------------------------------

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
inline uint4 load_quad_once(const void* from) { return load_quad(from); }
inline u32 load_pair(const void* from) {
  u32 pair;
  std::memcpy(&pair, from, sizeof pair);
  return pair;
}
inline constexpr u32 kCopyLanes = 1;
/// Of a ring whose barriers count phases.
inline void pieces_begin(u32, Barrier*) {}
inline void piece_begin(void* to, const void* from, u32 bytes, Barrier*) { std::memcpy(to, from, bytes); }
inline void pieces_end(Barrier* full) { barrier_arrive(full); }
inline void fence_writes_before_copies() {}
/// Boxes of caches come at once, turned as swizzle128() of arch/swizzle.cuh has it.
inline constexpr bool kCopiesByMap = true;
inline void map_is_written(const void*) {}
inline void bytes_will_come(u32, Barrier*) {}
inline void box_begin(u32 to, const void* map, u32 line, u32 row, Barrier*) {
  const auto& caches = *static_cast<const runtime::CacheMap*>(map);
  for (u32 i = 0; i < runtime::CacheMap::kBoxRows; ++i)
    for (u32 piece = 0; piece < 8; ++piece)
      std::memcpy(shared_at<void>(to + i * 128 + (piece ^ i % 8) * 16),
                  caches.begin + (u64{row} + i) * caches.row_bytes + line * 128 + piece * 16, 16);
}
inline void prefetch_line(const void*) {}
inline void prefetch_lines(const void*, u32) {}
/// Copies past registers: made when they are waited for, as late as they may be.
struct Copy {
  void* to;
  const void* from;  // nullptr: zeros
};
struct Copies {
  std::vector<Copy> not_committed;
  std::deque<std::vector<Copy>> under_way;
};
inline std::array<Copies, kThreads + kWarpLanes> copies_of;
inline Copies& my_copies() { return copies_of[static_cast<size_t>(self)]; }
inline void copy_four(f32* to, const f32* from) { my_copies().not_committed.push_back({to, from}); }
inline void copy_begin(u32 to, const bf16* from, u32 bytes) {
  my_copies().not_committed.push_back({shared_at<void>(to), bytes == 0 ? nullptr : from});
}
inline void make_copies(const std::vector<Copy>& copies) {
  for (const auto [to, from] : copies)
    if (from != nullptr)
      std::memcpy(to, from, 16);
    else
      std::memset(to, 0, 16);
}
inline void copy_commit() { my_copies().under_way.push_back(std::exchange(my_copies().not_committed, {})); }
template <size_t kLeft>
void copy_wait() {
  auto& under_way = my_copies().under_way;
  for (; under_way.size() > kLeft; under_way.pop_front()) make_copies(under_way.front());
}
inline void copies_arrive(Barrier* barrier) {
  make_copies(std::exchange(my_copies().not_committed, {}));
  barrier_arrive(barrier);
}
inline uint4 load_shared(u32 at) { return *shared_at<uint4>(at); }
inline uint2 load_shared_eight(u32 at) { return *shared_at<uint2>(at); }
inline u32 load_shared_pair(u32 at) { return *shared_at<u32>(at); }
inline void store_shared(u32 at, f32 value) { *shared_at<f32>(at) = value; }
inline void store_shared(u32 at, uint4 value) { *shared_at<uint4>(at) = value; }
inline void store_shared(u32 at, u32 value) { *shared_at<u32>(at) = value; }
/// ldmatrix: number j is where lanes 8 j to 8 j + 7 say.
inline uint4 load_matrices(u32 row) {
  const auto of_lanes = exchange(row);
  const auto number = [&](int j) { return *shared_at<u32>(of_lanes[8 * j + lane() / 4] + lane() % 4 * 4); };
  return {number(0), number(1), number(2), number(3)};
}
/// The same with .trans (section 9.7.14.5.15): number j is where lanes 8 j to 8 j + 7 say.
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
