// Attention of several rows of a decoder at a time, for batches and prompts: four warps a row, and each of them every
// fourth tile of eight positions from its keys to the sum of its values. So a position is looked at by one warp, and
// what is under way is as much as sixteen warps can hold.
//
// Scores are as in attention_one.cuh: queries are the rows of the first operand, rounded and what rounding left. The
// sum of the values has positions where that has values of a head: values are the first operand, turned in registers,
// and the weights of the softmax are the second just as the scores gave them. Of up to four heads the second's eight
// columns are the weights, rounded, and what rounding left of them.
//
// Keys and values of this iteration's rows come from `qkv`, eight of them at a time through shared memory.
#pragma once

#include "megalith/kernels/cuda/attention_parts.cuh"

namespace megalith::kernels {

/// d += a b: a 16 x 8, b 8 x 8 (mma, PTX ISA section 9.7.14).
inline void multiply_accumulate_half(f32 (&d)[4], u32 a0, u32 a1, u32 b) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a0), "r"(a1), "r"(b));
}

inline void store_shared(u32 at, f32 value) {
  asm volatile("st.shared.f32 [%0], %1;" : : "r"(at), "f"(value) : "memory");
}

/// One row t, group of heads g and chunk c, by the four warps of a part of the block. All of them call run().
template <bool kNorm, class Args>
class RowAttention {
  static constexpr int D = 2 * static_cast<int>(Args::H), G = static_cast<int>(Args::G);
  static constexpr int M = static_cast<int>(Args::E) - 2, A = G * M;
  static constexpr int L = Chunks<Args>::length(), C = Chunks<Args>::count();
  static constexpr bool kWhole = Chunks<Args>::kWhole, kManyRows = Args::T_largest > kWarpLanes;
  using RowSet = decltype(kManyRows ? u64(0) : u32(0));  // a bit each
  static constexpr int kRuns = attention::runs(D), kStride = attention::stride(D);
  static constexpr int kPositions = attention::kTilePositions, kFresh = attention::kFreshRows;
  static constexpr int kPartWarps = kWarps / attention::kParts, kPartThreads = kPartWarps * kWarpLanes;
  static constexpr bool kRestBeside = M <= 4;  // of the weights, in columns 4 to 7
  static_assert(D % attention::kRunValues == 0 && M <= attention::kMostHeads && kWarps == attention::kWarps);

 public:
  RowAttention(decltype(Args::task) task, int t, int g, int c) : task_(task), t_(t), g_(g), c_(c) {}

  void run() {
    const int request = row_table.request[t_], cached = num_cached<Args>(row_table.start[t_], c_);
    RowSet fresh = fresh_rows();
    const int num_fresh = num_rows(fresh), mine = warp() % kPartWarps;
    if constexpr (!kWhole)
      if (cached + num_fresh == 0) return put_nothing();
    // What a batch has in the cache is in memory, not in the L2.
    if constexpr (kWhole)
      prefetch_positions(args(), request, g_, 0, 0, min(cached, kPartThreads), part_thread(), kPartThreads);
    stage_heads(fresh, true);
    part_sync();
    inputs_are_ready(args().epoch);
#pragma unroll 1
    for (int at = mine * kPositions; at < cached; at += kPartWarps * kPositions) {
      uint4 keys[kRuns], values[kRuns];
      load(at + lane() / 4, cached, request, keys, values);
      take(keys, values, cached - at);
    }
#pragma unroll 1
    for (int at = 0; at < num_fresh; at += kFresh) {
      if constexpr (Args::T_largest > kFresh)
        if (at > 0) {
          part_sync();  // the eight before were read
          stage_heads(fresh, false);
          part_sync();
        }
      if (at / kFresh % kPartWarps == mine) {
        uint4 keys[kRuns], values[kRuns];
        take_staged(num_fresh - at, keys, values);
        take(keys, values, num_fresh - at);
      }
      if constexpr (Args::T_largest > kFresh)
#pragma unroll 1
        for (int i = 0; i < kFresh; ++i) fresh &= fresh - 1;
    }
    part_sync();  // what was staged makes room for the sums
    join();
    part_sync();
    put_joined();
    part_sync();  // before the next row is staged
  }

 private:
  static int part() { return warp() / kPartWarps; }
  static int part_thread() { return thread() % kPartThreads; }
  static void part_sync() { kernels::part_sync(part(), kPartThreads); }
  static u8* area() { return shared_area() + part() * attention::part_bytes(M, D); }
  // M queries, what rounding left of them, then a key and a value for each of kFresh rows; or what the warps sum.
  static bf16* staged(int head) { return reinterpret_cast<bf16*>(area()) + head * kStride; }
  static f32* joined(int warp, int m) { return reinterpret_cast<f32*>(area()) + (warp * M + m) * (D + 2); }
  int result(int m) const { return (t_ * C + c_) * A + g_ * M + m; }
  Args args() const { return Args::of(*task_); }

