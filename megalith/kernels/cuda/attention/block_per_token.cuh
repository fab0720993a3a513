// Attention of a decoder by a whole block for each row, of one row or a few, where latency is all that counts. Queries
// and keys of this iteration are normalised and rotated here (qkv_heads.cuh).
//
// Keys and values of earlier iterations come from the cache; those of this iteration's rows from `qkv` itself, so that
// nobody waits for the cache to be written. Loads of the cache are under way before the first wait, but for those of warps
// that have something of `qkv` to look at, whose looks would stand behind all loads, and for values that are in the L2.
//
// A warp takes every sixteenth tile of eight positions, from its keys to the sum of its values: so of up to four query
// heads a position is loaded by one warp, of more by two. Keys and values come just as they lie in the cache, 16 bytes
// a lane, since any order of a head's values is as good as another if queries have it, too, and sums are put where they
// belong. Keys are loaded again into the same registers when the tile's scores are known, values when they are summed. Of
// tiles on one page each a lane has looked up another one's, of 32 at a time, so that no load waits for another.
//
// Scores and sums are multiply-accumulates of bf16. For the scores queries are the first operand's rows, rounded, and
// in the lower half what rounding left; what a load brings is the second's columns. For the sums values are the first
// operand, turned by movmatrix, and the weights of the softmax the second, just as the scores gave them, first rounded,
// then what rounding left. Of a warp's heads the second operand has each twice, for two parts of the values: columns 0
// to 3 are the heads' weights for the first part and 0 for the second, columns 4 to 7 the other way round. So no sum is
// worked out for nothing. Only a key of this iteration is rounded more than its meaning has it, as the cache will have
// it in the next.
//
// Where all of a tile is on one page a load brings whole lines of memory, 128 bytes of each of four positions: its
// columns are their halves, and rows 0 to 3 of the first operand are the queries' first halves, 4 to 7 the second. A
// score is what both halves come to. The sixteen that values are summed over are the eight positions' halves, so the
// two parts are those of each 64 values. Elsewhere a load brings 64 bytes of each of eight positions: its columns. The
// sixteen are eight positions twice, for the first and the last four of each eight values.
#pragma once

#include "megalith/kernels/cuda/attention/kv_split.cuh"
#include "megalith/kernels/stream_limits.h"

namespace megalith::kernels {

/// What a block works on: a chunk of row t, group of heads g, which is number `share` of all chunks. With several rows it is
/// looked up where it is needed, since registers are the tiles'.
struct Attended {
  u16 t, g;
  int share;
  Chunk chunk;
};
inline Attended& attended() { return shared_variable<Attended, place::kAttended, place::kOfWarps>(); }

/// A chunk of the positions of row t (ops/attention_dealt.cpp): first the chunk's cached ones, then those of this
/// iteration. What the task's operands are is looked up where it is needed: kept from start to end, it would spill.
template <bool kNorm, class Args>
class ChunkAttention {
  static constexpr int D = 2 * static_cast<int>(Args::H), M = static_cast<int>(Args::M), G = static_cast<int>(Args::G);
  static constexpr int L = static_cast<int>(Args::L);
  static constexpr int A = G * M, kRuns = attention::runs(D), kRows = static_cast<int>(Args::T_largest);
  // Warps of a tile, which have other heads each, and tiles that are under way at once.
  static constexpr int kGroups = attention::head_groups(M), kTiles = kWarps / kGroups;
  static constexpr int kPositions = attention::kTilePositions, kAtOnce = kTiles * kPositions;
  static constexpr int kHeadPairs = attention::head_pairs(M), kJoined = attention::joined_floats(D);
  static constexpr int kJoinedStride = attention::joined_stride(kRows, M, D);
  static constexpr int kJoiningWarps = attention::joining_warps(kRows), kJoiningTiles = kJoiningWarps / kGroups;
  static constexpr int kRunSums = 2 * attention::kRunValues;  // of a pair, from one run of its values to the next
  // Lanes that load side by side from one position, as said above; and loads until it is the same positions' turn.
  static constexpr bool kOnePage = static_cast<int>(Args::B) % kPositions == 0 && L % kPositions == 0;
  static constexpr int kSide = kOnePage && D % 64 == 0 ? 8 : 4, kTurns = kSide / 4, kLoaded = kWarpLanes / kSide;
  static constexpr u32 kPagesAtOnce = kOnePage ? kWarpLanes : 1;  // tiles whose pages a warp has looked up
  static constexpr int kJoinedAtOnce = 4;                         // tiles
  static_assert(D % attention::kRunValues == 0 && M <= attention::kMaxHeads && kWarps == attention::kWarps);
  static_assert(kRows <= attention::kFewRows);
  using Row = CachedRowOf<Args>;

