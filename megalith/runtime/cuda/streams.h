// The workers' streams of weights, as a task graph says them (task/task_graph.h), chunk by chunk: where each worker's
// begins, and what the kernel that packs them is told of each chunk. Nothing is decided here; nothing is left to the
// kernel but to count.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "megalith/kernels/int8_layout.h"
#include "megalith/kernels/stream_limits.h"
#include "megalith/kernels/stream_order.h"
#include "megalith/runtime/cuda/sides.h"
#include "megalith/task/stream_chunks.h"
#include "megalith/task/task_graph.h"

namespace megalith::runtime {

struct StreamPlan {
  std::vector<Stream> streams;                             // per worker
  std::vector<StreamRun> runs;                             // of all workers
  std::vector<u32> first_chunks;                           // per task
  std::map<int, std::vector<stream::PackRecord>> records;  // by matrix, a buffer; `weights` is left to the caller
  task::StreamTotals totals;

  /// Whether some chunks are taken by several workers.
  bool is_shared() const;
  u64 num_chunks() const { return static_cast<u64>(totals.chunks); }
  int64_t bytes() const { return totals.chunks * stream::kChunkBytes; }
  /// Of `chunks` chunks, which may be more than there are, where they lie on the sides of the L2.
  int64_t scale_bytes(u64 chunks) const {
    return totals.has_scales ? static_cast<int64_t>(chunks) * int8::kScaleBytes : 0;
  }
  /// Blocks of two chunks, where workers 2 i and 2 i + 1 share those of the longer one's stream.
  u64 num_blocks() const;
};

/// Those of a graph whose streams are sound.
StreamPlan plan_streams(const task::TaskGraph& tasks);

/// Deals memory of num_blocks() blocks to the workers, of which there is an even number, by twos: chunk n of a stream is
/// the half of block n of the two that is on the worker's side. Of streams that share no chunks. They and records say where
/// then. Returns Sides::chunks.
std::vector<u32> deal_to_sides(StreamPlan& plan, const SideMap& sides);

}  // namespace megalith::runtime
