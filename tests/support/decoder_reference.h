// The judge of whole models: a decoder's graph run in float64 by the interpreter, on the weights that an engine made
// up.
#pragma once

#include <algorithm>
#include <vector>

#include "megalith/engine/engine.h"
#include "megalith/graph/interpret.h"

namespace megalith::testing {

struct ReferenceStep {
  std::vector<int> tokens;                  // sampled in this iteration, in the order of sample rows
  std::vector<std::vector<double>> logits;  // per sample row
};

/// All iterations of a generation that sampled something. The engine's weights are dummies of `dummy_seed`.
inline std::vector<ReferenceStep> decoder_reference(const engine::Engine& engine,
                                                    const std::vector<engine::Request>& requests,
                                                    const std::vector<int>& stop_tokens, uint64_t dummy_seed) {
  const graph::Graph& graph = engine.graph();
  engine::MemoryMap states, constants;  // the engine's own have been packed and given up
  states.bind_states(graph);
  constants.bind_random(graph, dummy_seed);
  constants.bind_rope(graph, engine.config());
  engine::batch_block_fill(graph, engine.decoder_options(), stop_tokens, requests, states);
  loop::Arrays arrays;
  for (const graph::Tensor& tensor : graph.tensors()) {
    if (tensor.kind == graph::TensorKind::activation) continue;
    const bool state = tensor.kind == graph::TensorKind::state;
    const void* data = (state ? states : constants).addresses().at(tensor.name);
    std::vector<int64_t> shape;
    for (const graph::Dim& dim : tensor.shape) shape.push_back(dim.size);
    loop::Array array = loop::Array::zeros(shape);
    for (size_t i = 0; i < array.values.size(); ++i)
      array.values[i] = element_load(data, tensor.dtype, static_cast<int64_t>(i));
    arrays[tensor.name] = std::move(array);
  }

  const graph::LoweredGraph lowered = graph::lower(graph, "cpu");
  std::vector<ReferenceStep> steps;
  const int sampling = static_cast<int>(graph.nodes().size()) - 2;
  graph::interpret(graph, lowered, arrays, 100000, [&](int node) {
    if (node != sampling) return;
    const auto samples = static_cast<size_t>(arrays.at("counts").values[batch::kSamples]);
    if (samples == 0) return;
    ReferenceStep step;
    const auto vocab = static_cast<size_t>(engine.config().vocab_size);
    for (size_t r = 0; r < samples; ++r) {
      step.tokens.push_back(static_cast<int>(arrays.at("sampling.token").values[r]));
      const double* row = arrays.at("logits").values.data() + r * vocab;
      step.logits.emplace_back(row, row + vocab);
    }
    steps.push_back(std::move(step));
  });
  return steps;
}

}  // namespace megalith::testing
