// Which chunk of which matrix comes when in a worker's stream.
#include "megalith/runtime/cuda/streams.h"

#include <gmock/gmock.h>

#include <set>

#include "megalith/graph/lower.h"
#include "megalith/kernels/gemm_layout.h"
#include "megalith/kernels/l2_layout.h"
#include "megalith/kernels/stream_layout.h"
#include "megalith/model/decoder.h"
#include "megalith/ops/stream_choices.h"
#include "megalith/optimize/schedule.h"
#include "megalith/task/partition.h"
#include "megalith/task/streams.h"

namespace megalith::runtime {
namespace {

// A decoder's streams, all tasks on one worker.
struct Planned {
  explicit Planned(int64_t max_rows, const std::string& shape = "Qwen3-0.6B", const std::string& target = "cuda",
                   int64_t quant_columns = 0)
      : graph(build_decoder(config_read(MEGALITH_SOURCE_DIR "/models/shapes/" + shape),
                            {.max_rows = max_rows, .target = "cuda", .quant_columns = quant_columns})) {
    task::Partitioned partitioned =
        task::partition(graph, optimize::lower(graph, "cuda"), 132, machine::worker_rates("cuda"));
    tasks = {.tasks = std::move(partitioned.tasks), .buffers = std::move(partitioned.buffers)};
    tasks.workers.resize(1);
    for (size_t t = 0; t < tasks.tasks.size(); ++t) tasks.workers[0].push_back(static_cast<int>(t));
    task::add_streams(tasks, graph, optimize::make_schedule(graph, "cuda"),
                      machine::gpu_of_target(target).shared_bytes);
    plan = plan_streams(tasks);
  }
  const std::vector<stream::PackRecord>& records(const std::string& name) const {
    for (const auto& [matrix, records] : plan.records)
      if (graph.tensor(matrix).name == name) return records;
    throw std::runtime_error("no matrix \"" + name + "\"");
  }

