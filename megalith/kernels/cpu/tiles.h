// Products of many rows of activations, those of a prompt, by tile registers (AMX): 16 rows x 64 bytes each. An
// instruction multiplies 16 rows of 32 activations with 32 columns of 16 weights. Sixteen steps of a panel
// (kernels/panel_layout.h) are such a tile of weights as they lie, pairs of columns side by side, so what decodes and
// what works through a prompt read the same bytes.
//
// A block is 32 rows by two panels: four tiles of sums, two of rows and two of weights. Sums have the order of
// kernels/cpu/pairs.h. Without AMX the same tiles are arrays and the same bits come out, which is how any machine can
// test what is done with them.
#pragma once

#include "megalith/kernels/cpu/panel_product.h"
#include "megalith/kernels/row_layout.h"

namespace megalith::kernels {

namespace tiles {

inline constexpr int kRows = rows::kTileRows, kColumns = rows::kTileColumns, kBlock = rows::kTileBlock;
static_assert(kBlock == 2 * kRows && kColumns == 2 * kStepsOfTile);
/// Elements of a tile of activations or of weights.
inline constexpr i64 kTile = kRows * kColumns;
/// From a row of sums to the next: the 16 outputs of each of two panels.
inline constexpr i64 kSumStride = 2 * kLanes;

// The second names are those of clang before 16.
#if (defined(__AMX_TILE__) && defined(__AMX_BF16__)) || (defined(__AMXTILE__) && defined(__AMXBF16__))

/// The sums of a block in registers 0 to 3; rows pass through 4 and 5, weights through 6 and 7.
struct Registers {
  /// All tiles are 16 rows of 64 bytes.
  Registers() {
    struct alignas(64) Shape {
      u8 palette, start_row, reserved[14];
      u16 row_bytes[16];
      u8 rows[16];
    };
    Shape shape = {};
    shape.palette = 1;
    for (int t = 0; t < 8; ++t) {
      shape.row_bytes[t] = 64;
      shape.rows[t] = kRows;
    }
    __asm__ volatile("ldtilecfg %0" ::"m"(shape));
  }
  /// Registers that are in use are saved at each switch of threads.
  ~Registers() { __asm__ volatile("tilerelease"); }
  Registers(const Registers&) = delete;
  Registers& operator=(const Registers&) = delete;

  template <int RowTiles>
  MEGALITH_INLINE void zero() {
    __asm__ volatile("tilezero %%tmm0\n\ttilezero %%tmm1" ::);
    if constexpr (RowTiles == 2) __asm__ volatile("tilezero %%tmm2\n\ttilezero %%tmm3" ::);
  }
  template <int RowTiles>
  MEGALITH_INLINE void load(const f32* from) {
    constexpr i64 kStride = kSumStride * sizeof(f32);
    __asm__ volatile("tileloadd (%0,%2,1), %%tmm0\n\ttileloadd (%1,%2,1), %%tmm1" ::"r"(from), "r"(from + kLanes),
                     "r"(kStride)
                     : "memory");
    if constexpr (RowTiles == 2) {
      const f32* const second = from + kRows * kSumStride;
      __asm__ volatile("tileloadd (%0,%2,1), %%tmm2\n\ttileloadd (%1,%2,1), %%tmm3" ::"r"(second), "r"(second + kLanes),
                       "r"(kStride)
                       : "memory");
    }
  }
  /// kApart: from a row to the next.
  template <int RowTiles, i64 kApart = kSumStride>
  MEGALITH_INLINE void store(f32* to) {
    constexpr i64 kStride = kApart * sizeof(f32);
    __asm__ volatile("tilestored %%tmm0, (%0,%2,1)\n\ttilestored %%tmm1, (%1,%2,1)" ::"r"(to), "r"(to + kLanes),
                     "r"(kStride)
                     : "memory");
    if constexpr (RowTiles == 2) {
      f32* const second = to + kRows * kApart;
      __asm__ volatile("tilestored %%tmm2, (%0,%2,1)\n\ttilestored %%tmm3, (%1,%2,1)" ::"r"(second),
                       "r"(second + kLanes), "r"(kStride)
                       : "memory");
    }
  }
  /// Takes in 32 columns.
  template <int RowTiles>
  MEGALITH_INLINE void multiply_add(const bf16* x, const bf16* first, const bf16* second) {
    constexpr i64 kStride = kColumns * sizeof(bf16);
    __asm__ volatile(
        "tileloadd (%0,%3,1), %%tmm4\n\ttileloadd (%1,%3,1), %%tmm6\n\ttdpbf16ps %%tmm6, %%tmm4, %%tmm0\n\t"
        "tileloadd (%2,%3,1), %%tmm7\n\ttdpbf16ps %%tmm7, %%tmm4, %%tmm1" ::"r"(x),
        "r"(first), "r"(second), "r"(kStride)
        : "memory");
    if constexpr (RowTiles == 2)
      __asm__ volatile(
          "tileloadd (%0,%1,1), %%tmm5\n\ttdpbf16ps %%tmm6, %%tmm5, %%tmm2\n\ttdpbf16ps %%tmm7, %%tmm5, %%tmm3" ::"r"(
              x + kTile),
          "r"(kStride)
          : "memory");
  }
};

#else

struct Registers {
  alignas(64) f32 sums[kBlock * kSumStride];

