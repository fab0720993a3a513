// Attention by tile registers (kernels/cpu/tiles.h): queries, keys, values and weights are rounded to bf16, sums are
// f32. Two products a block of 32 queries, both as rows by panels:
//   scores   32 queries by 32 positions: queries are the rows, keys the panels. So the scores of a query lie side by side,
//            and so do its weights, which are the rows of
//   values   32 queries by 32 columns: values are the panels
// Keys are turned for that, once for all queries that look at them.
// The orders of kernels/cpu/attention.h hold, with the sums of a tile in place of those in lanes: 32 positions at a time
// from the beginning of a chunk. A position that a query does not see has the weight 0.
#pragma once

#include "megalith/kernels/attention_workspace.h"
#include "megalith/kernels/cpu/tiles.h"

namespace megalith::kernels::attention {

inline constexpr int kPositions = attention_workspace::kPositions;
static_assert(attention_workspace::kTileQueries == tiles::kBlock && kPositions % tiles::kBlock == 0);

/// Rows of 16 words to columns, in place.
struct Square {
#if defined(__AVX512F__)
  typedef u32 Row __attribute__((vector_size(64)));

  alignas(64) Row row[16];

  /// Swaps, of each 2 kHalf by 2 kHalf words, the upper right quarter with the lower left one.
  template <int kHalf>
  MEGALITH_INLINE void swap_quarters() {
    constexpr auto upper = [](int l) { return l & kHalf ? 16 + l - kHalf : l; };
    constexpr auto lower = [](int l) { return l & kHalf ? 16 + l : l + kHalf; };
    for (int i = 0; i < 16; ++i) {
      if (i & kHalf) continue;
      const Row a = row[i], b = row[i + kHalf];
      row[i] =
          __builtin_shufflevector(a, b, upper(0), upper(1), upper(2), upper(3), upper(4), upper(5), upper(6), upper(7),
                                  upper(8), upper(9), upper(10), upper(11), upper(12), upper(13), upper(14), upper(15));
      row[i + kHalf] =
          __builtin_shufflevector(a, b, lower(0), lower(1), lower(2), lower(3), lower(4), lower(5), lower(6), lower(7),
                                  lower(8), lower(9), lower(10), lower(11), lower(12), lower(13), lower(14), lower(15));
    }
  }
  MEGALITH_INLINE void transpose() {
    swap_quarters<8>();
    swap_quarters<4>();
    swap_quarters<2>();
    swap_quarters<1>();
  }
#else
  struct Row {
    u32 word[16];
    MEGALITH_INLINE u32& operator[](int l) { return word[l]; }
  };

  alignas(64) Row row[16];

  MEGALITH_INLINE void transpose() {
    for (int i = 0; i < 16; ++i)
      for (int l = 0; l < i; ++l) {
        const u32 word = row[i][l];
        row[i][l] = row[l][i];
        row[l][i] = word;
      }
  }
#endif
};

/// 32 columns of a head, of which there are D, from `first` on; zeros where there are none, or no head.
template <i64 D, class Element>
MEGALITH_INLINE inline void round_columns(bf16* to, const Element* head, i64 first) {
  if (head != nullptr && first + 32 <= D) {
    if constexpr (__is_same(Element, bf16))
      __builtin_memcpy(to, head + first, 32 * sizeof(bf16));
    else
      put_rounded(to, load_lanes(head + first), load_lanes(head + first + kLanes));
  } else {
    for (i64 i = 0; i < 32; ++i) put(to[i], head != nullptr && first + i < D ? to_f32(head[first + i]) : 0.0f);
  }
}

/// to = one of `low`, one of `high`, and so on: 16 of each.
template <class Element>
MEGALITH_INLINE inline void round_in_turn(bf16* to, const Element* low, const Element* high) {
  if constexpr (__is_same(Element, bf16)) {
    u32 pairs[kLanes];
#pragma omp simd
    for (i64 i = 0; i < kLanes; ++i) pairs[i] = low[i].bits | static_cast<u32>(high[i].bits) << 16;
    __builtin_memcpy(to, pairs, sizeof pairs);
  } else {
    put_rounded_in_turn(to, load_lanes(low), load_lanes(high));
  }
}

/// Keys and values of up to kMax positions of a chunk, as tiles.
template <i64 kMax, i64 D>
struct TilesOfPositions {
  static constexpr i64 kWidth = (D + 31) / 32 * 32, kPadded = (kMax + 31) / 32 * 32;

