#include "megalith/serve/llama_fields.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "megalith/runtime/batch.h"

namespace megalith::serve {

namespace {

constexpr float kNever = -100;  // what `false` stands for
constexpr std::string_view kPromptSchema =
    R"({"anyOf":[{"type":"string"},{"type":"object","required":["prompt_string"]},{"type":"array","minItems":1,"items":)"
    R"({"anyOf":[{"type":"string"},{"type":"integer","minimum":0,"maximum":2147483647},{"type":"object","required":)"
    R"(["prompt_string"]},{"type":"array","items":{"anyOf":[{"type":"string"},)"
    R"({"type":"integer","minimum":0,"maximum":2147483647}]}}]}}]})";
constexpr std::string_view kBiasSchema =
    R"({"anyOf":[{"type":"null"},{"type":"object","additionalProperties":{"anyOf":[{"const":false},)"
    R"({"type":"number","minimum":-100,"maximum":100}]}},{"type":"array","items":{"type":"array","minItems":2,)"
    R"("maxItems":2}}]})";

// {"prompt_string": ...}, which may have pictures beside it.
const std::string& text_of_object(const JsonValue& value) {
  if (const auto media = value.find("multimodal_data"); media && !(media->is_array() && media->size() == 0))
    throw ApiError::unsupported("\"prompt\" has \"multimodal_data\", but this server takes nothing but text", "prompt");
  return value.at("prompt_string").string();
}

// Texts and ids in a row, one prompt.
Prompt mixed_of(const JsonValue& list) {
  MixedPrompt mixed;
  bool has_text = false;
  std::vector<int> ids;
  const auto end_ids = [&] {
    if (!ids.empty()) mixed.parts.emplace_back(std::exchange(ids, {}));
  };
  list.each_element([&](const JsonValue& one) {
    if (!one.is_string()) return ids.push_back(static_cast<int>(one.integer(0, kMaxTokenId)));
    has_text = true;
    end_ids();
    mixed.parts.emplace_back(one.string());
  });
  if (!has_text) return ids;
  end_ids();
  return mixed;
}

// A list is one prompt if there is an id in it, and else one of several.
std::vector<Prompt> llama_prompts_of(const JsonValue& value) {
  if (value.is_string()) return {value.string()};
  if (value.is_object()) return {text_of_object(value)};
  if (!value.is_array() || value.size() == 0)
    value.fail(fmt::format("is {}, want a string, token ids, both in a list, or a list of such", value.excerpt()));
  bool has_ids = false;
  value.each_element([&](const JsonValue& one) { has_ids |= one.find_number().has_value(); });
  if (has_ids) return {mixed_of(value)};
  if (value.size() > kMaxPrompts) value.fail(fmt::format("has {} prompts, want at most {}", value.size(), kMaxPrompts));
  std::vector<Prompt> prompts;
  value.each_element([&](const JsonValue& one) {
    if (one.is_string())
      prompts.emplace_back(one.string());
    else if (one.is_object())
      prompts.emplace_back(text_of_object(one));
    else
      prompts.push_back(mixed_of(one));
  });
  return prompts;
}

float llama_bias_of(const JsonValue& value) {
  if (value.is_boolean() && !value.boolean()) return kNever;
  return static_cast<float>(value.number(-100, 100));
}

// {"42": -1, " a text": false}, or the same in pairs.
void read_bias(const JsonValue& value, GenerationRequest& request) {
  if (!value.is_object() && !value.is_array())
    value.fail(fmt::format("is {}, want an object of tokens and biases, or pairs of them", value.excerpt()));
  if (value.size() > size_t{batch::kMaxBiases})
    value.fail(fmt::format("names {} tokens, want at most {}", value.size(), batch::kMaxBiases));
  const auto take = [&](const std::string& name, float bias) {
    int token = -1;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), token);
    if (error == std::errc() && end == name.data() + name.size() && token >= 0)
      request.logit_bias[token] = bias;
    else
      request.text_bias.emplace_back(name, bias);
  };
  if (value.is_object())
    return value.each_member([&](const std::string& name, const JsonValue& bias) { take(name, llama_bias_of(bias)); });
  value.each_element([&](const JsonValue& pair) {
    const std::vector<JsonValue> both = pair.elements();
    if (both.size() != 2) pair.fail(fmt::format("is {}, want a token and its bias", pair.excerpt()));
    if (both[0].is_string()) return take(both[0].string(), llama_bias_of(both[1]));
    request.logit_bias[static_cast<int>(both[0].integer(0, kMaxTokenId))] = llama_bias_of(both[1]);
  });
}

}  // namespace

void read_llama(const Fields& fields, GenerationRequest& request) {
  request.prompts = Fields::read("prompt", fields.need("prompt", kPromptSchema), llama_prompts_of);
  request.top_logprobs = static_cast<int>(fields.integer("n_probs", 0, batch::kMaxTop).value_or(0));
  request.logprobs = request.top_logprobs > 0;
  request.return_tokens = fields.flag("return_tokens", false);
  if (const auto bias = fields.find("logit_bias", kBiasSchema))
    Fields::read("logit_bias", *bias, [&](const JsonValue& value) { read_bias(value, request); });
}

}  // namespace megalith::serve
