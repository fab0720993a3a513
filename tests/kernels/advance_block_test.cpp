// The end of an iteration as a GPU's block works it out (scheduler/advance.cuh), on a block of the host's threads,
// against the CPU's: the same batch block and the same records, through whole random generations.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

// What is __shared__ is a variable here, and a block has other lanes than another test's, so names are this file's own.
#define megalith megalith_advance_block
#define MEGALITH_BLOCK_WARPS 3
#define MEGALITH_BLOCK_LANES 4
#include "megalith/kernels/cuda/common/worker_config.cuh"
namespace megalith::kernels {
inline constexpr WorkerConfig kWorkerConfig = {.shared_bytes = 64 << 10, .area_bytes = 32 << 10, .stream_rows = 1};
}

#include "megalith/kernels/cuda/scheduler/advance.cuh"

namespace megalith::kernels {
__attribute__((aligned(1024))) u8 dynamic_shared[kWorkerConfig.shared_bytes];

namespace {

/// What a body leaves for the herald.
struct Task {
  mutable runtime::Mailbox* mail = nullptr;
  mutable u32 mail_head = 0;
};

/// The operands of an `advance`: more requests than a warp of the test has lanes. With fewer rows than requests it is one
/// of several kernels, and ends when more tokens wait.
template <int kRequests, int kRows, int kDrafts = 0, int kFreeRows = 0, bool kHasModel = false>
struct Batch {
  static constexpr i64 N = kRequests, S = 60, E = 3, T_largest = kRows,
                       R_largest = std::min<i64>(std::max<i64>(kRequests, 4 * kDrafts), kRows);
  static constexpr f32 draft_tokens = kDrafts, draft_match = 2, draft_rows = std::min<i64>(4 * kDrafts, kRows),
                       draft_free_rows = kFreeRows, draft_model = kHasModel ? 1 : 0;
  static constexpr i64 kSamples = std::max(N, R_largest);
  static constexpr u32 kRecords = 2048;
  static constexpr i32 kTokens = kDrafts > 0 ? 3 : 50;  // of which sequences are
  struct Checks {
    static constexpr u32 requests = 0, sample_request = 1;
  };
  FaultNote faults{};  // of right data nobody notes one
  i64 R = 0;
  i32 *token, *stop_tokens, *own_stops, *requests, *history, *counts, *row_token, *row_request, *row_position,
      *row_start, *sample_row, *sample_request, *mailbox, *stop, *top_token;
  f32 *logprob, *top_logprob;
  const u32* abort;
  const Task* task;

  std::vector<i32> all;  // all of the above, one behind the other
  std::vector<f32> logprobs = std::vector<f32>(kSamples);
  // What stands in a place of the tables says which one it is.
  std::vector<i32> top_tokens = std::vector<i32>(kSamples * batch::kMaxTop);
  std::vector<f32> top_logprobs = std::vector<f32>(kSamples * batch::kMaxTop);
  std::vector<runtime::MailRecord> records = std::vector<runtime::MailRecord>(kRecords);
  std::vector<runtime::Command> commands = std::vector<runtime::Command>(64);
  runtime::Mailbox mail;
  u32 is_aborted = 0;
  u64 wrong_of_four = 1;  // drafts
  Task task_;

  Batch() {
    constexpr i64 sizes[] = {kSamples,
                             E,
                             N * batch::kMaxOwnStops,
                             N * batch::kRequestFields,
                             N * S,
                             batch::kCountFields,
                             kRows,
                             kRows,
                             kRows,
                             kRows,
                             kSamples,
                             kSamples,
                             1};
    i32** const places[] = {&token,       &stop_tokens,  &own_stops, &requests,   &history,        &counts, &row_token,
                            &row_request, &row_position, &row_start, &sample_row, &sample_request, &stop};
    i64 total = 0;
    for (const i64 size : sizes) total += size;
    all.assign(static_cast<size_t>(total), -7);
    i32* at = all.data();
    for (size_t i = 0; i < std::size(sizes); at += sizes[i++]) *places[i] = at;
    logprob = logprobs.data();
    std::iota(top_tokens.begin(), top_tokens.end(), 0);
    std::iota(top_logprobs.begin(), top_logprobs.end(), 0.0f);
    top_token = top_tokens.data(), top_logprob = top_logprobs.data();
    runtime::mailbox_init(&mail, records.data(), static_cast<u32>(records.size()));
    mailbox = reinterpret_cast<i32*>(&mail);
    abort = &is_aborted;
    task = &task_;
  }
  Batch(const Batch&) = delete;

