// Rotary position embeddings as a table: the cosine and sine of position * frequency, for every position and every pair
// of a head. Computed once, in double, at load time; kernels only look up.
//
// Pair i of a head is elements (i, i + head_dim/2), the layout of transformers' rotate_half.
#pragma once

#include <cstdint>
#include <vector>

#include "megalith/model/config.h"

namespace megalith {

struct RopeTable {
  int64_t max_positions = 0;
  int64_t half_dim = 0;    // head_dim / 2
  std::vector<float> cos;  // [max_positions, half_dim]
  std::vector<float> sin;  // [max_positions, half_dim]
};

/// Angle per position of each pair, [head_dim / 2], Llama 3's scaling applied.
std::vector<double> rope_frequencies(const ModelConfig& config);

/// UserError unless max_positions is in 1 .. max_position_embeddings. The same angles as transformers, which rounds
/// frequency and angle to float: at position 40000 its angle is off by up to 2e-3, ours is not.
RopeTable rope_table(const ModelConfig& config, int64_t max_positions);

}  // namespace megalith