  alignas(64) bf16 keys[kPadded * kWidth];    // (positions / 16, columns / 2, 16, 2)
  alignas(64) bf16 values[kPadded * kWidth];  // (columns / 16, positions / 2, 16, 2)

  template <class Keys, class Values>
  MEGALITH_INLINE void take(const Keys* key, const Values* value, i64 num) {
    const i64 padded = (num + 31) / 32 * 32;
    for (i64 s = 0; s < padded; s += 16)
      for (i64 d = 0; d < kWidth; d += 32) {
        alignas(64) bf16 rows[16 * 32];
        for (i64 i = 0; i < 16; ++i) round_columns<D>(rows + i * 32, s + i < num ? key[s + i] : nullptr, d);
        Square square;
        __builtin_memcpy(square.row, rows, sizeof rows);
        square.transpose();
        __builtin_memcpy(keys + s * kWidth + d * 16, square.row, sizeof square.row);
      }
    for (i64 s = 0; s < padded; s += 2)
      for (i64 e = 0; e < kWidth; e += 16) {
        bf16* const to = values + e * kPadded + s * 16;
        if (s + 2 <= num && e + 16 <= D) {
          round_in_turn(to, value[s] + e, value[s + 1] + e);
          continue;
        }
        for (i64 i = 0; i < 32; ++i) {
          const i64 at = s + i % 2, column = e + i / 2;
          put(to[i], at < num && column < D ? to_f32(value[at][column]) : 0.0f);
        }
      }
  }
};

/// Queries of one text and one head of keys, and what is known of them so far.
template <i64 D>
struct TileBlock {
  static constexpr i64 kWidth = (D + 31) / 32 * 32, kMax = attention_workspace::kTileQueries,
                       kStride = attention_workspace::kScoreStride;

  i64 count;                                   // of queries
  bool is_fresh;                               // no position was taken in
  i32 last[kMax];                              // the position of each query's row
  f32 top[kMax], total[kMax];                  // the largest score, and the sum of the weights
  alignas(64) bf16 query[kMax * kWidth];       // (columns / 32, 32, 32)
  alignas(64) f32 sum[kMax * kWidth];          // of the weighed values: (columns / 32, 32, 32)
  alignas(64) f32 score[kMax * kStride];       // (32, positions)
  alignas(64) bf16 weight[kPositions * kMax];  // (positions / 32, 32, 32 positions)

  /// The queries `from(i)` of rows at the positions `last_of(i)`.
  template <class From, class Last>
  MEGALITH_INLINE void set(i64 num, From from, Last last_of) {
    count = num;
    is_fresh = true;
    for (i64 i = 0; i < num; ++i) {
      last[i] = last_of(i);
      top[i] = -kInfinity;
      total[i] = 0;
    }
    for (i64 i = 0; i < kMax; ++i) {
      const auto* const at = i < num ? from(i) : nullptr;
      for (i64 d = 0; d < kWidth; d += 32) round_columns<D>(query + d * kMax + i * 32, at, d);
    }
    if (num < kMax) __builtin_memset(weight, 0, sizeof weight);
  }

  MEGALITH_INLINE void store(f32* to, i64 i) const {
    for (i64 d = 0; d < D; d += 32) {
      const f32* const from = sum + d * kMax + i * 32;
      if (d + 32 <= D)
        __builtin_memcpy(to + d, from, 32 * sizeof(f32));
      else
        for (i64 e = d; e < D; ++e) to[e] = from[e - d];
    }
  }

