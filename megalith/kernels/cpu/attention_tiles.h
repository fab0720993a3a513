// Attention by tile registers (kernels/cpu/tiles.h): queries, keys, values and weights are rounded to bf16, sums are
// f32. Two products a block of 32 queries, both as rows by panels:
//   scores   32 positions by 32 queries: keys are the rows, queries the panels. So a lane is a query, and its largest
//            score and its sum of weights cross no lanes
//   values   32 queries by 32 columns: weights are the rows, values the panels
// The orders of kernels/cpu/attention.h hold, with the sums of a tile in place of those in lanes: 32 positions at a time
// from the beginning of a chunk. A position that a query does not see has the weight 0.
#pragma once

#include "megalith/kernels/attention_workspace.h"
#include "megalith/kernels/cpu/tiles.h"

namespace megalith::kernels::attention {

inline constexpr int kPositions = attention_workspace::kPositions;
static_assert(attention_workspace::kTileQueries == tiles::kBlock && kPositions % tiles::kBlock == 0);

/// The bits of x rounded to bf16.
MEGALITH_INLINE inline u32 bf16_bits(f32 x) { return to_bf16(x).bits; }

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

/// Keys and values of up to kMax positions of a chunk, as tiles.
template <i64 kMax, i64 D>
struct TilesOfPositions {
  static constexpr i64 kWidth = (D + 31) / 32 * 32, kPadded = (kMax + 31) / 32 * 32;

  alignas(64) bf16 keys[kPadded * kWidth];    // (positions / 32, columns / 32, 32, 32)
  alignas(64) bf16 values[kPadded * kWidth];  // (columns / 16, positions / 2, 16, 2)

  template <class Keys, class Values>
  MEGALITH_INLINE void take(const Keys* key, const Values* value, i64 num) {
    const i64 padded = (num + 31) / 32 * 32;
    for (i64 s = 0; s < padded; ++s) {
      bf16* to = keys + s / 32 * 32 * kWidth + s % 32 * 32;
      if (s < num)
        for (i64 d = 0; d < kWidth; d += 32, to += 32 * 32) {
          if (d + 32 <= D) {
            MEGALITH_INDEPENDENT
            for (i64 i = 0; i < 32; ++i) put(to[i], to_f32(key[s][d + i]));
          } else {
            for (i64 i = 0; i < 32; ++i) put(to[i], d + i < D ? to_f32(key[s][d + i]) : 0.0f);
          }
        }
      else
        for (i64 d = 0; d < kWidth; d += 32, to += 32 * 32)
          for (i64 i = 0; i < 32; ++i) to[i] = {};
    }
    for (i64 s = 0; s < padded; s += 2)
      for (i64 e = 0; e < kWidth; e += 16) {
        u32 pair[16];
        if (s + 2 <= num && e + 16 <= D) {
          MEGALITH_INDEPENDENT
          for (i64 i = 0; i < 16; ++i)
            pair[i] = bf16_bits(to_f32(value[s][e + i])) | bf16_bits(to_f32(value[s + 1][e + i])) << 16;
        } else {
          auto bits = [&](i64 at, i64 column)
                          MEGALITH_INLINE { return at < num && column < D ? bf16_bits(to_f32(value[at][column])) : 0; };
          for (i64 i = 0; i < 16; ++i) pair[i] = bits(s, e + i) | bits(s + 1, e + i) << 16;
        }
        __builtin_memcpy(values + e * kPadded + s * 16, pair, sizeof pair);
      }
  }
};

/// Queries of one text and one head of keys, and what is known of them so far.
template <i64 D>
struct TileBlock {
  static constexpr i64 kWidth = (D + 31) / 32 * 32, kMax = attention_workspace::kTileQueries;

  i64 count;                                   // of queries
  i32 last[kMax];                              // the position of each query's row
  f32 top[kMax], total[kMax];                  // the largest score, and the sum of the weights
  alignas(64) bf16 rows[16 * kWidth];          // of half of the queries
  alignas(64) bf16 query[kMax * kWidth];       // (2, columns / 2, 16, 2)
  alignas(64) f32 sum[kMax * kWidth];          // of the weighed values: (columns / 32, 32, 32)
  alignas(64) f32 score[kPositions * kMax];    // (positions, 32)
  alignas(64) bf16 weight[kPositions * kMax];  // (positions / 32, 32, 32 positions)

