// Where activations of many rows stand (kernels/row_blocks.h): each element once, and a lane's share of a
// multiplication side by side.
#include "megalith/kernels/row_blocks.h"

#include <gtest/gtest.h>

#include <vector>

namespace megalith {
namespace {

TEST(RowBlocks, HaveEachElementOnce) {
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>(16, 32), {48, 96}, {64, 256}, {144, 96}, {512, 64}}) {
    std::vector<int> times(static_cast<size_t>(rows * columns), 0);
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 0; column < columns; ++column)
        ++times.at(static_cast<size_t>(row_blocks::index(row, column, rows)));
    EXPECT_EQ(times, std::vector<int>(times.size(), 1)) << rows << " x " << columns;
  }
}

// The A operand of mma.m16n8k16 (PTX ISA section 9.7.14): four registers of two bf16 each, of rows g, g + 8, g, g + 8.
TEST(RowBlocks, HaveALanesRegistersSideBySide) {
  constexpr int64_t kRows = 32;
  for (int64_t m = 0; m < kRows / 16; ++m)
    for (int64_t step = 0; step < 2; ++step)
      for (int64_t lane = 0; lane < 32; ++lane) {
        const int64_t g = lane / 4, t = lane % 4, column = 64 + 8 * t + 4 * step;
        const int64_t first = row_blocks::index(16 * m + g, column, kRows);
        EXPECT_EQ(first % 8, 0);
        for (int64_t r = 0; r < 4; ++r)
          for (int64_t i = 0; i < 2; ++i)
            EXPECT_EQ(row_blocks::index(16 * m + g + r % 2 * 8, column + r / 2 * 2 + i, kRows), first + 2 * r + i);
        EXPECT_EQ(first, ((2 * (kRows / 16) + m) * 2 + step) * 256 + lane * 8) << "what a lane loads";
      }
}

// Core matrices of eight rows and 16 bytes (PTX ISA section 9.7.15.5.1), and places of columns as weights have them
// (kernels/gemm_layout.h).
TEST(RowBlocks, OfManyRowsAreWhatTensorCoresReadFromSharedMemory) {
  constexpr int64_t kRows = 256;
  for (int64_t row = 0; row < kRows; ++row)
    for (int64_t step = 0; step < 2; ++step)
      for (int64_t half = 0; half < 2; ++half)
        for (int64_t t = 0; t < 4; ++t)
          for (int64_t i = 0; i < 2; ++i) {
            const int64_t column = 64 + 8 * t + 4 * step + 2 * half + i;
            EXPECT_EQ(row_blocks::index(row, column, kRows),
                      2 * kRows * 32 + row / 8 * 256 + step * 128 + half * 64 + row % 8 * 8 + 2 * t + i);
          }
}

}  // namespace
}  // namespace megalith
