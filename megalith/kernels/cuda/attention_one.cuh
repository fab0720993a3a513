// Attention of one row of a decoder by a whole block, where latency is all that counts. Queries and keys of this
// iteration are normalised and rotated here (heads.cuh).
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

#include "megalith/kernels/cuda/attention_parts.cuh"

namespace megalith::kernels {

/// What several warps read (kRuns), through the first-level cache: with 4096 tokens before, Qwen3-8B takes 4.16 ms a
/// token instead of 4.28.
inline uint4 load_again(const bf16* from) {
  uint4 value;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from)
               : "memory");
  return value;
}

/// Chunk c of the positions of row t (ops/attention_qkv.h): first the chunk's cached ones, then those of this
/// iteration's rows. What the task's operands are is looked up where it is needed: kept from start to end, it would
/// spill.
template <bool kNorm, class Args>
class ChunkAttention {
  static constexpr int D = 2 * static_cast<int>(Args::H), M = static_cast<int>(Args::M), G = static_cast<int>(Args::G);
  static constexpr int L = static_cast<int>(Args::L), C = static_cast<int>(Args::C);
  static constexpr int A = G * M, kRuns = attention::runs(D), kTiles = attention::tiles(D);
  static constexpr int kStride = attention::stride(D), kPositions = attention::kTilePositions;
  static constexpr int kAtOnce = kTiles * kPositions;
  static_assert(D % attention::kRunValues == 0 && M <= attention::kMostHeads && kWarps == attention::kWarps);

 public:
  ChunkAttention(decltype(Args::task) task, int t, int g, int c) : task_(task), t_(t), g_(g), c_(c) {}

  void run() {
    const int request = row_table.request[t_], cached = num_cached<Args>(row_table.start[t_], c_);
    const u32 fresh = fresh_rows();
    const int count = cached + __popc(fresh);
    if (count == 0) return put_nothing();
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
  bool holds(int position) const { return position / L % C == c_; }
  /// The rows of this iteration that count for this one, a bit each: itself, if it is in this chunk.
  u32 fresh_rows() const { return holds(row_table.position[0]) ? 1 : 0; }

  // This row's queries; the keys and values of fresh rows.
  void stage_heads(u32 fresh) const {
    const int num_heads = M + 2 * __popc(fresh);
#pragma unroll 1
    for (int h = warp(); h < num_heads; h += kWarps) {
      const bool is_query = h < M, is_value = !is_query && (h - M) % 2 == 1;
      int row = t_;
      if (!is_query) {
        u32 left = fresh;
        for (int i = (h - M) / 2; i > 0; --i) left &= left - 1;
        row = __ffs(static_cast<int>(left)) - 1;
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
      put_two(args.part, result(m) * D + 2 * p, part.x, part.y, args.epoch);
      if (p == 0) put_two(args.softmax, 2 * result(m), top, total, args.epoch);
    }
  }

  const decltype(Args::task) task_;
  const int t_, g_, c_;
};

}  // namespace megalith::kernels
