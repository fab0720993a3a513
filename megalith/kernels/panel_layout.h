// How weights lie in memory for the matrix products of a CPU (docs/cpu.md): in panels of 16 rows, one for each output
// feature and so one for each f32 lane of a register. Shared by the host, which packs, and the bodies that multiply.
//
// Within a panel stands column after column, and of each column the 16 rows side by side: a register's worth of weights
// is one load, and what it is multiplied with is one activation, broadcast. Of bf16 it is pairs of columns: 16 rows x 2
// columns = 64 bytes, as the dot products of pairs (vdpbf16ps) take them; of int8 it is quads, as those of bytes
// (vpdpbusd) do. A body reads its panels from end to end: a worker's rows are one run of memory.
//
//   element (n, k) of [rows, columns]:  panel n / 16, step k / 2, row n % 16, half k % 2      (bf16)
//                                       panel n / 16, step k / 4, row n % 16, quarter k % 4   (int8)
//                                       panel n / 16, step k,     row n % 16                  (f16, f32)
//
// Rows past the last and columns that fill up the last pair or quad are zeros: bodies read them and what comes out is
// not stored. A panel takes an odd number of steps, so that the same column of panels that are read side by side is not
// in the same set of a cache; what that leaves over is zeros, too. The first begins at a multiple of 64 bytes.
#pragma once

namespace megalith::panel {

/// Rows of a panel. Tasks are cut at multiples of it.
constexpr int kRows = 16;

/// Panels that are read side by side at most, whatever the machine.
inline constexpr int kMaxPanels = 8;

/// Columns that stand together for each row: 2 of bf16, 4 of int8, 1 of all others.
constexpr int kPair = 2, kQuad = 4, kSingle = 1;

constexpr long long panels(long long rows) { return (rows + kRows - 1) / kRows; }
constexpr long long steps(long long columns, int together) { return (columns + together - 1) / together; }
/// Elements of one panel, and of a matrix.
constexpr long long panel_elements(long long columns, int together) {
  return (steps(columns, together) | 1) * together * kRows;
}
constexpr long long elements(long long rows, long long columns, int together) {
  return panels(rows) * panel_elements(columns, together);
}
/// Where element (row, column) lies.
constexpr long long index(long long row, long long column, long long columns, int together) {
  return row / kRows * panel_elements(columns, together) + column / together * together * kRows +
         row % kRows * together + column % together;
}

/// Packs one panel: `from` is its first row, [rows, columns] with `rows` at most 16; `to` has panel_elements().
template <int Together, class Element>
void pack(Element* __restrict to, const Element* __restrict from, long long rows, long long columns) {
  const long long whole = columns / Together;
  long long s = 0;
  if (rows == kRows)
    for (; s < whole; ++s)
      for (int r = 0; r < kRows; ++r)
        __builtin_memcpy(to + (s * kRows + r) * Together, from + r * columns + s * Together,
                         Together * sizeof(Element));
  for (; s < (steps(columns, Together) | 1); ++s)
    for (int r = 0; r < kRows; ++r)
      for (int i = 0; i < Together; ++i) {
        const bool there = r < rows && s * Together + i < columns;
        to[(s * kRows + r) * Together + i] = there ? from[r * columns + s * Together + i] : Element{};
      }
}

}  // namespace megalith::panel
