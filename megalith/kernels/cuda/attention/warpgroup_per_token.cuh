// Attention of several rows of a decoder at a time, for batches and prompts: four warps a row, and each of them every
// fourth tile of eight positions from its keys to the sum of its values. So a position is looked at by one warp. Of a batch with few
// rows a task has fewer than there are parts of the block, and a row has two parts or all, whose warps take tiles in turn.
//
// A warp's keys and values lie in shared memory: copies past registers bring those of the next tile while this one is
// worked on, so a tile for each warp is always under way, which is what memory needs to be busy. A line's runs of 16
// bytes are in another order for each position, so that reading positions side by side meets all banks.
//
// Scores are as in block_per_token.cuh: queries are the rows of the first operand, rounded and what rounding left. The
// sum of the values has positions where that has values of a head: values are the first operand, turned on the way from
// shared memory, and the weights of the softmax are the second just as the scores gave them. Of up to four heads the
// second's eight columns are the weights, rounded, and what rounding left of them.
//
// Keys and values of this iteration's rows come from `qkv`. A row's own is a tile that the last warp makes first, since it
// has the fewest of the others. Those of rows before it, of a prompt, stand in the tiles where they will be once they are
// in the cache: so a row's bits do not depend on where the iteration began. Of a prompt's chunk each would be
// made for every row behind it; there the cache is written first, and attention takes all from it. Two rows of a text
// share what they look at then: their heads are those of one, each with an end of its own. A row that has no such
// neighbour takes its place as well, so that its bits do not depend on who stands beside it.
#pragma once

#include "megalith/kernels/cuda/attention/kv_pages.cuh"
#include "megalith/kernels/cuda/attention/kv_split.cuh"

namespace megalith::kernels {

/// Rows that share what they look at.
template <class Args>
inline constexpr int kRowsTogether = kAllCached<Args> ? attention::rows_together(static_cast<int>(Args::E) - 2) : 1;

/// Of up to 32 kWords rows some, a bit each.
template <int kWords>
struct RowSet {
  u32 words[kWords] = {};

  /// Those that count, of which each lane of the warp says so of every 32nd. By the whole warp.
  template <class Counts>
  static RowSet of(Counts counts) {
    RowSet rows;
#pragma unroll
    for (int i = 0; i < kWords; ++i) rows.words[i] = __ballot_sync(0xffffffffu, counts(i * kWarpLanes + lane()));
    return rows;
  }
  static RowSet of_row(int row) {
    RowSet rows;
#pragma unroll
    for (int i = 0; i < kWords; ++i) rows.words[i] = row / kWarpLanes == i ? 1u << row % kWarpLanes : 0;
    return rows;
  }
  bool has(int row) const {
    const RowSet one = of_row(row);
    u32 met = 0;
#pragma unroll
    for (int i = 0; i < kWords; ++i) met |= words[i] & one.words[i];
    return met != 0;
  }
  RowSet without(int row) const {
    const RowSet one = of_row(row);
    RowSet rows;
#pragma unroll
    for (int i = 0; i < kWords; ++i) rows.words[i] = words[i] & ~one.words[i];
    return rows;
  }
  int size() const {
    int rows = 0;
#pragma unroll
    for (int i = 0; i < kWords; ++i) rows += __popc(words[i]);
    return rows;
  }
  int first() const {
    int row = 0;
#pragma unroll
    for (int i = kWords - 1; i >= 0; --i)
      if (words[i] != 0) row = i * kWarpLanes + __ffs(static_cast<int>(words[i])) - 1;
    return row;
  }
};

/// Whether rows may have several parts of the block each: if a task never has as many rows as there are parts, or if it sometimes
/// has less and a row's bits may depend on that.
template <class Args>
constexpr bool shares_parts() {
  if constexpr (requires { Args::F; })
    return Args::by_load != 0 || Args::T_largest <= Args::F * (attention::kParts / 2);
  else
    return false;
}

/// One row t, or t and `last` of the same text, and group of heads g, all positions or a chunk of them, which is number `share`
/// of all chunks; by the four warps of a part of the block, or of as many parts side by side as it is told.
/// All of them call run().
template <bool kNorm, class Args, int kTogether = kRowsTogether<Args>>
class RowAttention {
  static constexpr int D = 2 * static_cast<int>(Args::H), G = static_cast<int>(Args::G);
  static constexpr int kHeads = static_cast<int>(Args::E) - 2, A = G * kHeads;
  static constexpr int M = kTogether * kHeads;
  static constexpr int L = Chunks<Args>::length();
  static constexpr bool kWhole = Chunks<Args>::kWhole;
  using Rows = RowSet<kAllCached<Args> ? 1 : (static_cast<int>(Args::T_largest) + kWarpLanes - 1) / kWarpLanes>;
  static constexpr int kRuns = attention::runs(D);
  static constexpr int kPositions = attention::kTilePositions;
  static constexpr int kPartWarps = kWarps / attention::kParts, kPartThreads = kPartWarps * kWarpLanes;
  static constexpr u32 kRowBytes = attention::tile_row_bytes(D), kTileBytes = attention::tile_bytes(D);
  // Lanes that copy side by side from one position: whole lines of memory, if all of a tile is on one page.
  static constexpr bool kOnePage = static_cast<int>(Args::B) % kPositions == 0 && L % kPositions == 0;
  static constexpr int kSide = kOnePage && D % 64 == 0 ? 8 : 4, kCopied = kWarpLanes / kSide;  // positions at a time
  static constexpr int kPasses = kPositions / kCopied;  // of positions, until each has had a copy
  static constexpr bool kRestBeside = M <= 4;           // of the weights, in columns 4 to 7
  static constexpr bool kSharesParts = shares_parts<Args>();
  static constexpr bool kQkvIsPlain = requires(Args args) { args.qkv[0]; };
  using Head = HeadOf<kNorm, Args>;
  static_assert(D % attention::kRunValues == 0 && M <= attention::kMaxHeads && kWarps == attention::kWarps);

