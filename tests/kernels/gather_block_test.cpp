// Rows picked out of activations that lie in blocks (kernels/row_blocks.h), on a block of the host's threads.
#include <gtest/gtest.h>

#include <vector>

// What is __shared__ is a variable here, and a block has other lanes than another test's, so names are this file's own.
#define megalith megalith_gather_block
#define MEGALITH_BLOCK_WARPS 2
#define MEGALITH_BLOCK_LANES 4
#include "megalith/kernels/cuda/common/worker_config.cuh"
namespace megalith::kernels {
inline constexpr WorkerConfig kWorkerConfig = {.shared_bytes = 96 << 10, .area_bytes = 48 << 10};
}

#include "megalith/kernels/cuda/rowwise/gather.cuh"

namespace megalith::kernels {
__attribute__((aligned(1024))) u8 dynamic_shared[kWorkerConfig.shared_bytes];

namespace {

/// So many rows at most.
template <i64 kRows>
struct Gather {
  static constexpr i64 H = 192, T_largest = kRows, R_largest = 3;
  struct Checks {
    static constexpr u32 rows = 1;
  };
  FaultNote faults;
  i64 T, R, r_begin, r_end;
  Blocked<const bf16, kRows, H> x;
  const i32* rows;
  bf16* y;
  Epoch epoch;
};

// Rows as few tokens have them, as tensor cores take them in registers, and as they read them out of shared memory.
using Sizes = ::testing::Types<Gather<4>, Gather<64>, Gather<512>>;
template <class Args>
class GatherBlock : public ::testing::Test {};
TYPED_TEST_SUITE(GatherBlock, Sizes);

TYPED_TEST(GatherBlock, FindsRowsThatLieInBlocks) {
  using Args = TypeParam;
  constexpr u32 T = Args::T_largest, H = Args::H;
  constexpr u16 kUntouched = 0xffff;
  constexpr u32 kFirstThatIsNoNumber = 0x7f80;
  const auto element = [](u32 row, u32 column) {
    return bf16{static_cast<u16>((row * H + column) % kFirstThatIsNoNumber)};
  };
  std::vector<bf16> x(T * H), y(3 * H, bf16{kUntouched});
  for (u32 row = 0; row < T; ++row)
    for (u32 column = 0; column < H; ++column) x[row_blocks::index(row, column, T)] = element(row, column);
  // One row fewer than there is room for.
  const std::vector<i32> rows = {T - 1, 0, 1};
  u32 task = 0;
  const Args args{{&task}, T, 2, 0, 3, {x.data()}, rows.data(), y.data(), {1, nullptr}};
  by_block([&] { gather_token_rows(args); });
  for (u32 r = 0; r < 3; ++r)
    for (u32 column = 0; column < H; ++column)
      ASSERT_EQ(y[r * H + column].bits, r == 2 ? kUntouched : element(static_cast<u32>(rows[r]), column).bits)
          << "row " << r << ", column " << column;
}

}  // namespace
}  // namespace megalith::kernels
