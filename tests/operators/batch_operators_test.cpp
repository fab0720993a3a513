// The two operators of a decoder that no loop kernel can say, against their plain references: sampling on thousands of
// rows, advance through whole random generations.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "megalith/ops/registry.h"
#include "megalith/optimize/schedule.h"
#include "megalith/runtime/batch.h"
#include "megalith/runtime/mailbox.h"
#include "support/sampling_cases.h"

namespace megalith {
namespace {

using graph::TensorId;

TEST(Sampling, DrawsWhatTheReferenceDraws) {
  testing::expect_sampling_is_right(
      333, [](const graph::Graph& graph, testing::GraphMemory& memory) { testing::run_compiled(graph, memory, 2); });
}

TEST(Sampling, FollowsTheDistribution) {
  // 4 tokens with weights 1:2:3:4, and many counters of one seed.
  constexpr int64_t kRows = 20000, kVocab = 4;
  const graph::Graph graph = testing::sampling_graph(kRows, kVocab);
  testing::GraphMemory memory(graph);
  auto* logits = static_cast<float*>(memory.address("logits"));
  for (int64_t r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVocab; ++v) logits[r * kVocab + v] = std::log(static_cast<float>(v + 1));
    static_cast<int32_t*>(memory.address("best"))[r] = 3;
    static_cast<int32_t*>(memory.address("sample_request"))[r] = static_cast<int32_t>(r);
    static_cast<int32_t*>(memory.address("requests"))[r * batch::kRequestFields + batch::kLength] =
        static_cast<int32_t>(r);
    static_cast<float*>(memory.address("sampling_f32"))[r * batch::kSamplingFloats + batch::kTemperature] = 1;
    static_cast<float*>(memory.address("sampling_f32"))[r * batch::kSamplingFloats + batch::kTopP] = 1;
  }
  testing::run_compiled(graph, memory, 1);
  double count[kVocab] = {};
  for (double token : memory.array("token").values) count[static_cast<int>(token)] += 1;
  for (int v = 0; v < kVocab; ++v) {
    const double p = (v + 1) / 10.0, sigma = std::sqrt(p * (1 - p) / kRows);
    EXPECT_NEAR(count[v] / kRows, p, 5 * sigma) << "token " << v;
  }
}

// The end of the run: no token waits any longer, or so few or so many do that another kernel goes on.
struct Range {
  int least, most, draft_tokens = 0, free_rows = 0;
  bool tells = false;      // some requests how likely their prompts are
  bool has_model = false;  // that makes drafts
};
class Advance : public ::testing::TestWithParam<Range> {};

TEST_P(Advance, LaysOutTheSameRowsAsTheReference) {
  constexpr int64_t kRequests = 5, kRows = 9, kLength = 40;
  constexpr int kTop = 3;  // of the last request
  const int drafts = GetParam().draft_tokens;
  const int64_t num_samples = drafts > 0 ? kRows : kRequests, num_tokens = drafts > 0 ? 3 : 100;
  graph::Graph graph(ops::builtin(), "advance");
  const TensorId counts = graph.state("counts", DType::i32, {batch::kCountFields});
  graph.dynamic_size("rows", counts, batch::kRows);
  graph.dynamic_size("samples", counts, batch::kSamples);
  const graph::Dim rows(kRows, "rows"), samples(num_samples, "samples");
  std::vector<TensorId> inputs = {graph.state("token", DType::i32, {samples}),
                                  graph.state("logprob", DType::f32, {samples}),
                                  graph.state("top_token", DType::i32, {samples, graph::Dim(batch::kMaxTop)}),
                                  graph.state("top_logprob", DType::f32, {samples, graph::Dim(batch::kMaxTop)}),
                                  graph.state("stop_tokens", DType::i32, {3}),
                                  graph.state("own_stops", DType::i32, {kRequests, batch::kMaxOwnStops}),
                                  graph.state("requests", DType::i32, {kRequests, batch::kRequestFields}),
                                  graph.state("history", DType::i32, {kRequests, kLength}),
                                  counts,
                                  graph.state("row_token", DType::i32, {rows}),
                                  graph.state("row_request", DType::i32, {rows}),
                                  graph.state("row_position", DType::i32, {rows}),
                                  graph.state("row_start", DType::i32, {rows}),
                                  graph.state("sample_row", DType::i32, {samples}),
                                  graph.state("sample_request", DType::i32, {samples}),
                                  graph.state("mailbox", DType::i32, {sizeof(runtime::Mailbox) / 4}),
                                  graph.state("stop", DType::i32, {1})};
  graph.add("advance", "advance", inputs,
            {.attributes = {{"draft_tokens", drafts},
                            {"draft_match", 2},
                            {"draft_rows", kRows},
                            {"draft_free_rows", GetParam().free_rows},
                            {"draft_model", GetParam().has_model}}});
  graph.set_gate("advance", graph.find("stop"));

  testing::GraphMemory memory(graph);
  std::mt19937_64 random(5);
  std::vector<double> token(kRequests, 0);
  std::vector<double> requests(kRequests * batch::kRequestFields, 0),
      history = testing::random_values(kRequests * kLength, DType::i32, static_cast<double>(num_tokens), random);
  for (int64_t n = 0; n < kRequests; ++n) {
    double* fields = requests.data() + n * batch::kRequestFields;
    fields[batch::kState] = n == 3 ? batch::kEmpty : batch::kActive;
    fields[batch::kLength] = static_cast<double>(1 + random() % 25);
    fields[batch::kLimit] = fields[batch::kLength] + static_cast<double>(1 + random() % 12);
    const int of_prompt = GetParam().tells && n % 2 == 0 ? batch::kPromptLogprobs : 0;
    fields[batch::kFlags] = of_prompt | (n == 1   ? batch::kIgnoreStop | batch::kNoDrafts
                                         : n == 4 ? batch::kOwnStops | kTop << batch::kTopShift
                                                  : 0);
    fields[batch::kPrompt] = fields[batch::kLength];
    if (n != 2) continue;
    // It goes on from tokens that it has made elsewhere.
    fields[batch::kLength] = 20, fields[batch::kLimit] = 30;
    fields[batch::kPrompt] = 5, fields[batch::kDone] = 3;
    fields[batch::kLast] = history[static_cast<size_t>(n * kLength) + 19];
  }
  const double least = GetParam().least, most = GetParam().most;
  memory.set("counts", {0, 0, least, most, 0, 0});
  memory.set("requests", requests);
  memory.set("history", history);
  memory.set("stop_tokens", {7, -1, -1});
  std::vector<double> own_stops(kRequests * batch::kMaxOwnStops, -1);
  for (int64_t n = 0; n < kRequests; ++n) own_stops[static_cast<size_t>(n * batch::kMaxOwnStops + 2)] = 5;
  memory.set("own_stops", own_stops);
  if (drafts == 0) memory.set("token", {5, 7, 8, 9, 7});
  std::vector<double> logprobs(static_cast<size_t>(num_samples));
  std::iota(logprobs.rbegin(), logprobs.rend(), -static_cast<double>(num_samples));
  memory.set("logprob", logprobs);
  // What stands in a place of the tables says which one it is.
  std::vector<double> places(static_cast<size_t>(num_samples * batch::kMaxTop));
  std::iota(places.begin(), places.end(), 0);
  memory.set("top_token", places);
  memory.set("top_logprob", places);
  std::vector<runtime::MailRecord> mail(1024);
  auto* mailbox = static_cast<runtime::Mailbox*>(memory.address("mailbox"));
  runtime::mailbox_init(mailbox, mail.data(), static_cast<uint32_t>(mail.size()));

  loop::Arrays expected = memory.arrays();
  const graph::LoweredGraph lowered = optimize::lower(graph, "cpu");
  const jit::CompiledKernel kernel = jit::compile(graph, {.num_workers = 1});
  runtime::Program program(graph, kernel, memory.addresses());
  program.image().set_num_iterations(1);
  int iterations = 0;
  for (; expected.at("stop").values[0] == 0; ++iterations) {
    ASSERT_LT(iterations, 100);
    if (drafts > 0) {  // with three tokens some drafts are right
      const std::vector<double> tokens = testing::random_values(num_samples, DType::i32, 3, random);
      memory.set("token", tokens);
      expected.at("token").values = tokens;
    }
    graph::interpret(graph, lowered, expected, 1);
    runtime::Launcher(program.entry(), program.image()).run();
    for (const char* name : {"requests", "history", "counts", "stop"})
      ASSERT_EQ(memory.array(name).values, expected.at(name).values) << name << " in iteration " << iterations;
    const auto count = [&](int which) {
      return static_cast<size_t>(expected.at("counts").values[static_cast<size_t>(which)]);
    };
    for (const char* name : {"row_token", "row_request", "row_position", "row_start"})
      for (size_t i = 0; i < count(batch::kRows); ++i)
        ASSERT_EQ(memory.array(name).values[i], expected.at(name).values[i])
            << name << " " << i << " in " << iterations;
    for (const char* name : {"sample_row", "sample_request"})
      for (size_t i = 0; i < count(batch::kSamples); ++i)
        ASSERT_EQ(memory.array(name).values[i], expected.at(name).values[i])
            << name << " " << i << " in " << iterations;
  }
  const auto field = [&](int64_t n, int f) {
    return expected.at("requests").values[static_cast<size_t>(n * batch::kRequestFields + f)];
  };
  double waiting = 0;
  for (int64_t n = 0; n < kRequests; ++n)
    if (static_cast<int>(field(n, batch::kState)) == batch::kActive)
      waiting += field(n, batch::kLength) - field(n, batch::kDone);
  EXPECT_TRUE(waiting <= least || waiting > most) << waiting;
  EXPECT_EQ(expected.at("counts").values[batch::kRows], 0);
  EXPECT_EQ(iterations > 5, waiting <= least);
  EXPECT_EQ(waiting == 0, least == 0 && most > 100);
  if (waiting > 0) return;

  // Every request that was there has ended, and the mailbox told the host so: one `finished` each.
  int finished = 0, tokens = 0, accepted = 0, top = 0, of_last = 0, told = 0;
  runtime::MailRecord record;
  while (runtime::mailbox_take(mailbox, &record, 0)) {
    if (static_cast<runtime::MailKind>(record.kind) == runtime::MailKind::top) {
      EXPECT_EQ(record.request, 4u);
      EXPECT_EQ(record.token % batch::kMaxTop, top++ % kTop);
      EXPECT_EQ(record.logprob, static_cast<float>(record.token));
      continue;
    }
    const bool is_token = static_cast<runtime::MailKind>(record.kind) == runtime::MailKind::token,
               is_told = static_cast<runtime::MailKind>(record.kind) == runtime::MailKind::prompt;
    ++(is_token ? tokens : is_told ? told : finished);
    of_last += (is_token || is_told) && record.request == 4;
    EXPECT_EQ(top, kTop * of_last);
    accepted += is_token && record.reason == runtime::kAccepted;
    EXPECT_EQ(record.logprob < 0, is_token || is_told);
  }
  double known = 0;  // tokens behind rows
  for (int64_t n = 0; n < kRequests; n += 2) {
    const double* const fields = requests.data() + n * batch::kRequestFields;
    known += GetParam().tells ? fields[batch::kLength] - fields[batch::kDone] - 1 : 0;
  }
  EXPECT_EQ(told, known);
  EXPECT_EQ(finished, 4);
  EXPECT_EQ(accepted > 0, drafts > 0);
  double made = 0;
  for (int64_t n = 0; n < kRequests; ++n)
    made += expected.at("requests").values[static_cast<size_t>(n * batch::kRequestFields + batch::kLength)] -
            requests[static_cast<size_t>(n * batch::kRequestFields + batch::kLength)];
  EXPECT_EQ(tokens, made);
}

INSTANTIATE_TEST_SUITE_P(Loads, Advance,
                         ::testing::Values(Range{0, 1000}, Range{2, 1000}, Range{0, 7}, Range{0, 1000, 2},
                                           Range{0, 1000, 7}, Range{0, 1000, 7, 8}, Range{0, 1000, 0, 0, true},
                                           Range{0, 1000, 2, 0, true}, Range{0, 1000, 7, 0, true, true}));

}  // namespace
}  // namespace megalith