  /// Takes in `num` positions from `first` on, which are all of the tiles.
  template <i64 kMaxPositions>
  MEGALITH_INLINE void add(const TilesOfPositions<kMaxPositions, D>& positions, i64 first, i64 num, f32 scale) {
    count > tiles::kRows ? add_rows<2>(positions, first, num, scale) : add_rows<1>(positions, first, num, scale);
    is_fresh = false;
  }

 private:
  template <int RowTiles, i64 kMaxPositions>
  MEGALITH_INLINE void add_rows(const TilesOfPositions<kMaxPositions, D>& positions, i64 first, i64 num, f32 scale) {
    const i64 padded = (num + 31) / 32 * 32;
    tiles::Registers registers;
    for (i64 s = 0; s < padded; s += 32) {
      const bf16* const key = positions.keys + s * kWidth;
      registers.template zero<RowTiles>();
      for (i64 d = 0; d < kWidth; d += 32)
        registers.template multiply_add<RowTiles>(query + d * kMax, key + d * 16, key + (kWidth + d) * 16);
      registers.template store<RowTiles, kStride>(score + s);
    }
    for (i64 i = 0; i < count; ++i) weigh(i, min(last[i] + 1 - first, num), padded, scale);
    for (i64 e = 0; e < kWidth; e += 32) {
      f32* const at = sum + e * kMax;
      const bf16* const value = positions.values + e * positions.kPadded;
      is_fresh ? registers.template zero<RowTiles>() : registers.template load<RowTiles>(at);
      for (i64 s = 0; s < padded; s += 32)
        registers.template multiply_add<RowTiles>(weight + s * kMax, value + s * 16,
                                                  value + (positions.kPadded + s) * 16);
      registers.template store<RowTiles>(at);
    }
  }

  /// exp(x), beside the largest weight of 1; 0 where exp_normal() is not made for x.
  MEGALITH_INLINE static f32 weight_of(f32 x) {
    constexpr f32 kLowest = -80.0f;
    const f32 weight = exp_normal(x);
    return x < kLowest ? 0.0f : weight;
  }

  /// Scores of query i to weights, of the positions that it sees, which are the first ones; 0 for the others.
  MEGALITH_INLINE void weigh(i64 i, i64 seen, i64 num, f32 scale) {
    f32* const s = score + i * kStride;
    bf16* const to = weight + i * 32;
    const i64 whole = seen > 0 ? (seen + 31) / 32 * 32 : 0;
    if (seen > 0) {
      for (i64 k = seen; k < whole; ++k) s[k] = -kInfinity;
      const f32 before = top[i];
      const f32 most = max_in_lanes(0, whole, [&](f32 acc, i64 k) MEGALITH_INLINE { return max(acc, s[k]); });
      const f32 largest = max(before, scale * most);
      top[i] = largest;
      Lanes even = Lanes::zero(), odd = Lanes::zero();
      for (i64 k = 0; k < whole; k += 32) {
        f32 each[32];
#pragma omp simd
        for (i64 l = 0; l < 32; ++l) each[l] = weight_of(scale * s[k + l] - largest);
        const Lanes low = Lanes::load(each), high = Lanes::load(each + kLanes);
        even = kernels::sum(even, low);
        odd = kernels::sum(odd, high);
        put_rounded(to + k * kMax, low, high);
      }
      const f32 fresh = kernels::sum(even, odd).sum();
      if (largest > before && before > -kInfinity) {
        const f32 shrink = exp(before - largest);
        total[i] *= shrink;
        for (i64 e = 0; e < kWidth; e += 32)
          for (i64 d = 0; d < 32; ++d) sum[e * kMax + i * 32 + d] *= shrink;
      }
      total[i] += fresh;
    }
    for (i64 k = whole; k < num; k += 32) __builtin_memset(to + k * kMax, 0, 32 * sizeof(bf16));
  }
};

}  // namespace megalith::kernels::attention