 public:
  RowAttention(decltype(Args::task) task, int t, int last, int g, int share = 0, Chunk chunk = {0, 1}, int parts = 1)
      : task_(task),
        parts_(parts),
        t_(t),
        last_(last),
        g_(g),
        share_number_(share),
        chunk_(chunk),
        tables_(word_of_tables(args())),
        copied_(keep(tile() + in_tile(lane() / kSide, lane() % kSide * 8))),
        share_(keep(tile() + in_tile(lane() / 4, lane() % 4 * 8))),
        turned_(keep(tile() + kTileBytes + in_tile(lane() % 8, lane() / 8 * 8))) {}

  /// `is_first`: of the part's.
  void run(bool is_first) {
    const int request = row_table().request[t_], cached = kAllCached<Args>
                                                              ? row_table().position[last_] + 1
                                                              : num_cached<Args>(row_table().start[t_], chunk_);
    const Rows fresh = fresh_rows(), before = fresh.without(t_);
    const bool has_own = !kAllCached<Args> && fresh.has(t_);
    const int total = cached + before.size(), mine = warp() % num_warps(), step = num_warps() * kPositions;
    if constexpr (!kWhole)
      if (total == 0 && !has_own) return put_nothing();
    // The warp's next tile of the cache; and on which page the lane's position is of the one after that, known a tile
    // before it is used.
    bool makes_own = has_own && mine == num_warps() - 1;
    int at = mine * kPositions;
    // What this iteration made is there and asked for first: behind tiles of the cache it would come when they do.
    Head query, key;
    if constexpr (kQkvIsPlain) {
      if (warp() % kPartWarps < M) load_query(query, warp() % kPartWarps);
      if constexpr (!kAllCached<Args>)
        if (makes_own) {
          load_key(key, t_);
          copy_own_values();
        }
    }
    auto next = locate(at, cached, page_at(at, cached, request));
    int page = page_at(at + step, cached, request);
    if (!makes_own) {
      fetch(next, false);
      fetch(next, true);
    }
    stage_queries(query);
    part_sync();
    if (is_first) inputs_are_ready(args().epoch);
#pragma unroll 1
    while (makes_own || at < total) {
      int count = 1;
      if (makes_own) {
        if constexpr (kQkvIsPlain && !kAllCached<Args>)
          put_key(key, 0);
        else if constexpr (!kAllCached<Args>)
          make_own();
        makes_own = false;
      } else {
        count = total - at;
        [[maybe_unused]] const int first = at;
        at += step;
        next = locate(at, cached, page);
        page = page_at(at + step, cached, request);
        if constexpr (!kAllCached<Args>) {
          const int of_cache = max(cached - first, 0), end = min(count, kPositions);
          if (of_cache < end) {
            copy_wait<0>();
            warp_sync();
            make_rows(before, max(first - cached, 0), of_cache, end);
          }
        }
      }
      copy_wait<1>();
      warp_sync();
      const float2 score = scores();
      warp_sync();
      fetch(next, false);
      // Of the earlier row the last ones do not count.
      if (kTogether > 1 && scored_head() < kHeads) count -= row_table().position[last_] - row_table().position[t_];
      const Halves columns = weigh(score, count);
      copy_wait<1>();
      warp_sync();
      add_values(columns);
      warp_sync();
      fetch(next, true);
    }
    copy_wait<0>();
    part_sync();  // what was staged makes room for the sums
    join();
    row_sync();
    put_joined();
    row_sync();  // before the next row is staged
  }

