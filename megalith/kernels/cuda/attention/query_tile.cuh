// Attention of a prompt's tokens, all of whose keys are in the cache: a block has a tile of up to 64 queries, the heads
// of several tokens of one sequence that share keys, and a key is loaded once for all of them. After FlashAttention-2
// (https://arxiv.org/abs/2307.08691), with the keys split between teams of warps as well.
//
// A team, half of the warps, takes every second tile of 32 keys, while copies past registers bring its next tile's keys
// and values. 16 of the queries have two warps of it, which sum half of the columns each: both work the weights out,
// since sums of all columns leave too few registers. In the end teams exchange half of what they have summed.
//
// Queries and the weights of the softmax are rounded to bf16, as models that compute in bf16 have them. Which keys a
// tile has does not depend on who looks at it, and a tile behind a token's own key changes no bit of its sums: so a
// token has the same bits whoever stands beside it.
#pragma once

#include "megalith/kernels/cuda/attention/kv_pages.cuh"
#include "megalith/kernels/cuda/attention/kv_split.cuh"

namespace megalith::kernels {

/// What a block works on: `tokens` tokens from `t` on, in order and of one sequence, and group of heads g. It is looked
/// up where it is needed, since registers are the sums'.
struct AttendedTile {
  int t, tokens, g;
};
inline AttendedTile& attended_tile() { return shared_variable<AttendedTile, place::kAttended, place::kOfWarps>(); }

/// attended_tile(), by all warps of a block.
template <bool kNorm, class Args>
class QueryTile {
  static constexpr int D = 2 * static_cast<int>(Args::H), G = static_cast<int>(Args::G);
  static constexpr int kHeads = static_cast<int>(Args::E) - 2;
  static constexpr int kTeamThreads = kThreads / attention::kTeams;
  static constexpr int kRowTiles = attention::kTileQueries / 16;  // of a warp's queries each
  static constexpr int kKeys = attention::kTileKeys, kStep = attention::kTeams * kKeys;
  static constexpr u32 kRowBytes = attention::tile_row_bytes(D), kTileBytes = kKeys * kRowBytes;
  static constexpr int kRuns = attention::runs(D), kEights = 2 * kRuns;  // of columns, of a warp
  // Lanes that copy side by side from one key, keys that have a copy at a time, and passes until each has had one.
  static constexpr int kSide = D % 128 == 0  ? 16
                               : D % 64 == 0 ? 8
                                             : 4,
                       kCopied = kTeamThreads / kSide, kPasses = (kKeys + kCopied - 1) / kCopied;
  static constexpr int kAtOnce = 2;  // heads that a warp stages
  using Head = HeadOf<kNorm, Args>;
  static_assert(2 * kRowTiles * attention::kTeams == kWarps && kKeys == static_cast<int>(kWarpLanes));
  static_assert(D % attention::kRunValues == 0 && kCopied % 8 == 0 && kAllCached<Args>);

 public:
  /// Tokens of a tile, at most.
  static constexpr int kTokens = attention::kTileQueries / kHeads;

  explicit QueryTile(decltype(Args::task) task)
      : task_(task),
        copied_(keep(keys() + in_tile(team_thread() / kSide, team_thread() % kSide * 8))),
        key_(keep(keys() + in_tile(lane() / 4, lane() % 4 * 8))),
        value_(keep(keys() + kTileBytes + in_tile(lane() / 8 % 2 * 8 + lane() % 8, half() * 16 + lane() / 16 * 8))),
        query_(keep(queries() + in_tile(row(), lane() % 4 * 8))) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
      last_[i] = token_of(row() + 8 * i) < tokens() ? row_table().position[t() + token_of(row() + 8 * i)] : -1;
  }

