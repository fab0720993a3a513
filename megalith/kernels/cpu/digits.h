// Activations as whole numbers, for products with weights in int8: within a block of columns each is a multiple of one
// power of two, up to 30 bits long, so that a product with a weight and the sum over a block are whole numbers too, and
// exact. What that takes from an activation is less than 2^-29 of the largest of its block: nothing beside the rounding
// of a sum in f32. Weights are multiplied as they are stored, four columns of a row in an instruction where the machine
// has one, and nothing is widened: five instructions for 64 weights and a row (docs/cpu.md).
//
// A number is cut into digits, of eight bits where the machine multiplies bytes, else of sixteen. Whole numbers add up
// to the same however they are cut, and a sum becomes an f32 in one way: so every machine gives the same bits.
#pragma once

#include "megalith/kernels/cpu/panels.h"
#include "megalith/kernels/digit_layout.h"

namespace megalith::kernels {

/// Columns of weights that stand together, and the 16 rows of them.
inline constexpr i64 kQuad = panel::kQuad, kQuadBytes = kQuad * kLanes;

namespace digits {

inline constexpr i64 kMaxColumns = digit_layout::kMaxColumns;
inline constexpr int kPlanes = digit_layout::kPlanes;

/// What the columns of a block have in common.
struct Block {
  f32 unit;      // what an activation is a multiple of; NaN if one is not finite
  i32 first[4];  // what sums of products with a digit begin with
};
static_assert(sizeof(Block) == digit_layout::kBlockBytes && kQuad == digit_layout::kQuad);

/// What makes numbers of activations, and activations of numbers: powers of two.
struct Scaled {
  f32 by, unit;
};
/// For a block whose largest magnitude has these bits.
MEGALITH_INLINE inline Scaled scaled(u32 top) {
  // Exponents are kept where both powers of two are normal numbers: what is below 2^-97 loses bits.
  const u32 exponent = top >> 23 > 30 ? top >> 23 : 30;
  const f32 unit = __builtin_bit_cast(f32, exponent == 255 ? 0x7fc00000u : (exponent - 29) << 23);
  return {__builtin_bit_cast(f32, (283 - (exponent == 255 ? 254 : exponent)) << 23), unit};
}

/// Rows of digits: of each row its planes, [kPlanes, quads] words of four columns, and its blocks.
template <i64 K, i64 Group>
struct Rows {
  static_assert(Group % kQuad == 0, "a scale is for whole quads of columns");
  static constexpr i64 kGroups = (K + Group - 1) / Group;
  static constexpr i64 kBlocksOfGroup = digit_layout::blocks_of_group(Group);
  static constexpr i64 kQuads = (K + kQuad - 1) / kQuad, kBlocks = digit_layout::row_blocks(K, Group);
  static constexpr i64 kRowWords = digit_layout::row_words(K);

  i32* words;
  Block* blocks;
  i64 count;

  /// Row r from at(k), a function of the column.
  template <class At>
  MEGALITH_INLINE void set(i64 r, At at) const {
    for (i64 g = 0; g < kGroups; ++g)
      for (i64 b = 0; b < kBlocksOfGroup; ++b) {
        const i64 begin = g * Group + b * kMaxColumns;
        const i64 end = min(min(begin + kMaxColumns, (g + 1) * Group), K);
        if (begin < end) set_block(words + r * kRowWords, blocks[r * kBlocks + g * kBlocksOfGroup + b], begin, end, at);
      }
  }

 private:
  template <class At>
  MEGALITH_INLINE static void set_block(i32* to, Block& block, i64 begin, i64 end, At at) {
    const i64 columns = (end - begin + kQuad - 1) / kQuad * kQuad;
    alignas(64) f32 x[kMaxColumns];
    for (i64 i = end - begin; i < columns; ++i) x[i] = 0;
    MEGALITH_INDEPENDENT
    for (i64 i = 0; i < end - begin; ++i) x[i] = at(begin + i);
    u32 top = 0;
    for (i64 i = 0; i < columns; ++i) {
      const u32 bits = __builtin_bit_cast(u32, x[i]) & 0x7fffffff;
      top = bits > top ? bits : top;
    }
    const Scaled scale = scaled(top);
    block.unit = scale.unit;
    alignas(64) u32 number[kMaxColumns];
    MEGALITH_INDEPENDENT
    for (i64 i = 0; i < columns; ++i) number[i] = static_cast<u32>(static_cast<i32>(x[i] * scale.by));
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VNNI__)
    for (int d = 0; d < kPlanes; ++d) {
      u8* const plane = reinterpret_cast<u8*>(to + d * kQuads) + begin;
      i32 sum = 0;
      MEGALITH_INDEPENDENT
      for (i64 i = 0; i < columns; ++i) {
        const u32 digit = ((number[i] + 0x80808080u) >> (8 * d)) & 0xff;  // plus 128
        plane[i] = static_cast<u8>(digit ^ 0x80);
        sum += static_cast<i32>(digit) - 128;
      }
      block.first[d] = -128 * sum;  // bytes of weights are taken as 128 more than they are
    }
#else
    const auto plane = [&](int p) { return reinterpret_cast<u16*>(to + p * kQuads) + begin / 2; };
    for (int odd = 0; odd < 2; ++odd) {
      u16 *const low = plane(odd), *const high = plane(2 + odd);
      MEGALITH_INDEPENDENT
      for (i64 i = 0; i < columns / 2; ++i) {
        const u32 n = number[2 * i + odd];
        low[i] = static_cast<u16>(n);
        high[i] = static_cast<u16>((n + 0x8000u) >> 16);
      }
    }
#endif
  }
};

// ---- sums of products with digits
// ------------------------------------------------------------------------------------

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VNNI__)

typedef i32 Wholes __attribute__((vector_size(64), may_alias));