 private:
  /// Where the first position is that the lane copies of a tile, and how many more there are.
  struct TilePlace {
    CachedRowOf<Args> row;
    int left;
  };

  static int part() { return warp() / kPartWarps; }
  static int part_thread() { return thread() % kPartThreads; }
  static void part_sync() { kernels::part_sync(part(), kPartThreads); }
  /// Of the row: parts, the first of them, and warps.
  int parts() const { return kSharesParts ? parts_ : 1; }
  int first_part() const { return part() / parts() * parts(); }
  int num_warps() const { return kPartWarps * parts(); }
  /// Among its warps, by another barrier than those of a part.
  void row_sync() const {
    if (parts() == 1) return part_sync();
    kernels::part_sync(attention::kParts + first_part(), parts() * kPartThreads);
  }
  static u8* area(int of_part = part()) { return shared_area() + of_part * attention::part_bytes(M, D); }
  /// The warp's tile of keys, behind which that of values is.
  static u32 tile() { return shared_address(area()) + warp() % kPartWarps * (2 * kTileBytes); }
  /// Where in a tile a position has value d of its head.
  static u32 in_tile(int position, int d) {
    const int run = d / 8 ^ (position / 2 | position % 2 * 4);
    return position * kRowBytes + run * 16 + d % 8 * 2;
  }
  /// From where a lane has something, to where it has the same i * kRunValues further.
  static u32 further(u32 at, int i) { return (at ^ i % 2 * 64) + i / 2 * 128; }
  /// Behind the tiles M queries (attention::query_bytes()); in place of all what the warps sum.
  static u8* staged(int head) { return area() + kPartWarps * 2 * kTileBytes + head * attention::query_bytes(D); }
  static f32* joined(int warp, int m, int of_part = part()) {
    return reinterpret_cast<f32*>(area(of_part)) + (warp * M + m) * (D + 2);
  }
  int row_of(int m) const { return kTogether > 1 && m >= kHeads ? last_ : t_; }
  static int head_of(int m) { return kTogether > 1 && m >= kHeads ? m - kHeads : m; }
  int result(int m) const { return (kWhole ? row_of(m) : share_number_) * A + g_ * kHeads + head_of(m); }
  Args args() const { return Args::of(*task_); }

  /// The rows of this iteration that count for this one.
  Rows fresh_rows() const {
    if constexpr (kAllCached<Args>) return {};
    const int num = static_cast<int>(rows_of(args()));
    const auto counts = [&](int row) {
      const int u = min(row, static_cast<int>(Args::T_largest) - 1), position = row_table().position[u];
      return row < num && row_table().request[u] == row_table().request[t_] && position <= row_table().position[t_] &&
             is_in_chunk<Args>(chunk_, position);
    };
    return Rows::of(counts);
  }