  /// `is_first`: of the task's.
  void run(bool is_first) {
    const bool is_busy = warp() % kRowTiles * 16 < tokens() * kHeads;
    int at = team() * kKeys;
    u32 buffer = 0;
    fetch(place_of(at), at, 0);
    fetch(place_of(at + kStep), at + kStep, kBufferBytes);
    u32 next = place_of(at + 2 * kStep);
    stage_queries();
    block_sync();
    if (is_first) inputs_are_ready(args().epoch);
      // Not before: beside them heads are staged in other memory than registers.
#pragma unroll
    for (int i = 0; i < kEights; ++i)
#pragma unroll
      for (int k = 0; k < 4; ++k) sum_[i][k] = 0;
#pragma unroll 1
    for (; at < count(); at += kStep) {
      copy_wait<1>();
      team_sync();
      if (is_busy)
#pragma unroll
        for (int key = 0; key < kKeys; key += 16) {
          f32 scores[2][4] = {};
          multiply_keys(scores, buffer + key * kRowBytes);
          add_values(weigh(scores, at + key), buffer + key * kRowBytes);
        }
      team_sync();
      fetch(next, at + 2 * kStep, buffer);
      next = place_of(at + 3 * kStep);
      buffer ^= kBufferBytes;
    }
    copy_wait<0>();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      total_[i] += from_lane(total_[i], 1);
      total_[i] += from_lane(total_[i], 2);
    }
    block_sync();  // what was staged makes room for the sums
    exchange();
    put();
  }

 private:
  static int t() { return attended_tile().t; }
  static int tokens() { return attended_tile().tokens; }
  static int g() { return attended_tile().g; }
  /// Keys that count for the last token.
  static int count() { return row_table().position[t() + tokens() - 1] + 1; }
  static int team() { return warp() / (2 * kRowTiles); }
  /// Of each 32 columns a warp sums the first 16, or the others.
  static int half() { return warp() / kRowTiles % 2; }
  static int team_thread() { return thread() % kTeamThreads; }
  static void team_sync() { part_sync(team(), kTeamThreads); }
  /// The first of a team's two buffers: keys, behind which values are. Behind those of all teams the queries.
  static constexpr u32 kBufferBytes = 2 * kTileBytes;
  static u32 keys() { return shared_address(shared_area()) + team() * 2 * kBufferBytes; }
  static u32 queries() { return shared_address(shared_area()) + attention::kTeams * 2 * kBufferBytes; }
  /// Where value d of a row is, of keys, values or queries. A row's runs of 16 bytes are in an order of its own, so that
  /// lanes that read several rows meet all banks.
  static u32 in_tile(int row, int d) {
    const int run = d / 8 ^ (row % 8 / 2 | row % 2 * 4);
    return row * kRowBytes + run * 16 + d % 8 * 2;
  }
  /// From where a lane has something, to where it has the same i runs of kRunValues further.
  static u32 further(u32 at, int i) { return (at ^ i % 2 * 64) + i / 2 * 128; }
  Args args() const { return Args::of(*task_); }

  /// The first of the lane's two queries; the other one is eight further.
  static int row() { return warp() % kRowTiles * 16 + lane() / 4; }
  static int token_of(int row) { return row / kHeads; }

  void stage_queries() const {
    const int num = tokens() * kHeads;
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
        const int t = this->t() + token_of(number(i));
        load_head<kNorm>(heads[i], args, t, row_table().position[t], g(), number(i) % kHeads, norm, true);
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
  u32 place_of(int at) const {
    if (at >= count()) return 0;
    const int position = min(at + lane(), count() - 1);
    const Args args = this->args();
    return static_cast<u32>(element_on_page<Args>(page_of(args, row_table().request[t()], position), position, g()) /
                            8);
  }
  /// Begins to copy the thread's share of a tile's keys and values into a buffer; behind the last one come zeros, since
  /// a weight of 0 takes no value that is none. `place`: by place_of().
  void fetch(u32 place, int at, u32 buffer) const {
    if (at < count()) {
      const Args args = this->args();
      const u32 to = copied_ + buffer;
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) {
        const int key = pass * kCopied + team_thread() / kSide, bytes = at + key < count() ? 16 : 0;
        const i64 first = i64(__shfl_sync(0xffffffffu, place, key % kKeys) + team_thread() % kSide) * 8;
        if (key >= kKeys) break;
#pragma unroll
        for (int run = 0; run < D / 8 / kSide; ++run) {
          const u32 of_run = kSide == 4 ? further(to, run) : to + pass * kCopied * kRowBytes;
          copy_begin(of_run, args.k_cache + first + run * kSide * 8, bytes);
          copy_begin(of_run + kTileBytes, args.v_cache + first + run * kSide * 8, bytes);
        }
      }
    }
    copy_commit();
  }

  /// Of the lane's queries the scores of keys 8 j + 2 (lane % 4) and the next.
  void multiply_keys(f32 (&scores)[2][4], u32 buffer) const {
#pragma unroll
    for (int i = 0; i < kRuns; ++i) {
      const uint4 a = load_shared(further(query_, i)), b = load_shared(further(query_, i) + 8 * kRowBytes);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const uint4 key = load_shared(further(key_ + buffer, i) + j * 8 * kRowBytes);
        multiply_accumulate(scores[j], {a.x, b.x, a.y, b.y}, key.x, key.y);
        multiply_accumulate(scores[j], {a.z, b.z, a.w, b.w}, key.z, key.w);
      }
    }
  }
  /// The weights of 16 keys from number `at` on, as multiply_accumulate() takes them; sums so far are made less by what
  /// the largest score is more.
  uint4 weigh(f32 (&scores)[2][4], int at) {
    f32 larger[2] = {top_[0], top_[1]};
#pragma unroll
    for (int j = 0; j < 2; ++j)
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
    for (int j = 0; j < 2; ++j)
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        scores[j][k] = fast_exp(scores[j][k] - top_[k / 2]);
        total_[k / 2] += scores[j][k];
      }
    return {pack_bf16(scores[0][0], scores[0][1]), pack_bf16(scores[0][2], scores[0][3]),
            pack_bf16(scores[1][0], scores[1][1]), pack_bf16(scores[1][2], scores[1][3])};
  }
  void add_values(uint4 weights, u32 buffer) {
#pragma unroll
    for (int i = 0; i < kRuns; ++i) {
      const uint4 turned = load_transposed(further(value_ + buffer, i));
      multiply_accumulate(sum_[2 * i], weights, turned.x, turned.y);
      multiply_accumulate(sum_[2 * i + 1], weights, turned.z, turned.w);
    }
  }

  /// The first column of eight `e`.
  static int column(int e) { return e / 2 * 32 + half() * 16 + e % 2 * 8; }
  /// Gives the other team its half of the columns, and takes this one's from it: of kRuns eights, which are the first of
  /// sum_ then; the first team keeps the lower ones.
  void exchange() {
    constexpr int kStride =
        8 * kRuns + 8;  // of a query, in numbers: behind its columns the largest score and the total
    const auto at = [&](int team) {
      return shared_address(shared_area()) +
             (((team * 2 + half()) * attention::kTileQueries + row()) * kStride + lane() % 4 * 2) * 4;
    };
    const u32 to = at(team() ^ 1);
    const auto give = [&](int e, const f32(&sum)[4]) {
#pragma unroll
      for (int k = 0; k < 4; ++k) store_shared(to + (k / 2 * 8 * kStride + 8 * e + k % 2) * 4, sum[k]);
    };
    // A way for each: with a choice for each number all of them would be made before the first store.
    if (team() == 1) {
#pragma unroll
      for (int e = 0; e < kRuns; ++e) {
        give(e, sum_[e]);
#pragma unroll
        for (int k = 0; k < 4; ++k) sum_[e][k] = sum_[kRuns + e][k];
      }
    } else {
#pragma unroll
      for (int e = 0; e < kRuns; ++e) give(e, sum_[kRuns + e]);
    }
    if (lane() % 4 == 0)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        store_shared(to + (8 * i * kStride + 8 * kRuns) * 4, top_[i]);
        store_shared(to + (8 * i * kStride + 8 * kRuns + 1) * 4, total_[i]);
      }
    block_sync();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const u32 from = at(team()) + 8 * i * kStride * 4, state = from - lane() % 4 * 8 + 8 * kRuns * 4;
      const uint2 other = load_shared_eight(state);
      const f32 top = as_f32(other.x), larger = max(top_[i], top), keep = fast_exp(top_[i] - larger),
                take = fast_exp(top - larger);
      total_[i] = fma(total_[i], keep, as_f32(other.y) * take);