  template <int RowTiles>
  void zero() {
    for (i64 i = 0; i < RowTiles * kRows * kSumStride; ++i) sums[i] = 0;
  }
  template <int RowTiles>
  void load(const f32* from) {
    for (i64 i = 0; i < RowTiles * kRows * kSumStride; ++i) sums[i] = from[i];
  }
  template <int RowTiles, i64 kApart = kSumStride>
  void store(f32* to) {
    for (i64 r = 0; r < RowTiles * kRows; ++r)
      for (i64 i = 0; i < kSumStride; ++i) to[r * kApart + i] = sums[r * kSumStride + i];
  }
  template <int RowTiles>
  MEGALITH_INLINE void multiply_add(const bf16* x, const bf16* first, const bf16* second) {
    for (i64 r = 0; r < RowTiles * kRows; ++r)
      for (int p = 0; p < 2; ++p) {
        f32* const at = sums + r * kSumStride + p * kLanes;
        PairSum sum = PairSum::from(Lanes::load(at));
        for (i64 step = 0; step < kStepsOfTile; ++step)
          sum.multiply_add(broadcast_pair(x + r * kColumns + 2 * step),
                           load_pairs((p == 0 ? first : second) + step * 2 * kLanes));
        sum.fold();
        sum.total().store(at);
      }
  }
};

#endif

/// Rows of the block that begins `count` rows before the last: one or two tiles.
constexpr i64 block_rows(i64 count) { return count > kRows ? kBlock : kRows; }

/// Packs `count` rows: block after block, in each of them 32 columns after 32 columns, the rows side by side. What a
/// tile has beyond rows and columns is zeros. value(r) gives a function of the column. ask(r, k) asks for what column k
/// of a row and the 31 behind it are made of: a row or two ahead of it, since hardware that looks ahead begins anew with
/// every page, and rows are often as long as that. Of 512 tokens of Qwen3-0.6B that saves an eighth of what these operators take beside their products.
template <class Ask, class Value>
MEGALITH_INLINE inline void pack_rows(bf16* packed, i64 count, i64 columns, Ask ask, Value value) {
  constexpr i64 kAhead = 2;
  const i64 row_elements = rows::tile_row_elements(columns), rest = columns % kColumns;
  for (i64 first = 0; first < count; first += kBlock) {
    const i64 block = block_rows(count - first);
    for (i64 r = 0; r < block; ++r) {
      bf16* to = packed + first * row_elements + r * kColumns;
      if (first + r >= count) {
        for (i64 k = 0; k < columns; k += kColumns, to += block * kColumns)
          for (i64 i = 0; i < kColumns; ++i) to[i] = {};
        continue;
      }
      const auto at = value(first + r);
      const i64 next = min(first + r + kAhead, count - 1);
      for (i64 k = 0; k + kColumns <= columns; k += kColumns, to += block * kColumns) {
        ask(next, k);
        f32 each[kColumns];
        MEGALITH_INDEPENDENT
        for (i64 i = 0; i < kColumns; ++i) each[i] = at(k + i);
        put_rounded(to, Lanes::load(each), Lanes::load(each + kLanes));
      }
      if (rest > 0)
        for (i64 i = 0; i < kColumns; ++i) put(to[i], i < rest ? at(columns - rest + i) : 0.0f);
    }
  }
}

/// Rows as pack_rows() leaves them, and room for the sums of two blocks with two panels.
struct Rows {
  const bf16* x;
  f32* sums;
  i64 count;
};

MEGALITH_INLINE inline int panels_at_a_time(const Rows&) { return kProductPanels; }

/// panel_rows() of kernels/cpu/panel_product.h for rows in tiles. Of what comes after the panels some is asked for with
/// every step: all at once it would come no faster. What is stored of a block happens beside the products of the next
/// one. Outputs of the same columns lie a row of the output apart, where no hardware looks ahead, and often a power of two:
/// ask(t, p) asks for where store(t, p, sums) writes, and for what it reads there, while the block is multiplied.
template <class Ask, class Store>
MEGALITH_INLINE inline void panel_rows(const Rows& rows, const Side<Panel<bf16>>& side, i64 K, Ask ask, Store store) {
  constexpr int kToL2 = 2;
  const i64 row_elements = rows::tile_row_elements(K), whole = K / kColumns * kColumns;
  const i64 num_blocks = (rows.count + kBlock - 1) / kBlock;
  const i64 lines = (kTile * sizeof(bf16) / 64 + num_blocks - 1) / num_blocks;  // of each panel, while a tile is used
  const i64 rows_a_step = whole > 0 ? (kBlock * kColumns + whole - 1) / whole : 0;
  // A panel that is left alone is multiplied twice, as in kernels/cpu/gemm.h.
  const bf16* panel[2];
  const u8* ahead[2];
  for (int p = 0; p < 2; ++p) {
    panel[p] = side.panels[p < side.count ? p : 0].weights;
    ahead[p] = side.next[p < side.count ? p : 0];
  }
  // Pairs of columns that are no whole tile.
  alignas(64) bf16 last[2][kTile];
  if (whole < K)
    for (int p = 0; p < 2; ++p)
      for (i64 i = 0; i < kTile; ++i)
        last[p][i] = i < (K - whole + 1) / 2 * 2 * kLanes ? panel[p][whole * kLanes + i] : bf16{};
  Registers registers;
  auto sums_of = [&](i64 first) MEGALITH_INLINE { return rows.sums + first % (2 * kBlock) * kSumStride; };
  auto block = [&](auto row_tiles, i64 first) MEGALITH_INLINE {
    constexpr int kRowTiles = row_tiles.value;
    const bf16* x = rows.x + first * row_elements;
    const i64 end = min(first + kBlock, rows.count);
    i64 asked = first;
    registers.template zero<kRowTiles>();
    for (i64 k = 0; k < whole; k += kColumns, x += kRowTiles * kTile) {
      for (i64 line = 0; line < lines; ++line)
        for (const u8*& at : ahead) {
          __builtin_prefetch(at, 0, kToL2);
          at += 64;
        }
      for (const i64 until = min(asked + rows_a_step, end); asked < until; ++asked)
        for (int p = 0; p < side.count; ++p) ask(asked, p);
      registers.template multiply_add<kRowTiles>(x, panel[0] + k * kLanes, panel[1] + k * kLanes);
    }
    if (whole < K) registers.template multiply_add<kRowTiles>(x, last[0], last[1]);
    registers.template store<kRowTiles>(sums_of(first));
  };
  for (i64 first = 0; first < rows.count + kBlock; first += kBlock) {
    if (first < rows.count)
      block_rows(rows.count - first) == kBlock ? block(Count<2>{}, first) : block(Count<1>{}, first);
    const f32* const sums = sums_of(first + kBlock);
    for (i64 r = max(first - kBlock, i64(0)); r < min(first, rows.count); ++r)
      for (int p = 0; p < side.count; ++p) store(r, p, sums + r % kBlock * kSumStride + p * kLanes);
  }
}

}  // namespace tiles

}  // namespace megalith::kernels
