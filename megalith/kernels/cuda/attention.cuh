// Attention of a decoder on a GPU, with everything that stands around it folded in: queries and keys of this
// iteration's rows are normalised and rotated here (heads.cuh).
//
// Keys and values of earlier iterations come from the cache; those of this iteration's rows from `qkv` itself, so that
// nobody waits for the cache to be written. Loads of the cache are under way before the first wait.
//
// Scores and sums are multiply-accumulates of bf16 (kernels/attention_layout.h), with positions where a projection has
// columns of activations. A lane holds 16 bytes of a key just as they lie in the cache, since any order of a head's
// values is as good as another if queries have it, too. Queries and the weights of the softmax are taken in two parts,
// rounded and what rounding left, in rows of the tile that would be empty otherwise: so only a key of this iteration is
// rounded more than its meaning has it, as the cache will have it in the next.
#pragma once

#include "megalith/kernels/attention_layout.h"
#include "megalith/kernels/cuda/blocks.cuh"
#include "megalith/kernels/cuda/heads.cuh"
#include "megalith/kernels/cuda/multiply.cuh"
#include "megalith/kernels/cuda/row_table.cuh"

namespace megalith::kernels {

/// What only one warp of the block reads, past the first-level cache. Keys are read by several (kRuns), and so through
/// it: with 4096 tokens before, Qwen3-8B takes 4.16 ms a token instead of 4.28.
inline uint4 load_once(const bf16* from) {
  uint4 value;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from)
               : "memory");
  return value;
}
inline uint4 load_again(const bf16* from) {
  uint4 value;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from)
               : "memory");
  return value;
}
/// Into the L2, a line of 128 bytes.
inline void prefetch_line(const bf16* from) { asm volatile("prefetch.global.L2 [%0];" : : "l"(from)); }

/// An 8 x 8 of bf16 turned: a lane had two values of row lane / 4, and gets two of column lane / 4.
inline u32 transposed(u32 pair) {
  u32 turned;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(pair));
  return turned;
}

/// Two values of f32 as two of bf16, and what rounding left of them.
struct Halves {
  u32 rounded, rest;
};
inline Halves halves(f32 a, f32 b) {
  const u32 rounded = pack_bf16(a, b);
  return {rounded, pack_bf16(a - low_f32(rounded), b - high_f32(rounded))};
}

/// How positions are dealt to chunks: in blocks of L to C of them, or all to one.
template <class Args>
struct Chunks {
  static constexpr bool kWhole = !requires { Args::C; };
  static constexpr int length() {
    if constexpr (kWhole)
      return 1 << 24;
    else
      return static_cast<int>(Args::L);
  }
  static constexpr int count() {
    if constexpr (kWhole)
      return 1;
    else
      return static_cast<int>(Args::C);
  }
};
/// Positions of chunk c in the cache, of a request that has `start` there.
template <class Args>
inline int num_cached(int start, int c) {
  if constexpr (Chunks<Args>::kWhole) return start;
  constexpr int L = Chunks<Args>::length(), C = Chunks<Args>::count();
  return start / (C * L) * L + min(max(start % (C * L) - c * L, 0), L);
}
/// Where the chunk's cached position number n begins, in both caches.
template <class Args>
inline i64 cached_element(const Args& args, int request, int g, int c, int n) {
  constexpr int L = Chunks<Args>::length(), C = Chunks<Args>::count(), B = static_cast<int>(Args::B);
  const int position = Chunks<Args>::kWhole ? n : (n / L * C + c) * L + n % L;
  const int page = args.page_table[request * static_cast<int>(Args::Q) + position / B];
  return ((i64(page) * B + position % B) * Args::G + g) * (2 * Args::H);
}

/// Brings positions [begin, end) of the chunk's cached ones into the L2, a position a thread of `threads`.
template <class Args>
inline void prefetch_positions(const Args& args, int request, int g, int c, int begin, int end, int thread,
                               int threads) {
  constexpr int D = 2 * static_cast<int>(Args::H);
#pragma unroll 1
  for (int n = begin + thread; n < end; n += threads) {
    const i64 element = cached_element(args, request, g, c, n);
#pragma unroll
    for (int d = 0; d < D; d += 64) {
      prefetch_line(args.k_cache + element + d);
      prefetch_line(args.v_cache + element + d);
    }
  }
}

