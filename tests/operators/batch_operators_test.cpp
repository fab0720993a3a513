// The two operators of a decoder that no loop kernel can say, against their plain references: sampling on thousands of
// rows, advance through whole random generations.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "megalith/kernels/batch.h"
#include "megalith/ops/registry.h"
#include "megalith/runtime/mailbox.h"
#include "support/graph_run.h"

namespace megalith {
namespace {

using graph::TensorId;

// One node `sampling` whose operands are states, to be set and read.
graph::Graph sampling_graph(int64_t rows, int64_t vocab, int64_t length = 1) {
  graph::Graph graph(ops::builtin(), "sampling");
  const std::vector<TensorId> inputs = {graph.state("logits", DType::f32, {rows, vocab}),
                                        graph.state("best", DType::i32, {rows}),
                                        graph.state("sample_request", DType::i32, {rows}),
                                        graph.state("requests", DType::i32, {rows, batch::kRequestFields}),
                                        graph.state("history", DType::i32, {rows, length}),
                                        graph.state("sampling_f32", DType::f32, {rows, batch::kSamplingFloats}),
                                        graph.state("sampling_i32", DType::i32, {rows, batch::kSamplingInts})};
  graph.add("sampling", "sampling", inputs,
            {.outputs = {{"token", graph.state("token", DType::i32, {rows})},
                         {"logprob", graph.state("logprob", DType::f32, {rows})}}});
  return graph;
}

TEST(Sampling, DrawsWhatTheReferenceDraws) {
  constexpr int64_t kRows = 1024, kVocab = 333, kLength = 600;
  const graph::Graph graph = sampling_graph(kRows, kVocab, kLength);
  testing::GraphMemory memory(graph);
  std::mt19937_64 random(3);
  std::vector<double> logits = testing::random_values(kRows * kVocab, DType::f32, 0, random), best, f32s, i32s,
                      requests, history;
  for (double& value : logits) value = static_cast<float>(value * 3);
  for (int64_t r = 0; r < kRows; ++r) {
    best.push_back(
        static_cast<double>(std::max_element(logits.begin() + r * kVocab, logits.begin() + (r + 1) * kVocab) -
                            (logits.begin() + r * kVocab)));
    const double temperatures[] = {0, 0.3, 1.0, 1.7}, top_ps[] = {1.0, 0.9, 0.5, 0.01};
    const int top_ks[] = {0, 1, 5, 332, 333, 1000};
    const double min_ps[] = {0, 0, 0.05, 0.5}, repetitions[] = {1, 0, 1.3, 0.8, 1};
    const double presences[] = {0, 0, 1.5, -0.5}, frequencies[] = {0, 0, 0.25};
    f32s.insert(f32s.end(), {temperatures[random() % 4], top_ps[random() % 4], min_ps[random() % 4],
                             repetitions[random() % 5], presences[random() % 4], frequencies[random() % 3], 0, 0});
    i32s.insert(i32s.end(),
                {static_cast<double>(top_ks[random() % 6]), static_cast<double>(static_cast<int32_t>(random())),
                 static_cast<double>(r % 3), r % 4 == 0 ? 0.0 : 1.0});
    const double length = static_cast<double>(1 + random() % kLength);
    for (int f = 0; f < batch::kRequestFields; ++f)
      requests.push_back(f == batch::kLength   ? length
                         : f == batch::kPrompt ? std::floor(length * static_cast<double>(1 + random() % 4) / 4)
                                               : 0);
    // Likely tokens among them, or penalties would change nothing.
    for (int64_t s = 0; s < kLength; ++s)
      history.push_back(s % 7 == 0 ? best.back() : static_cast<double>(random() % kVocab));
  }
  std::vector<double> sample_request(kRows);
  for (int64_t r = 0; r < kRows; ++r) sample_request[static_cast<size_t>(r)] = static_cast<double>(kRows - 1 - r);
  memory.set("logits", logits);
  memory.set("best", best);
  memory.set("sample_request", sample_request);
  memory.set("requests", requests);
  memory.set("history", history);
  memory.set("sampling_f32", f32s);
  memory.set("sampling_i32", i32s);

  loop::Arrays expected = memory.arrays();
  graph::interpret(graph, graph::lower(graph, "cpu"), expected, 1);
  testing::run_compiled(graph, memory, 2);
  const std::vector<double> found = memory.array("token").values, wanted = expected.at("token").values;
  int64_t different = 0, not_best = 0, greedy_moved = 0;
  for (size_t r = 0; r < found.size(); ++r) {
    different += found[r] != wanted[r];
    not_best += found[r] != best[r];
    const size_t request = kRows - 1 - r;
    greedy_moved += f32s[request * batch::kSamplingFloats + batch::kTemperature] == 0 && found[r] != best[r];
  }
  const std::vector<double> logprob = memory.array("logprob").values, wanted_logprob = expected.at("logprob").values;
  for (size_t r = 0; r < found.size(); ++r) {
    if (found[r] != wanted[r]) continue;
    EXPECT_NEAR(logprob[r], wanted_logprob[r], 1e-5 * std::max(1.0, std::abs(wanted_logprob[r]))) << "row " << r;
    EXPECT_EQ(logprob[r] != 0, (kRows - 1 - r) % 4 != 0) << "row " << r;
  }
  // f32 weights against float64 ones: a draw that falls on the border of two tokens may go either way.
  EXPECT_LE(different, 2);
  EXPECT_GT(greedy_moved, kRows / 32) << "penalties hardly ever change the likeliest token";
  EXPECT_GT(not_best, kRows / 8) << "sampling hardly ever samples";
}

TEST(Sampling, FollowsTheDistribution) {
  // 4 tokens with weights 1:2:3:4, and many counters of one seed.
  constexpr int64_t kRows = 20000, kVocab = 4;
  const graph::Graph graph = sampling_graph(kRows, kVocab);
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

TEST(Advance, LaysOutTheSameRowsAsTheReference) {
  constexpr int64_t kRequests = 5, kRows = 9, kLength = 40;
  graph::Graph graph(ops::builtin(), "advance");
  const TensorId counts = graph.state("counts", DType::i32, {batch::kCountFields});
  graph.dynamic_size("rows", counts, batch::kRows);
  graph.dynamic_size("samples", counts, batch::kSamples);
  const graph::Dim rows(kRows, "rows"), samples(kRequests, "samples");
  std::vector<TensorId> inputs = {graph.state("token", DType::i32, {samples}),
                                  graph.state("logprob", DType::f32, {samples}),
                                  graph.state("stop_tokens", DType::i32, {3}),
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
  graph.add("advance", "advance", inputs);
  graph.set_gate("advance", graph.find("stop"));

  testing::GraphMemory memory(graph);
  std::mt19937_64 random(5);
  std::vector<double> token(kRequests, 0);
  std::vector<double> requests(kRequests * batch::kRequestFields, 0), history;
  for (int64_t n = 0; n < kRequests; ++n) {
    double* fields = requests.data() + n * batch::kRequestFields;
    fields[batch::kState] = n == 3 ? batch::kEmpty : batch::kActive;
    fields[batch::kLength] = static_cast<double>(1 + random() % 25);
    fields[batch::kLimit] = fields[batch::kLength] + static_cast<double>(1 + random() % 12);
    fields[batch::kIgnoreStop] = n == 1;
  }
  memory.set("requests", requests);
  memory.set("history", testing::random_values(kRequests * kLength, DType::i32, 100, random));
  memory.set("stop_tokens", {7, -1, -1});
  memory.set("token", {5, 7, 8, 9, 7});
  memory.set("logprob", {-1, -2, -3, -4, -5});
  std::vector<runtime::MailRecord> mail(256);
  auto* mailbox = static_cast<runtime::Mailbox*>(memory.address("mailbox"));
  runtime::mailbox_init(mailbox, mail.data(), static_cast<uint32_t>(mail.size()));

  loop::Arrays expected = memory.arrays();
  const graph::LoweredGraph lowered = graph::lower(graph, "cpu");
  const jit::CompiledKernel kernel = jit::compile(graph, {.num_workers = 1});
  runtime::Program program(graph, kernel, memory.addresses());
  program.image().set_num_iterations(1);
  int iterations = 0;
  for (; expected.at("stop").values[0] == 0; ++iterations) {
    ASSERT_LT(iterations, 100);
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
  EXPECT_GT(iterations, 5);

  // Every request that was there has ended, and the mailbox told the host so: one `finished` each.
  int finished = 0, tokens = 0;
  runtime::MailRecord record;
  while (runtime::mailbox_take(mailbox, &record, 0)) {
    const bool is_token = static_cast<runtime::MailKind>(record.kind) == runtime::MailKind::token;
    ++(is_token ? tokens : finished);
    EXPECT_EQ(record.logprob < 0, is_token);
  }
  EXPECT_EQ(finished, 4);
  double made = 0;
  for (int64_t n = 0; n < kRequests; ++n)
    made += expected.at("requests").values[static_cast<size_t>(n * batch::kRequestFields + batch::kLength)] -
            requests[static_cast<size_t>(n * batch::kRequestFields + batch::kLength)];
  EXPECT_EQ(tokens, made);
}

}  // namespace
}  // namespace megalith
