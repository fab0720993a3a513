#include "megalith/model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "megalith/base/error.h"

namespace megalith {

namespace {

double scale_llama3(double frequency, const RopeScaling& scaling) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  const auto original = static_cast<double>(scaling.original_max_position);
  if (wavelength < original / scaling.high_freq_factor) return frequency;
  if (wavelength > original / scaling.low_freq_factor) return frequency / scaling.factor;
  const double smooth =
      (original / wavelength - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1 - smooth) * frequency / scaling.factor + smooth * frequency;
}

// The pairs between which yarn mixes.
struct YarnRange {
  double low, high;
};

YarnRange yarn_range(const ModelConfig& config, const RopeScaling& scaling) {
  const auto dim = static_cast<double>(config.head_dim), original = static_cast<double>(scaling.original_max_position);
  // The pair that makes so many turns within the original context.
  auto pair_of = [&](double turns) {
    return dim * std::log(original / (turns * 2 * std::numbers::pi)) / (2 * std::log(config.rope_theta));
  };
  double low = pair_of(scaling.beta_fast), high = pair_of(scaling.beta_slow);
  if (scaling.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, dim - 1);
  return {low, low == high ? high + 0.001 : high};
}

double scale_yarn(double frequency, double pair, const YarnRange& range, double factor) {
  const double slowed = std::clamp((pair - range.low) / (range.high - range.low), 0.0, 1.0);
  return frequency / factor * slowed + frequency * (1 - slowed);
}

bool is_dynamic(const ModelConfig& config) {
  return config.rope_scaling && config.rope_scaling->kind == RopeKind::dynamic;
}

double theta_of(const ModelConfig& config, int64_t sequence_length) {
  if (!is_dynamic(config) || config.head_dim == 2) return config.rope_theta;
  const RopeScaling& scaling = *config.rope_scaling;
  const auto original = static_cast<double>(scaling.original_max_position), dim = static_cast<double>(config.head_dim);
  const double length = std::max(static_cast<double>(sequence_length), original);
  return config.rope_theta * std::pow(scaling.factor * length / original - (scaling.factor - 1), dim / (dim - 2));
}

}  // namespace

std::vector<double> rope_frequencies(const ModelConfig& config, int64_t length) {
  const double theta = theta_of(config, length);
  std::vector<double> frequencies(config.head_dim / 2);
  for (size_t i = 0; i < frequencies.size(); ++i)
    frequencies[i] = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(config.head_dim));
  if (!config.rope_scaling) return frequencies;
  const RopeScaling& scaling = *config.rope_scaling;
  const YarnRange range = scaling.kind == RopeKind::yarn ? yarn_range(config, scaling) : YarnRange{};
  for (size_t i = 0; i < frequencies.size(); ++i) {
    double& frequency = frequencies[i];
    switch (scaling.kind) {
      case RopeKind::linear: frequency /= scaling.factor; break;
      case RopeKind::dynamic: break;
      case RopeKind::yarn: frequency = scale_yarn(frequency, static_cast<double>(i), range, scaling.factor); break;
      case RopeKind::llama3: frequency = scale_llama3(frequency, scaling); break;
    }
  }
  return frequencies;
}

int64_t rope_prompt(const ModelConfig& config, int64_t prompt_tokens) {
  return is_dynamic(config) && prompt_tokens > config.rope_scaling->original_max_position ? prompt_tokens : 0;
}

void rope_fill(std::span<float> cos, std::span<float> sin, const ModelConfig& config, int64_t max_seq_len,
               int64_t prompt_tokens) {
  const int64_t longest = config.longest_sequence();
  MEGALITH_CHECK(max_seq_len >= 1 && max_seq_len <= longest,
                 "[rope] a context of {} positions was asked for, this model has 1 to {}", max_seq_len, longest);
  std::vector<double> frequencies = rope_frequencies(config, prompt_tokens);
  const double factor = config.rope_scaling ? config.rope_scaling->attention_factor : 1;
  size_t i = 0;
  for (int64_t position = 0; position < max_seq_len; ++position) {
    const int64_t length = position + 1;
    if (length > prompt_tokens && rope_prompt(config, length) > 0) frequencies = rope_frequencies(config, length);
    for (const double frequency : frequencies) {
      const double angle = static_cast<double>(position) * frequency;
      cos[i] = static_cast<float>(std::cos(angle) * factor);
      sin[i] = static_cast<float>(std::sin(angle) * factor);
      ++i;
    }
  }
}

}  // namespace megalith