  /// The queries `from(i)` of rows at the positions `last_of(i)`.
  template <class From, class Last>
  MEGALITH_INLINE void set(i64 num, From from, Last last_of) {
    count = num;
    for (i64 i = 0; i < kMax; ++i) {
      last[i] = i < num ? last_of(i) : -1;
      top[i] = -kInfinity;
      total[i] = 0;
    }
    for (i64 i = 0; i < kMax * kWidth; ++i) sum[i] = 0;
    for (i64 half = 0; half < 2; ++half) {
      for (i64 i = 0; i < 16; ++i) {
        const bool there = half * 16 + i < num;
        const auto* const at = from(there ? half * 16 + i : 0);
        for (i64 d = 0; d < kWidth; ++d) put(rows[i * kWidth + d], there && d < D ? to_f32(at[d]) : 0.0f);
      }
      for (i64 d = 0; d < kWidth; d += 32) {
        Square square;
        for (i64 i = 0; i < 16; ++i) __builtin_memcpy(&square.row[i], rows + i * kWidth + d, 64);
        square.transpose();
        __builtin_memcpy(query + (half * kWidth + d) * 16, square.row, sizeof square.row);
      }
    }
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
    const i64 padded = (num + 31) / 32 * 32;
    tiles::Registers registers;
    for (i64 s = 0; s < padded; s += 32) {
      registers.template zero<2>();
      for (i64 d = 0; d < kWidth; d += 32)
        registers.template multiply_add<2>(positions.keys + s * kWidth + d * 32, query + d * 16,
                                           query + (kWidth + d) * 16);
      registers.template store<2>(score + s * kMax);
    }
    weigh(first, padded, first + num, scale);
    for (i64 e = 0; e < kWidth; e += 32) {
      f32* const at = sum + e * kMax;
      const bf16* const value = positions.values + e * positions.kPadded;
      registers.template load<2>(at);
      for (i64 s = 0; s < padded; s += 32)
        registers.template multiply_add<2>(weight + s * kMax, value + s * 16, value + (positions.kPadded + s) * 16);
      registers.template store<2>(at);
    }
  }

  /// exp(x) of a position that is seen, beside the largest weight of 1; 0 where exp_normal() is not made for x.
  MEGALITH_INLINE static f32 weight_of(f32 x, bool is_seen) {
    constexpr f32 kLowest = -80.0f;
    const f32 weight = exp_normal(x);
    return !is_seen || x < kLowest ? 0.0f : weight;
  }
  /// Rounded to bf16, in the upper half. Of what is no number nothing is left: the sum of weights has it.
  MEGALITH_INLINE static u32 number_bits(f32 x) {
    const u32 bits = __builtin_bit_cast(u32, x);
    return bits + 0x7fff + ((bits >> 16) & 1);
  }

  /// Scores to weights, of the positions below `end` that a query sees.
  MEGALITH_INLINE void weigh(i64 first, i64 num, i64 end, f32 scale) {
    f32 before[kMax], fresh[kMax];
    i32 seen[kMax];  // the last position
    for (i64 l = 0; l < kMax; ++l) {
      before[l] = top[l];
      fresh[l] = 0;
      seen[l] = min(last[l], static_cast<i32>(end - 1));
    }
    for (i64 s = 0; s < num; ++s) {
      const i32 position = static_cast<i32>(first + s);
      MEGALITH_INDEPENDENT
      for (i64 l = 0; l < kMax; ++l) {
        const f32 scaled = scale * score[s * kMax + l];
        score[s * kMax + l] = scaled;
        top[l] = max(top[l], position <= seen[l] ? scaled : -kInfinity);
      }
    }
    for (i64 s = 0; s < num; s += 2) {
      const i32 position = static_cast<i32>(first + s);
      u32 pair[kMax];
      MEGALITH_INDEPENDENT
      for (i64 l = 0; l < kMax; ++l) {
        const f32 one = weight_of(score[s * kMax + l] - top[l], position <= seen[l]);
        const f32 other = weight_of(score[(s + 1) * kMax + l] - top[l], position + 1 <= seen[l]);
        fresh[l] = (fresh[l] + one) + other;
        pair[l] = number_bits(one) >> 16 | (number_bits(other) & 0xffff0000);
      }
      // In place of the scores of the first of the two, until 32 positions are together.
      __builtin_memcpy(score + s * kMax, pair, sizeof pair);
    }
    for (i64 s = 0; s < num; s += 32)
      for (i64 half = 0; half < 2; ++half) {
        Square square;
        for (i64 i = 0; i < 16; ++i) __builtin_memcpy(&square.row[i], score + (s + 2 * i) * kMax + half * 16, 64);
        square.transpose();
        __builtin_memcpy(weight + s * kMax + half * 16 * 32, square.row, sizeof square.row);
      }
    for (i64 l = 0; l < count; ++l) {
      if (top[l] > before[l] && before[l] > -kInfinity) {
        const f32 shrink = exp(before[l] - top[l]);
        total[l] *= shrink;
        for (i64 e = 0; e < kWidth; e += 32)
          for (i64 i = 0; i < 32; ++i) sum[e * kMax + l * 32 + i] *= shrink;
      }
      total[l] += fresh[l];
    }
  }
};

}  // namespace megalith::kernels::attention
