// The end of an iteration of a token loop over tables as a GPU's block works it out (scheduler/next_batch.cuh), on a block of
// the host's threads, against the CPU's: the same tables, through whole random runs.
#include <gtest/gtest.h>

#include <random>
#include <vector>

// What is __shared__ is a variable here, and a block has other lanes than another test's, so names are this file's own.
#define megalith megalith_next_batch_block
#define MEGALITH_BLOCK_WARPS 3
#define MEGALITH_BLOCK_LANES 4
#include "megalith/kernels/cuda/common/worker_config.cuh"
namespace megalith::kernels {
inline constexpr WorkerConfig kWorkerConfig = {.shared_bytes = 64 << 10, .area_bytes = 32 << 10, .stream_rows = 1};
}

#include "megalith/kernels/cuda/scheduler/next_batch.cuh"

namespace megalith::kernels {
__attribute__((aligned(1024))) u8 dynamic_shared[kWorkerConfig.shared_bytes];

namespace {

/// The operands of a `next_batch`, as MPK's scripts have them: tokens in i64.
template <int kRequests, int kSlots, int kRows, int kDraftTokens>
struct Loop {
  static constexpr i64 kText = 90, kPage = 8, kPages = kSlots * ((kText + kPage - 1) / kPage);
  static constexpr i64 N = kRequests, R = kSlots, T_largest = kRows, W = kRequests * kText, I = kSlots + 1, P = kPages,
                       V = kNextBatchSlot * kSlots + kNextBatchState;
  static constexpr f32 draft_tokens = kDraftTokens, draft_match = 2;
  struct Checks {
    static constexpr u32 slots = 0, step = 1, first_row = 2, prompt_length = 3, pages = 4, config = 5;
  };
  FaultNote faults{};  // of right data nobody notes one
  i64 *output, *tokens, *input;
  i32 *prompt_length, *config, *step, *slots, *first_row, *first_page, *pages, *last_length, *num_new, *stop;
  const u32* abort;

  std::vector<i64> wide = std::vector<i64>(kRows + W + kRows);
  std::vector<i32> narrow = std::vector<i32>(N + kNextBatchConfig + N + V + I + I + P + R + R + 1);
  u32 is_aborted = 0;

  Loop() : abort(&is_aborted) {
    output = wide.data(), tokens = output + kRows, input = tokens + W;
    prompt_length = narrow.data(), config = prompt_length + N, step = config + kNextBatchConfig, slots = step + N;
    first_row = slots + V, first_page = first_row + I, pages = first_page + I, last_length = pages + P;
    num_new = last_length + R, stop = num_new + R;
  }
  Loop(const Loop&) = delete;

  void begin(std::mt19937_64& random) {
    for (i64 n = 0; n < N; ++n) {
      prompt_length[n] = 1 + static_cast<i32>(random() % 30);
      step[n] = 0;
      for (i64 s = 0; s < kText; ++s) tokens[n * kText + s] = static_cast<i64>(random() % 3);
    }
    for (i64 i = 0; i < kNextBatchConfig; ++i) config[i] = -1;
    config[kLongest] = kText, config[kPageSize] = kPage, config[kPagesPerSlot] = kPages / kSlots,
    config[kVocabulary] = 9;
    config[kLastTokens] = 7;
    for (i64 v = 0; v < V; ++v) slots[v] = v < kSlots ? -1 : 0;
  }
  /// Drafts are right as a rule, and now and then a text ends.
  void draw(std::mt19937_64& random) {
    for (i64 row = 0; row < kRows; ++row)
      output[row] = row + 1 < kRows && random() % 4 != 0 ? input[row + 1] : static_cast<i64>(random() % 3);
    if (random() % 16 == 0) output[random() % kRows] = 7;
  }
};

template <int kRequests, int kSlots, int kRows, int kDraftTokens>
void expect_same_runs(int runs) {
  using Both = Loop<kRequests, kSlots, kRows, kDraftTokens>;
  Both wanted, given;
  std::mt19937_64 random(5);
  i32 num_accepted = 0, num_iterations = 0;
  by_block([&] {
    for (int run = 0; run < runs; ++run)
      for (bool is_first = true;; is_first = false) {
        if (thread() == 0) {
          if (is_first) wanted.begin(random);
          wanted.draw(random);
          given.wide = wanted.wide, given.narrow = wanted.narrow;
          next_batch(wanted);
        }
        block_sync();
        next_batch_by_block(given);
        block_sync();
        if (thread() == 0) {
          EXPECT_EQ(given.wide, wanted.wide);
          EXPECT_EQ(given.narrow, wanted.narrow);
        }
        block_sync();
        const bool is_over = wanted.stop[0] != 0 || ::testing::Test::HasFailure();
        if (thread() == 0 && is_over) {
          num_accepted += batch_state(wanted)[kAcceptedDrafts];
          num_iterations += batch_state(wanted)[kIterations];
        }
        block_sync();  // thread 0 goes on when all have looked
        if (is_over) break;
      }
  });
  EXPECT_GT(num_iterations, runs);
  EXPECT_EQ(num_accepted > runs, kDraftTokens > 0) << num_accepted;
}

TEST(NextBatchBlock, DoesWhatTheReferenceDoes) {
  expect_same_runs<5, 2, 6, 0>(3);
  expect_same_runs<1, 1, 1, 0>(3);
}

TEST(NextBatchBlock, FindsTheDraftsThatTheReferenceFinds) {
  expect_same_runs<1, 1, 8, 7>(6);
  expect_same_runs<5, 3, 9, 3>(4);
  expect_same_runs<4, 4, 40, 15>(4);
}

TEST(NextBatchBlock, DoesNothingAfterAnAbort) {
  Loop<1, 1, 4, 3> loop;
  std::mt19937_64 random(1);
  loop.begin(random);
  loop.is_aborted = 1;
  const std::vector<i32> before = loop.narrow;
  by_block([&] { next_batch_by_block(loop); });
  EXPECT_EQ(loop.narrow, before);
}

}  // namespace
}  // namespace megalith::kernels