/// Chunk c of the positions of row t (ops/attention_qkv.h): first the chunk's cached ones, then those of this
/// iteration's rows. What the task's operands are is looked up where it is needed: kept from start to end, it would
/// spill.
template <bool kNorm, class Args>
class ChunkAttention {
  static constexpr int D = 2 * static_cast<int>(Args::H), M = static_cast<int>(Args::M), G = static_cast<int>(Args::G);
  static constexpr int L = Chunks<Args>::length(), C = Chunks<Args>::count();
  static constexpr bool kWhole = Chunks<Args>::kWhole, kManyRows = Args::T_largest > kWarpLanes;
  using RowSet = decltype(kManyRows ? u64(0) : u32(0));  // a bit each
  static constexpr int A = G * M, kRuns = attention::runs(D), kTiles = attention::tiles(D);
  static constexpr int kStride = attention::stride(D), kPositions = attention::kTilePositions;
  static constexpr int kAtOnce = kTiles * kPositions;
  static_assert(D % attention::kRunValues == 0 && M <= attention::kMostHeads && kWarps == attention::kWarps);

 public:
  ChunkAttention(decltype(Args::task) task, int t, int g, int c) : task_(task), t_(t), g_(g), c_(c) {}

  void run() {
    const int request = row_table.request[t_], cached = num_cached<Args>(row_table.start[t_], c_);
    const RowSet fresh = fresh_rows();
    const int count = cached + num_rows(fresh);
    if constexpr (!kWhole)
      if (count == 0) return put_nothing();
    // What a batch has in the cache is not in the L2 yet, and more than the loads below have under way is wanted from
    // memory.
    if constexpr (kWhole) prefetch_positions(args(), request, g_, c_, 2 * kAtOnce, cached, thread(), kThreads);
    const int tile = warp() / kRuns, first = tile * kPositions;
    uint4 key[kRuns], value;
    load(first + lane() / 4, cached, request, key, value);
    stage_heads(fresh);
    block_sync();
    inputs_are_ready(args().epoch);

    f32 top = -kInfinity, total = 0, sum[4][4] = {};
    if (tile < kTiles)
#pragma unroll 1
      for (int at = first; at < count; at += kAtOnce) {
        const int n = at + lane() / 4;
        if (n >= cached && n < count) take_fresh(n - cached, key, value);
        // Two positions a lane, 2 (lane % 4) and the next, of head lane / 4.
        float2 score = scores(key);
        const uint4 values = value;
        load(n + kAtOnce, cached, request, key, value);
        const int of_lane = at + lane() % 4 * 2;
        score.x = of_lane < count ? score.x * Args::scale : -kInfinity;
        score.y = of_lane + 1 < count ? score.y * Args::scale : -kInfinity;
        f32 larger = max(top, max(score.x, score.y));
        larger = max(larger, from_lane(larger, 1));
        larger = max(larger, from_lane(larger, 2));
        const f32 keep = fast_exp(top - larger), x = fast_exp(score.x - larger), y = fast_exp(score.y - larger);
        top = larger;
        total = fma(total, keep, x + y);
        const Halves weights = halves(x, y);
        const uint4 rows = {weights.rounded, 0, weights.rest, 0};
        const u32 columns[4] = {values.x, values.y, values.z, values.w};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          sum[j][0] *= keep;
          sum[j][1] *= keep;
          const u32 column = transposed(columns[j]);
          multiply_accumulate(sum[j], rows, column, column);
        }
      }
    total += from_lane(total, 1);
    total += from_lane(total, 2);
    const int m = lane() / 4, run = warp() % kRuns;
    if (tile < kTiles && m < M) {
      f32* const to = joined(tile, m) + run * attention::kRunValues + lane() % 4 * 8;
#pragma unroll
      for (int j = 0; j < 4; ++j) *reinterpret_cast<float2*>(to + 2 * j) = {sum[j][0], sum[j][1]};
      if (run == 0 && lane() % 4 == 0) *reinterpret_cast<float2*>(joined(tile, m) + D) = {top, total};
    }
    block_sync();
    put_joined();
  }

 private:
  // In shared memory: M queries, what rounding left of them, then a key and a value for each fresh row.
  static bf16* staged(int head) { return reinterpret_cast<bf16*>(area_behind_sums()) + head * kStride; }
  static f32* joined(int tile, int m) {
    return reinterpret_cast<f32*>(area_behind_sums() + attention::staged_bytes(M, Args::T_largest, D)) +
           (tile * M + m) * (D + 2);
  }
  int result(int m) const { return (t_ * C + c_) * A + g_ * M + m; }
  Args args() const { return Args::of(*task_); }

  /// The lane's share of position number n, if it is a cached one: a key whole by the four lanes, of the value what the
  /// warp sums.
  void load(int n, int cached, int request, uint4 (&key)[kRuns], uint4& value) const {
#pragma unroll
    for (int i = 0; i < kRuns; ++i) key[i] = {0, 0, 0, 0};
    value = {0, 0, 0, 0};
    if (n >= cached) return;
    const Args args = this->args();
    const i64 element = cached_element(args, request, g_, c_, n) + lane() % 4 * 8;
#pragma unroll
    for (int i = 0; i < kRuns; ++i) key[i] = load_again(args.k_cache + element + i * attention::kRunValues);
    value = load_once(args.v_cache + element + warp() % kRuns * attention::kRunValues);
  }
  bool holds(int position) const { return kWhole || position / L % C == c_; }
  static int num_rows(u32 rows) { return __popc(rows); }
  static int num_rows(u64 rows) { return __popcll(static_cast<long long>(rows)); }
  static int first_row(u32 rows) { return __ffs(static_cast<int>(rows)) - 1; }
  static int first_row(u64 rows) { return __ffsll(static_cast<long long>(rows)) - 1; }
  /// The rows of this iteration that count for this one.
  RowSet fresh_rows() const {
    if constexpr (Args::T_largest == 1) {
      return holds(row_table.position[0]) ? 1 : 0;
    } else {
      const int num = static_cast<int>(args().T);
      const auto counts = [&](int row) {
        const int u = min(row, static_cast<int>(Args::T_largest) - 1), position = row_table.position[u];
        return row < num && row_table.request[u] == row_table.request[t_] && position <= row_table.position[t_] &&
               holds(position);
      };
      RowSet rows = __ballot_sync(0xffffffffu, counts(lane()));
      if constexpr (kManyRows) rows |= RowSet(__ballot_sync(0xffffffffu, counts(kWarpLanes + lane()))) << kWarpLanes;
      return rows;
    }
  }

  // This row's queries; the keys and values of fresh rows.
  void stage_heads(RowSet fresh) const {
    const int num_heads = M + 2 * num_rows(fresh);
#pragma unroll 1
    for (int h = warp(); h < num_heads; h += kWarps) {
      const bool is_query = h < M, is_value = !is_query && (h - M) % 2 == 1;
      int row = t_;
      if (!is_query) {
        RowSet left = fresh;
        for (int i = (h - M) / 2; i > 0; --i) left &= left - 1;
        row = first_row(left);
      }
      const Args args = this->args();
      const bf16* norm = nullptr;
      if constexpr (kNorm) norm = is_query ? args.q_norm : is_value ? nullptr : args.k_norm;
      bf16* const to = staged(is_query ? h : M + h);
      each_qkv_pair(args, row, row_table.position[row], g_, is_query ? h : M + (h - M) % 2, norm, !is_value,
                    [&](int d, f32 a, f32 b) {
                      const Halves two = halves(a, b);
                      *reinterpret_cast<u32*>(to + d) = two.rounded;
                      if (is_query) *reinterpret_cast<u32*>(to + M * kStride + d) = two.rest;
                    });
    }
  }
  /// The lane's share of the i-th fresh row's key and value.
  void take_fresh(int i, uint4 (&key)[kRuns], uint4& value) const {
    const bf16* const from = staged(2 * M + 2 * i) + lane() % 4 * 8;
#pragma unroll
    for (int j = 0; j < kRuns; ++j) key[j] = *reinterpret_cast<const uint4*>(from + j * attention::kRunValues);
    value = *reinterpret_cast<const uint4*>(from + kStride + warp() % kRuns * attention::kRunValues);
  }

  /// Of the warp's tile: head lane / 4, positions 2 (lane % 4) and the next. Rows of the other operand that are no
  /// head's repeat the last one; nobody looks at what becomes of them.
  float2 scores(const uint4 (&key)[kRuns]) const {
    const bf16* const from = staged(min(lane() / 4, M - 1)) + lane() % 4 * 8;
    f32 even[4] = {}, odd[4] = {};
#pragma unroll
    for (int i = 0; i < kRuns; ++i) {
      const uint4 rounded = *reinterpret_cast<const uint4*>(from + i * attention::kRunValues);
      const uint4 rest = *reinterpret_cast<const uint4*>(from + M * kStride + i * attention::kRunValues);
      multiply_accumulate(even, {rounded.x, rest.x, rounded.y, rest.y}, key[i].x, key[i].y);
      multiply_accumulate(odd, {rounded.z, rest.z, rounded.w, rest.w}, key[i].z, key[i].w);
    }
    return {(even[0] + odd[0]) + (even[2] + odd[2]), (even[1] + odd[1]) + (even[3] + odd[3])};
  }

  void put_nothing() const {
    const Args args = this->args();
#pragma unroll 1
    for (int i = 2 * thread(); i < M * D; i += 2 * kThreads)
      put_two(args.part, result(0) * D + i, 0.0f, 0.0f, args.epoch);
    if (thread() < M) put_two(args.softmax, 2 * result(thread()), -kInfinity, 0.0f, args.epoch);
  }
  /// A pair of a head's values a thread.
  void put_joined() const {
    constexpr int kPairs = D / 2;
#pragma unroll 1
    for (int i = thread(); i < M * kPairs; i += kThreads) {
      const int m = i / kPairs, p = i % kPairs;
      float2 state[kTiles];
      f32 top = -1e30f, total = 0;
#pragma unroll
      for (int k = 0; k < kTiles; ++k) {
        state[k] = *reinterpret_cast<const float2*>(joined(k, m) + D);
        top = max(top, state[k].x);
      }
      float2 part = {0, 0};
#pragma unroll
      for (int k = 0; k < kTiles; ++k) {
        const f32 weight = fast_exp(state[k].x - top);
        const float2 of_tile = *reinterpret_cast<const float2*>(joined(k, m) + 2 * p);
        total = fma(weight, state[k].y, total);
        part.x = fma(weight, of_tile.x, part.x);
        part.y = fma(weight, of_tile.y, part.y);
      }
      const Args args = this->args();
      if constexpr (kWhole) {
        const f32 share = fast_divide(1.0f, total);
        put_pair(args.y, result(m) * D + 2 * p, part.x * share, part.y * share, args.epoch);
      } else {
        put_two(args.part, result(m) * D + 2 * p, part.x, part.y, args.epoch);
        if (p == 0) put_two(args.softmax, 2 * result(m), top, total, args.epoch);
      }
    }
  }

  const decltype(Args::task) task_;
  const int t_, g_, c_;
};

