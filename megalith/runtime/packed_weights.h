// Weights in the order in which the bodies of a CPU read them (kernels/panel_layout.h): packed once, before anything
// runs, into one piece of memory in huge pages, matrix behind matrix in the order of the graph's nodes. So a step reads
// memory from one end to the other, and each worker its rows of a matrix in one run.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "megalith/graph/graph.h"
#include "megalith/graph/schedule.h"
#include "megalith/runtime/memory.h"

namespace megalith::runtime {

struct PackOptions {
  int num_threads = 1;
  /// Called, from any thread, with bytes of a weight's own memory that nobody will read again: so that weights need not
  /// be there twice. Empty: they stay.
  std::function<void(const std::byte* begin, int64_t bytes)> release = {};
};

class PackedWeights {
 public:
  /// Packs what the schedule has in panels. `memory`: where each tensor lies row by row, by name; UserError naming
  /// one that is not there. With a progress bar.
  PackedWeights(const graph::Graph& graph, const graph::Schedule& schedule, const std::map<std::string, void*>& memory,
                const PackOptions& options);

  /// nullptr if the tensor is not packed.
  void* address(graph::TensorId tensor) const {
    const auto found = offsets_.find(tensor);
    return found == offsets_.end() ? nullptr : mapping_.data() + found->second;
  }
  int64_t bytes() const { return mapping_.bytes(); }

 private:
  std::map<graph::TensorId, int64_t> offsets_;
  Mapping mapping_;
};

/// Bytes of a matrix in panels.
int64_t packed_bytes(const graph::Tensor& tensor);
/// Packs rows [row, row + num_rows) of the matrix at `from` to where they belong in `to`. `row` is a multiple of 16.
void pack_rows(const graph::Tensor& tensor, std::byte* to, const std::byte* from, int64_t row, int64_t num_rows);

}  // namespace megalith::runtime
