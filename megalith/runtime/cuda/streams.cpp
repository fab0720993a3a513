#include "megalith/runtime/cuda/streams.h"

#include <algorithm>

#include "megalith/base/error.h"
#include "megalith/kernels/gemm_layout.h"
#include "megalith/kernels/int8_layout.h"
#include "megalith/kernels/l2_layout.h"
#include "megalith/kernels/shared_budget.h"
#include "megalith/kernels/stream_layout.h"
#include "megalith/kernels/stream_order.h"
#include "megalith/ops/streamed.h"

namespace megalith::runtime {

namespace {

using graph::Node;
using graph::StreamedWeights;

struct Rows {
  int64_t begin, end;
};

// The rows of weights of a task.
Rows rows_of(const Node& node, const StreamedWeights& streamed, const task::Task& task, int64_t num_rows) {
  const auto axis = std::ranges::find_if(task.tile, [&](const loop::Range& r) { return r.iname == streamed.axis; });
  MEGALITH_ASSERT(axis != task.tile.end(), "[streams] task \"{}\" has no axis {}", task.name, streamed.axis);
  const int64_t step = streamed.step.empty() ? 1 : node.sizes.at(streamed.step);
  return {axis->begin * step, std::min(axis->end * step, num_rows)};
}

// The first chunk of the columns of a task, of `chunks` chunks a stretch.
int64_t first_chunk_of(const StreamedWeights& streamed, const task::Task& task, int64_t chunks) {
  if (streamed.stretch.empty()) return 0;
  const auto axis = std::ranges::find_if(task.tile, [&](const loop::Range& r) { return r.iname == streamed.stretch; });
  MEGALITH_ASSERT(axis != task.tile.end() && axis->end == axis->begin + 1,
                  "[streams] task \"{}\" has no split-K slice of {}", task.name, streamed.stretch);
  return axis->begin * chunks;
}

class Planner {
 public:
  Planner(const graph::Graph& graph, const graph::Schedule& schedule, const task::TaskGraph& tasks, int ring_slots)
      : graph_(graph), schedule_(schedule), tasks_(tasks), goes_abreast_(stream::goes_abreast(ring_slots)) {
    plan_.first_chunks.assign(tasks.tasks.size(), 0);
    plan_.read_in_place.assign(graph.tensors().size(), false);
    for (size_t n = 0; n < graph.nodes().size(); ++n) {
      const Node& node = graph.nodes()[n];
      const graph::TunedBody* body = schedule.body(n);
      streamed_.push_back(body && body->streamed ? &*body->streamed : nullptr);
      for (size_t i = 0; i < node.operands.size(); ++i)
        if (!streamed_.back() || !is_streamed(*streamed_.back(), node.op->operands[i].name))
          plan_.read_in_place[static_cast<size_t>(node.operands[i])] = true;
    }
  }

  StreamPlan run() {
    for (const std::vector<int>& list : tasks_.workers) {
      const u64 first = plan_.num_chunks;
      for (int t : list) {
        plan_.first_chunks[static_cast<size_t>(t)] = static_cast<u32>(plan_.num_chunks - first);
        add_task(tasks_.tasks[static_cast<size_t>(t)]);
      }
      plan_.streams.push_back({first, plan_.num_chunks - first, 0});
    }
    check_covered();
    return std::move(plan_);
  }

 private:
  static bool is_streamed(const StreamedWeights& streamed, const std::string& operand) {
    return std::ranges::find(streamed.operands, operand) != streamed.operands.end();
  }

  void add_task(const task::Task& task) {
    const Node& node = graph_.nodes()[static_cast<size_t>(task.node)];
    const StreamedWeights* streamed = streamed_[static_cast<size_t>(task.node)];
    if (!streamed) return;
    std::vector<graph::TensorId> matrices;
    for (const std::string& operand : streamed->operands)
      for (size_t i = 0; i < node.operands.size(); ++i)
        if (node.op->operands[i].name == operand) matrices.push_back(node.operands[i]);
    const graph::Tensor& tensor = graph_.tensor(matrices.front());
    const bool is_int8 = schedule_.layout(matrices.front()) == graph::Layout::int8;
    plan_.has_scales |= is_int8;
    const int64_t num_rows = tensor.shape[0].size, columns = tensor.shape[1].size;
    stream::Order order = ops::stream_order(*streamed, node.sizes);
    if (is_int8) {
      MEGALITH_ASSERT(streamed->stretch.empty() || order.chunks % int8::kSpans == 0,
                      "[streams] split-K slices of {} chunks are not whole ones of int8", order.chunks);
      order.chunks = int8::chunks(order.chunks);
      order.part = int8::chunks(order.part);
    }
    const int64_t first_chunk = first_chunk_of(*streamed, task, order.chunks);
    auto add = [&](size_t matrix, u64 at, int64_t row, int64_t end, int64_t chunk) {
      plan_.records[matrices[matrix]].push_back(
          {.weights = nullptr,
           .chunk = at,
           .columns = static_cast<u64>(columns),
           .first_row = static_cast<u64>(row),
           .num_rows = static_cast<u32>(std::min<int64_t>(order.group, end - row)),
           .column_chunk = static_cast<u32>(first_chunk + chunk),
           .slices = static_cast<u32>(order.slices),
           .group = static_cast<u32>(order.group),
           .matrix = static_cast<u32>(matrix),
           .matrices = static_cast<u32>(matrices.size()),
           .quant_columns = is_int8 ? static_cast<u32>(tensor.quant_columns) : 0,
           .is_f16 = tensor.dtype == DType::f16,
           .scales = nullptr});
    };
    const Rows rows = rows_of(node, *streamed, task, num_rows);
    // As kernels/cuda/wide.cuh takes them, all matrices in a chunk; then as linear.cuh does.
    if (order.slices == 0) {
      for (int64_t row = rows.begin; row < rows.end;) {
        const int64_t left = (rows.end - row + order.group - 1) / order.group;
        const int abreast = goes_abreast_ ? stream::wide_turn(static_cast<int>(left), static_cast<int>(order.turn)) : 1;
        for (int64_t chunk = 0; chunk < order.chunks; ++chunk)
          for (int i = 0; i < abreast; ++i, ++plan_.num_chunks)
            for (size_t matrix = 0; matrix < matrices.size(); ++matrix)
              add(matrix, plan_.num_chunks, row + i * order.group, rows.end, chunk);
        row += abreast * order.group;
      }
      return;
    }
    const int64_t turn = order.turn > 0 ? order.turn * order.group : rows.end - rows.begin;
    for (int64_t first = rows.begin; first < rows.end; first += turn)
      for (int64_t begin = 0; begin < order.chunks; begin += order.part)
        for (int64_t row = first; row < std::min(first + turn, rows.end); row += order.group)
          for (size_t matrix = 0; matrix < matrices.size(); ++matrix)
            for (int64_t chunk = begin; chunk < std::min<int64_t>(begin + order.part, order.chunks); ++chunk)
              add(matrix, plan_.num_chunks++, row, rows.end, chunk);
  }