  graph::Graph graph;
  task::TaskGraph tasks;
  StreamPlan plan;
};

constexpr const char *kGate = "model.layers.3.mlp.gate_proj.weight", *kUp = "model.layers.3.mlp.up_proj.weight";

// Every chunk is somebody's, and every piece of every matrix lies in one.
TEST(Streams, HoldEveryPieceOnce) {
  // The last one has split-K slices.
  for (const auto& [rows, shape, quant_columns] : {std::tuple(1, "Qwen3-0.6B", 0),
                                                   {8, "Qwen3-0.6B", 0},
                                                   {64, "Qwen3-0.6B", 0},
                                                   {128, "Qwen3-0.6B", 0},
                                                   {128, "Llama-3.2-1B", 0},
                                                   {1, "Qwen3-0.6B", 32},
                                                   {8, "Llama-3.2-1B", 128},
                                                   {64, "Qwen3-0.6B", 32},
                                                   {128, "Llama-3.2-1B", 32},
                                                   {512, "Qwen3-0.6B", 0}}) {
    const Planned planned(rows, shape, "cuda", quant_columns);
    EXPECT_EQ(planned.plan.totals.has_scales, quant_columns > 0);
    std::vector<int> parts(planned.plan.num_chunks(), 0);
    for (const auto& [matrix, records] : planned.plan.records) {
      const graph::Tensor& tensor = planned.graph.tensor(matrix);
      std::map<u32, int64_t> rows_of_chunk;  // by chunk of the columns
      int64_t columns = 0;
      for (const stream::PackRecord& record : records) {
        parts.at(record.chunk) += record.slices == 0 ? 1 : static_cast<int>(record.matrices);
        rows_of_chunk[record.column_chunk] += record.num_rows;
        const auto chunk_rows = static_cast<int>(record.group * record.matrices);
        const int64_t of_span = record.slices == 0 ? stream::wide_columns(chunk_rows)
                                                   : stream::chunk_columns(static_cast<int>(record.slices)),
                      width = of_span * (quant_columns > 0 ? int8::kSpans : 1);
        EXPECT_EQ(record.quant_columns, quant_columns);
        EXPECT_LT(record.column_chunk * width, tensor.shape[1].size);
        columns = std::max(columns, (record.column_chunk + 1) * width);
        EXPECT_LT(record.matrix, record.matrices);
      }
      for (const auto& [chunk, num_rows] : rows_of_chunk) EXPECT_EQ(num_rows, tensor.shape[0].size) << tensor.name;
      EXPECT_EQ(rows_of_chunk.size(), rows_of_chunk.rbegin()->first + 1u) << tensor.name;
      EXPECT_GE(columns, tensor.shape[1].size) << tensor.name;
    }
    for (const auto& [matrix, records] : planned.plan.records)
      for (const stream::PackRecord& record : records)
        ASSERT_EQ(parts[record.chunk], static_cast<int>(record.matrices)) << planned.graph.tensor(matrix).name;
    EXPECT_THAT(parts, ::testing::Each(::testing::Gt(0)));
  }
}

// Of more rows than a task multiplies several take the same chunks, which are packed once: a stream is runs of them.
TEST(Streams, AreSharedByTilesOfManyRows) {
  const Planned planned(512, "Qwen3-0.6B"), half(256, "Qwen3-0.6B");
  EXPECT_TRUE(planned.plan.is_shared());
  EXPECT_FALSE(half.plan.is_shared());
  EXPECT_EQ(half.plan.runs.size(), 1u);
  const Stream& stream = planned.plan.streams[0];
  EXPECT_GT(stream.num_chunks, planned.plan.num_chunks());
  std::map<u64, int> taken;  // by chunk, how often
  u64 at = 0;
  for (const StreamRun& run : planned.plan.runs)
    for (; at < run.end; ++at) ++taken[run.base + at];
  EXPECT_EQ(at, stream.num_chunks);
  EXPECT_EQ(taken.size(), planned.plan.num_chunks()) << "all of them, and no others";
  // Of each task those that its part was packed as, whoever was first to take it.
  std::map<task::PartKey, u64> first;
  for (const task::Task& task : planned.tasks.tasks) {
    if (!task.stream) continue;
    const task::WeightStream& of_node = *task::find_stream(planned.tasks.streams, task.node);
    u64 run = 0;
    while (planned.plan.runs[run].end <= static_cast<u64>(task.stream->first_chunk)) ++run;
    const u64 chunk = planned.plan.runs[run].base + static_cast<u64>(task.stream->first_chunk);
    const auto [there, is_new] = first.try_emplace(task::part_key(of_node, *task.stream), chunk);
    EXPECT_EQ(there->second, chunk) << task.name;
  }
}

TEST(Streams, OfInt8HaveHalfAsManyChunks) {
  for (const int64_t rows : {1, 8}) {
    const Planned whole(rows, "Llama-3.2-1B"), int8(rows, "Llama-3.2-1B", "cuda", 32);
    EXPECT_EQ(int8.plan.num_chunks() * 2, whole.plan.num_chunks()) << rows << " rows";
    EXPECT_EQ(int8.plan.scale_bytes(int8.plan.num_chunks()) * 16, int8.plan.bytes());
  }
}

// Of many rows a chunk has gate and up side by side, of few one after the other.
TEST(Streams, TakeTwoMatricesTogetherOrInTurns) {
  for (const int64_t rows : {8, 64}) {
    const Planned planned(rows);
    const auto &gate = planned.records(kGate), &up = planned.records(kUp);
    ASSERT_EQ(gate.size(), up.size());
    for (size_t i = 0; i < gate.size(); ++i) {
      EXPECT_EQ(gate[i].first_row, up[i].first_row);
      EXPECT_EQ(gate[i].column_chunk, up[i].column_chunk);
      EXPECT_EQ(gate[i].matrix, 0u);
      EXPECT_EQ(up[i].matrix, 1u);
      if (rows > stream::kMaxRows)
        EXPECT_EQ(gate[i].chunk, up[i].chunk);
      else
        EXPECT_LT(gate[i].chunk, up[i].chunk);
    }
  }
}

// Where the ring is too short for N-parallel groups they come one after the other.
TEST(Streams, GroupsComeAbreastThroughALongRing) {
  for (const auto& [target, most] : {std::pair("cuda:sm_90a", 3), {"cuda:sm_80", 1}}) {
    const Planned planned(64, "Qwen3-8B", target);
    const auto& records = planned.records(kGate);
    std::set<u64> begun;  // groups whose first chunk of columns is there, and whose last is not
    size_t n_parallel = 0;
    const u32 last = std::ranges::max_element(records, {}, &stream::PackRecord::column_chunk)->column_chunk;
    for (const stream::PackRecord& record : records) {
      begun.insert(record.first_row);
      n_parallel = std::max(n_parallel, begun.size());
      if (record.column_chunk == last) begun.erase(record.first_row);
    }
    EXPECT_EQ(n_parallel, static_cast<size_t>(most)) << target;
  }
}

// As many rows of weights at a time as leave the busiest of 132 workers the fewest.
TEST(Streams, ChunksOfManyRowsSuitTheMatrix) {
  EXPECT_EQ(ops::wide_group(6144, 1, 64), 48) << "128 workers have one group each; of 64 rows 96 would";
  EXPECT_EQ(ops::wide_group(4096, 1, 64), 32);
  EXPECT_EQ(ops::wide_group(151936, 1, 64), 64) << "18 of 64, as many rows as 36 of 32";
  EXPECT_EQ(ops::wide_group(12288, 2, 64), 32) << "of each";
  EXPECT_EQ(ops::wide_group(3072, 2, 64), 24);
  EXPECT_EQ(ops::wide_group(12288, 2, 256), 48)
      << "three of 32 are as many rows as two of 48, which read activations twice";
  EXPECT_EQ(ops::wide_group(16384, 1, 256), 128);
  EXPECT_EQ(ops::wide_group(12288, 2, 512), 64) << "of two tiles of rows 384 tasks, three a worker";
  EXPECT_EQ(ops::wide_group(4096, 1, 512, 32), 64);
  for (const int chunk_rows : stream::kWideChunkRows) {
    EXPECT_EQ(stream::wide_columns(chunk_rows) % stream::kSlotColumns, 0);
    EXPECT_LE(chunk_rows / 8 * stream::wide_block_bytes(chunk_rows), stream::kChunkBytes);
    EXPECT_GT(chunk_rows * (stream::wide_columns(chunk_rows) + stream::kSlotColumns) * 2, stream::kChunkBytes);
  }
}

}  // namespace
}  // namespace megalith::runtime
