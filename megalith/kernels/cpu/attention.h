// Attention over a paged cache, and putting its chunks together. Queries are taken in blocks: a key that was loaded,
// and a value, serve every query of the block, whether these are the heads of one row (a decode step) or of many rows
// of one text (a chunk of a prompt).
//
// A row's result must not depend on the rows beside it, so each of its sums has one order, whatever the blocks are:
//   scores   in lanes, as sum_in_lanes() does, by position
//   weights  kPositions positions of a chunk at a time, counted from its beginning; their largest score is known before
//            any weight is. What earlier positions gave is scaled once, if a later score is larger
//            (https://arxiv.org/abs/2112.05682)
//   values   in the order of positions; a position behind the row's own has the weight 0, which leaves a sum as it is
// Where products with weights are formed by tiles, those of attention are, too (kernels/cpu/attention_tiles.h).
#pragma once

#include "megalith/kernels/attention_workspace.h"
#include "megalith/kernels/cpu/attention_tiles.h"
#include "megalith/kernels/cpu/check.h"
#include "megalith/kernels/cpu/lanes.h"
#include "megalith/kernels/cpu/workspace.h"

namespace megalith::kernels {

namespace attention {

inline constexpr int kQueries = attention_workspace::kQueries;
/// Values are weighed so many positions at a time where a block has more queries than a tile: 32 positions of 64 f32
/// are 8 KB, which stay in the first-level cache for the next tile.
inline constexpr int kValues = 32;

// Sums that registers hold, beside what is multiplied: 16 of the 32 of AVX-512, 8 of the 16 of AVX2 (two for each).
#if defined(__AVX512F__)
inline constexpr int kTile = 16, kTileQueries = 4;
#else
inline constexpr int kTile = 4, kTileQueries = 2;
#endif
static_assert(kTile <= attention_workspace::kMaxTile);

// Whether queries, keys and values are rounded to bf16: of a model whose activations are where they meet weights.
#if defined(MEGALITH_BF16_WEIGHTS)
inline constexpr bool kRounds = kUsesTiles;
#else
inline constexpr bool kRounds = false;
#endif

template <class Element>
const Element* element_pointer(const Element* x);

/// Asks for a head into the second-level cache. The heads of one position lie side by side, so those of one head of
/// keys lie apart, in pieces too short for the hardware's prefetchers.
template <i64 D, class Element>
MEGALITH_INLINE inline void prefetch_head(const Element* head) {
  constexpr int kToL2 = 2;
  for (u64 byte = 0; byte < D * sizeof(Element); byte += 64)
    __builtin_prefetch(reinterpret_cast<const u8*>(head) + byte, 0, kToL2);
}

/// A number as a type.
template <int N>
struct Size {
  static constexpr int value = N;
};

/// total[i] = sum[i].sum(), in the same tree. Sixteen of them share each step: 30 shuffles where one by one they take
/// 64.
template <int Count>
MEGALITH_INLINE inline void sum_each(f32* total, const Lanes (&sum)[Count]) {
#if defined(__AVX512F__) && defined(__AVX512BW__)
  if constexpr (Count == kLanes) {
    typedef Lanes::Vector Vector;
    // Which sum goes in where, so that they come out in order: the steps below reverse the bits of its number, two and
    // two.
    constexpr int kFrom[kLanes] = {0, 2, 1, 3, 8, 10, 9, 11, 4, 6, 5, 7, 12, 14, 13, 15};
    Vector a[8], b[4], c[2];
    for (int i = 0; i < 8; ++i) {
      const Vector x = sum[kFrom[i]].v, y = sum[kFrom[i + 8]].v;
      a[i] = __builtin_shufflevector(x, y, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
             __builtin_shufflevector(x, y, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    }
    for (int i = 0; i < 4; ++i)
      b[i] = __builtin_shufflevector(a[i], a[i + 4], 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
             __builtin_shufflevector(a[i], a[i + 4], 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
    for (int i = 0; i < 2; ++i)
      c[i] = __builtin_shufflevector(b[i], b[i + 2], 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29) +
             __builtin_shufflevector(b[i], b[i + 2], 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
    const Vector all = __builtin_shufflevector(c[0], c[1], 0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26, 12, 14, 28, 30) +
                       __builtin_shufflevector(c[0], c[1], 1, 3, 17, 19, 5, 7, 21, 23, 9, 11, 25, 27, 13, 15, 29, 31);
    Lanes{all}.store(total);
    return;
  }
#endif
  for (int i = 0; i < Count; ++i) total[i] = sum[i].sum();
}

/// score[q][s] = scale * sum over d of query[q][d] * key[s][d] for a tile of queries and positions.
template <int Queries, int Keys, i64 D, class Element>
MEGALITH_INLINE inline void score_tile(f32* score, const f32* query, i64 query_stride, const Element* const* key,
                                       f32 scale) {
  Lanes sum[Queries * Keys];
  for (Lanes& one : sum) one = Lanes::zero();
  auto add = [&](i64 d, auto load) MEGALITH_INLINE {
    Lanes activation[Queries];
    for (int q = 0; q < Queries; ++q) activation[q] = Lanes::load(query + q * query_stride + d).held();
    for (int s = 0; s < Keys; ++s) {
      const Lanes x = load(key[s] + d);
      for (int q = 0; q < Queries; ++q) sum[q * Keys + s].multiply_add(activation[q], x);
    }
  };
  i64 d = 0;
  for (; d + kLanes <= D; d += kLanes) add(d, [](const Element* x) MEGALITH_INLINE { return load_lanes(x); });
  if constexpr (D % kLanes != 0) add(d, [](const Element* x) MEGALITH_INLINE { return load_partly(x, D % kLanes); });
  f32 total[Queries * Keys];
  sum_each(total, sum);
  for (int q = 0; q < Queries; ++q)
    for (int s = 0; s < Keys; ++s) score[q * kPositions + s] = scale * total[q * Keys + s];
}

/// sum[q][e] += weight[q][s] * value[s][e] for a tile of queries and `Vectors` vectors of columns from `column` on,
/// over the positions [begin, end). The last vector may reach beyond the D columns that there are.
template <int Queries, int Vectors, i64 D, class Element>
MEGALITH_INLINE inline void value_tile(f32* sum, i64 sum_stride, const f32* weight, const Element* const* value,
                                       i64 column, i64 begin, i64 end) {
  constexpr bool kPartly = Vectors == 1 && D % kLanes != 0;
  Lanes part[Queries][Vectors];
  for (int q = 0; q < Queries; ++q)
    for (int e = 0; e < Vectors; ++e) part[q][e] = Lanes::load(sum + q * sum_stride + column + e * kLanes);
  for (i64 s = begin; s < end; ++s) {
    Lanes v[Vectors];
    for (int e = 0; e < Vectors; ++e) {
      const Element* const at = value[s] + column + e * kLanes;
      if constexpr (kPartly)
        v[e] = column + kLanes <= D ? load_lanes(at) : load_partly(at, D % kLanes);
      else
        v[e] = load_lanes(at);
    }
    for (int q = 0; q < Queries; ++q) {
      const Lanes w = Lanes::broadcast(weight[q * kPositions + s]);
      for (int e = 0; e < Vectors; ++e) part[q][e].multiply_add(w, v[e]);
    }
  }
  for (int q = 0; q < Queries; ++q)
    for (int e = 0; e < Vectors; ++e) part[q][e].store(sum + q * sum_stride + column + e * kLanes);
}

/// tile(Size<queries of the tile>, first query) over `count` queries.
template <class Tile>
MEGALITH_INLINE inline void for_tiles(i64 count, Tile tile) {
  i64 q = 0;
  for (; q + kTileQueries <= count; q += kTileQueries) tile(Size<kTileQueries>{}, q);
  if constexpr (kTileQueries > 2)
    for (; q + 2 <= count; q += 2) tile(Size<2>{}, q);
  for (; q < count; ++q) tile(Size<1>{}, q);
}

/// Queries of one text and one head of keys, and what is known of them so far.
template <i64 D>
struct Block {
  static constexpr i64 kWidth = (D + kLanes - 1) / kLanes * kLanes;

  i64 count;                                     // of queries
  i64 last[kQueries];                            // the position of each query's row
  f32 top[kQueries], total[kQueries];            // the largest score, and the sum of the weights
  alignas(64) f32 query[kQueries * kWidth];      // padded with zeros
  alignas(64) f32 sum[kQueries * kWidth];        // of the weighed values
  alignas(64) f32 score[kQueries * kPositions];  // then the weights

  /// The queries `from(i)` of rows at the positions `last_of(i)`.
  template <class From, class Last>
  MEGALITH_INLINE void set(i64 num, From from, Last last_of) {
    count = num;
    for (i64 i = 0; i < count; ++i) {
      last[i] = last_of(i);
      top[i] = -kInfinity;
      total[i] = 0;
      const auto* const at = from(i);
      for (i64 d = 0; d < kWidth; ++d) query[i * kWidth + d] = d < D ? to_f32(at[d]) : 0.0f;
    }
    for (i64 i = 0; i < count * kWidth; ++i) sum[i] = 0;
  }
  MEGALITH_INLINE void store(f32* to, i64 i) const {
    for (i64 d = 0; d < D; ++d) to[d] = sum[i * kWidth + d];
  }

  /// Takes in `num` positions from `first` on, the keys and values of which lie at the pointers. Keys come in whole
  /// tiles: there are pointers to some behind the last, which have no weight.
  template <class K, class V>
  MEGALITH_INLINE void add(const K* const* key, const V* const* value, i64 first, i64 num, f32 scale) {
    // Positions outside, so that keys are in the first-level cache for the second tile of queries.
    for (i64 s = 0; s < num; s += kTile)
      for_tiles(count, [&](auto queries, i64 q) MEGALITH_INLINE {
        constexpr int kKeys = kTile / queries.value;
        for (i64 k = s; k < min(s + kTile, num); k += kKeys)
          score_tile<queries.value, kKeys, D>(score + q * kPositions + k, query + q * kWidth, kWidth, key + k, scale);
      });
    for (i64 q = 0; q < count; ++q) weigh(q, clamp(last[q] + 1 - first, 0, num), num);
    const i64 step = count > kTileQueries ? kValues : num;
    for (i64 begin = 0; begin < num; begin += step)
      for_tiles(count, [&](auto queries, i64 q) MEGALITH_INLINE {
        constexpr int kVectors = kTile / kTileQueries;
        auto tile = [&](auto vectors, i64 column) MEGALITH_INLINE {
          value_tile<queries.value, vectors.value, D>(sum + q * kWidth, kWidth, score + q * kPositions, value, column,
                                                      begin, min(begin + step, num));
        };
        i64 column = 0;
        for (; column + kVectors * kLanes <= D; column += kVectors * kLanes) tile(Size<kVectors>{}, column);
        for (; column < D; column += kLanes) tile(Size<1>{}, column);
      });
  }

  /// Scores of query `q` to weights; of `num` positions it sees the first `seen`.
  MEGALITH_INLINE void weigh(i64 q, i64 seen, i64 num) {
    f32* const s = score + q * kPositions;
    if (seen > 0) {
      const f32 before = top[q];
      top[q] = max(before, max_in_lanes(0, seen, [&](f32 acc, i64 k) MEGALITH_INLINE { return max(acc, s[k]); }));
      const f32 largest = top[q];
      MEGALITH_INDEPENDENT
      for (i64 k = 0; k < seen; ++k) s[k] = exp(s[k] - largest);
      const f32 fresh = sum_in_lanes(0, seen, [&](f32 acc, i64 k) MEGALITH_INLINE { return acc + s[k]; });
      if (largest > before && before > -kInfinity) {
        const f32 shrink = exp(before - largest);
        total[q] *= shrink;
        for (i64 d = 0; d < kWidth; ++d) sum[q * kWidth + d] *= shrink;
      }
      total[q] += fresh;
    }
    for (i64 k = seen; k < num; ++k) s[k] = 0;
  }
};

/// Blocks of queries for which keys and values are gathered first. The heads of a position lie side by side, so those
/// of one head are a power of two apart, often: a few places of a cache must hold them all, and each block would have
/// them from further away.
inline constexpr i64 kGathered = 3;

/// `Count` heads one behind the other.
template <i64 Count, i64 D, class Pointer>
struct Gathered;
template <i64 Count, i64 D, class Element>
struct Gathered<Count, D, const Element*> {
  alignas(64) Element heads[Count * D + 1];

  /// Copies what the pointers point to, and has them point to the copies.
  MEGALITH_INLINE void take(const Element** head, i64 num) {
    for (i64 i = 0; i < num; ++i) {
      __builtin_memcpy(heads + i * D, head[i], D * sizeof(Element));
      head[i] = heads + i * D;
    }
  }
};

/// What a chunk is worked on in.
template <i64 Count, i64 D, class Keys, class Values>
struct Workspace {
  static constexpr int kQueries = attention::kQueries;

  Keys key[kPositions + kTile];
  Values value[kPositions];
  Gathered<Count, D, Keys> keys;
  Gathered<Count, D, Values> values;
  Block<D> block;

  /// `num` positions that the pointers point to, for `blocks` blocks of queries.
  MEGALITH_INLINE void take(i64 num, i64 blocks) {
    if (Count > 0 && blocks >= kGathered) {
      keys.take(key, num);
      values.take(value, num);
    }
    for (i64 i = num; i < (num + kTile - 1) / kTile * kTile; ++i) key[i] = key[num - 1];
  }
  MEGALITH_INLINE void add(i64 first, i64 num, f32 scale) { block.add(key, value, first, num, scale); }
};
/// The same with tiles.
template <i64 Count, i64 D, class Keys, class Values>
struct TileWorkspace {
  static constexpr int kQueries = attention_workspace::kTileQueries;

  Keys key[kPositions];
  Values value[kPositions];
  TilesOfPositions<Count == 0 ? kPositions : Count, D> positions;
  TileBlock<D> block;

  MEGALITH_INLINE void take(i64 num, i64) { positions.take(key, value, num); }
  MEGALITH_INLINE void add(i64 first, i64 num, f32 scale) { block.add(positions, first, num, scale); }
};
template <bool kInTiles, i64 Count, i64 D, class Keys, class Values>
struct WorkspaceOf {
  typedef Workspace<Count, D, Keys, Values> Type;
};
template <i64 Count, i64 D, class Keys, class Values>
struct WorkspaceOf<true, Count, D, Keys, Values> {
  typedef TileWorkspace<Count, D, Keys, Values> Type;
};

}  // namespace attention

/// Operator `attention_partial`.
template <class Args>
inline void attention_partial(const Args& a) {
  using namespace attention;
  using Checks = typename Args::Checks;
  constexpr i64 G = Args::G, M = Args::M, D = Args::D, B = Args::B, Q = Args::Q, C = Args::C, L = Args::L;
  constexpr bool kWhole = L <= kPositions;  // a chunk is worked on in one go
  typedef decltype(element_pointer(a.k_cache)) Keys;
  typedef decltype(element_pointer(a.v_cache)) Values;
  typedef typename WorkspaceOf<kRounds, kWhole ? L : 0, D, Keys, Values>::Type Space;
  constexpr int kQueries = Space::kQueries;
  auto& space = *workspace<Space, 1>(a);
  Keys* const key = space.key;
  Values* const value = space.value;
  auto& block = space.block;

  // Where keys and values of `num` positions from s on are, for `blocks` blocks of queries.
  auto find = [&](i64 t0, i64 g, i64 s, i64 num, i64 blocks) {
    const i32* const pages = a.page_table + a.request[t0] * Q;
    for (i64 i = 0, page = s / B, place = s % B; i < num; ++page, place = 0) {
      const i64 first = inside(a.faults, pages[page], a.P, Checks::page_table) * B;
      for (; i < num && place < B; ++i, ++place) {
        const i64 at = ((first + place) * G + g) * D;
        key[i] = a.k_cache + at;
        value[i] = a.v_cache + at;
        prefetch_head<D>(key[i]);
        prefetch_head<D>(value[i]);
      }
    }
    space.take(num, blocks);
  };

  // Rows [t0, t1) of one text, one head of keys and one chunk. Their queries: row after row, head after head.
  auto chunk = [&](i64 t0, i64 t1, i64 g, i64 c) {
    const i64 queries = (t1 - t0) * M, blocks = (queries + kQueries - 1) / kQueries;
    auto furthest = [&](i64 begin, i64 end) MEGALITH_INLINE {
      i64 position = 0;
      for (i64 t = begin; t < end; ++t) position = max(position, i64(a.position[t]));
      return position;
    };
    const i64 last = min((c + 1) * L, furthest(t0, t1) + 1);
    if (kWhole && c * L < last) find(t0, g, c * L, last - c * L, blocks);
    for (i64 first = 0; first < queries; first += kQueries) {
      const i64 count = min(i64(kQueries), queries - first);
      const i64 end = min(last, furthest(t0 + first / M, t0 + (first + count - 1) / M + 1) + 1);
      if (c * L >= end) continue;
      block.set(
          count,
          [&](i64 i) MEGALITH_INLINE { return a.q + ((t0 + (first + i) / M) * G * M + g * M + (first + i) % M) * D; },
          [&](i64 i) MEGALITH_INLINE { return a.position[t0 + (first + i) / M]; });
      for (i64 s = c * L; s < end; s += kPositions) {
        const i64 num = min(i64(kPositions), end - s);
        if (!kWhole) find(t0, g, s, num, blocks);
        space.add(s, num, Args::scale);
      }
      for (i64 i = 0; i < count; ++i) {
        if (c * L > block.last[i]) continue;
        const i64 at = (((t0 + (first + i) / M) * C + c) * G + g) * M + (first + i) % M;
        a.top[at] = block.top[i];
        a.total[at] = block.total[i];
        block.store(a.part + at * D, i);
      }
    }
  };

  for (i64 t = a.t_begin; t < a.t_end; ++t)
    if (!is_inside(a.faults, a.request[t], a.R, Checks::request) ||
        !is_inside(a.faults, a.position[t], Q * B, Checks::position))
      return;
  for (i64 t = a.t_begin, next = t; t < a.t_end; t = next) {
    for (next = t + 1; next < a.t_end && a.request[next] == a.request[t];) ++next;
    for (i64 g = a.g_begin; g < a.g_end; ++g)
      for (i64 c = a.c_begin; c < a.c_end; ++c) chunk(t, next, g, c);
  }
}

/// Operator `attention_merge`.
template <class Args>
inline void attention_merge(const Args& a) {
  constexpr i64 A = Args::A, C = Args::C, D = Args::D, L = Args::L;
  f32* const factor = workspace<f32, attention_workspace::merge_bytes(C, D) / 4>(a);
  f32* const sum = factor + attention_workspace::lines(C * 4) / 4;
  for (i64 t = a.t_begin; t < a.t_end; ++t) {
    if (!is_inside(a.faults, a.position[t], C * L, Args::Checks::position)) return;
    const i64 chunks = a.position[t] / L + 1;
    for (i64 h = a.a_begin; h < a.a_end; ++h) {
      const i64 at = t * C * A + h;
      f32 big = -kInfinity, weight = 0;
      for (i64 c = 0; c < chunks; ++c) big = max(big, a.top[at + c * A]);
      for (i64 c = 0; c < chunks; ++c) {
        factor[c] = exp(a.top[at + c * A] - big);
        weight = fma(factor[c], a.total[at + c * A], weight);
      }
      for (i64 d = 0; d < D; ++d) sum[d] = 0;
      for (i64 c = 0; c < chunks; ++c) {
        MEGALITH_INDEPENDENT
        for (i64 d = 0; d < D; ++d) sum[d] = fma(factor[c], a.part[(at + c * A) * D + d], sum[d]);
      }
      auto* const y = a.y + (t * A + h) * D;
      MEGALITH_INDEPENDENT
      for (i64 d = 0; d < D; ++d) put(y[d], sum[d] / weight);
    }
  }
}

}  // namespace megalith::kernels
