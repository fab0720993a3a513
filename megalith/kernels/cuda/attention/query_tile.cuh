// Attention of a prompt's tokens, all of whose keys are in the cache: a block has a tile of up to 64 queries, the heads
// of several tokens of one text that share keys, and a key is loaded once for all of them. After FlashAttention-2
// (https://arxiv.org/abs/2307.08691), with the keys split between teams of warps as well.
//
// A team, four warps, takes every fourth tile of 32 keys; each of its warps multiplies 16 of the queries with them.
// Copies past registers bring the next tile's keys while the weights of this one are summed, and its values while the
// next scores are worked out. In the end teams exchange what they have summed, twice a half of it, so that each has a
// quarter of the columns of all.
//
// Queries and the weights of the softmax are rounded to bf16, as models that compute in bf16 have them. Which keys a tile
// has does not depend on who looks at it, and a tile behind a token's own key changes no bit of its sums: so a token has
// the same bits whoever stands beside it.
#pragma once

#include "megalith/kernels/cuda/attention/kv_pages.cuh"
#include "megalith/kernels/cuda/attention/kv_split.cuh"

namespace megalith::kernels {

/// Tokens from `t` on, in order and of one text, and group of heads g, by all warps of a block.
template <bool kNorm, class Args>
class QueryTile {
  static constexpr int D = 2 * static_cast<int>(Args::H), G = static_cast<int>(Args::G);
  static constexpr int kHeads = static_cast<int>(Args::E) - 2;
  static constexpr int kTeamThreads = kThreads / attention::kTeams;
  static constexpr int kTeamWarps = kTeamThreads / static_cast<int>(kWarpLanes), kRowsOfWarp = 16;
  static constexpr int kKeys = attention::kTileKeys, kStep = attention::kTeams * kKeys;
  static constexpr u32 kRowBytes = attention::tile_row_bytes(D), kTileBytes = kKeys * kRowBytes;
  static constexpr int kRuns = attention::runs(D), kEights = D / 8;
  // Lanes that copy side by side from one key, keys that have a copy at a time, and passes until each has had one.
  static constexpr int kSide = D % 128 == 0  ? 16
                               : D % 64 == 0 ? 8
                                             : 4,
                       kCopied = kTeamThreads / kSide, kPasses = kKeys / kCopied;
  static constexpr int kAtOnce = 2;  // heads that a warp stages
  using Head = HeadOf<kNorm, Args>;
  static_assert(kRowsOfWarp * kTeamWarps == attention::kTileQueries && kKeys == static_cast<int>(kWarpLanes));
  static_assert(D % attention::kRunValues == 0 && kCopied % 8 == 0 && kKeys % kCopied == 0 && kAllCached<Args>);

 public:
  /// Tokens of a tile, at most.
  static constexpr int kTokens = attention::kTileQueries / kHeads;

  QueryTile(decltype(Args::task) task, int t, int tokens, int g)
      : task_(task),
        t_(t),
        tokens_(tokens),
        g_(g),
        copied_(keep(keys() + in_tile(team_thread() / kSide, team_thread() % kSide * 8))),
        key_(keep(keys() + in_tile(lane() / 4, lane() % 4 * 8))),
        value_(keep(keys() + kTileBytes + in_tile(lane() / 8 % 2 * 8 + lane() % 8, lane() / 16 * 8))),
        query_(keep(queries() + in_tile(row(), lane() % 4 * 8))) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
      last_[i] = token_of(row() + 8 * i) < tokens ? row_table().position[t + token_of(row() + 8 * i)] : -1;
  }

