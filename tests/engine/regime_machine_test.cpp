// Several kernels of one model, each for another number of tokens at a time, as one machine: the kernels of an engine,
// and machines that only count.
#include "megalith/engine/regime_machine.h"

#include <gmock/gmock.h>

#include <chrono>
#include <functional>
#include <numeric>
#include <set>
#include <thread>

#include "megalith/base/error.h"
#include "megalith/engine/batch_block.h"
#include "megalith/engine/engine.h"
#include "megalith/engine/token_stream.h"
#include "support/models.h"

namespace megalith::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr int64_t kRequests = 6;

/// Kernels of 2, 8 and 32 rows, or of 8 alone.
EngineOptions options_of(bool has_regimes) {
  EngineOptions options{.num_workers = 2};
  options.decoder = {.max_rows = 8, .max_requests = kRequests, .max_seq_len = 512};
  if (has_regimes) {
    options.regimes = {2};
    options.prompt_rows = 32;
  }
  return options;
}

Request request_of(int64_t length, int64_t new_tokens, int64_t seed = 1) {
  Request request{.max_new_tokens = new_tokens, .ignore_stop_tokens = true};
  for (int64_t i = 0; i < length; ++i) request.prompt.push_back(static_cast<int>((i * 37 + seed * 11) % 509));
  return request;
}

class RegimesOfAModel : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    one_ = new Engine(test::kStoryteller, options_of(false));
    three_ = new Engine(test::kStoryteller, options_of(true));
  }
  static void TearDownTestSuite() {
    delete std::exchange(one_, nullptr);
    delete std::exchange(three_, nullptr);
  }
  static std::vector<std::vector<int>> alone(const std::vector<Request>& requests) {
    std::vector<std::vector<int>> tokens;
    for (const Request& request : requests) tokens.push_back(one_->generate({request}).tokens[0]);
    return tokens;
  }

  static Engine *one_, *three_;
};
Engine *RegimesOfAModel::one_ = nullptr, *RegimesOfAModel::three_ = nullptr;

TEST_F(RegimesOfAModel, MakeTheSameTokensWhileTheLoadFalls) {
  EXPECT_THAT(three_->regimes(), ElementsAre(2, 8, 32));
  EXPECT_EQ(three_->decoder_options().max_rows, 8);
  EXPECT_EQ(three_->prompt_rows(), 32);
  EXPECT_EQ(three_->prompt_passes(64), 2);
  struct Case {
    std::vector<std::pair<int64_t, int64_t>> requests;  // tokens of the prompt, and made behind it
    std::vector<int64_t> regimes;
  };
  for (const Case& c : std::vector<Case>{
           {{{70, 9}, {3, 30}, {40, 20}, {1, 4}, {11, 25}, {90, 16}}, {32, 8, 2}},
           {{{1, 5}, {1, 9}, {1, 20}, {2, 6}, {1, 12}, {1, 3}}, {8, 2}},
           {{{20, 5}}, {32, 2}},
           {{{5, 9}}, {8, 2}},
           {{{2, 5}}, {2}},
           {{{33, 6}, {1, 1}}, {32, 2}},
           {{{100, 1}, {33, 1}}, {32, 8}},  // what a prompt leaves over
       }) {
    std::vector<Request> requests;
    for (const auto& [length, tokens] : c.requests)
      requests.push_back(request_of(length, tokens, static_cast<int64_t>(requests.size())));
    const Generation found = three_->generate(requests);
    EXPECT_EQ(found.tokens, alone(requests)) << c.requests[0].first;
    EXPECT_EQ(found.regimes, c.regimes) << c.requests[0].first;
    EXPECT_FALSE(found.cancelled);
    for (size_t r = 0; r < requests.size(); ++r) {
      EXPECT_EQ(found.tokens[r].size(), static_cast<size_t>(requests[r].max_new_tokens));
      EXPECT_EQ(found.reasons[r], batch::kLengthLimit);
      EXPECT_TRUE(std::ranges::is_sorted(found.token_ms[r]));
    }
  }
}

