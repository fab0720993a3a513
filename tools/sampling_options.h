// How a text shall go on: the options of `run` and `chat`, over what the model's makers say in generation_config.json;
// and those of `bench`, over nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megalith/engine/batch_block.h"
#include "megalith/model/config.h"
#include "tools/arguments.h"

namespace megalith::tools {

struct SamplingOptions {
  int64_t max_new_tokens = 128;
  std::optional<double> temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<int64_t> top_k, seed;
  std::vector<std::string> stops;
  bool ignore_eos = false;

  void declare(Arguments& arguments);
  /// Those alone that say how a token is drawn.
  void declare_drawing(Arguments& arguments);
  /// What is not given is as the model's makers want it; a warning names what they want and cannot have. Without a
  /// seed, a random one, which -v shows.
  engine::Sampling sampling(const std::string& folder) const;
  engine::Sampling over(const GenerationConfig& theirs) const;
};

}  // namespace megalith::tools