  /// `is_first`: of the task's.
  void run(bool is_first) {
    const int count = row_table().position[t_ + tokens_ - 1] + 1, request = row_table().request[t_];
    const bool is_busy = warp() % kTeamWarps * kRowsOfWarp < tokens_ * kHeads;
    int at = team() * kKeys;
    u32 next = place_of(at, count, request);
    fetch(next, at, count, false);
    fetch(next, at, count, true);
    next = place_of(at + kStep, count, request);
    stage_queries();
    block_sync();
    if (is_first) inputs_are_ready(args().epoch);
#pragma unroll 1
    for (; at < count; at += kStep) {
      copy_wait<1>();
      team_sync();
      f32 scores[kKeys / 8][4] = {};
      if (is_busy) multiply_keys(scores);
      team_sync();
      fetch(next, at + kStep, count, false);
      uint4 weights[kKeys / 16];
      if (is_busy) weigh(scores, at, weights);
      copy_wait<1>();
      team_sync();
      if (is_busy) add_values(weights);
      team_sync();
      fetch(next, at + kStep, count, true);
      next = place_of(at + 2 * kStep, count, request);
    }
    copy_wait<0>();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      total_[i] += from_lane(total_[i], 1);
      total_[i] += from_lane(total_[i], 2);
    }
    block_sync();  // what was staged makes room for the sums
    exchange<kEights / 2>(2);
    exchange<kEights / 4>(1);
    put();
    block_sync();  // before the next tile is staged
  }

 private:
  static int team() { return warp() / kTeamWarps; }
  static int team_thread() { return thread() % kTeamThreads; }
  static void team_sync() { part_sync(team(), kTeamThreads); }
  /// A team's keys, behind which its values are; behind those of all teams the queries.
  static u32 keys() { return shared_address(shared_area()) + team() * 2 * kTileBytes; }
  static u32 queries() { return shared_address(shared_area()) + attention::kTeams * 2 * kTileBytes; }
  /// Where value d of a row is, of keys, values or queries. A row's runs of 16 bytes are in an order of its own, so that
  /// lanes that read several rows meet all banks.
  static u32 in_tile(int row, int d) {
    const int run = d / 8 ^ (row % 8 / 2 | row % 2 * 4);
    return row * kRowBytes + run * 16 + d % 8 * 2;
  }
  /// From where a lane has something, to where it has the same i runs of kRunValues further.
  static u32 further(u32 at, int i) { return (at ^ i % 2 * 64) + i / 2 * 128; }
  /// The same, 16 values further each.
  static u32 further_half(u32 at, int i) { return (at ^ i % 4 * 32) + i / 4 * 128; }
  Args args() const { return Args::of(*task_); }

  /// The first of the lane's two queries; the other one is eight further.
  static int row() { return warp() % kTeamWarps * kRowsOfWarp + lane() / 4; }
  static int token_of(int row) { return row / kHeads; }

  void stage_queries() const {
    const int num = tokens_ * kHeads;
#pragma unroll 1
    for (int first = warp(); first < num; first += kAtOnce * kWarps) {
      Head heads[kAtOnce];
      // Past the last one the first is taken again, and not put anywhere.
      const auto number = [&](int i) { return first + i * kWarps < num ? first + i * kWarps : first; };
      const Args args = this->args();
      const bf16* norm = nullptr;
      if constexpr (kNorm) norm = args.q_norm;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int t = t_ + token_of(number(i));
        load_head<kNorm>(heads[i], args, t, row_table().position[t], g_, number(i) % kHeads, norm, true);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i * kWarps >= num) break;
        heads[i].finish(head_eps<Args>(),
                        [&](int d, f32 a, f32 b) { store_shared(queries() + in_tile(number(i), d), pack_bf16(a, b)); });
      }
    }
  }

  /// Where in both caches key at + lane() begins, in pieces of 16 bytes.
  u32 place_of(int at, int count, int request) const {
    if (at >= count) return 0;
    const int position = min(at + lane(), count - 1);
    const Args args = this->args();
    return static_cast<u32>(element_on_page<Args>(page_of(args, request, position), position, g_) / 8);
  }
  /// Begins to copy the thread's share of a tile, of its keys or its values; behind the last one come zeros, since a
  /// weight of 0 takes no value that is none. `place`: by place_of().
  void fetch(u32 place, int at, int count, bool is_value) const {
    if (at < count) {
      const Args args = this->args();
      const bf16* const cache = is_value ? args.v_cache : args.k_cache;
      const u32 to = is_value ? copied_ + kTileBytes : copied_;
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) {
        const int key = pass * kCopied + team_thread() / kSide;
        const u32 piece = __shfl_sync(0xffffffffu, place, key) + team_thread() % kSide;
#pragma unroll
        for (int run = 0; run < D / 8 / kSide; ++run)
          copy_begin(kSide == 4 ? further(to, run) : to + pass * kCopied * kRowBytes,
                     cache + i64(piece + run * kSide) * 8, at + key < count ? 16 : 0);
      }
    }
    copy_commit();
  }

  /// Of the lane's queries the scores of keys 8 j + 2 (lane % 4) and the next.
  void multiply_keys(f32 (&scores)[kKeys / 8][4]) const {
#pragma unroll
    for (int i = 0; i < kRuns; ++i) {
      const uint4 a = load_shared(further(query_, i)), b = load_shared(further(query_ + 8 * kRowBytes, i));
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j) {
        const uint4 key = load_shared(further(key_ + j * 8 * kRowBytes, i));
        multiply_accumulate(scores[j], {a.x, b.x, a.y, b.y}, key.x, key.y);
        multiply_accumulate(scores[j], {a.z, b.z, a.w, b.w}, key.z, key.w);
      }
    }
  }
  /// The weights of a tile, as multiply_accumulate() takes them; sums so far are made less by what its largest score is
  /// more.
  void weigh(f32 (&scores)[kKeys / 8][4], int at, uint4 (&weights)[kKeys / 16]) {
    f32 larger[2] = {top_[0], top_[1]};
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j)
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const bool counts = at + 8 * j + lane() % 4 * 2 + k % 2 <= last_[k / 2];
        scores[j][k] = counts ? scores[j][k] * Args::scale : -kInfinity;
        larger[k / 2] = max(larger[k / 2], scores[j][k]);
      }
