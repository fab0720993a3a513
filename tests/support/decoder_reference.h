// The judge of whole models: a decoder's graph run in float64 by the interpreter, on the weights that an engine made
// up; with activations rounded to bf16 where products do that.
#pragma once

#include <algorithm>
#include <vector>

#include "megalith/base/error.h"
#include "megalith/engine/engine.h"
#include "megalith/graph/interpret.h"
#include "megalith/graph/text.h"
#include "megalith/optimize/schedule.h"

namespace megalith::testing {

struct ReferenceStep {
  std::vector<int> tokens;                  // sampled in this iteration, in the order of sample rows
  std::vector<std::vector<double>> logits;  // per sample row
};

/// The graph's loop kernels, in which products with weights in bf16 round their activations (kernels/cpu/pairs.h); with
/// `attention`, that does, too (kernels/cpu/attention_tiles.h).
inline graph::LoweredGraph lower_rounding(const graph::Graph& graph, bool attention) {
  graph::LoweredGraph lowered = optimize::lower(graph, "cpu");
  std::string text = graph::print(graph, lowered);
  int changed = 0;
  std::vector<std::pair<const char*, const char*>> roundings = {
      {"f32(x[t, k]) * f32(weight[", "f32(bf16(f32(x[t, k]))) * f32(weight["},
      {"f32(x[t, k]) * rsqrt(ss[t] / K + eps) * f32(norm[k])",
       "f32(bf16(f32(x[t, k]) * rsqrt(ss[t] / K + eps) * f32(norm[k])))"},
      {"f32(x[t, l]) * rsqrt(ss[t] / K + eps) * f32(norm[l])",
       "f32(bf16(f32(x[t, l]) * rsqrt(ss[t] / K + eps) * f32(norm[l])))"}};
  if (attention)
    roundings.insert(
        roundings.end(),
        {{"f32(q[t, (g * M + m) * D + d])", "f32(bf16(f32(q[t, (g * M + m) * D + d])))"},
         {"f32(k_cache[page_table[request[t], (c * L + s) // B], (c * L + s) mod B, g, d])",
          "f32(bf16(f32(k_cache[page_table[request[t], (c * L + s) // B], (c * L + s) mod B, g, d])))"},
         {"p[t, g, m, c, s] * f32(v_cache[page_table[request[t], (c * L + s) // B], (c * L + s) mod B, g, e])",
          "f32(bf16(p[t, g, m, c, s])) * f32(bf16(f32(v_cache[page_table[request[t], (c * L + s) // B], "
          "(c * L + s) mod B, g, e])))"}});
  for (const auto& [from, to] : roundings)
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += std::string(to).size(), ++changed)
      text.replace(at, std::string(from).size(), to);
  MEGALITH_ASSERT(changed >= (attention ? 7 : 4), "{} products round in\n{}", changed, text);
  return graph::parse_loops(text, graph, std::move(lowered));
}

/// All iterations of a generation that sampled something. The engine's weights are dummies of `dummy_seed`. `rounds`:
/// products round their activations; `attention_rounds`: so does attention.
inline std::vector<ReferenceStep> decoder_reference(const engine::Engine& engine,
                                                    const std::vector<engine::Request>& requests,
                                                    const std::vector<int>& stop_tokens, uint64_t dummy_seed,
                                                    bool rounds = false, bool attention_rounds = false) {
  const graph::Graph& graph = engine.graph();
  engine::MemoryMap states, constants;  // the engine's own have been packed and given up
  states.bind_states(graph);
  constants.bind_random(graph, dummy_seed);
  constants.bind_rope(graph, engine.config(), engine.decoder_options().max_seq_len);
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

  const graph::LoweredGraph lowered = rounds ? lower_rounding(graph, attention_rounds) : optimize::lower(graph, "cpu");
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