/// Four columns of 16 rows of weights, as bytes without a sign: 128 more than they are.
struct Weights {
  Wholes bytes;
  MEGALITH_INLINE static Weights load(const i8* at) {
    return {*reinterpret_cast<const Wholes*>(at) ^ static_cast<i32>(0x80808080)};
  }
};
/// The words of four columns, broadcast.
struct Quad {
  Wholes digit[4];
  MEGALITH_INLINE static Quad load(const i32* words, i64 quads) {
    Quad result;
    for (int d = 0; d < 4; ++d) result.digit[d] = words[d * quads] - Wholes{};
    return result;
  }
};
struct Sums {
  Wholes digit[4];
  MEGALITH_INLINE void begin(const Block& block) {
    for (int d = 0; d < 4; ++d) digit[d] = block.first[d] - Wholes{};
  }
  MEGALITH_INLINE void add(const Weights& weights, const Quad& quad) {
    for (int d = 0; d < 4; ++d)
#if defined(__clang__)
      digit[d] = __builtin_ia32_vpdpbusd512(digit[d], weights.bytes, quad.digit[d]);
#else
      digit[d] = __builtin_ia32_vpdpbusd_v16si(digit[d], weights.bytes, quad.digit[d]);
#endif
  }
  MEGALITH_INLINE Lanes value() const {
    const Wholes low = digit[0] + (digit[1] << 8), high = digit[2] + (digit[3] << 8) + (low >> 16);
    Lanes result = {__builtin_convertvector(low & 0xffff, Lanes::Vector)};
    result.multiply_add(Lanes::broadcast(65536.0f), {__builtin_convertvector(high, Lanes::Vector)});
    return result;
  }
};

#elif defined(__AVX2__) && defined(__FMA__)

typedef i32 Wholes __attribute__((vector_size(32), may_alias));
typedef short Shorts __attribute__((vector_size(32), may_alias));
typedef f32 Floats __attribute__((vector_size(32), may_alias));

/// Four columns of 16 rows of weights, even and odd ones in 16 bits, the upper eight rows behind the lower.
struct Weights {
  Shorts even[2], odd[2];
  MEGALITH_INLINE static Weights load(const i8* at) {
    const Shorts low = reinterpret_cast<const Shorts*>(at)[0], high = reinterpret_cast<const Shorts*>(at)[1];
    return {{(low << 8) >> 8, (high << 8) >> 8}, {low >> 8, high >> 8}};
  }
};
struct Quad {
  Shorts plane[4];
  MEGALITH_INLINE static Quad load(const i32* words, i64 quads) {
    Quad result;
    for (int p = 0; p < 4; ++p) result.plane[p] = reinterpret_cast<Shorts>(words[p * quads] - Wholes{});
    return result;
  }
};
struct Sums {
  Wholes low[2], high[2];
  MEGALITH_INLINE void begin(const Block&) {
    for (int h = 0; h < 2; ++h) low[h] = high[h] = Wholes{};
  }
  MEGALITH_INLINE static Wholes pairs(Shorts a, Shorts b) {
    return reinterpret_cast<Wholes>(__builtin_ia32_pmaddwd256(a, b));
  }
  MEGALITH_INLINE void add(const Weights& weights, const Quad& quad) {
    for (int h = 0; h < 2; ++h) {
      low[h] += pairs(weights.even[h], quad.plane[0]) + pairs(weights.odd[h], quad.plane[1]);
      high[h] += pairs(weights.even[h], quad.plane[2]) + pairs(weights.odd[h], quad.plane[3]);
    }
  }
  MEGALITH_INLINE Lanes value() const {
    alignas(64) Floats lows[2], highs[2];
    for (int h = 0; h < 2; ++h) {
      lows[h] = __builtin_convertvector(low[h] & 0xffff, Floats);
      highs[h] = __builtin_convertvector(high[h] + (low[h] >> 16), Floats);
    }
    Lanes result = Lanes::load(reinterpret_cast<const f32*>(lows));
    result.multiply_add(Lanes::broadcast(65536.0f), Lanes::load(reinterpret_cast<const f32*>(highs)));
    return result;
  }
};

#else

struct Weights {
  const i8* at;
  MEGALITH_INLINE static Weights load(const i8* at) { return {at}; }
};
struct Quad {
  i32 low[4], high[4];
  MEGALITH_INLINE static Quad load(const i32* words, i64 quads) {
    Quad result;
    for (int c = 0; c < 4; ++c) {
      auto half = [&](i64 plane) MEGALITH_INLINE {
        return static_cast<i32>(static_cast<short>(static_cast<u32>(words[plane * quads]) >> (c / 2 * 16)));
      };
      result.low[c] = half(c % 2);
      result.high[c] = half(2 + c % 2);
    }
    return result;
  }
};
struct Sums {
  i32 low[kLanes], high[kLanes];
  MEGALITH_INLINE void begin(const Block&) {
    for (int l = 0; l < kLanes; ++l) low[l] = high[l] = 0;
  }
  MEGALITH_INLINE void add(const Weights& weights, const Quad& quad) {
    for (int l = 0; l < kLanes; ++l)
      for (int c = 0; c < 4; ++c) {
        low[l] += weights.at[l * 4 + c] * quad.low[c];
        high[l] += weights.at[l * 4 + c] * quad.high[c];
      }
  }
  MEGALITH_INLINE Lanes value() const {
    alignas(64) f32 lanes[kLanes];
    for (int l = 0; l < kLanes; ++l)
      lanes[l] = fma(65536.0f, static_cast<f32>(high[l] + (low[l] >> 16)), static_cast<f32>(low[l] & 0xffff));
    return Lanes::load(lanes);
  }
};

#endif

}  // namespace digits

}  // namespace megalith::kernels
