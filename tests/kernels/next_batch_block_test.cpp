// The end of an iteration of a token loop over tables as a GPU's block works it out (scheduler/next_batch.cuh, serve_batch.cuh), on
// a block of the host's threads, against the CPU's: the same tables and the same mail, through whole random runs.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

// What is __shared__ is a variable here, and a block has other lanes than another test's, so names are this file's own.
#define megalith megalith_next_batch_block
#define MEGALITH_BLOCK_WARPS 3
#define MEGALITH_BLOCK_LANES 4
#include "megalith/kernels/cuda/common/worker_config.cuh"
namespace megalith::kernels {
inline constexpr WorkerConfig kWorkerConfig = {.shared_bytes = 64 << 10, .area_bytes = 32 << 10, .stream_rows = 1};
}

#include "megalith/kernels/cuda/scheduler/serve_batch.cuh"

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
    static constexpr u32 slots = 0, step = 1, first_row = 2, prompt_length = 3, pages = 4, config = 5, tokens = 6;
  };
  FaultNote faults{};  // of right data nobody notes one
  i64 *output, *tokens, *input;
  i32 *prompt_length, *config, *step, *slots, *first_row, *first_page, *pages, *last_length, *num_new, *stop;
  i32 *mailbox, *inbox;
  const u32* abort;

  std::vector<i64> wide = std::vector<i64>(kRows + W + kRows);
  std::vector<i32> narrow = std::vector<i32>(N + kNextBatchConfig + N + V + I + I + P + R + R + 1);
  std::vector<i32> prompts = std::vector<i32>(W);
  std::vector<runtime::MailRecord> records = std::vector<runtime::MailRecord>(1024);
  std::vector<runtime::Command> commands = std::vector<runtime::Command>(64);
  runtime::Mailbox mail;
  u32 is_aborted = 0;

  Loop() : abort(&is_aborted) {
    output = wide.data(), tokens = output + kRows, input = tokens + W;
    prompt_length = narrow.data(), config = prompt_length + N, step = config + kNextBatchConfig, slots = step + N;
    first_row = slots + V, first_page = first_row + I, pages = first_page + I, last_length = pages + P;
    num_new = last_length + R, stop = num_new + R;
    mailbox = reinterpret_cast<i32*>(&mail), inbox = prompts.data();
    runtime::mailbox_init(&mail, records.data(), static_cast<u32>(records.size()));
    runtime::mailbox_serve(&mail, commands.data(), static_cast<u32>(commands.size()));
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

/// Requests come and are cancelled before an iteration, or once both wait for them; at last they are told that no more come.
template <int kSlots, int kRows, int kDraftTokens>
void expect_same_service(int iterations) {
  using Both = Loop<kSlots + 1, kSlots, kRows, kDraftTokens>;
  Both wanted, given;
  std::mt19937_64 random(6);
  wanted.begin(random);
  given.wide = wanted.wide, given.narrow = wanted.narrow;
  size_t num_begun = 0, num_cancelled = 0, num_idle = 0;
  bool is_over = false;
  std::thread host;
  std::atomic<bool> is_done{false};
  const auto begin = [&](u32 slot) {
    runtime::Command command{static_cast<u32>(runtime::CommandKind::begin), slot, {}};
    const i32 prompt = 1 + static_cast<i32>(random() % 30);
    command.fields[runtime::kServePrompt] = prompt;
    command.fields[runtime::kServeStep] = static_cast<i32>(random() % static_cast<u64>(prompt));
    command.fields[runtime::kServeLimit] = prompt + 1 + static_cast<i32>(random() % 20);
    for (i64 s = 0; s < prompt; ++s)
      wanted.inbox[slot * Both::kText + s] = given.inbox[slot * Both::kText + s] = static_cast<i32>(random() % 3);
    ++num_begun;
    return command;
  };
  by_block([&] {
    for (int iteration = 0; !is_over; ++iteration) {
      if (thread() == 0) {
        wanted.draw(random);
        given.wide = wanted.wide;
        EXPECT_EQ(given.narrow, wanted.narrow);
        wanted.mail.tail = wanted.mail.head, given.mail.tail = given.mail.head;
        const auto post = [&](const runtime::Command& command) {
          EXPECT_TRUE(runtime::command_post(&wanted.mail, command));
          EXPECT_TRUE(runtime::command_post(&given.mail, command));
        };
        if (iteration > iterations) {
          post({static_cast<u32>(runtime::CommandKind::end), 0, {}});
        } else {
          for (u32 slot = 0; slot < kSlots; ++slot) {
            const bool is_free = of_slot(wanted, kSlotRequest, slot) < 0;
            if (is_free && random() % 4 == 0) post(begin(slot));
            // It may have ended in the iteration before.
            if (!is_free && random() % 40 == 0) post({static_cast<u32>(runtime::CommandKind::cancel), slot, {}});
          }
        }
        is_done = false;
        host = std::thread([&, late = begin(0)] {
          for (bool has_posted[2] = {}; !is_done; std::this_thread::yield())
            for (Both* const loop : {&wanted, &given}) {
              bool& has = has_posted[loop == &given];
              if (has || runtime::load_relaxed(&loop->mail.kernel_idles) == 0) continue;
              has = true;
              num_idle += loop == &wanted;
              EXPECT_TRUE(runtime::command_post(&loop->mail, late));
            }
        });
        serve_batch(wanted);
      }
      block_sync();
      serve_batch_by_block(given);
      block_sync();
      if (thread() == 0) {
        is_done = true;
        host.join();
        EXPECT_EQ(given.wide, wanted.wide);
        EXPECT_EQ(given.narrow, wanted.narrow);
        EXPECT_EQ(given.mail.head, wanted.mail.head);
        EXPECT_EQ(given.mail.command_tail, wanted.mail.command_tail);
        for (u32 at = wanted.mail.tail; at != wanted.mail.head; ++at) {
          const runtime::MailRecord &a = given.records[at % 1024], &b = wanted.records[at % 1024];
          EXPECT_TRUE(a.request == b.request && a.token == b.token && a.kind == b.kind && a.reason == b.reason) << at;
          num_cancelled += b.reason == static_cast<u32>(batch::kCancelled);
        }
        is_over = wanted.stop[0] != 0 || ::testing::Test::HasFailure();
      }
      block_sync();
    }
  });
  EXPECT_GT(num_begun, static_cast<size_t>(iterations) / 20);
  EXPECT_GT(num_cancelled, 0u);
  EXPECT_GT(num_idle, 0u);
  EXPECT_EQ(batch_state(wanted)[kAcceptedDrafts] > 0, kDraftTokens > 0);
}

TEST(NextBatchBlock, ServesAsTheReferenceDoes) {
  expect_same_service<1, 4, 0>(300);
  expect_same_service<3, 9, 5>(300);
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