template <bool kNorm, class Args>
inline void attention_chunks(const Args& args) {
  constexpr bool kWhole = Chunks<Args>::kWhole;
  const auto task = args.task;
  int t = static_cast<int>(args.t_begin), g = static_cast<int>(args.g_begin), c = 0;
  if constexpr (!kWhole) c = static_cast<int>(args.c_begin);
  if (t >= rows_of(args)) return;
  look_up_rows(args);
  for (;;) {
    ChunkAttention<kNorm, Args>(task, t, g, c).run();
    const Args bounds = Args::of(*task);
    if constexpr (!kWhole) {
      if (++c < bounds.c_end) continue;
      c = static_cast<int>(bounds.c_begin);
    }
    if (++g < bounds.g_end) continue;
    g = static_cast<int>(bounds.g_begin);
    if (++t >= min(bounds.t_end, rows_of(bounds))) return;
  }
}

/// Brings the cached positions of a task's chunks into the L2, by a warp that is tasks ahead, perhaps in the iteration
/// before: where rows stand may then be about to change, and what is fetched for nothing is no harm. Of many rows only
/// the first one's, for together they are more than the L2 holds.
template <class Args>
inline void attention_ahead(const Args& args) {
  int c_begin = 0, c_end = 1, t_end = static_cast<int>(args.t_begin) + 1;
  if constexpr (!Chunks<Args>::kWhole) {
    c_begin = static_cast<int>(args.c_begin);
    c_end = static_cast<int>(args.c_end);
    t_end = static_cast<int>(min(args.t_end, i64(Args::T_largest)));
  }
#pragma unroll 1
  for (int t = static_cast<int>(args.t_begin); t < t_end; ++t) {
    const int start = static_cast<int>(load_relaxed(reinterpret_cast<const u32*>(args.start + t)));
    const int request = static_cast<int>(load_relaxed(reinterpret_cast<const u32*>(args.request + t)));
#pragma unroll 1
    for (int g = static_cast<int>(args.g_begin); g < args.g_end; ++g)
#pragma unroll 1
      for (int c = c_begin; c < c_end; ++c)
        prefetch_positions(args, request, g, c, 0, num_cached<Args>(start, c), lane(), kWarpLanes);
  }
}

template <class Args>
inline void attention_partial_norm(const Args& args) {
  attention_chunks<true>(args);
}
template <class Args>
inline void attention_partial_plain(const Args& args) {
  attention_chunks<false>(args);
}
template <class Args>
inline void attention_whole_norm(const Args& args) {
  attention_chunks<true>(args);
}
template <class Args>
inline void attention_whole_plain(const Args& args) {
  attention_chunks<false>(args);
}

}  // namespace megalith::kernels
