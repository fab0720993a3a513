#include "megalith/model/rope.h"

#include <cmath>
#include <numbers>

#include "megalith/base/error.h"

namespace megalith {

namespace {

// Pairs that turn often within the original context keep their frequency, those that never complete a turn are slowed
// by the factor, and those between are mixed. (_compute_llama3_parameters of transformers' modeling_rope_utils.py.)
double scale_llama3(double frequency, const RopeScaling& scaling) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  const double original = static_cast<double>(scaling.original_max_position);
  if (wavelength < original / scaling.high_freq_factor) return frequency;
  if (wavelength > original / scaling.low_freq_factor) return frequency / scaling.factor;
  const double smooth =
      (original / wavelength - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1 - smooth) * frequency / scaling.factor + smooth * frequency;
}

}  // namespace

std::vector<double> rope_frequencies(const ModelConfig& config) {
  std::vector<double> frequencies(config.head_dim / 2);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(config.head_dim);
    frequencies[i] = std::pow(config.rope_theta, -exponent);
    if (config.rope_scaling) frequencies[i] = scale_llama3(frequencies[i], *config.rope_scaling);
  }
  return frequencies;
}

RopeTable rope_table(const ModelConfig& config, int64_t max_positions) {
  MEGALITH_CHECK(max_positions >= 1 && max_positions <= config.max_position_embeddings,
                 "[rope] a context of {} positions was asked for, this model has 1 to {}", max_positions,
                 config.max_position_embeddings);
  const std::vector<double> frequencies = rope_frequencies(config);
  RopeTable table{.max_positions = max_positions, .half_dim = config.head_dim / 2, .cos = {}, .sin = {}};
  table.cos.reserve(max_positions * table.half_dim);
  table.sin.reserve(max_positions * table.half_dim);
  for (int64_t position = 0; position < max_positions; ++position) {
    for (double frequency : frequencies) {
      const double angle = static_cast<double>(position) * frequency;
      table.cos.push_back(static_cast<float>(std::cos(angle)));
      table.sin.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  return table;
}

}  // namespace megalith
