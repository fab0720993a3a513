// The requests of `megalith bench serve`, made before the first of them is sent: prompts out of a seed or a file, and the times
// at which they are due. The same options give the same requests.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/load_client.h"

namespace megalith::tools {

/// A line of a file of prompts: {"prompt": "text"} or {"prompt": [1, 2, 3]}, and if need be "output_tokens".
struct PromptLine {
  std::string prompt;           // as JSON
  std::optional<int64_t> size;  // of token ids
  std::optional<int64_t> output_tokens;
};
/// UserError that names the line if it is none; `is_chat`: token ids are refused. - is stdin.
std::vector<PromptLine> read_prompts(const std::string& path, bool is_chat);

struct LoadPlan {
  bool is_chat = false, ignore_eos = false;
  std::string model;
  int64_t input_len = 512, output_len = 128, prefix_len = 0, vocab_size = 4000, seed = 0;
  double range_ratio = 0;      // lengths are up to this share shorter or longer
  std::optional<double> rate;  // requests a second; none: all at once
  double burstiness = 1;       // shape of the gamma distribution of the times between two; 1: Poisson arrivals
  std::vector<PromptLine> prompts = {};
  std::string extra_body = {};  // members as JSON: ours of the same name give way

  /// UserError for an `extra_body` that is no object, or that would make figures wrong.
  void check() const;
  /// Random prompts differ from `series` to `series`, so that no prefix cache has them, but for the prefix; those of a file
  /// begin at its line `first`, and again where it ends.
  std::vector<LoadRequest> requests(int64_t count, int64_t series, int64_t first) const;
};

}  // namespace megalith::tools
