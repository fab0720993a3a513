#include "megalith/task/streams.h"

#include <algorithm>
#include <string>

#include "megalith/base/error.h"
#include "megalith/graph/lower.h"
#include "megalith/kernels/int8_layout.h"
#include "megalith/kernels/shared_budget.h"
#include "megalith/ops/streamed.h"
#include "megalith/task/stream_chunks.h"

namespace megalith::task {

namespace {

using graph::Graph;
using graph::Node;
using graph::StreamedWeights;

const StreamedWeights* streamed_of(const graph::Schedule& schedule, size_t node) {
  const graph::TunedBody* body = schedule.body(node);
  return body && body->streamed ? &*body->streamed : nullptr;
}

WeightStream weight_stream(const Graph& graph, const graph::Schedule& schedule, int n, const StreamedWeights& streamed,
                           bool n_parallel) {
  const Node& node = graph.nodes()[static_cast<size_t>(n)];
  WeightStream stream{.node = n,
                      .matrices = {},
                      .order = ops::stream_order(streamed, graph::body_query(graph, schedule, static_cast<size_t>(n)))};
  for (const std::string& operand : streamed.operands)
    for (size_t i = 0; i < node.operands.size(); ++i)
      if (node.op->operands[i].name == operand) stream.matrices.push_back(node.operands[i]);
  if (stream.order.slices == 0 && !n_parallel) stream.order.turn = 1;
  if (schedule.layout(stream.matrices.front()) == graph::Layout::int8) {
    MEGALITH_ASSERT(streamed.slice_axis.empty() || stream.order.chunks % int8::kSpans == 0,
                    "[streams] split-K slices of {} chunks are not whole ones of int8", stream.order.chunks);
    stream.quant_columns = graph.tensor(stream.matrices.front()).quant_columns;
    stream.order.chunks = int8::chunks(stream.order.chunks);
    stream.order.part = int8::chunks(stream.order.part);
  }
  for (size_t i = 0; i < node.operands.size(); ++i)
    MEGALITH_ASSERT(std::ranges::count(streamed.operands, node.op->operands[i].name) ||
                        !std::ranges::count(stream.matrices, node.operands[i]),
                    "[streams] node \"{}\" takes \"{}\" from a stream and as its operand {}", node.name,
                    graph.tensor(node.operands[i]).name, node.op->operands[i].name);
  return stream;
}

// What a task takes, but for where it begins.
StreamPart part_of(const Graph& graph, const WeightStream& stream, const StreamedWeights& streamed, const Task& task) {
  const Node& node = graph.nodes()[static_cast<size_t>(task.node)];
  const auto range_of = [&](const std::string& axis) {
    const auto range = std::ranges::find(task.tile, axis, &loop::Range::iname);
    MEGALITH_ASSERT(range != task.tile.end(), "[streams] task \"{}\" has no axis {}", task.name, axis);
    return *range;
  };
  const loop::Range rows = range_of(streamed.axis);
  const int64_t step = streamed.step.empty() ? 1 : node.sizes.at(streamed.step);
  const int64_t num_rows = graph.tensor(stream.matrices.front()).shape[0].size;
  StreamPart part{.row_begin = rows.begin * step, .row_end = std::min(rows.end * step, num_rows)};
  if (stream.order.partners) {  // the rows of both, and half of the columns
    const int64_t group = stream.order.group, first = part.row_begin / group * group;
    part.column_chunk = part.row_begin == first ? 0 : stream.order.chunks;
    part.row_begin = first;
    part.row_end = first + group;
  }
  if (streamed.slice_axis.empty()) return part;
  const loop::Range slice = range_of(streamed.slice_axis);
  MEGALITH_ASSERT(slice.end == slice.begin + 1, "[streams] task \"{}\" has no split-K slice of {}", task.name,
                  streamed.slice_axis);
  part.column_chunk = slice.begin * stream.order.chunks;
  return part;
}

}  // namespace

// The bodies of many rows work in more shared memory than a generated body has its scratch there
// (codegen/emit.cpp, take_scratch_into_area), so what those take makes no ring shorter whose length is asked for here.
bool streams_are_n_parallel(const Graph& graph, const graph::Schedule& schedule, int64_t shared_bytes) {
  if (schedule.target != "cuda") return false;  // nothing streams there
  int64_t area_bytes = 0, rows = 0;
  const bool has_scales = std::ranges::count(schedule.layouts, graph::Layout::int8) > 0;
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    if (const StreamedWeights* streamed = streamed_of(schedule, n))
      rows = std::max(rows, node.sizes.at(streamed->activations));
    const graph::TunedBody* body = schedule.body(n);
    if (body && body->area_bytes)
      area_bytes = std::max(area_bytes, body->area_bytes(graph::body_query(graph, schedule, n)));
  }
  return stream::is_n_parallel(stream::ring_slots(shared_bytes, area_bytes, rows, has_scales ? int8::kScaleBytes : 0));
}

std::vector<WeightStream> weight_streams(const Graph& graph, const graph::Schedule& schedule, bool n_parallel) {
  std::vector<WeightStream> streams;
  for (size_t n = 0; n < graph.nodes().size(); ++n)
    if (const StreamedWeights* streamed = streamed_of(schedule, n))
      streams.push_back(weight_stream(graph, schedule, static_cast<int>(n), *streamed, n_parallel));
  return streams;
}

void add_streams(TaskGraph& tasks, const Graph& graph, const graph::Schedule& schedule, int64_t shared_bytes) {
  tasks.streams = weight_streams(graph, schedule, streams_are_n_parallel(graph, schedule, shared_bytes));
  for (const std::vector<int>& list : tasks.workers) {
    int64_t chunk = 0;
    for (const int t : list) {
      Task& task = tasks.tasks[static_cast<size_t>(t)];
      const WeightStream* stream = find_stream(tasks.streams, task.node);
      if (!stream) continue;
      task.stream = part_of(graph, *stream, *streamed_of(schedule, static_cast<size_t>(task.node)), task);
      task.stream->first_chunk = chunk;
      chunk += num_chunks(*stream, *task.stream);
    }
  }
}

}  // namespace megalith::task