// Sampled, with penalties: what the kernels know of a sequence they have from each other.
TEST_F(RegimesOfAModel, DrawTheSameTokens) {
  std::vector<Request> requests;
  for (int64_t r = 0; r < kRequests; ++r) {
    requests.push_back(request_of(5 + 7 * r, 10 + 6 * r, r));
    requests.back().sampling = {.temperature = 1, .top_k = 40, .repetition_penalty = 1.1f, .seed = 5};
    requests.back().logprobs = true;
  }
  const Generation found = three_->generate(requests), wanted = one_->generate(requests);
  EXPECT_EQ(found.tokens, wanted.tokens);
  EXPECT_EQ(found.logprobs, wanted.logprobs);
  EXPECT_THAT(found.regimes, ElementsAre(32, 8, 2));
  EXPECT_THAT(wanted.regimes, ElementsAre(8));
}

TEST_F(RegimesOfAModel, CanBeCancelledInEach) {
  std::vector<Request> requests;
  for (int64_t r = 0; r < kRequests; ++r) requests.push_back(request_of(200, r < 2 ? 300 : 200, r));
  const std::vector<std::vector<int>> wanted = alone(requests);
  std::set<int64_t> cut_in;
  // Before the first token; while six sequences go on; while two do.
  for (const size_t after : {0, 1, 200, 1250, 1300}) {
    TokenStream stream(*three_, requests);
    stream.start();
    size_t made = 0;
    while (made < after) {
      const auto event = stream.next();
      ASSERT_TRUE(event);
      made += !event->finished;
    }
    three_->cancel();
    while (stream.next()) continue;
    const Generation cut = stream.finish();
    if (cut.cancelled) cut_in.insert(cut.regimes.back());
    for (size_t r = 0; r < requests.size(); ++r) {
      ASSERT_LE(cut.tokens[r].size(), wanted[r].size());
      EXPECT_TRUE(std::equal(cut.tokens[r].begin(), cut.tokens[r].end(), wanted[r].begin())) << after;
    }
  }
  EXPECT_THAT(cut_in, ElementsAre(2, 8, 32));
  EXPECT_EQ(three_->generate(requests).tokens, wanted) << "the next run begins anew";
}

// A kernel that has ended while nobody read its mail.
TEST_F(RegimesOfAModel, KeepTheMailWhenTheyChange) {
  std::vector<Request> requests;
  for (int64_t r = 0; r < kRequests; ++r) requests.push_back(request_of(4, 3 + 4 * r, r));
  const std::vector<std::vector<int>> wanted = alone(requests);
  TokenStream stream(*three_, requests);
  stream.start();
  std::vector<std::vector<int>> found(requests.size());
  for (int pause = 0;; ++pause) {
    if (pause < 12) std::this_thread::sleep_for(std::chrono::milliseconds(40));
    const auto event = stream.next();
    if (!event) break;
    if (!event->finished) found[static_cast<size_t>(event->request)].push_back(event->token);
  }
  EXPECT_EQ(found, wanted);
  EXPECT_THAT(stream.finish().regimes, ElementsAre(32, 8, 2));
}

TEST_F(RegimesOfAModel, AreOneWhileTasksAreRecorded) {
  const std::vector<Request> requests = {request_of(40, 4), request_of(3, 9)};
  three_->profile(16);
  const Generation found = three_->generate(requests);
  EXPECT_THAT(found.regimes, ElementsAre(8));
  EXPECT_EQ(found.tokens, alone(requests));
  EXPECT_GT(three_->profile_take().workers.size(), 0u);
  three_->profile(0);
  EXPECT_THAT(three_->generate(requests).regimes, ElementsAre(32, 2));
}

