// The two operators that put a draft model's steps together, against their plain references, on random batches.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "megalith/ops/registry.h"
#include "megalith/optimize/schedule.h"
#include "megalith/runtime/batch.h"
#include "support/graph_run.h"

namespace megalith {
namespace {

using graph::TensorId;

struct DraftSizes {
  static constexpr int64_t kRequests = 5, kRows = 40, kLength = 30, kSteps = 3, kVocabulary = 90, kDraftVocabulary = 80;
};

/// A batch block of requests in all states: some with drafts, some in the middle of a prompt, some begun in the middle of what they
/// made, some that nobody has.
struct DraftBlock : DraftSizes {
  std::vector<double> requests, history, row_request, row_position, row_start;

  explicit DraftBlock(std::mt19937_64& random) {
    const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
    requests.resize(kRequests * batch::kRequestFields);
    history = testing::random_values(kRequests * kLength, DType::i32, kVocabulary, random);
    for (int64_t n = 0; n < kRequests; ++n) {
      if (below(4) == 0) continue;
      double* const fields = requests.data() + n * batch::kRequestFields;
      const int64_t length = 1 + below(20), drafts = below(kSteps + 1);
      const int64_t start = drafts > 0 ? length - 1 : below(length),
                    end = drafts > 0 ? length + drafts : start + 1 + below(length - start);
      fields[batch::kState] = batch::kActive;
      fields[batch::kLength] = static_cast<double>(length);
      fields[batch::kDone] = static_cast<double>(end);
      fields[batch::kPrompt] = static_cast<double>(1 + below(length));
      for (int64_t position = start; position < end; ++position) {
        row_request.push_back(static_cast<double>(n));
        row_position.push_back(static_cast<double>(position));
        row_start.push_back(static_cast<double>(start));
      }
    }
  }
};

class DraftModelOperators : public ::testing::Test, public DraftSizes {};

TEST_F(DraftModelOperators, DoWhatTheReferenceDoes) {
  graph::Graph graph(ops::builtin(), "draft");
  const auto table = [&](const char* name, graph::Dim size) {
    return graph.state(name, DType::i32, {std::move(size)});
  };
  graph.dynamic_size("rows", table("counts", 1), 0);
  const TensorId draft_counts = table("draft_counts", 1 + kSteps);
  graph.dynamic_size("draft_rows", draft_counts, 0);
  graph.dynamic_size("drafters", draft_counts, 2);
  const graph::Dim rows(kRows, "rows"), draft_rows(kRows + kRequests, "draft_rows"), drafters(kRequests, "drafters");
  const TensorId requests = graph.state("requests", DType::i32, {kRequests, batch::kRequestFields}),
                 history = graph.state("history", DType::i32, {kRequests, kLength}),
                 row_request = table("row_request", rows), row_position = table("row_position", rows),
                 drafter = table("drafter", kRequests);
  graph.add("draft_rows", "rows",
            {requests, history, row_request, row_position, table("row_start", rows), draft_counts,
             table("draft_token", draft_rows), table("draft_request", draft_rows), table("draft_position", draft_rows),
             table("draft_start", draft_rows), table("last_row", kRequests), drafter, table("drafter_row", kRequests)},
            {.attributes = {{"draft_vocabulary", kDraftVocabulary}}});
  graph.add("draft_token", "token",
            {table("best", drafters), drafter, requests, row_request, row_position, history, table("row_token", rows),
             table("next_token", kRequests), table("next_request", kRequests), table("next_position", kRequests),
             table("next_start", kRequests)},
            {.attributes = {{"step", 1}, {"vocabulary", kVocabulary}, {"draft_vocabulary", kDraftVocabulary}}});
  testing::GraphMemory memory(graph);
  const graph::LoweredGraph lowered = optimize::lower(graph, "cpu");
  const jit::CompiledKernel kernel = jit::compile(graph, {.num_workers = 2});
  runtime::Program program(graph, kernel, memory.addresses());
  program.image().set_num_iterations(1);
  std::mt19937_64 random(9);
  int64_t num_drafters = 0, num_caught_up = 0;
  for (int i = 0; i < 200; ++i) {
    DraftBlock block(random);
    const auto num_rows = static_cast<double>(block.row_request.size());
    for (auto* rows_of : {&block.row_request, &block.row_position, &block.row_start}) rows_of->resize(kRows, -1);
    memory.set("counts", {num_rows});
    memory.set("requests", block.requests);
    memory.set("history", block.history);
    memory.set("row_request", block.row_request);
    memory.set("row_position", block.row_position);
    memory.set("row_start", block.row_start);
    memory.set("best", testing::random_values(kRequests, DType::i32, 2 * kVocabulary, random));
    loop::Arrays expected = memory.arrays();
    graph::interpret(graph, lowered, expected, 1);
    runtime::Launcher(program.entry(), program.image()).run();
    for (const auto& [name, wanted] : expected)
      ASSERT_EQ(memory.array(name).values, wanted.values) << name << " in " << i;
    const std::vector<double>& counts = expected.at("draft_counts").values;
    num_drafters += static_cast<int64_t>(counts[2]);
    double known = 0;
    for (int64_t r = 0; r < static_cast<int64_t>(num_rows); ++r) {
      const auto n = static_cast<size_t>(block.row_request[static_cast<size_t>(r)]) * batch::kRequestFields;
      known += block.row_position[static_cast<size_t>(r)] < block.requests[n + batch::kLength];
    }
    num_caught_up += static_cast<int64_t>(counts[0] - known);
    for (size_t step = 1; step + 1 < counts.size(); ++step) EXPECT_GE(counts[step], counts[step + 1]);
  }
  EXPECT_GT(num_drafters, 100);
  EXPECT_GT(num_caught_up, 100);
}

}  // namespace
}  // namespace megalith
