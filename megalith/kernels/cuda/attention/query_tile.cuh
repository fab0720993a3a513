// Attention of a prompt's tokens, all of whose keys are in the cache: a block has a tile of up to 128 queries, the heads
// of several tokens of one sequence that share keys, and a key is loaded once for all of them. After FlashAttention-2 and 3
// (https://arxiv.org/abs/2307.08691, https://arxiv.org/abs/2407.08608), with the values' columns split between teams.
//
// Tiles of 64 keys, and of their values, come by a ring (pipeline/key_ring.cuh). Each of a team's two warpgroups has 64 of the
// queries and half of the columns: scores and sums stay in registers, and what tensor cores multiply them with lies in shared
// memory (arch/wgmma.cuh). Both teams work out all scores. That is half as much again to multiply, and still shorter than a
// share of the keys each: beside sums of all columns there are registers for the scores of 16 keys only, and the queries,
// which the tensor cores take from shared memory anew for each such piece, cost four times what 16 keys take to multiply.
//
// Queries and the weights of the softmax are rounded to bf16, as models that compute in bf16 have them. Which keys a
// tile has does not depend on who looks at it, and a tile behind a token's own key changes no bit of its sums: so a
// token has the same bits whoever stands beside it.
#pragma once

#include "megalith/kernels/cuda/arch/wgmma.cuh"
#include "megalith/kernels/cuda/attention/kv_pages.cuh"
#include "megalith/kernels/cuda/attention/kv_split.cuh"
#include "megalith/kernels/cuda/attention/warpgroup_per_token.cuh"
#include "megalith/kernels/cuda/pipeline/key_ring.cuh"

namespace megalith::kernels {

/// What a block works on: `tokens` tokens from `t` on, in order and of one sequence, and group of heads g. It is looked
/// up where it is needed, since registers are the sums'.
struct AttendedTile {
  int t, tokens, g, first;  // the first token's position
};
inline AttendedTile& attended_tile() { return shared_variable<AttendedTile, place::kAttended, place::kOfWarps>(); }

/// attended_tile(), by all warps of a block.
template <bool kNorm, class Args>
class QueryTile {
  static constexpr int D = 2 * static_cast<int>(Args::H), G = static_cast<int>(Args::G);
  static constexpr int kHeads = static_cast<int>(Args::E) - 2;
  static constexpr int kKeys = attention::kTileKeys;
  static constexpr int kHalf = D / 8 / attention::kTeams;  // eights of columns that a team has
  static constexpr bool kSwizzled = attention::is_swizzled(D);
  // From eight columns of eight rows to the next eight columns, and from all columns of eight rows to the next rows.
  static constexpr u32 kLeading = attention::kLeading,
                       kEightBytes = kSwizzled ? attention::kSwizzledEightBytes : attention::eight_bytes(D);
  // From the first halves of rows that are swizzled to the second ones.
  static constexpr u32 kKeyHalves = attention::kTileKeys * attention::kHalfRowBytes,
                       kQueryHalves = attention::kTileQueries * attention::kHalfRowBytes;
  static constexpr u32 kTileBytes = attention::key_tile_bytes(D);
  // Tokens whose queries a warp stages: as many as one trip through the L2 brings to registers, all of a tile as a rule.
  static constexpr int kAtOnce = kHeads < 8 ? 8 / kHeads : 1;
  using Head = HeadOf<kNorm, Args>;
  static_assert(kWarps == 8 * attention::kTeams && attention::kTileQueries == 128 && kKeys == 64);
  static_assert(D % attention::kRunValues == 0 && kAllCached<Args>);

 public:
  /// Tokens of a tile, at most.
  static constexpr int kTokens = attention::kTileQueries / kHeads;

  explicit QueryTile(decltype(Args::task) task)
      : task_(task), query_(of_warp(queries() + static_cast<u32>(warpgroup()) * 8 * kEightBytes)) {}

