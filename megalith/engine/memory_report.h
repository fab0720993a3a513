// Whether a decoder fits on a GPU, or into the memory of the host that runs it, asked before minutes are spent on
// compiling it and on copying weights; and if not, what would.
#pragma once

#include <cstdint>
#include <string>

#include "megalith/graph/graph.h"
#include "megalith/model/decoder.h"
#include "megalith/task/task_graph.h"

namespace megalith::engine {

/// What lies on the card, or in the host's memory, while a decoder runs, in bytes, and the options that say how much
/// that is.
struct MemoryNeeds {
  int64_t weights = 0;      // with every copy that is kept: a matrix may lie in a stream and in place
  int64_t kv_cache = 0;     // of options.num_pages() pages
  int64_t activations = 0;  // the arena, the exchange, and what workers work in
  int64_t other = 0;        // states beside the cache, and room for the matrix that is being packed
  DecoderOptions options = {};
  bool on_gpu = true;

  /// Another kernel's streams and activations, beside the same states.
  void add_kernel(const task::TaskGraph& tasks, int64_t scratch_bytes);
  /// The largest number there is if it is more.
  int64_t total() const;
};

/// Of a graph that build_decoder() made from `options`, planned. `scratch_bytes`: of each worker.
MemoryNeeds memory_needs(const graph::Graph& graph, const DecoderOptions& options, const task::TaskGraph& tasks,
                         int64_t scratch_bytes);

/// Of a decoder for a CPU, before it is planned, so without its activations. `made_up`: weights that no file holds.
MemoryNeeds host_memory_needs(const graph::Graph& graph, const DecoderOptions& options, bool made_up);

/// "" if `needs` fits into `free_bytes`; else what is needed, what is free, and which --max-seq-len, --max-batch or (if
/// that fixes the cache) --num-pages would fit. A little is left to the driver.
std::string memory_report(const MemoryNeeds& needs, int64_t free_bytes);

}  // namespace megalith::engine
