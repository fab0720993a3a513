// Partition: a node becomes about as many tasks as there are workers, tiles are equal, regions are the tiles'
// footprints.
#include <gtest/gtest.h>
#include <algorithm>

#include "megalith/base/error.h"
#include "megalith/graph/lower.h"
#include "megalith/ops/registry.h"
#include "megalith/optimize/schedule.h"
#include "megalith/task/partition.h"

namespace megalith::task {
namespace {

using graph::Graph;

Partitioned partition_linear(int64_t n, int workers, std::map<std::string, int64_t> tile = {}) {
  Graph g(ops::builtin());
  const auto x = g.activation("x", DType::f32, {3, 40});
  g.apply("linear", "y", {x, g.constant("w", DType::bf16, {n, 40})}, {.tile = tile});
  return partition(g, optimize::lower(g, "cpu"), workers, machine::worker_rates("cpu"));
}

// On a GPU, where weights come through a stream.
graph::LoweredGraph lower_rmsnorm_linear(Graph& g, graph::TensorId norm, std::map<std::string, int64_t> tile = {}) {
  const auto x = g.activation("x", DType::bf16, {3, 40});
  g.apply("rmsnorm_linear", "y", {x, norm, g.constant("w", DType::bf16, {64, 40})},
          {.tile = tile, .dtypes = {{"y", DType::bf16}}});
  return optimize::lower(g, "cuda");
}

TEST(Partition, RegionsAreTheFootprintsOfTheTiles) {
  const Partitioned p = partition_linear(128, 2);
  ASSERT_EQ(p.tasks.size(), 2u);
  EXPECT_EQ(p.tasks[1].name, "y[n=64:128,t=0:3]");
  ASSERT_EQ(p.tasks[1].reads.size(), 2u);
  EXPECT_EQ(p.buffers[static_cast<size_t>(p.tasks[1].reads[0].buffer)].name, "x");
  EXPECT_EQ(p.tasks[1].reads[0].box, (loop::Box{{0, 0}, {3, 40}}));
  EXPECT_EQ(p.tasks[1].reads[1].box, (loop::Box{{64, 0}, {128, 40}}));
  ASSERT_EQ(p.tasks[1].writes.size(), 1u);
  EXPECT_EQ(p.tasks[1].writes[0].box, (loop::Box{{0, 64}, {3, 128}}));
}

TEST(Partition, TilesCoverEverythingOnceAndAreEqualWithinAMultiple) {
  for (int64_t n : {16, 37, 500, 501, 4096, 151936})
    for (int workers : {1, 2, 3, 5, 8}) {
      const Partitioned p = partition_linear(n, workers);
      int64_t covered = 0, largest = 0, smallest = n;
      for (const Task& task : p.tasks) {
        if (task.tile[1].begin != 0) continue;  // further pieces along t, where n gave too few
        EXPECT_EQ(task.tile[0].begin, covered);
        const int64_t size = task.tile[0].end - task.tile[0].begin;
        covered += size;
        largest = std::max(largest, size);
        smallest = std::min(smallest, size);
      }
      EXPECT_EQ(covered, n) << workers;
      EXPECT_LE(largest * workers, n + 16 * workers) << n << " on " << workers;
      if (n < 4096) continue;
      EXPECT_GT(static_cast<double>(smallest), 0.96 * static_cast<double>(largest)) << n << " on " << workers;
    }
}

TEST(Partition, AUserMayChooseTheTiles) {
  const Partitioned p = partition_linear(100, 2, {{"n", 32}, {"t", 2}});
  EXPECT_EQ(p.tasks.size(), 4u * 2u);
  EXPECT_EQ(p.tasks.back().tile, (std::vector<loop::Range>{{"n", 96, 100}, {"t", 2, 3}}));
}

// Where the pieces of an axis begin, one after the other.
std::vector<int64_t> beginnings(const Partitioned& p, size_t axis) {
  std::vector<int64_t> begins;
  for (const Task& task : p.tasks) begins.push_back(task.tile[axis].begin);
  std::sort(begins.begin(), begins.end());
  begins.erase(std::unique(begins.begin(), begins.end()), begins.end());
  return begins;
}

TEST(Partition, AUserMayChooseHowManyPieces) {
  const auto cut = [](int64_t n, std::map<std::string, int64_t> pieces) {
    Graph g(ops::builtin());
    const auto x = g.activation("x", DType::f32, {3, 40});
    g.apply("linear", "y", {x, g.constant("w", DType::bf16, {n, 40})}, {.pieces = std::move(pieces)});
    return partition(g, optimize::lower(g, "cpu"), 2, machine::worker_rates("cpu"));
  };
  EXPECT_EQ(beginnings(cut(128, {{"n", 4}}), 0), (std::vector<int64_t>{0, 32, 64, 96}));
  EXPECT_EQ(beginnings(cut(128, {{"n", 8}, {"t", 3}}), 1), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(beginnings(cut(72, {{"n", 3}}), 0), (std::vector<int64_t>{0, 16, 48})) << "panels of 16 stay whole";
  EXPECT_EQ(beginnings(cut(72, {{"n", 72}}), 0), (std::vector<int64_t>{0, 16, 32, 48, 64}));
  EXPECT_EQ(beginnings(cut(100, {{"n", 1}}), 0), (std::vector<int64_t>{0}));

  Graph g(ops::builtin());
  const auto x = g.activation("x", DType::f32, {3, 40});
  g.apply("add", "y", {x, g.activation("z", DType::f32, {3, 40})}, {.pieces = {{"t", 1}, {"h", 7}}});
  const Partitioned p = partition(g, optimize::lower(g, "cpu"), 2, machine::worker_rates("cpu"));
  EXPECT_EQ(p.tasks.size(), 7u) << "what no layout holds together is cut anywhere";
}

TEST(Partition, StreamedWeightsComeWholeWhateverThePieces) {
  const auto cut = [](const std::string& op, std::vector<graph::TensorId> inputs, Graph& g,
                      graph::NodeOptions options) {
    options.dtypes = {{op == "linear_slices" ? "part" : "y", op == "linear_slices" ? DType::f32 : DType::bf16}};
    g.add(op, "y", inputs, options);
    return partition(g, optimize::lower(g, "cuda"), 4, machine::worker_rates("cuda"));
  };
  Graph g(ops::builtin());
  const auto x = g.activation("x", DType::bf16, {3, 40});
  const Partitioned normed =
      cut("rmsnorm_linear", {x, g.constant("norm", DType::bf16, {40}), g.constant("w", DType::bf16, {64, 40})}, g,
          {.pieces = {{"n", 4}, {"t", 3}}});
  EXPECT_EQ(beginnings(normed, 1), (std::vector<int64_t>{0}));
  Graph h(ops::builtin());
  const auto wide = h.activation("x", DType::bf16, {100, 1536});
  const Partitioned parts = cut("linear_slices", {wide, h.constant("w", DType::bf16, {256, 1536})}, h,
                                {.sizes = {{"S", 3}}, .pieces = {{"n", 2}, {"s", 1}}});
  EXPECT_EQ(beginnings(parts, 1), (std::vector<int64_t>{0, 1, 2})) << "a task has one slice";
}

TEST(Partition, ATileDoesNotCutAPanel) {
  try {
    partition_linear(100, 2, {{"n", 30}});
    FAIL() << "tiles of 30 rows cut panels of 16";
  } catch (const UserError& error) {
    EXPECT_STREQ(
        error.what(),
        "[linear] tiles of 30 along \"n\", but 16 rows of its weights lie together and cannot be cut apart: take "
        "a multiple of 16 (node \"y\")");
  }
}

TEST(Partition, StreamedWeightsComeOnceForAllRows) {
  Graph g(ops::builtin());
  const graph::LoweredGraph lowered = lower_rmsnorm_linear(g, g.constant("norm", DType::bf16, {40}), {{"t", 2}});
  try {
    partition(g, lowered, 2, machine::worker_rates("cpu"));
    FAIL() << "the second tile would find no weights";
  } catch (const UserError& error) {
    EXPECT_STREQ(
        error.what(),
        "[rmsnorm_linear] tiles of 2 along \"t\", but each row of its weights comes through a stream once, for "
        "all 3: take 3 or leave it out (node \"y\")");
  }
}

TEST(Partition, OfManyRowsTasksShareWeights) {
  const auto cut = [](std::map<std::string, int64_t> tile) {
    Graph g(ops::builtin());
    const auto x = g.activation("x", DType::bf16, {400, 96});
    g.apply("linear", "y", {x, g.constant("w", DType::bf16, {512, 96})},
            {.tile = tile, .dtypes = {{"y", DType::bf16}}});
    return partition(g, optimize::lower(g, "cuda"), 8, machine::worker_rates("cuda")).tasks;
  };
  std::map<int64_t, std::vector<loop::Range>> tiles;  // by the first row of weights
  for (const Task& task : cut({})) {
    tiles[task.tile[0].begin].push_back(task.tile[1]);
    EXPECT_LE(task.tile[1].end - task.tile[1].begin, 256);
  }
  EXPECT_EQ(tiles.size(), 4u) << "half as many pieces as there are workers";
  for (const auto& [row, of_row] : tiles) EXPECT_EQ(of_row.size(), 2u) << row;
  for (const int64_t tile : {128, 400}) try {
      cut({{"t", tile}});
      FAIL() << "no task multiplies " << tile << " rows";
    } catch (const UserError& error) {
      EXPECT_EQ(
          std::string(error.what()),
          fmt::format("[linear] tiles of {} along \"t\", but each row of its weights comes through a stream once, "
                      "for 256 at a time: take 256 or leave it out (node \"y\")",
                      tile));
    }
}

TEST(Partition, ATaskHasOneSliceOfStreamedWeights) {
  const auto cut = [](std::map<std::string, int64_t> tile, int workers, int64_t rows = 100) {
    Graph g(ops::builtin());
    const auto x = g.activation("x", DType::bf16, {rows, 1536});
    g.apply("linear_slices", "y", {x, g.constant("w", DType::bf16, {256, 1536})}, {.sizes = {{"S", 3}}, .tile = tile});
    return partition(g, optimize::lower(g, "cuda"), workers, machine::worker_rates("cuda")).tasks.size();
  };
  EXPECT_EQ(cut({}, 1), 3u);
  EXPECT_EQ(cut({{"n", 128}}, 100), 6u);
  EXPECT_EQ(cut({}, 100, 512), 2 * cut({}, 50, 256)) << "for the same weights two tasks, of 256 rows each";
  EXPECT_EQ(cut({{"n", 16}, {"s", 3}}, 100, 64), 16u * 7) << "of fewer rows nothing is streamed, and they are cut, too";
  try {
    cut({{"s", 3}}, 1);
    FAIL() << "a stream has one slice behind the other";
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(),
                 "[linear_slices] tiles of 3 along \"s\", but a task takes one contiguous range of its weights: take 1 "
                 "or leave it out "
                 "(node \"y\")");
  }
}

TEST(Partition, ANormThatIsWorkedOutIsReadInOrder) {
  Graph g(ops::builtin());
  EXPECT_NE(lower_rmsnorm_linear(g, g.constant("norm", DType::bf16, {40})).kernels.back().body, nullptr);
  Graph h(ops::builtin());
  EXPECT_EQ(lower_rmsnorm_linear(h, h.activation("norm", DType::bf16, {40})).kernels.back().body, nullptr);
}

TEST(Partition, AGatheredRowCostsWhatOneRowCosts) {
  Graph g(ops::builtin());
  g.dynamic_size("rows", g.state("counts", DType::i32, {1}), 0);
  const graph::Dim rows(64, "rows");
  const auto x = g.apply("embedding", "embed",
                         {g.state("ids", DType::i32, {rows}), g.constant("table", DType::bf16, {100000, 256})});
  g.apply("linear", "y", {x, g.constant("w", DType::bf16, {256, 256})});
  const Partitioned p = partition(g, optimize::lower(g, "cpu"), 1, machine::worker_rates("cpu"));
  EXPECT_EQ(p.tasks[0].reads[1].box, (loop::Box{{0, 0}, {100000, 256}})) << "which row is not known: all of them";
  EXPECT_LT(p.tasks[0].cost_ns * 10, p.tasks[1].cost_ns);
  // Every task that follows a dynamic size reads where its value is.
  for (const Task& task : p.tasks) {
    bool reads_counts = false;
    for (const Region& region : task.reads)
      reads_counts |= p.buffers[static_cast<size_t>(region.buffer)].name == "counts";
    EXPECT_TRUE(reads_counts) << task.name;
  }
}

}  // namespace
}  // namespace megalith::task
