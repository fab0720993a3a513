#include "megalith/model/generation_config.h"

#include <algorithm>
#include <cmath>

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/model/json.h"

namespace megalith {

namespace {

constexpr size_t kMaxConfigBytes = 16 << 20;
// Any model's; which ids there are, its config.json says.
constexpr int64_t kMaxVocab = 1 << 24;
// Each of them is looked for in every piece of text.
constexpr size_t kMaxStopStrings = 64;
constexpr size_t kLongestStopString = 256;

// What changes a text, or might, unless it has the value that leaves it as it is. What is not listed changes none:
// lengths are those of the command line, caches and compilations are our own, speculation is exact, and outputs other
// than the text are not asked for.
struct Number {
  const char* name;
  double neutral;
};
constexpr Number kNumbers[] = {{"num_beams", 1},
                               {"num_beam_groups", 1},
                               {"num_return_sequences", 1},
                               {"no_repeat_ngram_size", 0},
                               {"encoder_no_repeat_ngram_size", 0},
                               {"typical_p", 1},
                               {"epsilon_cutoff", 0},
                               {"eta_cutoff", 0},
                               {"penalty_alpha", 0},
                               {"diversity_penalty", 0},
                               {"guidance_scale", 1},
                               {"length_penalty", 1},
                               {"encoder_repetition_penalty", 1},
                               {"min_length", 0},
                               {"min_new_tokens", 0}};
// These have no such value but null, false, or an empty list.
constexpr const char* kOthers[] = {"bad_words_ids",
                                   "force_words_ids",
                                   "constraints",
                                   "suppress_tokens",
                                   "begin_suppress_tokens",
                                   "sequence_bias",
                                   "forced_bos_token_id",
                                   "forced_eos_token_id",
                                   "forced_decoder_ids",
                                   "exponential_decay_length_penalty",
                                   "top_h",
                                   "max_time",
                                   "watermarking_config",
                                   "token_healing",
                                   "dola_layers"};

std::vector<std::string> read_unsupported(const JsonValue& root) {
  std::vector<std::string> found;
  for (const Number& setting : kNumbers)
    if (auto value = root.find(setting.name); value && value->find_number() != setting.neutral)
      found.push_back(fmt::format("\"{}\" ({})", setting.name, value->excerpt()));
  for (const char* name : kOthers) {
    const auto value = root.find(name);
    if (!value) continue;
    const bool is_list = value->is_array() || value->is_object();
    if (is_list ? value->size() > 0 : !value->is_boolean() || value->boolean())
      found.push_back(is_list ? fmt::format("\"{}\"", name) : fmt::format("\"{}\" ({})", name, value->excerpt()));
  }
  return found;
}

// A text, or a list of them.
std::vector<std::string> read_stop_strings(const JsonValue& root) {
  std::vector<std::string> texts;
  auto add = [&](const JsonValue& value) {
    const std::string& text = value.string();
    if (text.size() > kLongestStopString)
      value.fail(fmt::format("has {} bytes, want at most {}", text.size(), kLongestStopString));
    if (!text.empty()) texts.push_back(text);
  };
  const auto value = root.find("stop_strings");
  if (!value) return texts;
  if (!value->is_array()) return add(*value), texts;
  if (value->size() > kMaxStopStrings)
    value->fail(fmt::format("has {} entries, want at most {}", value->size(), kMaxStopStrings));
  value->each_element(add);
  return texts;
}

// -1 is how other engines say that there is no limit.
int64_t read_top_k(const JsonValue& value) {
  return value.find_number() == -1 ? 0 : std::min(value.integer(0), kMaxVocab);
}

// Beyond 1 it keeps all tokens, as 1 does.
double read_top_p(const JsonValue& value) { return value.find_number() >= 1 ? 1 : value.number(0, 1); }

GenerationConfig read_generation_config(const JsonValue& root) {
  GenerationConfig config;
  if (auto value = root.find("do_sample")) config.do_sample = value->boolean();
  if (config.do_sample) {  // or else nothing reads these, and they may be anything
    if (auto value = root.find("temperature")) config.temperature = value->number(0, 1e3);
    if (auto value = root.find("top_k")) config.top_k = read_top_k(*value);
    if (auto value = root.find("top_p")) config.top_p = read_top_p(*value);
    if (auto value = root.find("min_p")) config.min_p = value->number(0, 1);
  }
  if (auto value = root.find("repetition_penalty")) config.repetition_penalty = value->number(1e-3, 1e3);
  if (auto value = root.find("presence_penalty")) config.presence_penalty = value->number(-2, 2);
  if (auto value = root.find("frequency_penalty")) config.frequency_penalty = value->number(-2, 2);
  config.eos_token_ids = read_token_ids(root, "eos_token_id", kMaxVocab);
  config.bos_token_id = read_token_id(root, "bos_token_id", kMaxVocab);
  config.pad_token_id = read_token_id(root, "pad_token_id", kMaxVocab);
  config.stop_strings = read_stop_strings(root);
  config.unsupported = read_unsupported(root);
  config.file = root.file();
  return config;
}

bool is_token_id(const JsonValue& value, int64_t vocab_size) {
  const std::optional<double> id = value.find_number();
  return id && *id >= 0 && *id < static_cast<double>(vocab_size) && *id == std::floor(*id);
}

}  // namespace

std::vector<int> read_token_ids(const JsonValue& root, const char* key, int64_t vocab_size) {
  const auto value = root.find(key);
  if (!value) return {};
  std::vector<int> ids;
  auto add = [&](const JsonValue& id) {
    if (!id.find_number() && !id.is_null()) id.fail(fmt::format("is {}, want the id of a token", id.excerpt()));
    if (is_token_id(id, vocab_size)) ids.push_back(static_cast<int>(id.integer()));
  };
  if (value->is_array())
    value->each_element(add);
  else
    add(*value);
  return ids;
}

std::optional<int> read_token_id(const JsonValue& root, const char* key, int64_t vocab_size) {
  const auto value = root.find(key);
  if (!value || !is_token_id(*value, vocab_size)) return std::nullopt;
  return static_cast<int>(value->integer());
}

GenerationConfig generation_config_read(const std::string& folder) {
  for (const char* name : {"/generation_config.json", "/config.json"})
    if (const std::string path = folder + name; file_is_named(path))
      return read_generation_config(JsonFile::read(path, kMaxConfigBytes).root());
  return {};
}

GenerationConfig generation_config_parse(std::string_view json, const std::string& name) {
  return read_generation_config(JsonFile::parse(json, name).root());
}

}  // namespace megalith