 public:
  /// `one`: with room for one row, which looks nothing up; else it is in `attended`.
  ChunkAttention(decltype(Args::task) task, Attended one)
      : task_(task), one_(one), query_(keep(own_query())), tables_(word_of_tables(args())) {}

  void run() {
    const int cached = num_cached<Args>(row_table().start[t()], chunk());
    const u32 fresh = fresh_rows();
    const int count = cached + __popc(fresh);
    if (count == 0) return put_nothing();
    const bool stages = kWarps - 1 - warp() < num_staged(fresh);
    if (stages) stage_heads(fresh);
    // Of tiles without a cached position nothing is loaded; what is there then weighs nothing.
    const int first = warp() / kGroups * kPositions;
    uint4 key[kRuns] = {}, value[kRuns] = {};
    u32 tile = 0;  // the next one to be loaded, of the warp's
    int pages = pages_from(first, cached);
    // Values of a first tile that is in the L2 come in time behind the wait, and before it looks would stand behind them.
    const bool is_in_l2 = kRows <= stream::kMaxRowsOfWords && waits_for_words() != 0 && cached > kAtOnce;
    Row first_row;
    if (first < cached) {
      first_row = row_at(first, cached, page_of_tile(pages, tile));
      load(key, args().k_cache, first_row, false);
      if (!is_in_l2) load(value, args().v_cache, first_row, true);
    }
    if (++tile % kPagesAtOnce == 0) pages = pages_from(first + kAtOnce, cached);
    block_sync();
    inputs_are_ready(args().epoch);
    if (is_in_l2) load(value, args().v_cache, first_row, true);
#pragma unroll 1
    for (int at = first; at < count; at += kAtOnce) {
      const int next = at + kAtOnce;
      const bool goes_on = next < cached;
      if (cached < at + kPositions) take_fresh(at + lane() / kSide - cached, count - cached, key, value);
      const float2 score = scores(key);
      Row row;
      if (goes_on) {
        row = row_at(next, cached, page_of_tile(pages, tile));
        load(key, args().k_cache, row, false);
        if (++tile % kPagesAtOnce == 0) pages = pages_from(next + kAtOnce, cached);
      }
      const Halves weights = weigh(score, count - at, at == first);
      turn(value);
      add_values(value, weights);
      if (goes_on) load(value, args().v_cache, row, true);
    }
    const int tiles = min((count + kPositions - 1) / kPositions, kTiles);
    if (tiles > kJoiningTiles) {
      if (warp() >= kJoiningWarps && warp() / kGroups < tiles) hand_over();
      block_sync();
      if (warp() < kJoiningWarps && warp() / kGroups + kJoiningTiles < tiles) take_over();
    }
    // Who had no tile has sums of 0, so that as many are there as are asked for at once.
    const int joining = min(tiles, kJoiningTiles);
    if (warp() / kGroups < (joining + kJoinedAtOnce - 1) / kJoinedAtOnce * kJoinedAtOnce) join();
    block_sync();
    put_joined(joining);
  }

 private:
  // In shared memory: what each warp sums of each pair of heads, then M queries (attention::query_bytes()), and keys
  // and values of this iteration's rows.
  static f32* joined(u32 warp, u32 pair) {
    return reinterpret_cast<f32*>(shared_area()) + warp * kJoinedStride + pair * kJoined;
  }
  static u8* query(int m) {
    return shared_area() + attention::joined_bytes(kRows, M, D) + m * attention::query_bytes(D);
  }
  static bf16* fresh_head(int number, bool is_value) {
    return reinterpret_cast<bf16*>(query(M)) + (2 * number + is_value) * D;
  }
  int t() const { return kRows == 1 ? 0 : attended().t; }
  int g() const { return kRows == 1 ? one_.g : attended().g; }
  int share() const { return kRows == 1 ? one_.share : attended().share; }
  Chunk chunk() const {
    if constexpr (kRows == 1) return {one_.share, chunks_of_row<Args>(0, 1)};
    return attended().chunk;
  }
  int result(int m) const { return share() * A + g() * M + m; }
  Args args() const { return Args::of(*task_); }

