// The block of examples/parallel_block, for tests: nobody wrote an operator or a rule for it.
#pragma once

#include "megalith/model/architecture.h"
#include "megalith/model/decoder.h"

namespace megalith::testing {

inline int parallel_block(DecoderBuilder& model, int64_t layer, int x) {
  const int n = model.norm(layer, "norm", x, "input_layernorm.weight");
  const int attended = model.add(layer, "o_sum", x, model.attention(layer, n));
  return model.add(layer, "down_sum", attended, model.mlp(layer, n));
}

/// Makes it known, under the name that the example has.
inline void add_parallel_block() {
  static const bool once = [] {
    add_architecture({.name = "ParallelBlockForCausalLM",
                      .model_type = "parallel_block",
                      .vocab_size = 128256,
                      .intermediate_size = 8192,
                      .max_position_embeddings = 131072,
                      .block = parallel_block});
    return true;
  }();
  static_cast<void>(once);
}

}  // namespace megalith::testing
