// The workers' streams of weights, planned: which chunk of which matrix comes when. A worker's stream follows its list,
// so what is known of the task graph tells everything; nothing is left to the kernel but to count. Every row of a
// streamed matrix lies in one worker's stream, once.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "megalith/graph/graph.h"
#include "megalith/graph/schedule.h"
#include "megalith/kernels/int8_layout.h"
#include "megalith/kernels/stream_limits.h"
#include "megalith/kernels/stream_order.h"
#include "megalith/runtime/cuda/sides.h"
#include "megalith/task/task_graph.h"

namespace megalith::runtime {

struct StreamPlan {
  std::vector<Stream> streams;                                         // per worker
  std::vector<u32> first_chunks;                                       // per task
  std::map<graph::TensorId, std::vector<stream::PackRecord>> records;  // by matrix; `weights` is left to the caller
  std::vector<bool> read_in_place;  // per tensor: some task takes it from memory, not from a stream
  u64 num_chunks = 0;
  bool has_scales = false;  // a kilobyte beside each chunk (kernels/int8_layout.h)

  int64_t bytes() const { return static_cast<int64_t>(num_chunks) * stream::kChunkBytes; }
  /// Of `chunks` chunks, which may be more than there are, where they lie on the sides of the L2.
  int64_t scale_bytes(u64 chunks) const { return has_scales ? static_cast<int64_t>(chunks) * int8::kScaleBytes : 0; }
  /// Blocks of two chunks, where workers 2 i and 2 i + 1 share those of the longer one's stream.
  u64 num_blocks() const;
  /// Whether the tensor itself is on the card, beside its chunks if it has any.
  bool in_place(graph::TensorId tensor) const {
    return read_in_place[static_cast<size_t>(tensor)] || !records.contains(tensor);
  }
  /// Bytes of the largest matrix that is on the card only to be packed, and of the records that packing takes.
  int64_t largest_packed(const graph::Graph& graph) const;
  int64_t largest_table() const;
};

/// For rings of `ring_slots` slots. InternalError if a streamed matrix is not covered exactly once, which would be a
/// mistake of the partition.
StreamPlan plan_streams(const graph::Graph& graph, const graph::Schedule& schedule, const task::TaskGraph& tasks,
                        int ring_slots);

/// Deals memory of num_blocks() blocks to the workers, of which there is an even number, by twos: chunk n of a stream is
/// the half of block n of the two that is on the worker's side. Streams and records say where then. Returns
/// Sides::chunks.
std::vector<u32> deal_to_sides(StreamPlan& plan, const SideMap& sides);

}  // namespace megalith::runtime