  void load_query(Head& query, int m) const {
    const Args args = this->args();
    const bf16* norm = nullptr;
    if constexpr (kNorm) norm = args.q_norm;
    const int row = row_of(m);
    load_head<kNorm>(query, args, row, row_table().position[row], g_, head_of(m), norm, true);
  }
  /// `first`: that of the warp's first head, if it is under way.
  void stage_queries(Head& first) const {
#pragma unroll 1
    for (int m = warp() % kPartWarps; m < M; m += kPartWarps) {
      if (!kQkvIsPlain || m >= kPartWarps) load_query(first, m);
      u8* const to = staged(m);
      first.finish(head_eps<Args>(), [&](int d, f32 a, f32 b) {
        const Halves two = halves(a, b);
        *reinterpret_cast<uint2*>(to + 4 * d) = make_uint2(two.rounded, two.rest);
      });
    }
  }
  /// Of the rows `fresh` number `first` and further as positions `begin` to `end` of the warp's tile.
  void make_rows(Rows fresh, int first, int begin, int end) const {
#pragma unroll 1
    for (int i = 0; i < first; ++i) fresh = fresh.without(fresh.first());
#pragma unroll 1
    for (int n = begin; n < end; ++n) {
      const int row = fresh.first();
      fresh = fresh.without(row);
      Head key;
      load_key(key, row);
      put_value(row, n);
      put_key(key, n);
    }
  }
  /// The row's own key and values as a tile.
  void make_own() const {
    make_rows(Rows::of_row(t_), 0, 0, 1);
    // A weight of 0 takes no value that is none.
    for (int n = 1 + lane() / 4; n < kPositions; n += 8)
      for (int d = lane() % 4 * 2; d < D; d += 8) store_shared(tile() + kTileBytes + in_tile(n, d), 0u);
  }
  void load_key(Head& key, int row) const {
    const Args args = this->args();
    const bf16* norm = nullptr;
    if constexpr (kNorm) norm = args.k_norm;
    load_head<kNorm>(key, args, row, row_table().position[row], g_, kHeads, norm, true);
  }
  /// As position n of the tile.
  void put_key(const Head& key, int n) const {
    key.finish(head_eps<Args>(), [&](int d, f32 a, f32 b) { store_shared(tile() + in_tile(n, d), pack_bf16(a, b)); });
  }
  /// The row's own values as position 0, as fetch() copies those of the cache, and zeros behind it.
  void copy_own_values() const {
    const Args args = this->args();
    const int head = (t_ * G + g_) * static_cast<int>(Args::E) + kHeads + 1;
    const bf16* const from = args.qkv + i64(head) * D + lane() % 4 * 8;
#pragma unroll
    for (int i = 0; i < kRuns; ++i)
      copy_begin(further(share_ + kTileBytes, i), from + i * attention::kRunValues, lane() < 4 ? 16 : 0);
    copy_commit();
  }
  /// Of one row as position n.
  void put_value(int row, int n) const {
    each_qkv_pair<false>(
        args(), row, row_table().position[row], g_, kHeads + 1, nullptr, false,
        [&](int d, f32 a, f32 b) { store_shared(tile() + kTileBytes + in_tile(n, d), pack_bf16(a, b)); });
  }

  /// The page of the lane's position in a tile that begins at number `at`.
  int page_at(int at, int cached, int request) const {
    const int n = max(min(kOnePage ? at : at + lane() / kSide, cached - 1), 0);
    return page_of(args(), request, cached_position<Args>(chunk_, n));
  }
  TilePlace locate(int at, int cached, int page) const {
    const int n = at + lane() / kSide, position = cached_position<Args>(chunk_, n);
    return {{page, static_cast<u32>(position % static_cast<int>(Args::B)), g_,
             [&](u32 word) { return of_tables(tables_, word); }},
            cached - n};
  }
  /// Begins to copy the lane's share of a tile, of its keys or its values.
  void fetch(const TilePlace& place, bool is_value) const {
    const u32 to = is_value ? copied_ + kTileBytes : copied_;
    const Args args = this->args();
    const bf16* const from =
        cache_begin(is_value ? args.v_cache : args.k_cache) + place.row.element(is_value) + lane() % kSide * 8;
#pragma unroll
    for (int i = 0; i < kRuns; ++i) {
      const int pass = i % kPasses, position = pass * kCopied, run = i / kPasses * kSide;
      const bool is_there = position < place.left;
      copy_begin(kPasses == 1 ? further(to, i) : (to ^ position * 8) + position * kRowBytes + run * 16,
                 from + i64(position) * CachedRowOf<Args>::kStride + run * 8, is_there ? 16 : 0);
    }
    copy_commit();
  }

