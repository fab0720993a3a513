// What a task graph's streams of weights come to, in chunks: the arithmetic that all share who make, prove, pack or
// print them.
#pragma once

#include <cstdint>
#include <tuple>
#include <vector>

#include "megalith/task/task_graph.h"

namespace megalith::task {

/// Columns of its matrices that a chunk has, and chunks that all `columns` of them take.
int64_t chunk_columns(const WeightStream& stream);
int64_t chunks_of_row(const WeightStream& stream, int64_t columns);
/// Groups of rows of a task, and all its chunks.
int64_t num_groups(const WeightStream& stream, const StreamPart& part);
int64_t num_chunks(const WeightStream& stream, const StreamPart& part);

/// What a part has, whoever takes it: several tasks may, with other rows of activations.
using PartKey = std::tuple<int, int64_t, int64_t, int64_t>;
PartKey part_key(const WeightStream& stream, const StreamPart& part);

/// The one of a node, in `streams` that are sorted by node; nullptr: none.
const WeightStream* find_stream(const std::vector<WeightStream>& streams, int node);

/// Of a graph whose streams are sound.
struct StreamTotals {
  int64_t chunks = 0;           // of all streams, those that several tasks take once
  std::vector<int64_t> pieces;  // per buffer: of chunks, what they have of it; 0: it is in no stream
  std::vector<bool> in_place;   // per buffer: it is in no stream, or some task reads it from memory all the same

  /// Bytes of the largest buffer that is in streams alone, and pieces of the one that has the most.
  int64_t largest_packed = 0, most_pieces = 0;
  bool has_scales = false;  // a kilobyte beside each chunk (kernels/int8_layout.h)

  /// Of all chunks with what lies beside them, and of the table by which one matrix is packed at a time.
  int64_t bytes() const;
  int64_t table_bytes() const;
};
StreamTotals stream_totals(const TaskGraph& tasks);

}  // namespace megalith::task