  /// The rows of this iteration that count for this one, a bit each.
  u32 fresh_rows() const {
    const auto counts = [&](int row) {
      const int position = row_table().position[row];
      return is_in_chunk<Args>(chunk(), position) && position <= row_table().position[t()] &&
             row_table().request[row] == row_table().request[t()];
    };
    if constexpr (kRows == 1) return is_in_chunk<Args>(chunk(), row_table().position[0]);
    const int num = static_cast<int>(rows_of(args()));
    return __ballot_sync(0xffffffffu, lane() < num && counts(min(lane(), kRows - 1)));
  }

  /// On which page the lane's positions of a tile are that begins at number `at`; past the last cached one it takes
  /// that again, whose weight will be 0.
  int page_at(int at, int cached) const {
    if (at >= cached) return 0;
    const int n = kOnePage ? at : min(at + lane() / kSide, cached - 1);
    return page_of(args(), row_table().request[t()], cached_position<Args>(chunk(), n));
  }
  /// The same of the warp's next tiles, from the one on that begins at number `at`: of as many as are on one page each a lane has
  /// one's.
  int pages_from(int at, int cached) const { return page_at(kOnePage ? at + lane() * kAtOnce : at, cached); }
  static int page_of_tile(int pages, u32 tile) {
    return kOnePage ? __shfl_sync(0xffffffffu, pages, static_cast<int>(tile % kPagesAtOnce)) : pages;
  }
  /// Where the lane's first position of a tile is.
  Row row_at(int at, int cached, int page) const {
    constexpr u32 B = static_cast<u32>(Args::B);
    const int n = kOnePage ? at + lane() / kSide : min(at + lane() / kSide, cached - 1);
    const u32 position =
        static_cast<u32>(L) % B == 0 ? static_cast<u32>(n) : static_cast<u32>(cached_position<Args>(chunk(), n));
    return {page, position % B, g(), [&](u32 word) { return of_tables(tables_, word); }};
  }
  /// Of a position's values where load i of the lane begins.
  static int share_at(int i) { return i / kTurns * (kSide * 8) + lane() % kSide * 8; }
  /// The lane's share of a tile. What is behind the last cached position of its page is no harm: take_fresh() writes over it.
  template <class Cache>
  static void load(uint4 (&share)[kRuns], Cache cache, Row row, bool is_value) {
    const bf16* const from = cache_begin(cache) + row.element(is_value);
#pragma unroll
    for (int i = 0; i < kRuns; ++i)
      share[i] = load_quad_once(from + i % kTurns * (kLoaded * Row::kStride) + share_at(i));
  }

  /// Heads of queries, keys and values that have to be staged.
  static int num_staged(u32 fresh) { return M + 2 * __popc(fresh); }
  /// This row's queries, and keys and values of the rows `fresh`. By the last warps, which have no tile to ask for
  /// first if the text is short.
  void stage_heads(u32 fresh) const {
#pragma unroll 1
    for (int h = kWarps - 1 - warp(); h < num_staged(fresh); h += kWarps) {
      const bool is_query = h < M, is_value = !is_query && (h - M) % 2 != 0;
      const int number = (h - M) / 2;
      int row = t();
      if constexpr (kRows > 1)
        if (!is_query) {
          u32 rest = fresh;
#pragma unroll 1
          for (int i = 0; i < number; ++i) rest &= rest - 1;
          row = __ffs(static_cast<int>(rest)) - 1;
        }
      const Args args = this->args();
      const bf16* norm = nullptr;
      if constexpr (kNorm) norm = is_query ? args.q_norm : args.k_norm;
      each_qkv_pair<kNorm>(args, row, row_table().position[row], g(), is_query ? h : M + is_value, norm, !is_value,
                           [&](int d, f32 a, f32 b) {
                             const Halves two = halves(a, b);
                             if (is_query)
                               *reinterpret_cast<uint2*>(query(h) + 4 * d) = make_uint2(two.rounded, two.rest);
                             else
                               *reinterpret_cast<u32*>(fresh_head(number, is_value) + d) = two.rounded;
                           });
    }
  }
  /// The lane's share of keys and values of this iteration, of positions that are among the `count` that there are: the
  /// first of the lane's is `number`. Behind them values are 0, since a weight of 0 takes no value that is none.
  void take_fresh(int number, int count, uint4 (&key)[kRuns], uint4 (&value)[kRuns]) const {
#pragma unroll
    for (int i = 0; i < kRuns; ++i) {
      const int n = number + i % kTurns * kLoaded;
      if (n >= count) value[i] = {0, 0, 0, 0};
      if (n < 0 || n >= count) continue;
      const bf16* const from = fresh_head(n, false) + share_at(i);
      key[i] = *reinterpret_cast<const uint4*>(from);
      value[i] = *reinterpret_cast<const uint4*>(from + D);
    }
  }