  /// Whose scores a lane has. Of up to four heads each is there twice.
  static int scored_head() { return min(kRestBeside ? lane() / 4 % 4 : lane() / 4, M - 1); }
  /// Of a tile: of a head positions 2 (lane % 4) and the next.
  float2 scores() const {
    const u8* const from = staged(scored_head()) + lane() % 4 * 32;
    f32 even[4] = {}, odd[4] = {};
#pragma unroll
    for (int i = 0; i < kRuns; ++i) {
      const uint4 key = load_shared(further(share_, i));
      const uint4* const query = reinterpret_cast<const uint4*>(from + i * attention::kRunValues * 4);
      multiply_accumulate(even, query[0], key.x, key.y);
      multiply_accumulate(odd, query[1], key.z, key.w);
    }
    return {(even[0] + odd[0]) + (even[2] + odd[2]), (even[1] + odd[1]) + (even[3] + odd[3])};
  }

  /// The weights of a tile of which the first `count` positions count; sums so far are made less by what its largest
  /// score is more.
  Halves weigh(float2 score, int count) {
    const int of_lane = lane() % 4 * 2;
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
    Halves columns = halves(x, y);
    if (kRestBeside && lane() >= kWarpLanes / 2) columns.rounded = columns.rest;
    return columns;
  }
  void add_values(Halves columns) {
#pragma unroll
    for (int i = 0; i < kRuns; ++i) {
      const uint4 turned = load_transposed(further(turned_, i));
      multiply_accumulate_half(sum_[2 * i], turned.x, turned.y, columns.rounded);
      multiply_accumulate_half(sum_[2 * i + 1], turned.z, turned.w, columns.rounded);
      if constexpr (!kRestBeside) {
        multiply_accumulate_half(sum_[2 * i], turned.x, turned.y, columns.rest);
        multiply_accumulate_half(sum_[2 * i + 1], turned.z, turned.w, columns.rest);
      }
    }
  }

