// The operators of a token loop that no loop kernel can say, against their plain references: next_batch through whole
// random runs, gumbel_argmax on many rows.
#include <gtest/gtest.h>

#include "megalith/ops/registry.h"
#include "megalith/optimize/schedule.h"
#include "support/graph_run.h"

namespace megalith {
namespace {

using graph::TensorId;

TEST(GumbelArgmax, DrawsWhatTheReferenceDraws) {
  constexpr int64_t kNumRows = 512, kVocabulary = 300;
  graph::Graph graph(ops::builtin(), "gumbel");
  const std::vector<TensorId> inputs = {graph.state("logits", DType::f32, {kNumRows, kVocabulary}),
                                        graph.state("seed", DType::i32, {1}), graph.state("draw", DType::i32, {1})};
  graph.add("gumbel_argmax", "draw", inputs, {.outputs = {{"token", graph.state("token", DType::i32, {kNumRows})}}});
  testing::GraphMemory memory(graph);
  std::mt19937_64 random(3);
  std::vector<double> logits = testing::random_values(kNumRows * kVocabulary, DType::f32, 0, random);
  for (double& value : logits) value = static_cast<float>(value);
  memory.set("logits", logits);
  memory.set("seed", {-5});
  std::vector<double> before;
  for (const double draw : {0.0, 1.0}) {
    memory.set("draw", {draw});
    loop::Arrays expected = memory.arrays();
    graph::interpret(graph, optimize::lower(graph, "cpu"), expected, 1);
    testing::run_compiled(graph, memory, 2);
    const std::vector<double> found = memory.array("token").values, wanted = expected.at("token").values;
    int different = 0, moved = 0;
    for (size_t r = 0; r < found.size(); ++r) {
      different += found[r] != wanted[r];
      moved += !before.empty() && found[r] != before[r];
    }
    // f32 noise against float64's: where two tokens are within a rounding of each other either may win.
    EXPECT_LE(different, 1);
    EXPECT_TRUE(before.empty() || moved > kNumRows / 2) << moved;
    before = found;
  }
}

// Of a random run.
struct Sizes {
  int64_t requests, slots, rows, longest, page_size;
  int draft_tokens = 0;
};

class NextBatch : public ::testing::TestWithParam<Sizes> {};

TEST_P(NextBatch, LaysOutTheSameRowsAsTheReference) {
  const Sizes s = GetParam();
  const int64_t pages_per_slot = (s.longest + s.page_size - 1) / s.page_size, pages = s.slots * pages_per_slot;
  graph::Graph graph(ops::builtin(), "next_batch");
  const std::vector<TensorId> inputs = {graph.state("output", DType::i64, {s.rows}),
                                        graph.state("prompt_length", DType::i32, {s.requests}),
                                        graph.state("config", DType::i32, {20}),
                                        graph.state("tokens", DType::i64, {s.requests * s.longest}),
                                        graph.state("step", DType::i32, {s.requests}),
                                        graph.state("slots", DType::i32, {4 * s.slots + 7}),
                                        graph.state("input", DType::i64, {s.rows}),
                                        graph.state("first_row", DType::i32, {s.slots + 1}),
                                        graph.state("first_page", DType::i32, {s.slots + 1}),
                                        graph.state("pages", DType::i32, {pages}),
                                        graph.state("last_length", DType::i32, {s.slots}),
                                        graph.state("num_new", DType::i32, {s.slots}),
                                        graph.state("stop", DType::i32, {1})};
  graph.add("next_batch", "next_batch", inputs,
            {.attributes = {{"draft_tokens", s.draft_tokens}, {"draft_match", s.draft_tokens > 0 ? 2 : 0}}});
  graph.set_gate("next_batch", graph.find("stop"));

  testing::GraphMemory memory(graph);
  std::mt19937_64 random(11);
  // Of few tokens many texts are made of what stood in them before.
  const int values = s.draft_tokens > 0 ? 3 : 50;
  std::vector<double> prompts, slots(static_cast<size_t>(4 * s.slots), -1);
  for (int64_t n = 0; n < s.requests; ++n)
    prompts.push_back(static_cast<double>(1 + random() % static_cast<uint64_t>(s.longest - 1)));
  slots.insert(slots.end(), 7, 0);
  memory.set("prompt_length", prompts);
  memory.set("slots", slots);
  std::vector<double> config = {static_cast<double>(s.longest),
                                static_cast<double>(s.page_size),
                                static_cast<double>(pages_per_slot),
                                50,
                                7,
                                11};  // 7 and 11 end a text
  config.resize(20, -1);
  memory.set("config", config);
  memory.set("tokens", testing::random_values(s.requests * s.longest, DType::i64, values, random));

  loop::Arrays expected = memory.arrays();
  const graph::LoweredGraph lowered = optimize::lower(graph, "cpu");
  const jit::CompiledKernel kernel = jit::compile(graph, {.num_workers = 1});
  runtime::Program program(graph, kernel, memory.addresses());
  program.image().set_num_iterations(1);
  int iterations = 0;
  for (; expected.at("stop").values[0] == 0; ++iterations) {
    ASSERT_LT(iterations, 1000);
    // Now and then the token that ends a text, and one that the vocabulary does not have.
    std::vector<double> made = testing::random_values(s.rows, DType::i64, values + (values == 50), random);
    // And drafts that are right: a row is followed by what stands in the next one.
    if (s.draft_tokens > 0)
      for (size_t row = 0; row + 1 < made.size(); ++row)
        if (random() % 4 != 0) made[row] = expected.at("input").values[row + 1];
    if (s.draft_tokens > 0 && random() % 8 == 0) made[random() % made.size()] = 7;
    memory.set("output", made);
    expected.at("output").values = made;
    graph::interpret(graph, lowered, expected, 1);
    runtime::Launcher(program.entry(), program.image()).run();
    for (const char* name :
         {"tokens", "step", "slots", "input", "first_row", "first_page", "pages", "last_length", "num_new", "stop"})
      ASSERT_EQ(memory.array(name).values, expected.at(name).values) << name << " in iteration " << iterations;
    const double rows = expected.at("first_row").values.back();
    ASSERT_LE(rows, static_cast<double>(s.rows));
    ASSERT_LE(expected.at("first_page").values.back(), static_cast<double>(pages));
  }
  const std::vector<double> found = memory.array("slots").values;
  const std::vector<double> counts(found.end() - 5, found.end() - 1);  // iterations, with drafts, drafts, right ones
  EXPECT_EQ(counts[0] + 1, iterations);
  EXPECT_EQ(counts[3] > 20, s.draft_tokens > 0) << counts[3];
  EXPECT_GE(counts[2], counts[3]);
  EXPECT_GE(counts[2], counts[1]);
  // Every request was worked through, to the end of its text or to a token that ends it.
  for (int64_t n = 0; n < s.requests; ++n) {
    const double step = memory.array("step").values[static_cast<size_t>(n)];
    const double last = memory.array("tokens").values[static_cast<size_t>(n * s.longest + static_cast<int64_t>(step))];
    EXPECT_GE(step, prompts[static_cast<size_t>(n)]);
    EXPECT_TRUE(step + 1 == static_cast<double>(s.longest) || last == 7 || last == 11 || last == 50) << "request " << n;
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, NextBatch,
                         ::testing::Values(Sizes{1, 1, 1, 9, 4}, Sizes{5, 2, 2, 30, 8}, Sizes{7, 3, 11, 40, 16},
                                           Sizes{3, 4, 2, 20, 5}, Sizes{9, 4, 64, 33, 1}, Sizes{9, 1, 8, 90, 16, 7},
                                           Sizes{9, 3, 9, 90, 8, 3}, Sizes{3, 3, 40, 200, 4, 15}));

}  // namespace
}  // namespace megalith