#pragma unroll
      for (int e = 0; e < kRuns; ++e) {
        const uint2 of_other = load_shared_eight(from + 8 * e * 4);
        sum_[e][2 * i] = fma(sum_[e][2 * i], keep, as_f32(of_other.x) * take);
        sum_[e][2 * i + 1] = fma(sum_[e][2 * i + 1], keep, as_f32(of_other.y) * take);
      }
    }
  }
  static f32 as_f32(u32 bits) { return __builtin_bit_cast(f32, bits); }
  /// The columns that the warp has kept, of the lane's queries.
  void put() const {
    const Args args = this->args();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = this->row() + 8 * i, t = this->t() + token_of(row), head = row % kHeads;
      if (token_of(row) >= tokens()) continue;
      const f32 share = fast_divide(1.0f, total_[i]);
      const i64 begin = (i64(t) * G * kHeads + g() * kHeads + head) * D + lane() % 4 * 2;
#pragma unroll
      for (int e = 0; e < kRuns; ++e)
        put_pair(args.y, begin + column(team() * kRuns + e), sum_[e][2 * i] * share, sum_[e][2 * i + 1] * share,
                 args.epoch);
    }
  }

  const decltype(Args::task) task_;
  const u32 copied_, key_, value_, query_;  // in the tiles: what the thread copies, and what the lane multiplies
  int last_[2];                             // of each of the lane's queries, the last key that counts
  // The largest score so far, the lane's share of the weights' total, the sums. Finite, since none of a tile's keys may
  // count.
  f32 top_[2] = {-1e30f, -1e30f}, total_[2] = {}, sum_[kEights][4];
};

/// The task's tokens and groups of heads, as many tokens at a time as stand behind each other in a sequence.
template <bool kNorm, class Args, class Task>
inline void attend_query_tiles(Task task) {
  using Tile = QueryTile<kNorm, Args>;
  const auto t_end = [task] {
    const Args args = Args::of(*task);
    return static_cast<int>(min(args.t_end, rows_of(args)));
  };
  AttendedTile next = {static_cast<int>(Args::of(*task).t_begin), 0, static_cast<int>(Args::of(*task).g_begin)};
#pragma unroll 1
  for (bool is_first = true;; is_first = false) {
    const auto follows = [](int t) {
      return row_table().request[t] == row_table().request[t - 1] &&
             row_table().position[t - 1] < row_table().position[t];
    };
    next.tokens = 1;
    while (next.tokens < Tile::kTokens && next.t + next.tokens < t_end() && follows(next.t + next.tokens))
      ++next.tokens;
    if (thread() == 0) attended_tile() = next;
    block_sync();
    Tile(task).run(is_first);
    next = attended_tile();
    next.t += next.tokens;
    if (next.t >= t_end()) {
      if (++next.g >= static_cast<int>(Args::of(*task).g_end)) return;
      next.t = static_cast<int>(Args::of(*task).t_begin);
    }
    block_sync();  // before the next tile is staged
  }
}

}  // namespace megalith::kernels