  /// `is_first`: of the task's.
  void run(bool is_first) {
    request_keys();
    stage_queries();
    u32 tile = key_ring.tiles;  // no other warp looks behind the barrier
    fence_writes_before_multiply();
    block_sync();
    if (is_first) inputs_are_ready(args().epoch);
      // Not before: beside them heads are staged in other memory than registers.
#pragma unroll
    for (f32& sum : sum_) sum = 0;
    if (warpgroup() * 64 < tokens() * kHeads) {
      attend(tile);
    } else {
#pragma unroll 1
      for (u32 tiles = tiles_of_keys(key_ring.request.count); tiles > 0; --tiles) {
        tile_is_there(tile);
        give_back(tile);
      }
    }
#pragma unroll
    for (f32& total : total_) {
      total += from_lane(total, 1);
      total += from_lane(total, 2);
    }
    put();
    if (thread() == 0) key_ring.tiles = tile;
  }

 private:
  static int t() { return attended_tile().t; }
  static int tokens() { return attended_tile().tokens; }
  static int g() { return attended_tile().g; }
  /// Keys that count for the last token.
  static int count() { return row_table().position[t() + tokens() - 1] + 1; }
  static int team() { return warp() / 8; }
  /// Of the team.
  static int warpgroup() { return warp() / 4 % 2; }
  /// The same for all lanes, which the compiler would not know.
  static u32 of_warp(u32 value) { return __shfl_sync(0xffffffffu, value, 0); }
  /// The ring, behind which queries are.
  static u32 ring() { return shared_address(shared_area()); }
  static u32 queries() { return ring() + attention::kKeySlots * kTileBytes; }
  /// Where value d of a query is.
  static u32 in_queries(int row, int d) {
    const u32 eight = static_cast<u32>(row / 8) * kEightBytes;
    if (kSwizzled)
      return eight + static_cast<u32>(d / 64) * kQueryHalves + swizzle128(static_cast<u32>(row % 8 * 128 + d % 64 * 2));
    return eight + static_cast<u32>(d / 8) * kLeading + static_cast<u32>(row % 8 * 16 + d % 8 * 2);
  }
  Args args() const { return Args::of(*task_); }

  /// The first of the lane's two queries; the other one is eight further.
  static int row() { return warpgroup() * 64 + warp() % 4 * 16 + lane() / 4; }
  static int token_of(int row) { return row / kHeads; }
  /// The last key that counts for a query.
  static int last_key(int row) { return token_of(row) < tokens() ? row_table().position[t() + token_of(row)] : -1; }

  void stage_queries() const {
#pragma unroll 1
    for (int first = warp(); first < tokens(); first += kAtOnce * kWarps) {
      Head heads[kAtOnce][kHeads];
      // Past the last one the first is taken again, and not put anywhere.
      const auto number = [&](int i) { return first + i * kWarps < tokens() ? first + i * kWarps : first; };
      const Args args = this->args();
      const bf16* norm = nullptr;
      if constexpr (kNorm) norm = args.q_norm;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int t = this->t() + number(i);
        load_head<kNorm>(heads[i][0], args, t, row_table().position[t], g(), 0, norm, true);
#pragma unroll
        for (int head = 1; head < kHeads; ++head) load_head_beside(heads[i][head], heads[i][0], args, t, g(), head);
      }
      f32 squares[kAtOnce * kHeads] = {};
      if constexpr (kNorm) {
#pragma unroll
        for (int i = 0; i < kAtOnce * kHeads; ++i) squares[i] = heads[i / kHeads][i % kHeads].squares();
        warp_all_of(squares, Add{});
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        // Looked at once: behind each store it would be looked at anew.
        const int token = first + i * kWarps;
        if (token >= tokens()) break;
#pragma unroll
        for (int head = 0; head < kHeads; ++head)
          heads[i][head].finish(squares[i * kHeads + head], head_eps<Args>(), [&](int d, f32 a, f32 b) {
            store_shared(queries() + in_queries(token * kHeads + head, d), pack_bf16(a, b));
          });
      }
    }
  }

