// One cost for all who ask: tasks add up to what their nodes cost, caches count, and weights in int8 count as they come.
#include "megalith/task/cost.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "megalith/model/decoder.h"
#include "megalith/optimize/schedule.h"
#include "megalith/task/partition.h"

namespace megalith::task {
namespace {

graph::Graph decoder(const std::string& target, int64_t rows, int64_t quant_columns = 0) {
  ModelConfig config = config_read(MEGALITH_SOURCE_DIR "/models/shapes/Qwen3-0.6B");
  config.num_layers = 1;
  return build_decoder(config,
                       {.max_rows = rows, .max_seq_len = 1024, .target = target, .quant_columns = quant_columns});
}

struct Sums {
  Cost nodes, tasks;
};
std::map<std::string, Sums> sums_of(const graph::Graph& graph, const std::string& target, int workers) {
  const graph::LoweredGraph lowered = optimize::lower(graph, target);
  Costs costs(graph, lowered, machine::worker_rates(target));
  std::map<std::string, Sums> sums;
  for (size_t n = 0; n < graph.nodes().size(); ++n)
    sums[graph.nodes()[n].op->name].nodes += costs.of(static_cast<int>(n), {}, 1);
  for (const Task& task : partition(graph, lowered, workers, machine::worker_rates(target)).tasks)
    sums[graph.nodes()[static_cast<size_t>(task.node)].op->name].tasks += costs.of(task.node, task.tile, 1);
  return sums;
}

TEST(Cost, TasksReadTheWeightsAndCachesOfTheirNodes) {
  for (const std::string target : {"cpu", "cuda:sm_90a"})
    for (const auto& [op, sums] : sums_of(decoder(target, 1), target, 12)) {
      EXPECT_NEAR(sums.tasks.streamed_bytes, sums.nodes.streamed_bytes, 1) << op << " for " << target;
      EXPECT_NEAR(sums.tasks.state_bytes, sums.nodes.state_bytes, 0.01 * sums.nodes.state_bytes)
          << op << " for " << target;
      EXPECT_GE(sums.tasks.weight_bytes, 0.99 * sums.nodes.weight_bytes) << op << " for " << target;
    }
}

TEST(Cost, AttentionReadsItsCache) {
  // Keys and values of 1024 positions, eight heads of 128, in two bytes.
  constexpr double kCacheBytes = 2.0 * 1024 * 8 * 128 * 2;
  double found = 0;
  for (const auto& [op, sums] : sums_of(decoder("cuda:sm_90a", 1), "cuda:sm_90a", 132))
    if (op.ends_with("attention_chunk")) found += sums.tasks.state_bytes;
  EXPECT_NEAR(found, kCacheBytes, 0.02 * kCacheBytes);
}

TEST(Cost, WeightsInInt8CountWithTheirScales) {
  const auto streamed = [](int64_t quant_columns) {
    Cost total;
    for (const auto& [op, sums] : sums_of(decoder("cuda:sm_90a", 1, quant_columns), "cuda:sm_90a", 132))
      total += sums.tasks;
    return total;
  };
  const Cost plain = streamed(0), rounded = streamed(32);
  EXPECT_NEAR(rounded.streamed_bytes, plain.streamed_bytes * 17 / 32, 1);
  EXPECT_NEAR(plain.weight_bytes - rounded.weight_bytes, plain.streamed_bytes * 15 / 32, 1);
}

// Tasks are placed by what they cost, and what they read of a cache is part of that.
TEST(Cost, OfATaskHasItsShareOfTheCache) {
  const graph::Graph graph = decoder("cuda:sm_90a", 1);
  const machine::WorkerRates rates = machine::worker_rates("cuda:sm_90a");
  const graph::LoweredGraph lowered = optimize::lower(graph, "cuda:sm_90a");
  const Partitioned partitioned = partition(graph, lowered, 132, rates);
  size_t seen = 0;
  for (const Task& task : partitioned.tasks) {
    if (!graph.nodes()[static_cast<size_t>(task.node)].op->name.ends_with("attention_chunk")) continue;
    EXPECT_GT(task.cost_ns, rates.task_ns);
    ++seen;
  }
  EXPECT_GT(seen, 0u);
}

// A text that is shorter than it may be has more positions in its first chunks than in its last ones: so who has one of these
// can do more besides. But where a worker has several tasks they are dealt alike.
TEST(Cost, OfLaterChunksOfATextIsLessUnlessAWorkerHasSeveral) {
  const graph::Graph graph = decoder("cuda:sm_90a", 1);
  const graph::LoweredGraph lowered = optimize::lower(graph, "cuda:sm_90a");
  const auto costs_of_chunks = [&](int workers) {
    std::map<int64_t, double> costs;
    for (const Task& task : partition(graph, lowered, workers, machine::worker_rates("cuda:sm_90a")).tasks)
      if (graph.nodes()[static_cast<size_t>(task.node)].op->name.ends_with("attention_chunk"))
        for (const loop::Range& range : task.tile)
          if (range.iname == "s") costs[range.begin] = task.cost_ns;
    return costs;
  };
  const std::map<int64_t, double> shrinking = costs_of_chunks(132), alike = costs_of_chunks(12);
  ASSERT_EQ(shrinking.size(), 16u);
  ASSERT_GT(alike.size(), 1u);
  for (const auto& [chunk, cost] : shrinking)
    EXPECT_NEAR(cost, shrinking.at(0) * (1 - static_cast<double>(chunk) / 32), 1e-6 * cost) << "chunk " << chunk;
  for (const auto& [chunk, cost] : alike) EXPECT_EQ(cost, alike.at(0)) << "chunk " << chunk;
}

}  // namespace
}  // namespace megalith::task