#pragma unroll
    for (f32& of_row : larger) {
      of_row = max(of_row, from_lane(of_row, 1));
      of_row = max(of_row, from_lane(of_row, 2));
    }
    if (any_of_warp(larger[0] != top_[0] || larger[1] != top_[1])) {
      const f32 keep[2] = {fast_exp(top_[0] - larger[0]), fast_exp(top_[1] - larger[1])};
#pragma unroll
      for (int i = 0; i < kEights; ++i)
#pragma unroll
        for (int k = 0; k < 4; ++k) sum_[i][k] *= keep[k / 2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        total_[i] *= keep[i];
        top_[i] = larger[i];
      }
    }
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j)
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        scores[j][k] = fast_exp(scores[j][k] - top_[k / 2]);
        total_[k / 2] += scores[j][k];
      }
#pragma unroll
    for (int j = 0; j < kKeys / 16; ++j) {
      const auto& low = scores[2 * j];
      const auto& high = scores[2 * j + 1];
      weights[j] = {pack_bf16(low[0], low[1]), pack_bf16(low[2], low[3]), pack_bf16(high[0], high[1]),
                    pack_bf16(high[2], high[3])};
    }
  }
  void add_values(const uint4 (&weights)[kKeys / 16]) {
#pragma unroll
    for (int j = 0; j < kKeys / 16; ++j)
#pragma unroll
      for (int i = 0; i < kEights / 2; ++i) {
        const uint4 turned = load_transposed(further_half(value_ + j * 16 * kRowBytes, i));
        multiply_accumulate(sum_[2 * i], weights[j], turned.x, turned.y);
        multiply_accumulate(sum_[2 * i + 1], weights[j], turned.z, turned.w);
      }
  }

  /// Gives the team that is `apart` from this one its half of 2 kKept eights of columns, and takes this one's from it:
  /// the earlier team keeps the lower half. What is left is in the first kKept of sum_.
  template <int kKept>
  void exchange(int apart) {
    constexpr int kStride =
        8 * kKept + 8;  // of a query, in numbers: behind its columns the largest score and the total
    const bool keeps_high = (team() & apart) != 0;
    const auto at = [&](int team, int i) {
      return shared_address(shared_area()) +
             ((team * attention::kTileQueries + row() + 8 * i) * kStride + lane() % 4 * 2) * 4;
    };
    const u32 to = at(team() ^ apart, 0);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const u32 of_row = to + 8 * i * kStride * 4;
#pragma unroll
      for (int e = 0; e < kKept; ++e)
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          const f32 low = sum_[e][2 * i + k], high = sum_[kKept + e][2 * i + k];
          store_shared(of_row + (8 * e + k) * 4, keeps_high ? low : high);
          sum_[e][2 * i + k] = keeps_high ? high : low;
        }
      if (lane() % 4 == 0) {
        store_shared(of_row + 8 * kKept * 4, top_[i]);
        store_shared(of_row + (8 * kKept + 1) * 4, total_[i]);
      }
    }
    block_sync();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const u32 from = at(team(), i), state = from - lane() % 4 * 8 + 8 * kKept * 4;
      const uint2 other = load_shared_eight(state);
      const f32 top = as_f32(other.x), larger = max(top_[i], top), keep = fast_exp(top_[i] - larger),
                take = fast_exp(top - larger);
      total_[i] = fma(total_[i], keep, as_f32(other.y) * take);
      top_[i] = larger;