  void request_keys() const {
    if (thread() == 0) {
      const Args args = this->args();
      constexpr bool kPaired = kIsPaired<decltype(Args::k_cache)>;
      const int group = kPaired ? 0 : g() * D;
      const u32 *of_keys = nullptr, *of_values = nullptr;
      if constexpr (kPaired) of_keys = args.k_cache.table(), of_values = args.v_cache.table();
      key_ring.request = {.keys = cache_begin(args.k_cache) + group,
                          .values = cache_begin(args.v_cache) + group,
                          .table_of_keys = of_keys,
                          .table_of_values = of_values,
                          .heads = G,
                          .head = g(),
                          .pages = args.page_table + row_table().request[t()] * static_cast<int>(Args::Q),
                          .faults = args.faults,
                          .check = Args::Checks::page_table,
                          .num_pages = static_cast<int>(Args::P),
                          .page_positions = static_cast<int>(Args::B),
                          .row_stride = kPaired ? D : G * D,
                          .values_of_head = D,
                          .count = count()};
    }
    request_copies(Copied::keys);
  }

  static void tile_is_there(u32 tile) {
    while (!all_of_warp(barrier_passed(&key_ring.full[key_slot(tile)], key_parity(tile)))) {}
  }
  /// What was multiplied of a tile; `tile`: the next one's number then.
  static void give_back(u32& tile) {
    warp_sync();
    warp_arrive(&key_ring.empty[key_slot(tile)]);
    tile = after_tiles(tile, 1);
  }
  /// Of queries or keys columns 16 step and the next 16.
  static SharedMatrix columns_of(u32 address, u32 halves, u32 step) {
    return kSwizzled ? swizzled_matrix(address, step / 4 * halves + step % 4 * 32, kEightBytes)
                     : shared_matrix(address, step * 2 * kLeading, kLeading, kEightBytes);
  }
  static u32 address_of(u32 tile) { return ring() + key_slot(tile) * kTileBytes; }