  /// What the warp has summed, to where the part's others are.
  void join() {
    total_ += from_lane(total_, 1);
    total_ += from_lane(total_, 2);
    const int mine = warp() % kPartWarps, row = lane() / 4, column = lane() % 4 * 2;
    if (row < M && column == 0) *reinterpret_cast<float2*>(joined(mine, row) + D) = {top_, total_};
    // The address is worked out here: kept from row to row, all of them would spill.
    const u32 to = keep(shared_address(joined(mine, column) + row));
    const bool has[2] = {column < (kRestBeside ? min(M, 4) : M), column + 1 < (kRestBeside ? min(M, 4) : M)};
#pragma unroll
    for (int i = 0; i < 2 * kRuns; ++i)
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        f32 sum = sum_[i][k];
        if constexpr (kRestBeside) sum += from_lane(sum, 2);
        const int d = 16 * i + k / 2 * 8;
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
    const int heads = kTogether > 1 && last_ == t_ ? kHeads : M;
#pragma unroll 1
    for (int i = thread() % (parts() * kPartThreads); i < heads * kPairs; i += parts() * kPartThreads) {
      const int m = i / kPairs, p = i % kPairs;
      f32 top = -1e30f, total = 0;
      float2 part = {0, 0};
#pragma unroll 1
      for (int of_part = first_part(); of_part < first_part() + parts(); ++of_part) {
        float2 state[kPartWarps];
        const f32 before = top;
#pragma unroll
        for (int k = 0; k < kPartWarps; ++k) {
          state[k] = *reinterpret_cast<const float2*>(joined(k, m, of_part) + D);
          top = max(top, state[k].x);
        }
        if constexpr (kSharesParts) {
          const f32 keep = fast_exp(before - top);
          total *= keep, part.x *= keep, part.y *= keep;
        }
#pragma unroll
        for (int k = 0; k < kPartWarps; ++k) {
          const f32 weight = fast_exp(state[k].x - top);
          const float2 of_warp = *reinterpret_cast<const float2*>(joined(k, m, of_part) + 2 * p);
          total = fma(weight, state[k].y, total);
          part.x = fma(weight, of_warp.x, part.x);
          part.y = fma(weight, of_warp.y, part.y);
        }
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
  const int parts_, t_, last_, g_, share_number_;
  const Chunk chunk_;
  const u32 tables_;                   // word_of_tables()
  const u32 copied_, share_, turned_;  // in the tiles: what the lane copies of keys, multiplies of keys and of values
  // Of head lane / 4 the largest score so far and the lane's share of the weights' total; of values the sums.
  // Finite, since none of a tile's positions may count.
  f32 top_ = -1e30f, total_ = 0, sum_[2 * kRuns][4] = {};
};

/// The task's chunks and groups of heads: a pair of them for each part of the block in turn.
template <bool kNorm, class Args, class Task>
inline void attend_chunks(Task task) {
  const Args args = Args::of(*task);
  const int rows = static_cast<int>(rows_of(args)), s_begin = static_cast<int>(args.s_begin),
            g_begin = static_cast<int>(args.g_begin), groups = static_cast<int>(args.g_end) - g_begin,
            num = (static_cast<int>(args.s_end) - s_begin) * groups;
  bool is_first = true;
#pragma unroll 1
  for (int i = warp() / (kWarps / attention::kParts); i < num; i += attention::kParts) {
    const int share = s_begin + i / groups;
    const auto [row, chunk] = share_of<Args>(share, rows);
    if (row >= rows) continue;
    RowAttention<kNorm, Args>(task, row, row, g_begin + i % groups, share, chunk).run(is_first);
    is_first = false;
  }
}

/// The task's rows, up to one for each part of the block that are F apart, and groups of heads. If there are less of those rows
/// each has two parts, or all.
template <bool kNorm, class Args, class Task>
inline void attend_rows_apart(Task task) {
  constexpr int F = static_cast<int>(Args::F), kMost = static_cast<int>(Args::T_largest);
  const Args args = Args::of(*task);
  const int rows = static_cast<int>(rows_of(args)), r_begin = static_cast<int>(args.r_begin),
            g_begin = static_cast<int>(args.g_begin), groups = static_cast<int>(args.g_end) - g_begin,
            num = (static_cast<int>(args.r_end) - r_begin) * groups, sharing = Args::by_load != 0 ? rows : kMost;
  const int parts = !shares_parts<Args>() || sharing > 2 * F ? 1
                    : sharing > F                            ? attention::kParts / 2
                                                             : attention::kParts;
  const int first = warp() / (kWarps / attention::kParts) / parts * F;
  bool is_first = true;
#pragma unroll 1
  for (int i = 0; i < num; ++i) {
    const int t = r_begin + i / groups + first;
    if (t >= rows) return;
    RowAttention<kNorm, Args>(task, t, t, g_begin + i % groups, 0, {0, 1}, parts).run(is_first);
    is_first = false;
  }
}

/// The task's rows and groups of heads: a pair of them for each part of the block in turn.
template <bool kNorm, class Args, class Task>
inline void attend_rows(Task task) {
  constexpr int kTogether = kRowsTogether<Args>;
  const Args args = Args::of(*task);
  const int t_begin = static_cast<int>(args.t_begin), t_end = static_cast<int>(min(args.t_end, rows_of(args))),
            g_begin = static_cast<int>(args.g_begin), groups = static_cast<int>(args.g_end) - g_begin,
            num = (t_end - t_begin + kTogether - 1) / kTogether * groups;
#pragma unroll 1
  for (int i = warp() / (kWarps / attention::kParts); i < num; i += attention::kParts) {
    const int t = t_begin + i / groups * kTogether, g = g_begin + i % groups;
    if constexpr (kTogether == 1) {
      RowAttention<kNorm, Args>(task, t, t, g).run(i < attention::kParts);
    } else {
      const bool is_pair = t + 1 < t_end && row_table().request[t] == row_table().request[t + 1] &&
                           row_table().position[t] < row_table().position[t + 1];
#pragma unroll 1
      for (int row = t; row < min(t + 2, t_end); row += is_pair ? 2 : 1)
        RowAttention<kNorm, Args>(task, row, is_pair ? row + 1 : row, g).run(i < attention::kParts && row == t);
    }
  }
}

}  // namespace megalith::kernels