TEST(RegimeOptions, NameWhatIsWrong) {
  const auto make = [](std::vector<int64_t> regimes, int64_t max_rows = 8) {
    return [=] {
      EngineOptions options = options_of(false);
      options.decoder.max_rows = max_rows;
      options.regimes = regimes;
      Engine(test::kStoryteller, options);
    };
  };
  EXPECT_THAT(make({8}),
              ThrowsMessage<UserError>(HasSubstr("--regimes has a kernel of 8 tokens at a time, want 1 to 7: "
                                                 "fewer than the 8 of the one that holds every sequence")));
  EXPECT_THAT(make({2, 0}), ThrowsMessage<UserError>(HasSubstr("--regimes has a kernel of 0 tokens")));
  EXPECT_THAT(make({2, 4, 2}), ThrowsMessage<UserError>(HasSubstr("two kernels of 2 tokens at a time")));
  EXPECT_THAT(make({}, 5),
              ThrowsMessage<UserError>(HasSubstr("--max-batched-tokens is 5, want 6 (one token per request)")));
}

/// A kernel that makes no sums: each iteration takes in a token of every request that is sampled, and ends the run where
/// `advance` would.
class CountingMachine : public Machine {
 public:
  struct Run {
    const graph::Graph& graph;
    MemoryMap& memory;
    runtime::RowTables tables;
    std::vector<std::vector<int32_t>> tokens;  // that the rows of each iteration had, in order
    int iteration = 0;
    std::function<void(int)> arrive = [](int) {};  // before the end of each iteration
    std::string failure;
    std::function<void(int64_t)> starts = [](int64_t) {};  // of so many rows, before it does
    bool can_follow = false;
    int followed = 0, passed = 0;  // launched behind another one, and those whose turn it was not
  };
  CountingMachine(Run& run, int64_t rows) : run_(run), rows_(rows) {}

  void send(const std::string&, int64_t, int64_t) override {}
  bool post(const runtime::Command&) override { return false; }
  void start(const std::vector<std::string>&, RunKind) override {
    run_.starts(rows_);
    is_cancelled_ = false;
    has_worked_ = true;
    run_.tables.max_rows = rows_;
    work();
  }
  bool follow(LoadRange range) override {
    EXPECT_TRUE(!std::exchange(is_behind_, true));
    range_ = range;
    is_cancelled_ = false;
    run_.followed += run_.can_follow;
    return is_behind_ = run_.can_follow;
  }
  // What a GPU does by itself.
  void attend() override {
    EXPECT_TRUE(std::exchange(is_behind_, false));
    runtime::RowTables& tables = run_.tables;
    const int32_t waiting = tables.counts[batch::kWaiting];
    has_worked_ = waiting > range_.least && waiting <= range_.most && tables.counts[batch::kRows] == 0;
    run_.passed += !has_worked_;
    if (!has_worked_) return;
    tables.counts[batch::kLeast] = range_.least;
    tables.counts[batch::kMaxWaiting] = range_.most;
    tables.max_rows = rows_;
    runtime::lay_out_first_rows(tables);
    work();
  }
  bool has_worked() const override { return has_worked_; }
  bool finished() override { return true; }
  runtime::RunEnd wait() override {
    EXPECT_FALSE(is_behind_) << "nobody looks after it";
    if (!run_.failure.empty()) throw UserError(run_.failure);
    return is_cancelled_ ? runtime::RunEnd::cancelled : runtime::RunEnd::finished;
  }
  void cancel() noexcept override { is_cancelled_ = true; }
  bool take(runtime::MailRecord*) override { return false; }
  bool take_now(runtime::MailRecord*) override { return false; }
  void profile(uint32_t) override {}
  runtime::Profile profile_take() override { return {}; }
  void fetch(const std::string&) override {}

 private:
  void work() {
    runtime::RowTables& tables = run_.tables;
    while (tables.counts[batch::kRows] > 0) {
      ASSERT_LE(tables.counts[batch::kRows], rows_);
      run_.tokens.emplace_back(tables.row_token, tables.row_token + tables.counts[batch::kRows]);
      for (int32_t s = 0; s < tables.counts[batch::kSamples]; ++s) {
        int32_t* fields = tables.requests + tables.sample_request[s] * batch::kRequestFields;
        fields[batch::kLast] = 1000 + fields[batch::kLength];  // and nowhere else: a GPU keeps its texts
        if (++fields[batch::kLength] >= fields[batch::kLimit]) fields[batch::kState] = batch::kFinished;
      }
      run_.arrive(run_.iteration++);
      const int64_t waiting = runtime::tokens_waiting(tables);
      tables.counts[batch::kRows] = 0;
      tables.counts[batch::kWaiting] = static_cast<int32_t>(waiting);
      if (waiting > tables.counts[batch::kLeast] && waiting <= tables.counts[batch::kMaxWaiting])
        runtime::lay_out_first_rows(tables);
    }
  }