  void attend(u32& tile) {
#pragma unroll 1
    for (int at = 0; at < key_ring.request.count; at += kKeys) {
      tile_is_there(tile);
      fence_writes_before_multiply();
      f32 scores[kKeys / 2];
      multiply_keys(scores, address_of(tile));
      wide_wait<0>();
      give_back(tile);
      // The first token has the fewest keys.
      uint4 weights[kKeys / 16];
      weigh(weights, scores, at, at + kKeys - 1 > attended_tile().first);
      tile_is_there(tile);
      fence_writes_before_multiply();
      add_values(weights, address_of(tile));
      wide_wait<0>();
      give_back(tile);
    }
  }
  /// Of the lane's queries the scores of keys 8 j + 2 (lane % 4) and the next.
  void multiply_keys(f32 (&scores)[kKeys / 2], u32 keys) const {
#pragma unroll
    for (f32& score : scores) score = 0;
    wide_begin();
    // keep(): all steps' addresses held at a time are more than there are registers for, and then ptxas 13.0 has every wgmma of
    // the kernel wait for the one before it (C7512).
#pragma unroll
    for (int step = 0; step < D / 16; ++step)
      wide_multiply(bf16{}, scores, columns_of(keep(query_), kQueryHalves, step), columns_of(keys, kKeyHalves, step));
    wide_commit();
  }
  /// Makes weights of the scores of keys from number `at` on, and sums so far less by what the largest score is more.
  /// `is_masked`: some keys may be behind a token.
  void weigh(uint4 (&weights)[kKeys / 16], f32 (&scores)[kKeys / 2], int at, bool is_masked) {
    static_assert(Args::scale > 0);
    constexpr f32 kScale = Args::scale * kLog2E;
    if (is_masked) {
      const int last[2] = {last_key(row()), last_key(row() + 8)};
      const int first = at + lane() % 4 * 2;
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j)
#pragma unroll
        for (int k = 0; k < 4; ++k)
          if (first + 8 * j + k % 2 > last[k / 2]) scores[4 * j + k] = -kInfinity;
    }
    f32 larger[2] = {scores[0], scores[2]};
#pragma unroll
    for (int i = 0; i < kKeys / 2; ++i) larger[i % 4 / 2] = fast_max(larger[i % 4 / 2], scores[i]);
#pragma unroll
    for (f32& of_row : larger) {
      of_row = fast_max(of_row, from_lane(of_row, 1));
      of_row = fast_max(of_row, from_lane(of_row, 2)) * kScale;
    }
    // Weights may be more than 1, by as much as leaves f32 room: so sums are seldom made less.
    constexpr f32 kRoom = 8;
    const bool is_larger[2] = {larger[0] > top_[0] + kRoom, larger[1] > top_[1] + kRoom};
    if (any_of_warp(is_larger[0] || is_larger[1])) {
      f32 keep[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const f32 top = is_larger[i] ? larger[i] : top_[i];
        keep[i] = fast_exp2(top_[i] - top);
        total_[i] *= keep[i];
        top_[i] = top;
      }
#pragma unroll
      for (int i = 0; i < 4 * kHalf; ++i) sum_[i] *= keep[i % 4 / 2];
    }
#pragma unroll
    for (int i = 0; i < kKeys / 2; ++i) {
      scores[i] = fast_exp2(fma(scores[i], kScale, -top_[i % 4 / 2]));
      total_[i % 4 / 2] += scores[i];
    }
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      const f32* const of = scores + 8 * step;
      weights[step] = {pack_bf16(of[0], of[1]), pack_bf16(of[2], of[3]), pack_bf16(of[4], of[5]),
                       pack_bf16(of[6], of[7])};
    }
  }
  /// The team's columns of the values, so often.
  void add_values(const uint4 (&weights)[kKeys / 16], u32 values) {
    const u32 of_team = values + static_cast<u32>(team()) * (kSwizzled ? kKeyHalves : kHalf * kLeading);
    wide_begin();
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step)
      wide_multiply_turned(bf16{}, sum_, weights[step],
                           kSwizzled ? swizzled_matrix_turned(of_team, step * 2 * kEightBytes, kEightBytes)
                                     : shared_matrix(of_team, step * 2 * kEightBytes, kEightBytes, kLeading));
    wide_commit();
  }

  /// The team's columns of the lane's queries.
  void put() const {
    const Args args = this->args();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = this->row() + 8 * i, t = this->t() + token_of(row), head = row % kHeads;
      if (token_of(row) >= tokens()) continue;
      const f32 share = fast_divide(1.0f, total_[i]);
      const int column = (g() * kHeads + head) * D + team() * kHalf * 8;
      if constexpr (kIsBlocked<decltype(args.y)> && kHalf % 4 == 0) {
        using Half = Pair<HalfOf<decltype(args.y)>>;
#pragma unroll
        for (int block = 0; block < kHalf / 4; ++block) {
          u32 pairs[4];
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            const f32* const of = sum_ + 4 * (4 * block + j) + 2 * i;
            pairs[j] = Half::of(of[0] * share, of[1] * share);
          }
          put_block_of_row(args.y, t, column + block * row_blocks::kColumns, pairs);
        }
      } else {
        const i64 begin = i64(t) * G * kHeads * D + column + lane() % 4 * 2;
#pragma unroll
        for (int e = 0; e < kHalf; ++e)
          put_pair(args.y, begin + 8 * e, sum_[4 * e + 2 * i] * share, sum_[4 * e + 2 * i + 1] * share, args.epoch);
      }
    }
  }

  const decltype(Args::task) task_;
  const u32 query_;  // the address of the warpgroup's queries
  // Of each of the lane's queries the largest score so far in units of log 2, the lane's share of the weights' total, the sums.
  // Finite, since none of a tile's keys may count.
  f32 top_[2] = {-1e30f, -1e30f}, total_[2] = {}, sum_[4 * kHalf];
};

