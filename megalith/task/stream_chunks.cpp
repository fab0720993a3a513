#include "megalith/task/stream_chunks.h"

#include <algorithm>
#include <set>

#include "megalith/base/ceil_div.h"
#include "megalith/kernels/gemm_layout.h"
#include "megalith/kernels/int8_layout.h"
#include "megalith/kernels/stream_layout.h"

namespace megalith::task {

int64_t chunk_columns(const WeightStream& stream) {
  const stream::Order& order = stream.order;
  const int64_t span = order.slices == 0 ? stream::wide_columns(order.group * static_cast<int>(stream.matrices.size()))
                                         : stream::chunk_columns(order.slices);
  return stream.quant_columns > 0 ? span * int8::kSpans : span;
}

int64_t chunks_of_row(const WeightStream& stream, int64_t columns) {
  const int64_t width = chunk_columns(stream);
  return columns / width + (columns % width > 0 ? 1 : 0);  // of a file's columns, which may be any number
}

int64_t num_groups(const WeightStream& stream, const StreamPart& part) {
  return ceil_div(part.row_end - part.row_begin, int64_t{stream.order.group});
}

int64_t num_chunks(const WeightStream& stream, const StreamPart& part) {
  const int64_t together = stream.order.slices == 0 ? 1 : static_cast<int64_t>(stream.matrices.size());
  return num_groups(stream, part) * stream.order.chunks * together;
}

PartKey part_key(const WeightStream& stream, const StreamPart& part) {
  return {stream.node, part.column_chunk, part.row_begin, part.row_end};
}

const WeightStream* find_stream(const std::vector<WeightStream>& streams, int node) {
  const auto found = std::ranges::lower_bound(streams, node, {}, &WeightStream::node);
  return found == streams.end() || found->node != node ? nullptr : &*found;
}

int64_t StreamTotals::bytes() const { return chunks * (stream::kChunkBytes + (has_scales ? int8::kScaleBytes : 0)); }
int64_t StreamTotals::table_bytes() const { return most_pieces * static_cast<int64_t>(sizeof(stream::PackRecord)); }

StreamTotals stream_totals(const TaskGraph& tasks) {
  StreamTotals totals{.pieces = std::vector<int64_t>(tasks.buffers.size(), 0),
                      .in_place = std::vector<bool>(tasks.buffers.size(), false)};
  std::set<PartKey> counted;
  for (const Task& task : tasks.tasks) {
    const WeightStream* stream = task.stream ? find_stream(tasks.streams, task.node) : nullptr;
    for (const Region& region : task.reads)
      if (!stream || std::ranges::find(stream->matrices, region.buffer) == stream->matrices.end())
        totals.in_place[static_cast<size_t>(region.buffer)] = true;
    if (!stream || !counted.insert(part_key(*stream, *task.stream)).second) continue;
    totals.has_scales |= stream->quant_columns > 0;
    totals.chunks += num_chunks(*stream, *task.stream);
    for (const int matrix : stream->matrices)
      totals.pieces[static_cast<size_t>(matrix)] += num_groups(*stream, *task.stream) * stream->order.chunks;
  }
  for (size_t b = 0; b < tasks.buffers.size(); ++b) {
    if (totals.pieces[b] == 0) totals.in_place[b] = true;
    if (!totals.in_place[b]) totals.largest_packed = std::max(totals.largest_packed, tasks.buffers[b].bytes);
    totals.most_pieces = std::max(totals.most_pieces, totals.pieces[b]);
  }
  return totals;
}

}  // namespace megalith::task