  /// Of a tile: of a head the lane's two positions, kLanePositions apart from number lane_position() on. The head is
  /// the warp's lane / 4 % 4-th; past the last one it is that again, and nobody looks at what becomes of it.
  float2 scores(const uint4 (&key)[kRuns]) const {
    if constexpr (kTurns == 1) {
      f32 even[4] = {}, odd[4] = {};
#pragma unroll
      for (int i = 0; i < kRuns; ++i) {
        multiply_accumulate(even, load_shared(query_ + 128 * i), key[i].x, key[i].y);
        multiply_accumulate(odd, load_shared(query_ + 128 * i + 16), key[i].z, key[i].w);
      }
      return {(even[0] + odd[0]) + (even[2] + odd[2]), (even[1] + odd[1]) + (even[3] + odd[3])};
    } else {
      f32 of_turn[2][4] = {};
#pragma unroll
      for (int i = 0; i < kRuns; i += 2) {
        const uint4 low = load_shared(query_ + 128 * i), high = load_shared(query_ + 128 * i + 16);
#pragma unroll
        for (int turn = 0; turn < 2; ++turn) {
          multiply_accumulate(of_turn[turn], low, key[i + turn].x, key[i + turn].y);
          multiply_accumulate(of_turn[turn], high, key[i + turn].z, key[i + turn].w);
        }
      }
      const auto whole = [&](const f32(&of)[4]) {
        const f32 half = has_second_half() ? of[1] + of[3] : of[0] + of[2];
        return half + from_lane(half, kWarpLanes / 2);
      };
      return {whole(of_turn[0]), whole(of_turn[1])};
    }
  }
  /// Where in shared memory the query begins that the lane multiplies: of the warp's heads number lane / 4 % 4.
  static u32 own_query() {
    const int first = warp() % kGroups * static_cast<int>(attention::kWarpHeads);
    const int head = min(first + lane() / 4 % static_cast<int>(attention::kWarpHeads), M - 1);
    return shared_address(query(head)) + lane() % 4 * 32 + (kTurns == 2 && has_second_half() ? 128 : 0);
  }
  /// Of each 64 values.
  static bool has_second_half() { return lane() >= kWarpLanes / 2; }
  static constexpr int kLanePositions = kTurns == 1 ? 1 : kLoaded;
  static int lane_position() { return kTurns == 1 ? lane() % 4 * 2 : lane() % 4; }
  /// From two values of column lane / 4 to one of columns 2 (lane % 4) and the next each: of every 8 values, of which
  /// lane / 8 says which, number lane / 4 % 2 in x, and each second one after it in y, z and w.
  /// Where a tile is on one page what stands for both halves of each 64 values comes side by side, as add_values() takes it.
  static void turn(uint4 (&value)[kRuns]) {
    if constexpr (kTurns == 1) {
#pragma unroll
      for (uint4& of_run : value)
        of_run = {transposed(of_run.x), transposed(of_run.y), transposed(of_run.z), transposed(of_run.w)};
    } else {
#pragma unroll
      for (int i = 0; i < kRuns; i += 2) {
        const uint4 a = value[i], b = value[i + 1];
        value[i] = {transposed(a.x), transposed(a.y), transposed(b.x), transposed(b.y)};
        value[i + 1] = {transposed(a.z), transposed(a.w), transposed(b.z), transposed(b.w)};
      }
    }
  }