  Run& run_;
  int64_t rows_;
  LoadRange range_;
  bool is_cancelled_ = false, has_worked_ = true, is_behind_ = false;
};

class CountingRegimes : public ::testing::Test {
 protected:
  CountingRegimes()
      : config_(config_read(test::kTinyModel)),
        options_(DecoderOptions{.max_rows = 32, .max_requests = kRequests, .max_seq_len = 128}.resolved(config_)),
        graph_(build_decoder(config_, options_)) {
    memory_.bind_states(graph_);
    run_ =
        std::make_unique<CountingMachine::Run>(CountingMachine::Run{graph_, memory_, row_tables(graph_, memory_), {}});
    std::vector<RegimeMachine::Kernel> kernels;
    for (const int64_t rows : {2, 8, 32}) kernels.push_back({rows, std::make_unique<CountingMachine>(*run_, rows)});
    machine_ = std::make_unique<RegimeMachine>(std::move(kernels), 1, graph_, memory_);
  }
  void begin(const std::vector<Request>& requests) {
    batch_block_fill_requests(graph_, options_, {}, requests, memory_);
    machine_->start({});
  }
  int32_t* fields(int64_t request) { return run_->tables.requests + request * batch::kRequestFields; }

  ModelConfig config_;
  DecoderOptions options_;
  graph::Graph graph_;
  MemoryMap memory_;
  std::unique_ptr<CountingMachine::Run> run_;
  std::unique_ptr<RegimeMachine> machine_;
};

