// How a text shall go on: the options of `run` and `chat`, over what the model's makers say in generation_config.json;
// and those of `bench`, over nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megalith/engine/batch_block.h"
#include "megalith/engine/text_stream.h"
#include "megalith/model/config.h"
#include "tools/arguments.h"

namespace megalith::engine {
class Engine;
}

namespace megalith::tools {

struct SamplingOptions {
  int64_t max_new_tokens = 128;
  std::optional<double> temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<int64_t> top_k, seed;
  std::vector<std::string> stops;
  bool ignore_eos = false;
  int64_t min_tokens = 0;
  std::vector<int64_t> stop_token_ids, allowed_token_ids;
  std::vector<std::string> logit_biases;  // ID=BIAS
  bool show_special = false;

  void declare(Arguments& arguments);
  /// Those alone that say how a token is drawn.
  void declare_drawing(Arguments& arguments);
  /// What the model's makers want; a warning names what they want and cannot have.
  static GenerationConfig makers_wishes(const std::string& folder);
  /// What is not given is as they want it. Without a seed, a random one, which -v shows.
  engine::Sampling over(const GenerationConfig& theirs) const;
  /// A request for what follows a prompt.
  engine::Request request(std::vector<int> prompt, const engine::Sampling& sampling) const;
  /// What ends a text, and what is shown of it: what was given and, unless the model's own ends do not count, theirs.
  engine::TextOptions text_options(const GenerationConfig& theirs, const engine::Engine& engine) const;
};

}  // namespace megalith::tools
