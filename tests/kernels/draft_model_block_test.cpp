// A draft model's bookkeeping as a GPU's block does it (scheduler/draft_model.cuh), on a block of the host's threads, against the
// CPU's, which operators/draft_model_operators_test.cpp holds against a plain reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

// What is __shared__ is a variable here, and a block has other lanes than another test's, so names are this file's own.
#define megalith megalith_draft_model_block
#define MEGALITH_BLOCK_WARPS 3
#define MEGALITH_BLOCK_LANES 4
#include "megalith/kernels/cuda/common/worker_config.cuh"
namespace megalith::kernels {
inline constexpr WorkerConfig kWorkerConfig = {.shared_bytes = 64 << 10, .area_bytes = 32 << 10, .stream_rows = 1};
}

#include "megalith/kernels/cuda/scheduler/draft_model.cuh"

namespace megalith::kernels {
__attribute__((aligned(1024))) u8 dynamic_shared[kWorkerConfig.shared_bytes];

namespace {

/// The operands of both operators.
struct DraftTables {
  static constexpr i64 N = 6, S = 30, T_largest = 40, D_largest = T_largest + N, B_largest = N, C = 4;
  static constexpr f32 step = 1, vocabulary = 90, draft_vocabulary = 80;
  struct Checks {
    static constexpr u32 row_request = 0, requests = 1, row_start = 2, drafter = 3;
  };
  FaultNote faults{};  // of right data nobody notes one
  i64 T = 0, B = 0;
  i32 *requests, *history, *row_request, *row_position, *row_start, *row_token, *draft_counts, *draft_token,
      *draft_request, *draft_position, *draft_start, *last_row, *drafter, *drafter_row, *best, *next_token,
      *next_request, *next_position, *next_start;
  std::vector<i32> values;

  DraftTables() {
    const std::pair<i32**, i64> tables[] = {{&requests, N * batch::kRequestFields},
                                            {&history, N * S},
                                            {&row_request, T_largest},
                                            {&row_position, T_largest},
                                            {&row_start, T_largest},
                                            {&row_token, T_largest},
                                            {&draft_counts, C},
                                            {&draft_token, D_largest},
                                            {&draft_request, D_largest},
                                            {&draft_position, D_largest},
                                            {&draft_start, D_largest},
                                            {&last_row, N},
                                            {&drafter, N},
                                            {&drafter_row, B_largest},
                                            {&best, B_largest},
                                            {&next_token, N},
                                            {&next_request, N},
                                            {&next_position, N},
                                            {&next_start, N}};
    i64 all = 0;
    for (const auto& [table, size] : tables) all += size;
    values.resize(static_cast<size_t>(all));
    i32* at = values.data();
    for (const auto& [table, size] : tables) *table = at, at += size;
  }
  DraftTables(const DraftTables&) = delete;

  void draw(std::mt19937_64& random) {
    const auto below = [&](i64 n) { return static_cast<i32>(random() % static_cast<u64>(n)); };
    for (i32& value : values) value = below(100);
    T = 0;
    for (i32 n = 0; n < N; ++n) {
      if (below(4) == 0) continue;
      i32* const fields = requests + n * batch::kRequestFields;
      const i32 length = 1 + below(20), drafts = below(C), start = drafts > 0 ? length - 1 : below(length),
                end = drafts > 0 ? length + drafts : start + 1 + below(std::min<i64>(length - start, 4));
      fields[batch::kState] = batch::kActive;
      fields[batch::kLength] = length;
      fields[batch::kDone] = end;
      fields[batch::kPrompt] = 1 + below(length);
      for (i32 position = start; position < end; ++position, ++T)
        row_request[T] = n, row_position[T] = position, row_start[T] = start;
    }
  }
};

TEST(DraftModelBlock, DoesWhatOneThreadDoes) {
  constexpr int kTimes = 100;
  DraftTables wanted, given;
  std::mt19937_64 random(3);
  i64 num_drafters = 0;
  by_block([&] {
    for (int i = 0; i < kTimes; ++i) {
      if (thread() == 0) {
        wanted.draw(random);
        given.values = wanted.values;
        given.T = wanted.T;
        draft_rows(wanted);
      }
      block_sync();
      draft_rows_by_block(given);
      block_sync();
      if (thread() == 0) {
        EXPECT_EQ(given.values, wanted.values) << i;
        given.B = wanted.B = wanted.draft_counts[2];
        num_drafters += wanted.B;
        draft_token(wanted);
      }
      block_sync();
      draft_token_by_block(given);
      block_sync();
      if (thread() == 0) { EXPECT_EQ(given.values, wanted.values) << i; }
      block_sync();
    }
  });
  EXPECT_GT(num_drafters, kTimes);
}

}  // namespace
}  // namespace megalith::kernels
