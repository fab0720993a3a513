// Whether a decoder fits on a GPU, asked before minutes are spent on copying weights to it; and if not, what would.
#pragma once

#include <cstdint>
#include <string>

#include "megalith/graph/graph.h"
#include "megalith/runtime/cuda/streams.h"
#include "megalith/task/task_graph.h"

namespace megalith::engine {

/// What lies on the card while a decoder runs, in bytes, and the sizes that the user can change.
struct MemoryNeeds {
  int64_t weights = 0;       // with every copy that is kept: a matrix may lie in a stream and in place
  int64_t kv_cache = 0;      // of max_requests texts of max_seq_len positions
  int64_t activations = 0;   // the arena and the exchange
  int64_t other = 0;         // states beside the cache, and room for the matrix that is being packed
  int64_t max_requests = 1;  // --max-batch
  int64_t max_seq_len = 0;   // --max-seq-len; a multiple of page_size, or less than one page
  int64_t page_size = 1;     // --page-size

  int64_t total() const { return weights + kv_cache + activations + other; }
};

/// Of a graph that build_decoder() made, planned, and of where its weights will lie.
MemoryNeeds memory_needs(const graph::Graph& graph, const task::TaskGraph& tasks, const runtime::StreamPlan& streams);

/// "" if `needs` fits into `free_bytes`; else what is needed, what is free, and which --max-seq-len or --max-batch
/// would fit. A little is left to the driver.
std::string memory_report(const MemoryNeeds& needs, int64_t free_bytes);

}  // namespace megalith::engine