/// Whether row `at`, of those up to `end`, is of the sequence of the one in front of it, and behind it there.
inline bool follows_in_order(int at, int end) {
  return at < end && row_table().request[at] == row_table().request[at - 1] &&
         row_table().position[at - 1] < row_table().position[at];
}
/// Tokens from `t` up to `end` that stand behind each other in a sequence, kMax of them at most. By each warp, whose lanes
/// look at one each. When each thread looked at one after the other, and a warp loaded two heads at a time, a tile's queries
/// of Qwen3-8B were staged 11 us behind the cache's tasks on an H100; now 5 us.
template <int kMax>
inline int tokens_in_order(int t, int end) {
  int count = 1;
#pragma unroll 1
  while (true) {
    const int at = t + count + lane();
    const u32 breaks = ~__ballot_sync(0xffffffffu, follows_in_order(at, end));
    count += breaks == 0 ? kWarpLanes : __ffs(static_cast<int>(breaks)) - 1;
    if (breaks != 0 || count >= kMax) return min(count, kMax);
  }
}
/// Rows from `t` up to `end` behind none of which its sequence goes on, as many as lanes at most. By each warp.
inline int rows_alone(int t, int end) {
  const u32 goes_on = __ballot_sync(0xffffffffu, follows_in_order(t + 1 + lane(), end));
  return min(goes_on == 0 ? kWarpLanes : __ffs(static_cast<int>(goes_on)) - 1, end - t);
}
/// Whether a row that stands alone may have other bits than in a tile.
template <class Args>
constexpr bool attends_alone() {
  if constexpr (requires { Args::alone; }) return Args::alone != 0;
  return false;
}
/// Rows from attended_tile() on that stand alone, `tokens` of them: by a part of the block each.
template <bool kNorm, class Args, class Task>
inline void attend_alone(Task task, bool is_first) {
#pragma unroll 1
  for (int i = warp() / (kWarps / attention::kParts); i < attended_tile().tokens; i += attention::kParts) {
    const AttendedTile rows = attended_tile();
    RowAttention<kNorm, Args, 1>(task, rows.t + i, rows.t + i, rows.g).run(is_first && i < attention::kParts);
  }
}

/// The task's tokens and groups of heads, a tile at a time.
///
/// A row that decodes has a tile of its own, and the block multiplies 128 queries where it has a few. So such rows have
/// parts of the block, and keys past registers from memory, four rows at a time (warpgroup_per_token.cuh), unless bits forbid
/// that. One by itself stays a tile: three parts would have no work.
template <bool kNorm, class Args, class Task>
inline void attend_query_tiles(Task task) {
  using Tile = QueryTile<kNorm, Args>;
  const auto t_end = [task] {
    const Args args = Args::of(*task);
    return static_cast<int>(min(args.t_end, rows_of(args)));
  };
  AttendedTile next = {static_cast<int>(Args::of(*task).t_begin), 0, static_cast<int>(Args::of(*task).g_begin), 0};
#pragma unroll 1
  for (bool is_first = true;; is_first = false) {
    bool is_alone = false;
    if constexpr (attends_alone<Args>()) {
      next.tokens = rows_alone(next.t, t_end());
      is_alone = next.tokens > 1;
    }
    if (!is_alone) next.tokens = tokens_in_order<Tile::kTokens>(next.t, t_end());
    next.first = row_table().position[next.t];
    if (thread() == 0) attended_tile() = next;
    block_sync();
    if constexpr (attends_alone<Args>())
      if (is_alone) attend_alone<kNorm, Args>(task, is_first);
    if (!is_alone) Tile(task).run(is_first);
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