  void check_covered() const {
    for (const auto& [matrix, records] : plan_.records) {
      const graph::Tensor& tensor = graph_.tensor(matrix);
      int64_t readers = 0;
      for (size_t n = 0; n < graph_.nodes().size(); ++n)
        if (streamed_[n]) readers += std::ranges::count(graph_.nodes()[n].operands, matrix);
      const int64_t columns = tensor.shape[1].size;
      std::vector<int64_t> streamed(static_cast<size_t>(tensor.shape[0].size), 0);
      for (const stream::PackRecord& record : records) {
        const int64_t of_span = record.slices == 0
                                    ? stream::wide_columns(static_cast<int>(record.group * record.matrices))
                                    : stream::chunk_columns(static_cast<int>(record.slices));
        const int64_t width = record.quant_columns > 0 ? of_span * int8::kSpans : of_span;
        for (u64 row = record.first_row; row < record.first_row + record.num_rows; ++row)
          streamed.at(row) += std::min(width, columns - record.column_chunk * width);
      }
      for (size_t row = 0; row < streamed.size(); ++row)
        MEGALITH_ASSERT(streamed[row] == readers * columns,
                        "[streams] of row {} of \"{}\" {} weights are streamed, want {}", row, tensor.name,
                        streamed[row], readers * columns);
    }
  }

  const graph::Graph& graph_;
  const graph::Schedule& schedule_;
  const task::TaskGraph& tasks_;
  const bool goes_abreast_;
  std::vector<const StreamedWeights*> streamed_;  // per node
  StreamPlan plan_;
};

}  // namespace

int64_t StreamPlan::largest_packed(const graph::Graph& graph) const {
  int64_t largest = 0;
  for (const auto& [matrix, chunks] : records)
    if (!in_place(matrix)) largest = std::max(largest, graph.tensor(matrix).bytes());
  return largest;
}

int64_t StreamPlan::largest_table() const {
  size_t most = 0;
  for (const auto& [matrix, chunks] : records) most = std::max(most, chunks.size());
  return static_cast<int64_t>(most * sizeof(stream::PackRecord));
}

u64 StreamPlan::num_blocks() const {
  u64 blocks = 0;
  for (size_t w = 0; w + 1 < streams.size(); w += 2)
    blocks += std::max(streams[w].num_chunks, streams[w + 1].num_chunks);
  return blocks;
}

StreamPlan plan_streams(const graph::Graph& graph, const graph::Schedule& schedule, const task::TaskGraph& tasks,
                        int ring_slots) {
  return Planner(graph, schedule, tasks, ring_slots).run();
}

std::vector<u32> deal_to_sides(StreamPlan& plan, const SideMap& sides) {
  constexpr u64 kChunksOfWord = 16;
  MEGALITH_ASSERT(plan.streams.size() % 2 == 0, "[streams] {} workers are no pairs", plan.streams.size());
  std::vector<bool> is_short(plan.num_chunks);
  for (const auto& [matrix, records] : plan.records)
    for (const stream::PackRecord& record : records)
      is_short[record.chunk] = record.slices == 0 && stream::is_short(static_cast<int>(record.group * record.matrices));
  std::vector<u32> kinds;
  std::vector<u64> places(plan.num_chunks);  // by chunk
  u64 block = 0;
  for (size_t w = 0; w < plan.streams.size(); ++w) {
    Stream& mine = plan.streams[w];
    const u64 first_chunk = mine.first;
    mine.first = block;
    mine.first_bits = kinds.size();
    kinds.resize(kinds.size() + (mine.num_chunks + kChunksOfWord - 1) / kChunksOfWord);
    for (u64 c = 0; c < mine.num_chunks; ++c) {
      const u64 half = sides.of_block((block + c) * stream::kBlockBytes) ^ (w % 2);
      const u64 kind = half + (is_short[first_chunk + c] ? 2 : 0);
      kinds[mine.first_bits + c / kChunksOfWord] |= static_cast<u32>(kind << c % kChunksOfWord * 2);
      places[first_chunk + c] = (block + c) * 2 + half;
    }
    if (w % 2 == 1) block += std::max(mine.num_chunks, plan.streams[w - 1].num_chunks);
  }
  for (auto& [matrix, records] : plan.records)
    for (stream::PackRecord& record : records) record.chunk = places[record.chunk];
  return kinds;
}

}  // namespace megalith::runtime