// Whether a kernel is launched behind another one or when that one has ended.
class FollowingRegimes : public CountingRegimes, public ::testing::WithParamInterface<bool> {
 protected:
  FollowingRegimes() { run_->can_follow = GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(CanFollow, FollowingRegimes, ::testing::Bool());

TEST_P(FollowingRegimes, WorkOnEveryTokenOnce) {
  int starts = 0;
  run_->starts = [&](int64_t) { ++starts; };
  begin({{.prompt = {10, 11, 12}, .max_new_tokens = 3}, {.prompt = {20}, .max_new_tokens = 1}});
  EXPECT_EQ(machine_->wait(), runtime::RunEnd::finished);
  EXPECT_THAT(machine_->worked(), ElementsAre(8, 2));
  EXPECT_THAT(run_->tokens, ElementsAre(ElementsAre(20, 10, 11, 12), ElementsAre(1003), ElementsAre(1004)));
  EXPECT_EQ(starts, GetParam() ? 1 : 2);
  EXPECT_EQ(run_->followed, GetParam() ? 1 : 0);
  EXPECT_EQ(run_->passed, 0);
}

// Of a prompt whose log-probabilities are asked for an iteration takes as many tokens as are sampled at a time: a kernel for
// more would be no faster.
TEST_P(FollowingRegimes, CountNoMoreOfAPromptThanIsSampledAtATime) {
  std::vector<int> prompt(30);
  std::iota(prompt.begin(), prompt.end(), 10);
  begin({{.prompt = prompt, .max_new_tokens = 2, .prompt_logprobs = 0}});
  EXPECT_EQ(machine_->wait(), runtime::RunEnd::finished);
  EXPECT_EQ(machine_->worked().front(), 8);
  for (const std::vector<int32_t>& tokens : run_->tokens) EXPECT_LE(tokens.size(), static_cast<size_t>(kRequests));
}

// As when requests come while a kernel runs: up for their prompts, more of them than the kernel has rows, and down again.
TEST_P(FollowingRegimes, ChangeInBothDirections) {
  run_->arrive = [&](int iteration) {
    const auto add = [&](int64_t n, int length, int tokens) {
      int32_t* const of = fields(n);
      of[batch::kState] = batch::kActive, of[batch::kLength] = of[batch::kPrompt] = length, of[batch::kDone] = 0;
      of[batch::kLimit] = length + tokens;
      for (int i = 0; i < length; ++i)
        run_->tables.history[n * run_->tables.history_length + i] = 100 * static_cast<int>(n) + i;
    };
    if (iteration == 2) add(1, 38, 2);
    if (iteration == 8)
      for (int64_t n = 2; n < 6; ++n) add(n, 1, 1);
  };
  begin({{.prompt = {7}, .max_new_tokens = 12}});
  EXPECT_EQ(machine_->wait(), runtime::RunEnd::finished);
  EXPECT_THAT(machine_->worked(), ElementsAre(2, 32, 8, 2, 8, 2));
  ASSERT_EQ(run_->tokens.size(), 12u);
  EXPECT_THAT(run_->tokens[2], ElementsAre(1002));
  ASSERT_EQ(run_->tokens[3].size(), 32u);
  EXPECT_EQ(run_->tokens[3][0], 1003);
  EXPECT_EQ(run_->tokens[3][1], 100);
  EXPECT_THAT(run_->tokens[4], ElementsAre(1004, 131, 132, 133, 134, 135, 136, 137));
  EXPECT_THAT(run_->tokens[5], ElementsAre(1005, 1038));
  EXPECT_THAT(run_->tokens[9], ElementsAre(1009, 200, 300, 400, 500));
}

// What was not foreseen another one begins with.
TEST_P(FollowingRegimes, PassOnWhatIsAnothersLoad) {
  run_->arrive = [&](int iteration) {
    for (int64_t n = 1; n < 6 && iteration == 0; ++n) {
      int32_t* const of = fields(n);
      of[batch::kState] = batch::kActive, of[batch::kLength] = of[batch::kPrompt] = 1, of[batch::kDone] = 0;
      of[batch::kLimit] = 3;
    }
  };
  begin({{.prompt = std::vector<int>(20, 7), .max_new_tokens = 6}});
  EXPECT_EQ(machine_->wait(), runtime::RunEnd::finished);
  EXPECT_THAT(machine_->worked(), ElementsAre(32, 8, 2));
  EXPECT_EQ(run_->passed, GetParam() ? 1 : 0);
}

// Those that were launched behind a kernel are waited for when the run ends with it.
TEST_P(FollowingRegimes, EndWithTheRun) {
  run_->failure = "something is wrong";
  begin({{.prompt = std::vector<int>(20, 7), .max_new_tokens = 6}});
  EXPECT_THAT([&] { machine_->wait(); }, ThrowsMessage<UserError>("something is wrong"));
  run_->failure.clear();
  begin({{.prompt = std::vector<int>(20, 7), .max_new_tokens = 6}});
  EXPECT_EQ(machine_->wait(), runtime::RunEnd::finished);
}

// A kernel's start forgets a cancel that comes just before it; their machine does not.
TEST_F(CountingRegimes, AreCancelledWhileOneStarts) {
  const Request request{.prompt = {1, 2, 3}, .max_new_tokens = 20};
  run_->starts = [&](int64_t rows) {
    if (rows == 2) machine_->cancel();
  };
  begin({request});
  EXPECT_EQ(machine_->wait(), runtime::RunEnd::cancelled);
  EXPECT_THAT(machine_->worked(), ElementsAre(8, 2));
  run_->starts = [](int64_t) {};
  begin({request});
  EXPECT_EQ(machine_->wait(), runtime::RunEnd::finished);
}

TEST_F(CountingRegimes, ThrowWhatAKernelFoundWhenTheyAreWaitedFor) {
  run_->failure = "something is wrong";
  begin({{.prompt = {1, 2, 3, 4}}});
  EXPECT_TRUE(machine_->finished());
  EXPECT_TRUE(machine_->finished());
  EXPECT_THAT([&] { machine_->wait(); }, ThrowsMessage<UserError>("something is wrong"));
  run_->failure.clear();
  begin({{.prompt = {1}, .max_new_tokens = 1}});
  EXPECT_EQ(machine_->wait(), runtime::RunEnd::finished);
}

}  // namespace
}  // namespace megalith::engine