#pragma unroll
      for (int e = 0; e < kKept; ++e) {
        const uint2 of_other = load_shared_eight(from + 8 * e * 4);
        sum_[e][2 * i] = fma(sum_[e][2 * i], keep, as_f32(of_other.x) * take);
        sum_[e][2 * i + 1] = fma(sum_[e][2 * i + 1], keep, as_f32(of_other.y) * take);
      }
    }
    block_sync();
  }
  static f32 as_f32(u32 bits) { return __builtin_bit_cast(f32, bits); }
  /// The team's quarter of the columns, of the lane's queries.
  void put() const {
    const Args args = this->args();
    // Team 1 kept the lower half and then the higher one of it, team 2 the other way round.
    const int first = (team() / 2 * (kEights / 2) + team() % 2 * (kEights / 4)) * 8;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = this->row() + 8 * i, t = t_ + token_of(row), head = row % kHeads;
      if (token_of(row) >= tokens_) continue;
      const f32 share = fast_divide(1.0f, total_[i]);
      const i64 begin = (i64(t) * G * kHeads + g_ * kHeads + head) * D + first + lane() % 4 * 2;
#pragma unroll
      for (int e = 0; e < kEights / 4; ++e)
        put_pair(args.y, begin + 8 * e, sum_[e][2 * i] * share, sum_[e][2 * i + 1] * share, args.epoch);
    }
  }

  const decltype(Args::task) task_;
  const int t_, tokens_, g_;
  const u32 copied_, key_, value_, query_;  // in the tiles: what the thread copies, and what the lane multiplies
  int last_[2];                             // of each of the lane's queries, the last key that counts
  // The largest score so far, the lane's share of the weights' total, the sums. Finite, since none of a tile's keys may
  // count.
  f32 top_[2] = {-1e30f, -1e30f}, total_[2] = {}, sum_[kEights][4] = {};
};

/// The task's tokens and groups of heads, as many tokens at a time as stand behind each other in a text.
template <bool kNorm, class Args, class Task>
inline void attend_query_tiles(Task task) {
  using Tile = QueryTile<kNorm, Args>;
  const Args args = Args::of(*task);
  const int t_begin = static_cast<int>(args.t_begin), t_end = static_cast<int>(min(args.t_end, rows_of(args))),
            g_end = static_cast<int>(args.g_end);
  bool is_first = true;
#pragma unroll 1
  for (int g = static_cast<int>(args.g_begin); g < g_end; ++g)
#pragma unroll 1
    for (int t = t_begin; t < t_end;) {
      const auto follows = [&](int next) {
        return row_table().request[next] == row_table().request[next - 1] &&
               row_table().position[next - 1] < row_table().position[next];
      };
      int tokens = 1;
      while (tokens < Tile::kTokens && t + tokens < t_end && follows(t + tokens)) ++tokens;
      Tile(task, t, tokens, g).run(is_first);
      is_first = false;
      t += tokens;
    }
}

}  // namespace megalith::kernels