  /// The weights of a tile of which the first `count` positions count, at least one; sums so far are made less by what
  /// its largest score is more, if there are any.
  Halves weigh(float2 score, int count, bool is_first) {
    score.x = lane_position() < count ? score.x * Args::scale : -kInfinity;
    score.y = lane_position() + kLanePositions < count ? score.y * Args::scale : -kInfinity;
    f32 larger = fast_max(top_, fast_max(score.x, score.y));
    larger = fast_max(larger, from_lane(larger, 1));
    larger = fast_max(larger, from_lane(larger, 2));
    if (!is_first && any_of_warp(larger != top_)) {
      // A lane has sums of columns 2 (lane % 4) and the next.
      const f32 keep = fast_exp(top_ - larger);
      const f32 a = __shfl_sync(0xffffffffu, keep, lane() % 4 * 8),
                b = __shfl_sync(0xffffffffu, keep, lane() % 4 * 8 + 4);
#pragma unroll
      for (int i = 0; i < kRuns; ++i) {
        sum_[i][0] *= a;
        sum_[i][1] *= b;
        sum_[i][2] *= a;
        sum_[i][3] *= b;
      }
      total_ *= keep;
    }
    top_ = larger;
    const f32 x = fast_exp(score.x - larger), y = fast_exp(score.y - larger);
    total_ += x + y;
    return halves(x, y);
  }
  /// `turned`: by turn(). Columns 4 to 7 of the second operand are the heads again, for the other part of the values.
  void add_values(const uint4 (&turned)[kRuns], Halves weights) {
    const bool is_first_part = lane() < kWarpLanes / 2;
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const u32 column = part == 0 ? weights.rounded : weights.rest;
      if constexpr (kTurns == 1) {
#pragma unroll
        for (int i = 0; i < kRuns; ++i)
          multiply_accumulate(sum_[i], turned[i], is_first_part ? column : 0, is_first_part ? 0 : column);
      } else {
        // One position each, of both halves: 0 for one of them.
        const u32 first = is_first_part ? column & 0xffff : column << 16,
                  second = is_first_part ? column >> 16 : column & 0xffff0000;
#pragma unroll
        for (int i = 0; i < kRuns; ++i) multiply_accumulate(sum_[i], turned[i], first, second);
      }
    }
  }

  /// Where in a run of joined() the four lie that a lane has: of both heads values d and d + 2. Of the run's `eight`-th
  /// eight d is number 4 `half` + `odd`. So lanes that write side by side meet all banks, and those that read, too.
  static u32 place(u32 half, u32 odd, u32 eight) { return 4 * (8 * odd + ((4 * half + eight) ^ 2 * odd)); }
  /// What the warp has summed, to the warp half a block before it, and there to that warp's; before join().
  void hand_over() const {
    float4* const to = reinterpret_cast<float4*>(joined(warp() - kJoiningWarps, 0));
#pragma unroll
    for (int i = 0; i < kRuns; ++i) to[i * kWarpLanes + lane()] = {sum_[i][0], sum_[i][1], sum_[i][2], sum_[i][3]};
    reinterpret_cast<float2*>(to + kRuns * kWarpLanes)[lane()] = {top_, total_};
  }
  void take_over() {
    const float4* const from = reinterpret_cast<const float4*>(joined(warp(), 0));
    const float2 state = reinterpret_cast<const float2*>(from + kRuns * kWarpLanes)[lane()];
    const f32 larger = max(top_, state.x), keep = fast_exp(top_ - larger), take = fast_exp(state.x - larger);
    const auto of_column = [](f32 factor, int next) {
      return __shfl_sync(0xffffffffu, factor, lane() % 4 * 8 + next * 4);
    };
    const f32 keeps[2] = {of_column(keep, 0), of_column(keep, 1)}, takes[2] = {of_column(take, 0), of_column(take, 1)};
#pragma unroll
    for (int i = 0; i < kRuns; ++i) {
      const float4 other = from[i * kWarpLanes + lane()];
      sum_[i][0] = fma(sum_[i][0], keeps[0], other.x * takes[0]);
      sum_[i][1] = fma(sum_[i][1], keeps[1], other.y * takes[1]);
      sum_[i][2] = fma(sum_[i][2], keeps[0], other.z * takes[0]);
      sum_[i][3] = fma(sum_[i][3], keeps[1], other.w * takes[1]);
    }
    total_ = fma(total_, keep, state.y * take);
    top_ = larger;
    warp_sync();  // all have read what join() writes over
  }
  /// What the warp has summed, to where the others' is.
  void join() {
    total_ += from_lane(total_, 1);
    total_ += from_lane(total_, 2);
    const int head = lane() / 4, pair = lane() % 2, part = lane() % 4 / 2;
    if (lane() % 4 == 0 && head < 2 * kHeadPairs)
      *reinterpret_cast<float2*>(joined(warp(), head / 2) + 2 * D + head % 2 * 2) = {top_, total_};
    if (pair >= kHeadPairs) return;
    f32* const to = joined(warp(), pair);
#pragma unroll
    for (int i = 0; i < kRuns; ++i) {
      const int run = kTurns == 1 ? i : i / 2 * 2 + part, half = kTurns == 1 ? part : i % 2;
      *reinterpret_cast<float4*>(to + run * kRunSums + place(half, head % 2, head / 2)) = {sum_[i][0], sum_[i][1],
                                                                                           sum_[i][2], sum_[i][3]};
    }
  }
  void put_nothing() const {
    const Args args = this->args();
#pragma unroll 1
    for (int i = 2 * thread(); i < M * D; i += 2 * kThreads)
      put_two(args.part, result(0) * D + i, 0.0f, 0.0f, args.epoch);
    if (thread() < M) put_two(args.softmax, 2 * result(thread()), -kInfinity, 0.0f, args.epoch);
  }
  /// Values 2 p and 2 p + 1 of a head a thread, of the first `tiles` tiles.
  void put_joined(int tiles) const {
    constexpr u32 kPairs = D / 2;
    // What follows from its number a thread would keep from the start; with several rows more is spilled without it.
    const u32 me = kRows == 1 ? static_cast<u32>(thread()) : threadIdx.x;
#pragma unroll 1
    for (u32 unit = me; unit < M * kPairs; unit += kThreads) {
      const u32 head = unit / kPairs, p = unit % kPairs, pair = head / 2, m = head % 2;
      const u32 eight = p % 16 / 4, half = p % 4 / 2, of_run = p / 16 * kRunSums + p % 2 * 2 + m;
      const f32* const first = joined(pair / kHeadPairs, pair % kHeadPairs);
      const u32 even_at = place(half, 0, eight) + of_run, odd_at = place(half, 1, eight) + of_run;
      f32 top = -kInfinity, total = 0, even = 0, odd = 0;
#pragma unroll 1
      for (int k = 0; k < tiles; k += kJoinedAtOnce) {
        float2 states[kJoinedAtOnce];
        f32 evens[kJoinedAtOnce], odds[kJoinedAtOnce];
#pragma unroll
        for (int j = 0; j < kJoinedAtOnce; ++j) {
          const f32* const from = first + (k + j) * (kGroups * kJoinedStride);
          states[j] = *reinterpret_cast<const float2*>(from + 2 * D + 2 * m);
          evens[j] = from[even_at];
          odds[j] = from[odd_at];
        }
        f32 larger = top;
#pragma unroll
        for (int j = 0; j < kJoinedAtOnce; ++j) larger = max(larger, states[j].x);
        const f32 keep = fast_exp(top - larger);
        top = larger;
        total *= keep;
        even *= keep;
        odd *= keep;
#pragma unroll
        for (int j = 0; j < kJoinedAtOnce; ++j) {
          const f32 weight = fast_exp(states[j].x - larger);
          total = fma(weight, states[j].y, total);
          even = fma(weight, evens[j], even);
          odd = fma(weight, odds[j], odd);
        }
      }
      const int at = result(static_cast<int>(head));
      const Args args = this->args();
      put_two(args.part, at * D + 2 * static_cast<int>(p), even, odd, args.epoch);
      if (p == 0) put_two(args.softmax, 2 * at, top, total, args.epoch);
    }
  }

