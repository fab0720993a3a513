// Where the rows of an iteration stand.
#include "megalith/kernels/row_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace megalith::kernels {
namespace {

constexpr int kSlice = batch::kSliceRows;

TEST(RowOrder, EachRowHasAPlaceOfItsOwn) {
  for (int singles = 0; singles <= 3 * kSlice + 1; ++singles) {
    for (int others = singles == 0; others <= 3 * kSlice + 1; ++others) {
      const RowOrder order{singles, others};
      for (int row = 0; row < order.rows(); ++row) {
        const NumberedRow at = order.at(row);
        ASSERT_EQ(at.is_single ? order.row_of_single(at.number) : order.row_of_other(at.number), row);
        ASSERT_TRUE(at.number >= 0 && at.number < (at.is_single ? singles : others));
      }
    }
  }
}

TEST(RowOrder, RowsOfAKindKeepTheirOrder) {
  const RowOrder order{50, 200};
  for (int number = 1; number < 50; ++number) EXPECT_GT(order.row_of_single(number), order.row_of_single(number - 1));
  for (int number = 1; number < 200; ++number) EXPECT_GT(order.row_of_other(number), order.row_of_other(number - 1));
}

// A slice has one more than another at most, and has them first or last, as its neighbours do not: its others are side by side.
TEST(RowOrder, SinglesAreSpreadOverSlices) {
  const RowOrder order{63, 449};
  std::vector<int> singles(static_cast<size_t>(512 / kSlice));
  for (int row = 0; row < 512; ++row) {
    if (!order.at(row).is_single) continue;
    ++singles[static_cast<size_t>(row / kSlice)];
    const bool has_them_first = row / kSlice % 2 == 0;
    EXPECT_TRUE(row % kSlice == (has_them_first ? 0 : kSlice - 1) ||
                order.at(row + (has_them_first ? -1 : 1)).is_single)
        << row;
  }
  const auto [least, most] = std::ranges::minmax(singles);
  EXPECT_LE(most - least, 1);
}

TEST(RowOrder, OfOneKindTheyStandInOrder) {
  for (int row = 0; row < 100; ++row) {
    EXPECT_EQ((RowOrder{100, 0}.row_of_single(row)), row);
    EXPECT_EQ((RowOrder{0, 100}.row_of_other(row)), row);
  }
}

}  // namespace
}  // namespace megalith::kernels