  /// Some are told of top tokens, and some how likely what they begin with is.
  static i32 flags_of(std::mt19937_64& random) {
    const u64 top = random() % 3 == 0 ? random() % (batch::kMaxTop + 1) : 0;
    const i32 of_prompt = random() % 3 == 0 ? batch::kPromptLogprobs : 0;
    const i32 without_drafts = random() % 8 == 0 ? batch::kNoDrafts : 0;
    return static_cast<i32>(random() % 4) | of_prompt | without_drafts | static_cast<i32>(top << batch::kTopShift);
  }
  i32& field(i64 n, int f) { return requests[n * batch::kRequestFields + f]; }
  /// Texts of all lengths, some with a prompt to work through, some places empty.
  void begin(std::mt19937_64& random) {
    const auto below = [&](i32 n) { return static_cast<i32>(random() % static_cast<u64>(n)); };
    for (i64 n = 0; n < N; ++n) {
      const bool is_busy = kRows >= kRequests;
      field(n, batch::kState) = is_busy == (below(5) == 0) ? batch::kEmpty : batch::kActive;
      field(n, batch::kLength) = 1 + below(40);
      field(n, batch::kDone) =
          is_busy || below(8) == 0 ? below(field(n, batch::kLength)) : field(n, batch::kLength) - 1;
      field(n, batch::kLimit) = field(n, batch::kLength) + 1 + below(15);
      field(n, batch::kReason) = batch::kNotFinished;
      field(n, batch::kFlags) = flags_of(random);
      for (i64 i = 0; i < batch::kMaxOwnStops; ++i)
        own_stops[n * batch::kMaxOwnStops + i] = i == 9 ? below(50 + kTokens) - kTokens : -1;
      field(n, batch::kPrompt) = field(n, batch::kLength);
      for (i64 s = 0; s < S; ++s) history[n * S + s] = below(kTokens);
    }
    counts[batch::kLeast] = below(3) == 0 ? below(kRows) : 0;
    counts[batch::kMaxWaiting] = kRows < kRequests || below(3) == 0 ? kRows : 1 << 30;
    wrong_of_four = below(3) == 0 ? 4 : 1;
    for (i64 e = 0; e < E; ++e) stop_tokens[e] = e == 0 ? -1 : below(50 + kTokens) - kTokens;
    draw(random);
  }
  /// A request of that many tokens at most for each of some places that nobody has, some of them in the middle, and some
  /// others' cancel or longer limit; or only a cancel of all.
  std::vector<runtime::Command> some_commands(std::mt19937_64& random, i32 longest, bool ends_all) const {
    std::vector<runtime::Command> some;
    for (u32 n = 0; n < N; ++n) {
      if (!ends_all && random() % 6 != 0) continue;
      runtime::Command command{static_cast<u32>(runtime::CommandKind::cancel), n, {}};
      if (!ends_all && requests[n * batch::kRequestFields + batch::kState] != batch::kActive) {
        command.kind = static_cast<u32>(runtime::CommandKind::begin);
        command.fields[batch::kState] = batch::kActive;
        command.fields[batch::kLength] = command.fields[batch::kPrompt] =
            1 + static_cast<i32>(random() % static_cast<u64>(longest));
        command.fields[batch::kLimit] = command.fields[batch::kLength] + 1 + static_cast<i32>(random() % 15);
        command.fields[batch::kFlags] = flags_of(random);
        if (random() % 3 == 0) {
          const i32 length = command.fields[batch::kLength];
          command.fields[batch::kPrompt] = 1 + static_cast<i32>(random() % static_cast<u64>(length));
          command.fields[batch::kDone] = static_cast<i32>(random() % static_cast<u64>(length));
          command.fields[batch::kLast] = 33;
        }
      } else if (!ends_all && random() % 2 == 0) {
        // It may be too late. A request whose limit is as it was ends there; another one behind it.
        command.kind = static_cast<u32>(runtime::CommandKind::extend);
        command.fields[batch::kLimit] =
            std::min(static_cast<i32>(S) - 1,
                     requests[n * batch::kRequestFields + batch::kLimit] + static_cast<i32>(random() % 8));
      }
      some.push_back(command);
    }
    return some;
  }
  void draw(std::mt19937_64& random) {
    for (i64 r = 0; r < kSamples; ++r) {
      token[r] = static_cast<i32>(random() % kTokens);
      logprob[r] = static_cast<f32>(r) - 3;
      // Drafts are right as a rule, in some generations never.
      const bool has_draft = r + 1 < counts[batch::kSamples] && sample_request[r] == sample_request[r + 1];
      if (has_draft && random() % 4 >= wrong_of_four) token[r] = row_token[sample_row[r + 1]];
    }
  }
};

template <int kRequests, int kRows, int kDrafts = 0, int kFreeRows = 0, bool kHasModel = false>
void expect_same_generations(int generations) {
  using Both = Batch<kRequests, kRows, kDrafts, kFreeRows, kHasModel>;
  Both wanted, given;
  std::mt19937_64 random(3);
  size_t num_ended = 0, num_left = 0;                  // requests; generations that another kernel would go on with
  size_t num_accepted = 0, num_top = 0, num_told = 0;  // drafts; top tokens; tokens of prompts
  size_t num_guessed = 0;                              // drafts that nobody worked on
  by_block([&] {
    for (int generation = 0; generation < generations; ++generation) {
      for (bool is_first = true;; is_first = false) {
        if (thread() == 0) {
          is_first ? wanted.begin(random) : wanted.draw(random);
          wanted.R = is_first ? 0 : wanted.counts[batch::kSamples];
          given.all = wanted.all, given.logprobs = wanted.logprobs, given.R = wanted.R;
          const u32 head = wanted.mail.head;
          wanted.mail.tail = given.mail.tail = head;
          advance(wanted);
          next_mail().is_known = generation % 2 == 0 ? 0 : next_mail().is_known;
        }
        block_sync();
        advance_by_block(given);
        block_sync();
        if (thread() == 0) {
          EXPECT_EQ(given.all, wanted.all);
          const u32 before = given.mail.head, head = wanted.mail.head;
          if (head != before) {
            EXPECT_EQ(given.task_.mail, &given.mail);
            EXPECT_EQ(given.task_.mail_head, head);
          }
          for (u32 at = before; at != head; ++at) {
            const runtime::MailRecord &a = given.records[at % Both::kRecords], &b = wanted.records[at % Both::kRecords];
            EXPECT_EQ(a.request, b.request);
            EXPECT_EQ(a.token, b.token);
            EXPECT_EQ(a.kind, b.kind);
            EXPECT_EQ(a.reason, b.reason);
            EXPECT_EQ(a.logprob, b.logprob);
            num_top += b.kind == static_cast<u32>(runtime::MailKind::top);
            num_told += b.kind == static_cast<u32>(runtime::MailKind::prompt);
            num_ended += b.kind == static_cast<u32>(runtime::MailKind::finished);
            num_accepted += b.kind == static_cast<u32>(runtime::MailKind::token) && b.reason == runtime::kAccepted;
          }
          for (i64 n = 0; n < Both::N; ++n) num_guessed += (wanted.field(n, batch::kFlags) & batch::kGuessed) != 0;
          given.mail.head = head;  // the herald's
        }
        block_sync();
        const bool is_over = wanted.counts[batch::kRows] == 0 || ::testing::Test::HasFailure();
        if (thread() == 0 && is_over) num_left += waiting_tokens(wanted) > 0;
        block_sync();  // thread 0 goes on when all have looked
        if (is_over) break;
      }
    }
  });
  EXPECT_GT(num_ended, static_cast<size_t>(generations) / 4);
  EXPECT_GT(num_left, 0u);
  EXPECT_LT(num_left, static_cast<size_t>(generations));
  EXPECT_GT(num_top, static_cast<size_t>(generations));
  if (kRows >= kRequests) { EXPECT_GT(num_told, static_cast<size_t>(generations) / 4); }  // others have few prompts
  EXPECT_EQ(num_accepted > static_cast<size_t>(generations), kDrafts > 0);
  EXPECT_EQ(num_guessed > 0, kDrafts > 0 && kFreeRows < 2 * kRequests && !kHasModel);
}

/// A run that serves: commands come before an iteration, or once the block waits for them.
template <int kRequests, int kRows>
void expect_same_service(int iterations) {
  using Both = Batch<kRequests, kRows>;
  Both wanted, given;
  std::mt19937_64 random(4);
  wanted.begin(random);
  for (i64 n = 0; n < Both::N; ++n) wanted.field(n, batch::kState) = batch::kEmpty;
  wanted.counts[batch::kLeast] = 0, wanted.counts[batch::kMaxWaiting] = 1 << 30;
  given.all = wanted.all;
  for (Both* const batch : {&wanted, &given})
    runtime::mailbox_serve(&batch->mail, batch->commands.data(), static_cast<u32>(batch->commands.size()));
  size_t num_begun = 0, num_extended = 0, num_cancelled = 0, num_idle = 0;
  std::thread host;
  std::atomic<bool> is_done{false};
  by_block([&] {
    for (int iteration = 0; iteration < iterations; ++iteration) {
      if (thread() == 0) {
        wanted.draw(random);
        wanted.R = iteration == 0 ? 0 : wanted.counts[batch::kSamples];
        given.all = wanted.all, given.logprobs = wanted.logprobs, given.R = wanted.R;
        wanted.mail.tail = given.mail.tail = wanted.mail.head;
        const auto post = [&](const std::vector<runtime::Command>& commands) {
          for (const runtime::Command& command : commands) {
            num_begun += command.kind == static_cast<u32>(runtime::CommandKind::begin);
            num_extended += command.kind == static_cast<u32>(runtime::CommandKind::extend);
            EXPECT_TRUE(runtime::command_post(&wanted.mail, command));
            EXPECT_TRUE(runtime::command_post(&given.mail, command));
          }
        };
        post(wanted.some_commands(random, 40, iteration % 10 == 0));
        // Where nothing is left to do both wait until there is.
        runtime::Command begins{
            static_cast<u32>(runtime::CommandKind::begin), static_cast<u32>(random() % Both::N), {}};
        begins.fields[batch::kState] = batch::kActive;
        begins.fields[batch::kLength] = begins.fields[batch::kPrompt] = 3;
        begins.fields[batch::kLimit] = 9;
        is_done = false;
        host = std::thread([&, begins] {
          for (bool has_posted[2] = {}; !is_done; std::this_thread::yield())
            for (Both* const batch : {&wanted, &given}) {
              bool& has = has_posted[batch == &given];
              if (has || runtime::load_relaxed(&batch->mail.kernel_idles) == 0) continue;
              has = true;
              num_idle += batch == &wanted;
              // The end of whoever was there is read before.
              batch->mail.tail = runtime::load_acquire(&batch->mail.head);
              EXPECT_TRUE(runtime::command_post(&batch->mail, begins));
            }
        });
        advance(wanted);
        next_mail().is_known = iteration % 7 == 0 ? 0 : next_mail().is_known;
      }
      block_sync();
      advance_by_block(given);
      block_sync();
      if (thread() == 0) {
        is_done = true;
        host.join();
        if (given.task_.mail != nullptr) given.mail.head = given.task_.mail_head;  // the signal warp's
        given.task_.mail = nullptr;
        EXPECT_EQ(given.all, wanted.all);
        EXPECT_EQ(given.mail.head, wanted.mail.head);
        EXPECT_EQ(given.mail.command_tail, wanted.mail.command_tail);
        EXPECT_EQ(given.mail.kernel_idles, 0u);
        for (u32 at = 0; at < Both::kRecords; ++at) {
          const runtime::MailRecord &a = given.records[at], &b = wanted.records[at];
          EXPECT_TRUE(a.request == b.request && a.token == b.token && a.kind == b.kind && a.reason == b.reason) << at;
          num_cancelled += iteration + 1 == iterations && b.reason == static_cast<u32>(batch::kCancelled);
        }
      }
      block_sync();
      if (::testing::Test::HasFailure()) break;
    }
  });
  EXPECT_GT(num_begun + num_idle, static_cast<size_t>(iterations) / 3);
  EXPECT_GT(num_cancelled, 0u);
  EXPECT_GT(num_extended, 0u);
  EXPECT_GE(num_idle, static_cast<size_t>(iterations) / 10);
}

/// What begins behind another kernel, whose load is its own or not, or which was aborted.
template <int kRequests, int kRows, int kDrafts = 0>
void expect_same_first_rows(int times) {
  using Both = Batch<kRequests, kRows, kDrafts>;
  Both wanted, given;
  std::mt19937_64 random(5);
  size_t num_begun = 0;
  by_block([&] {
    for (int i = 0; i < times; ++i) {
      static batch::LoadRange range;
      if (thread() == 0) {
        wanted.begin(random);
        const auto waiting = static_cast<i32>(waiting_tokens(wanted)), apart = static_cast<i32>(random() % 3);
        wanted.counts[batch::kWaiting] = waiting;
        wanted.counts[batch::kRows] = wanted.counts[batch::kSamples] = 0;
        wanted.stop[0] = random() % 4 != 0 ? 1 : 0;
        range = {waiting - apart, waiting + 1 - static_cast<i32>(random() % 3)};
        given.all = wanted.all;
        if (wanted.stop[0] != 0 && waiting > range.least && waiting <= range.most) {
          ++num_begun;
          wanted.counts[batch::kLeast] = range.least, wanted.counts[batch::kMaxWaiting] = range.most;
          const i32 rows = plan_rows(wanted);
          for (i32 row = 0; row < rows; ++row)
            wanted.row_token[row] = token_at(wanted, wanted.row_request[row], wanted.row_position[row]);
          wanted.stop[0] = rows > 0 ? 0 : 1;
        } else {
          wanted.stop[0] = 1;
        }
      }
      block_sync();
      take_over_by_block(given, range);
      block_sync();
      if (thread() == 0) { EXPECT_EQ(given.all, wanted.all) << i; }
      block_sync();
      if (::testing::Test::HasFailure()) break;
    }
  });
  EXPECT_GT(num_begun, static_cast<size_t>(times) / 8);
  EXPECT_LT(num_begun, static_cast<size_t>(times));
}

TEST(AdvanceBlock, LaysOutFirstRowsAsTheReferenceDoes) {
  expect_same_first_rows<11, 13>(60);
  expect_same_first_rows<1, 1>(60);
  expect_same_first_rows<4, 40, 5>(60);
}

TEST(AdvanceBlock, TakesCommandsAsTheReferenceDoes) {
  expect_same_service<11, 13>(60);
  expect_same_service<4, 40>(60);
}

TEST(AdvanceBlock, DoesWhatTheReferenceDoes) {
  expect_same_generations<11, 13>(20);
  expect_same_generations<11, 5>(40);
  expect_same_generations<1, 1>(30);
  expect_same_generations<4, 40>(10);
}

TEST(AdvanceBlock, FindsTheDraftsThatTheReferenceFinds) {
  expect_same_generations<1, 8, 7>(40);
  expect_same_generations<4, 40, 5>(30);
  expect_same_generations<3, 6, 2>(30);
  expect_same_generations<4, 40, 5, 8>(30);
  expect_same_generations<2, 8, 7, 4>(30);
  expect_same_generations<3, 16, 4, 0, true>(30);
}

}  // namespace
}  // namespace megalith::kernels
