// In which order the rows of an iteration stand. Some requests have one row, a decode step as a rule, others several of
// their prompts. A task of attention has some of the rows that are side by side, and takes as long for a row of its own
// request as for many of another one, since it has to look at all the request's keys: with the single rows side by side
// a few tasks would have all the work. So single rows are spread: slices of batch::kSliceRows rows have a share of them
// each, in turns ahead of the others and behind them. Single rows wait for memory, where their keys are, and the others for
// tensor cores: so at any time some tasks want the one and some the other.
//
// Freestanding: shared by host and kernels.
#pragma once

#include "megalith/runtime/batch.h"

namespace megalith::kernels {

/// A row by its number among those of its kind.
struct NumberedRow {
  bool is_single;
  int number;
};

struct RowOrder {
  int singles = 0, others = 0;  // rows of requests that have one, and those of requests that have several

  constexpr int rows() const { return singles + others; }
  constexpr NumberedRow at(int row) const {
    if (singles == 0 || others == 0) return {others == 0, row};
    const int slice = row / batch::kSliceRows, single = row - first_single(slice), other = row - first_other(slice);
    return single >= 0 && single < singles_in(slice) ? NumberedRow{true, singles_before(slice) + single}
                                                     : NumberedRow{false, others_before(slice) + other};
  }
  constexpr int row_of_single(int number) const {
    if (others == 0) return number;
    int slice = number * slices() / singles;  // or one of those beside it
    while (singles_before(slice) > number) --slice;
    while (singles_before(slice + 1) <= number) ++slice;
    return first_single(slice) + number - singles_before(slice);
  }
  constexpr int row_of_other(int number) const {
    if (singles == 0) return number;
    int slice = number * slices() / others;
    while (others_before(slice) > number) --slice;
    while (others_before(slice + 1) <= number) ++slice;
    return first_other(slice) + number - others_before(slice);
  }

 private:
  constexpr int slices() const { return (rows() + batch::kSliceRows - 1) / batch::kSliceRows; }
  /// A slice's share, and more where there are no others left.
  constexpr int singles_before(int slice) const {
    if (slice >= slices()) return singles;
    const int share = slice * singles / slices(), rest = slice * batch::kSliceRows - others;
    return share > rest ? share : rest;
  }
  constexpr int others_before(int slice) const {
    return slice >= slices() ? others : slice * batch::kSliceRows - singles_before(slice);
  }
  constexpr int singles_in(int slice) const { return singles_before(slice + 1) - singles_before(slice); }
  static constexpr bool has_singles_first(int slice) { return slice % 2 == 0; }
  /// The rows where they begin in a slice.
  constexpr int first_single(int slice) const {
    return slice * batch::kSliceRows + (has_singles_first(slice) ? 0 : others_before(slice + 1) - others_before(slice));
  }
  constexpr int first_other(int slice) const {
    return slice * batch::kSliceRows + (has_singles_first(slice) ? singles_in(slice) : 0);
  }
};

}  // namespace megalith::kernels
