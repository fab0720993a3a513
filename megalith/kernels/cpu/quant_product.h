// Products of rows of activations with panels of weights in int8, each weight read once for a few rows: the activations
// are whole numbers (kernels/cpu/digits.h), and so are the products and their sums over a block of columns.
//
// The sum of an output is formed in one order, however many rows there are and however rows of weights are cut into
// tasks: block after block, each a whole number rounded once, times its scale, added in a fused operation.
#pragma once

#include "megalith/kernels/cpu/digits.h"
#include "megalith/kernels/cpu/panel_product.h"

namespace megalith::kernels {

/// One panel of int8, and the panel of its scales, one for each row and `Group` columns.
template <class Scale, i64 Group>
struct QuantPanel {
  const i8* weights;
  const Scale* scales;
};

/// Rows that share a weight while it is in a register, beside two panels, and panels beside one row: 16 sums of digits
/// in 32 registers.
#if defined(__AVX512F__)
inline constexpr int kDigitRows = 2, kDigitPanels = 4;
#else
inline constexpr int kDigitRows = 1, kDigitPanels = 2;
#endif

/// to[r][p] = the sums of the 16 outputs of panel p for row r.
template <int Rows, int Panels, i64 K, i64 Group, class Scale>
MEGALITH_INLINE inline void quant_block(f32* to, const digits::Rows<K, Group>& rows, i64 row,
                                        const Side<QuantPanel<Scale, Group>>& side) {
  typedef digits::Rows<K, Group> Digits;
  constexpr i64 kBlock = Group < digits::kMaxColumns ? Group : digits::kMaxColumns;
  const i64 last_block = column_to_go_on(K, kLanes, kBlock);
  const i32* const words = rows.words + row * Digits::kRowWords;
  const digits::Block* const blocks = rows.blocks + row * Digits::kBlocks;
  Lanes total[Rows][Panels];
  for (auto& of_row : total)
    for (Lanes& one : of_row) one = Lanes::zero();
  // A number of columns that is known while compiling: blocks are short.
  auto block = [&](auto columns, i64 number, i64 begin, const Lanes(&scales)[Panels]) MEGALITH_INLINE {
    const i8* weights[Panels];
    const u8* asked[Panels];
    for (int p = 0; p < Panels; ++p) {
      weights[p] = side.panels[p].weights + begin * kLanes;
      asked[p] = begin < last_block ? reinterpret_cast<const u8*>(weights[p]) + kBytesAhead
                                    : side.next[p] + (begin - last_block) * kLanes;
    }
    digits::Sums sums[Rows][Panels];
    for (int r = 0; r < Rows; ++r)
      for (int p = 0; p < Panels; ++p) sums[r][p].begin(blocks[r * Digits::kBlocks + number]);
    for (i64 k = 0; k < columns.value; k += kQuad) {
      digits::Weights quad[Panels];
      for (int p = 0; p < Panels; ++p) {
        __builtin_prefetch(asked[p] + k * kLanes);
        quad[p] = digits::Weights::load(weights[p] + k * kLanes);
      }
      for (int r = 0; r < Rows; ++r) {
        const auto x = digits::Quad::load(words + r * Digits::kRowWords + (begin + k) / kQuad, Digits::kQuads);
        for (int p = 0; p < Panels; ++p) sums[r][p].add(quad[p], x);
      }
    }
    for (int r = 0; r < Rows; ++r) {
      const Lanes unit = Lanes::broadcast(blocks[r * Digits::kBlocks + number].unit);
      for (int p = 0; p < Panels; ++p) total[r][p].multiply_add(times(scales[p], unit), sums[r][p].value());
    }
  };
  auto group = [&](auto columns, i64 g, const Lanes(&scales)[Panels]) MEGALITH_INLINE {
    constexpr i64 kWhole = columns.value / kBlock, kRest = columns.value % kBlock;
    for (i64 b = 0; b < kWhole; ++b)
      block(Count<kBlock>{}, g * Digits::kBlocksOfGroup + b, g * Group + b * kBlock, scales);
    if constexpr (kRest > 0)
      block(Count<kRest>{}, g * Digits::kBlocksOfGroup + kWhole, g * Group + kWhole * kBlock, scales);
  };
  constexpr i64 kWhole = K / Group, kRest = K % Group;
  i64 g = 0;
  for (; g + 2 <= kWhole; g += 2) {
    Lanes even[Panels], odd[Panels];
    for (int p = 0; p < Panels; ++p) {
      const Scale* const at = side.panels[p].scales + g * kLanes;
      __builtin_prefetch(reinterpret_cast<const u8*>(at) + kBytesAhead);
      const LanePair scales = two_columns(at);
      even[p] = scales.even;
      odd[p] = scales.odd;
    }
    group(Count<Group>{}, g, even);
    group(Count<Group>{}, g + 1, odd);
  }
  auto last = [&](auto columns, bool second) MEGALITH_INLINE {
    Lanes scales[Panels];
    for (int p = 0; p < Panels; ++p) {
      const Scale* const at = side.panels[p].scales + (g - second) * kLanes;
      scales[p] = second ? two_columns(at).odd : one_column(at);
    }
    group(columns, g++, scales);
  };
  if constexpr (kWhole % 2 == 1) last(Count<Group>{}, false);
  if constexpr (kRest > 0) last(Count<kRest>{}, kWhole % 2 == 1);
  for (int r = 0; r < Rows; ++r)
    for (int p = 0; p < Panels; ++p) total[r][p].store(to + (r * Panels + p) * kLanes);
}

/// quant_block() of `count` rows, kDigitRows or 1; one function for all operators.
template <i64 K, i64 Group, class Scale>
MEGALITH_SHARED void quant_sums(f32* to, i64 count, const digits::Rows<K, Group>& rows, i64 row,
                                const Side<QuantPanel<Scale, Group>>& side) {
  if (count > 1)
    return for_count<2>(
        side.count, [&](auto panels) MEGALITH_INLINE { quant_block<kDigitRows, panels.value>(to, rows, row, side); });
  for_count<kDigitPanels>(side.count,
                          [&](auto panels) MEGALITH_INLINE { quant_block<1, panels.value>(to, rows, row, side); });
}

template <i64 K, i64 Group>
MEGALITH_INLINE inline int panels_at_a_time(const digits::Rows<K, Group>& rows) {
  return rows.count < kDigitRows && kDigitPanels > 2 ? kDigitPanels : kProductPanels;
}

/// panel_rows() of kernels/cpu/panel_product.h for rows of digits.
template <i64 K, i64 Group, class Scale, class Store>
MEGALITH_INLINE inline void panel_rows(const digits::Rows<K, Group>& rows, const Side<QuantPanel<Scale, Group>>& side,
                                       i64, Store store) {
  alignas(64) f32 sums[kDigitRows * kMaxPanels * kLanes];
  for (i64 t = 0, count = 0; t < rows.count; t += count) {
    count = rows.count - t >= kDigitRows ? kDigitRows : 1;
    quant_sums(sums, count, rows, t, side);
    for (i64 r = 0; r < count; ++r)
      for (int p = 0; p < side.count; ++p)
        store(t + r, p, static_cast<const f32*>(sums + (r * side.count + p) * kLanes));
  }
}

template <i64 K, i64 Group, class Scale>
MEGALITH_INLINE inline auto panels_of(const i8* weight, const Scale* scale) {
  return [=](i64 n) MEGALITH_INLINE {
    return QuantPanel<Scale, Group>{
        weight + n / kLanes * panel::panel_elements(K, panel::kQuad),
        scale + n / kLanes * panel::panel_elements((K + Group - 1) / Group, kTogether<Scale>)};
  };
}

}  // namespace megalith::kernels