  static int num_rows(u32 rows) { return __popc(rows); }
  static int num_rows(u64 rows) { return __popcll(static_cast<long long>(rows)); }
  static int first_row(u32 rows) { return __ffs(static_cast<int>(rows)) - 1; }
  static int first_row(u64 rows) { return __ffsll(static_cast<long long>(rows)) - 1; }
  /// The rows of this iteration that count for this one.
  RowSet fresh_rows() const {
    const int num = static_cast<int>(rows_of(args()));
    const auto counts = [&](int row) {
      const int u = min(row, static_cast<int>(Args::T_largest) - 1), position = row_table.position[u];
      return row < num && row_table.request[u] == row_table.request[t_] && position <= row_table.position[t_] &&
             (kWhole || position / L % C == c_);
    };
    RowSet rows = __ballot_sync(0xffffffffu, counts(lane()));
    if constexpr (kManyRows) rows |= RowSet(__ballot_sync(0xffffffffu, counts(kWarpLanes + lane()))) << kWarpLanes;
    return rows;
  }

  /// The keys and values of the first kFresh of `fresh`; with `queries` this row's queries before them.
  void stage_heads(RowSet fresh, bool queries) const {
    const int num_heads = M + 2 * min(num_rows(fresh), kFresh);
#pragma unroll 1
    for (int h = (queries ? 0 : M) + warp() % kPartWarps; h < num_heads; h += kPartWarps) {
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

  /// The lane's share of a tile of positions: of position lane / 4 every fourth 16 bytes.
  void load(int n, int cached, int request, uint4 (&keys)[kRuns], uint4 (&values)[kRuns]) const {
#pragma unroll
    for (int i = 0; i < kRuns; ++i) keys[i] = values[i] = {0, 0, 0, 0};
    if (n >= cached) return;
    const Args args = this->args();
    const i64 element = cached_element(args, request, g_, c_, n) + lane() % 4 * 8;
#pragma unroll
    for (int i = 0; i < kRuns; ++i) keys[i] = load_once(args.k_cache + element + i * attention::kRunValues);
#pragma unroll
    for (int i = 0; i < kRuns; ++i) values[i] = load_once(args.v_cache + element + i * attention::kRunValues);
  }
  void take_staged(int count, uint4 (&keys)[kRuns], uint4 (&values)[kRuns]) const {
#pragma unroll
    for (int i = 0; i < kRuns; ++i) keys[i] = values[i] = {0, 0, 0, 0};
    if (lane() / 4 >= count) return;
    const bf16* const from = staged(2 * M + 2 * (lane() / 4)) + lane() % 4 * 8;
#pragma unroll
    for (int i = 0; i < kRuns; ++i) {
      keys[i] = *reinterpret_cast<const uint4*>(from + i * attention::kRunValues);
      values[i] = *reinterpret_cast<const uint4*>(from + kStride + i * attention::kRunValues);
    }
  }

  /// Of a tile: of a head positions 2 (lane % 4) and the next. The head is lane / 4; of up to four each is there twice.
  float2 scores(const uint4 (&keys)[kRuns]) const {
    const int row = lane() / 4, head = min(kRestBeside ? row % 4 : row, M - 1);
    const bf16* const from = staged(head) + lane() % 4 * 8;
    f32 even[4] = {}, odd[4] = {};
#pragma unroll
    for (int i = 0; i < kRuns; ++i) {
      const uint4 rounded = *reinterpret_cast<const uint4*>(from + i * attention::kRunValues);
      const uint4 rest = *reinterpret_cast<const uint4*>(from + M * kStride + i * attention::kRunValues);
      multiply_accumulate(even, {rounded.x, rest.x, rounded.y, rest.y}, keys[i].x, keys[i].y);
      multiply_accumulate(odd, {rounded.z, rest.z, rounded.w, rest.w}, keys[i].z, keys[i].w);
    }
    return {(even[0] + odd[0]) + (even[2] + odd[2]), (even[1] + odd[1]) + (even[3] + odd[3])};
  }

  /// Adds a tile of which the first `count` positions count, at least one.
  void take(const uint4 (&keys)[kRuns], const uint4 (&values)[kRuns], int count) {
    const int of_lane = lane() % 4 * 2;
    float2 score = scores(keys);
    score.x = of_lane < count ? score.x * Args::scale : -kInfinity;
    score.y = of_lane + 1 < count ? score.y * Args::scale : -kInfinity;
    f32 larger = max(top_, max(score.x, score.y));
    larger = max(larger, from_lane(larger, 1));
    larger = max(larger, from_lane(larger, 2));
    if (any_of_warp(larger != top_)) {
      // A lane has sums of heads 2 (lane % 4) and the next.
      const f32 keep = fast_exp(top_ - larger);
      const f32 a = __shfl_sync(0xffffffffu, keep, lane() % 4 * 8),
                b = __shfl_sync(0xffffffffu, keep, lane() % 4 * 8 + 4);
#pragma unroll
      for (int i = 0; i < 2 * kRuns; ++i) {
        sum_[i][0] *= a;
        sum_[i][1] *= b;
        sum_[i][2] *= a;
        sum_[i][3] *= b;
      }
      total_ *= keep;
      top_ = larger;
    }
    const f32 x = fast_exp(score.x - top_), y = fast_exp(score.y - top_);
    total_ += x + y;
    const Halves weights = halves(x, y);
    const u32 column = kRestBeside && lane() >= kWarpLanes / 2 ? weights.rest : weights.rounded;
#pragma unroll
    for (int i = 0; i < kRuns; ++i) {
      const u32 pairs[4] = {values[i].x, values[i].y, values[i].z, values[i].w};
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const u32 a = transposed(pairs[2 * j]), b = transposed(pairs[2 * j + 1]);
        multiply_accumulate_half(sum_[2 * i + j], a, b, column);
        if constexpr (!kRestBeside) multiply_accumulate_half(sum_[2 * i + j], a, b, weights.rest);
      }
    }
  }

  /// What the warp has summed, to where the part's others are.
  void join() {
    total_ += from_lane(total_, 1);
    total_ += from_lane(total_, 2);
    const int mine = warp() % kPartWarps, row = lane() / 4, column = lane() % 4 * 2;
    if (row < M && column == 0) *reinterpret_cast<float2*>(joined(mine, row) + D) = {top_, total_};
    // Of a turned pair j of a run row r has value 8 (r / 2) + 2 j + r % 2. The address is worked out here: kept from
    // row to row, all of them would spill.
    const u32 to = keep(shared_address(joined(mine, column) + row / 2 * 8 + row % 2));
    const bool has[2] = {column < (kRestBeside ? min(M, 4) : M), column + 1 < (kRestBeside ? min(M, 4) : M)};
#pragma unroll
    for (int i = 0; i < 2 * kRuns; ++i)
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        f32 sum = sum_[i][k];
        if constexpr (kRestBeside) sum += from_lane(sum, 2);
        const int d = i / 2 * attention::kRunValues + (i % 2 * 2 + k / 2) * 2;
        if (has[k % 2]) store_shared(to + (k % 2 * (D + 2) + d) * 4, sum);
      }
  }
  void put_nothing() const {
    const Args args = this->args();
#pragma unroll 1
    for (int i = 2 * part_thread(); i < M * D; i += 2 * kPartThreads)
      put_two(args.part, result(0) * D + i, 0.0f, 0.0f, args.epoch);
    if (part_thread() < M) put_two(args.softmax, 2 * result(part_thread()), -kInfinity, 0.0f, args.epoch);
  }
  /// A pair of a head's values a thread.
  void put_joined() const {
    constexpr int kPairs = D / 2;
#pragma unroll 1
    for (int i = part_thread(); i < M * kPairs; i += kPartThreads) {
      const int m = i / kPairs, p = i % kPairs;
      float2 state[kPartWarps];
      f32 top = -1e30f, total = 0;
#pragma unroll
      for (int k = 0; k < kPartWarps; ++k) {
        state[k] = *reinterpret_cast<const float2*>(joined(k, m) + D);
        top = max(top, state[k].x);
      }
      float2 part = {0, 0};
#pragma unroll
      for (int k = 0; k < kPartWarps; ++k) {
        const f32 weight = fast_exp(state[k].x - top);
        const float2 of_warp = *reinterpret_cast<const float2*>(joined(k, m) + 2 * p);
        total = fma(weight, state[k].y, total);
        part.x = fma(weight, of_warp.x, part.x);
        part.y = fma(weight, of_warp.y, part.y);
      }
      const Args args = this->args();
      if constexpr (kWhole) {
        const f32 share = fast_divide(1.0f, total);
        put_pair(args.y, i64(result(m)) * D + 2 * p, part.x * share, part.y * share, args.epoch);
      } else {
        put_two(args.part, result(m) * D + 2 * p, part.x, part.y, args.epoch);
        if (p == 0) put_two(args.softmax, 2 * result(m), top, total, args.epoch);
      }
    }
  }

  const decltype(Args::task) task_;
  const int t_, g_, c_;
  // Of head lane / 4 the largest score so far and the lane's share of the weights' total; of values the sums.
  f32 top_ = -kInfinity, total_ = 0, sum_[2 * kRuns][4] = {};
};

/// The task's rows, for one group of heads and one chunk.
template <bool kNorm, class Args, class Task>
inline void attend_rows(Task task, int g, int c) {
  const Args args = Args::of(*task);
  const int t_end = static_cast<int>(min(args.t_end, rows_of(args)));
#pragma unroll 1
  for (int t = static_cast<int>(args.t_begin) + warp() / (kWarps / attention::kParts); t < t_end;
       t += attention::kParts)
    RowAttention<kNorm, Args>(task, t, g, c).run();
}

}  // namespace megalith::kernels
