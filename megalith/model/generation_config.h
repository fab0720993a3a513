// What generation_config.json of a Hugging Face folder says, checked: how its makers want the model sampled, and what
// ends a text. A setting is done, or changes nothing at its value, or is listed as one that Megalith does not do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace megalith {

class JsonValue;

/// The defaults are those of transformers.
struct GenerationConfig {
  bool do_sample = false;
  double temperature = 1;  // this and the next three are read if do_sample
  int64_t top_k = 50;      // 0: all
  double top_p = 1;
  double min_p = 0;
  double repetition_penalty = 1;   // logits of tokens that occurred are divided by it (if positive) or multiplied
  double presence_penalty = 0;     // subtracted from the logits of tokens that were generated
  double frequency_penalty = 0;    // the same, times how often each was
  std::vector<int> eos_token_ids;  // empty: those of ModelConfig count
  std::optional<int> bos_token_id;
  std::optional<int> pad_token_id;
  std::vector<std::string> stop_strings;  // end a text, as --stop does
  std::vector<std::string> unsupported;   // settings that would change texts and do not: "\"num_beams\" (4)"
  std::string file;                       // that says so; "" if none does
};

/// Reads `folder`/generation_config.json. If nothing has that name, older models say the same in config.json; if they
/// say nothing, the defaults.
GenerationConfig generation_config_read(const std::string& folder);
GenerationConfig generation_config_parse(std::string_view json, const std::string& name);

/// "eos_token_id", or the like: one id or a list. Ids that no token has are left out: -1 is how some files say that
/// there is none.
std::vector<int> read_token_ids(const JsonValue& root, const char* key, int64_t vocab_size);
/// One that nothing depends on; nothing unless it is the id of a token.
std::optional<int> read_token_id(const JsonValue& root, const char* key, int64_t vocab_size);

}  // namespace megalith