  const decltype(Args::task) task_;
  const Attended one_;
  const u32 query_;   // own_query()
  const u32 tables_;  // word_of_tables()
  // Of head lane / 4 the largest score so far and the lane's share of the weights' total; of values the sums.
  f32 top_ = -kInfinity, total_ = 0, sum_[kRuns][4] = {};
};

/// All that the task has, one after the other.
template <bool kNorm, class Args, class Task>
inline void attend_rows_alone(const Args& args, Task task) {
  int share = static_cast<int>(args.s_begin), g = static_cast<int>(args.g_begin);
#pragma unroll 1
  for (;;) {
    if constexpr (Args::T_largest == 1) {
      ChunkAttention<kNorm, Args>(task, {0, static_cast<u16>(g), share, {}}).run();
    } else {
      const int rows = static_cast<int>(rows_of(Args::of(*task)));
      const ChunkOfRow mine = share_of<Args>(share, rows);
      if (mine.row < rows) {
        const Attended next = {static_cast<u16>(mine.row), static_cast<u16>(g), share, mine.chunk};
        if (thread() == 0) attended() = next;
        block_sync();
        ChunkAttention<kNorm, Args>(task, next).run();
        g = attended().g;
        share = attended().share;
      }
    }
    const Args bounds = Args::of(*task);
    if (++g == bounds.g_end) {
      g = static_cast<int>(bounds.g_begin);
      if (++share == bounds.s_end) return;
    }
    if constexpr (Args::T_largest > 1) block_sync();
  }
}

}  // namespace megalith::kernels
