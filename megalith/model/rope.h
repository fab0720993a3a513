// Rotary position embeddings as a table: the cosine and sine of position * frequency, for every position and every pair
// of a head. Computed once, in double, at load time; kernels only look up.
//
// Pair i of a head is elements (i, i + head_dim/2), the layout of transformers' rotate_half. Its frequency is
// theta^(-2i/head_dim), and with a RopeScaling of factor s and original context c:
//
//   linear   frequency / s
//   dynamic  in a sequence longer than c, theta grows by (s * length / c - (s - 1))^(head_dim / (head_dim - 2))
//   yarn     pairs that turn often within c keep their frequency, those that turn seldom are slowed by s, and those
//            between are mixed; cosines and sines are multiplied by the attention factor
//   llama3   likewise, by wavelength, without that factor
//
// The formulae are those of transformers' modeling_rope_utils.py. A dynamic frequency changes while a sequence grows,
// and cached keys keep the frequency of their step. So a position's row depends on the length of the step that writes
// it: the prompt is one step, and each further token is one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "megalith/model/config.h"

namespace megalith {

/// Angle per position of each pair, [head_dim / 2], in a sequence of `length` tokens.
std::vector<double> rope_frequencies(const ModelConfig& config, int64_t length);

/// The shortest prompt with the same table as one of `prompt_tokens`: 0 unless frequencies depend on the length.
int64_t rope_prompt(const ModelConfig& config, int64_t prompt_tokens);

/// Fills the first `max_seq_len` rows of both tables, [positions, head_dim / 2], for prompts of up to `prompt_tokens`;
/// UserError unless the model has sequences of `max_seq_len`. The same angles as transformers, which rounds frequency and
/// angle to float: at position 40000 its angle is off by up to 2e-3, ours is not.
void rope_fill(std::span<float> cos, std::span<float> sin, const ModelConfig& config, int64_t max_seq_len,
               int64_t prompt_tokens = 0);

}  // namespace megalith
