// What a graph is optimised for, and what rules ask of it.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "megalith/graph/graph.h"
#include "megalith/graph/operator.h"
#include "megalith/machine/machine.h"

namespace megalith::optimize {

struct Goal {
  std::string target;             // "cpu", "cuda", "cuda:sm_90a"
  int64_t rows = 1;               // most rows of activations that a product of the graph has
  int64_t scale_bytes = 0;        // beside each chunk of weights, if some come in int8
  bool rounds = false;            // whether products round activations to bf16 before they meet weights in bf16
  bool rounds_attention = false;  // and attention queries, keys and values, of a CPU

  static Goal of(const graph::Graph& graph, const std::string& target);

  bool is_gpu() const { return target.starts_with("cuda"); }
  /// As bodies call their target.
  std::string bodies() const { return is_gpu() ? "cuda" : "cpu"; }
  const machine::Gpu& gpu() const { return machine::gpu_of_target(target); }

  /// Whether a tuned body would take a node of this operator with inputs like these (names do not count, dynamic sizes
  /// count at their largest), and leave room in shared memory for weights to stream through, past as many rows as any has.
  bool has_body(const graph::Registry& registry, const std::string& op, const std::vector<graph::Tensor>& inputs,
                graph::NodeOptions options = {}) const;
};

/// Whether shared memory has room for weights to stream through beside what this body works in there.
bool leaves_room(const Goal& goal, const graph::TunedBody& body, const graph::BodyQuery& query);

/// A tensor that is not there yet, for Goal::has_body().
graph::Tensor like(DType dtype, std::initializer_list<int64_t> shape);

}  // namespace megalith::optimize
