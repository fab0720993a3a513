#include "megalith/serve/unsupported_fields.h"

#include <fmt/format.h>

#include <algorithm>

namespace megalith::serve {

namespace {

// Values of a member that change nothing.
enum class Harmless { none, empty, off, zero, one, no_tool, text };

struct Unsupported {
  const char* key;
  Harmless harmless;
  const char* what;  // that the server cannot do
};

constexpr Unsupported kTable[] = {
    {"functions", Harmless::empty, "functions beside \"tools\""},
    {"function_call", Harmless::no_tool, "functions beside \"tools\""},
    {"post_sampling_probs", Harmless::off, "probabilities behind top_k, top_p and temperature"},
    {"response_fields", Harmless::empty, "answers of some of their members"},
    {"lora", Harmless::empty, "adapters"},
    {"best_of", Harmless::one, "a choice among several answers"},
    {"use_beam_search", Harmless::off, "beam search"},
    {"suffix", Harmless::empty, "text in front of a suffix"},
    {"truncate_prompt_tokens", Harmless::none, "prompts that are cut"},
    {"include_stop_str_in_output", Harmless::off, "answers that end with their stop string"},
    {"return_token_ids", Harmless::off, "token ids in answers"},
    {"return_tokens_as_token_ids", Harmless::off, "token ids in answers"},
    {"continue_final_message", Harmless::off, "answers that go on from the last message"},
    {"chat_template", Harmless::none, "chat templates of clients, which are programs"},
    {"documents", Harmless::empty, "documents for the chat template"},
    {"audio", Harmless::none, "sound"},
    {"web_search_options", Harmless::none, "searches"},
    {"modalities", Harmless::text, "anything but text"},
    {"thinking_token_budget", Harmless::none, "a limit for reasoning"},
    {"previous_response_id", Harmless::none, "memory of earlier answers"},
    {"conversation", Harmless::none, "memory of earlier answers"},
    {"background", Harmless::off, "answers that are asked for later"},
    {"mirostat", Harmless::zero, "mirostat"},
    {"typical_p", Harmless::one, "typical sampling"},
    {"dry_multiplier", Harmless::zero, "DRY"},
    {"xtc_probability", Harmless::zero, "XTC"},
    {"dynatemp_range", Harmless::zero, "dynamic temperatures"},
};

bool is_number(const JsonValue& value, double wanted) { return value.find_number() == wanted; }

// {"type": "text"}, or ["text"].
bool is_text(const JsonValue& value) {
  if (value.is_array()) {
    const auto all = value.elements();
    return std::ranges::all_of(all, [](const JsonValue& one) { return one.is_string() && one.string() == "text"; });
  }
  if (!value.is_object()) return false;
  const auto type = value.find("type");
  return type && type->is_string() && type->string() == "text";
}

bool is_harmless(const JsonValue& value, Harmless harmless) {
  switch (harmless) {
    case Harmless::none: return false;
    case Harmless::empty:
      return value.is_string() ? value.string().empty() : (value.is_array() || value.is_object()) && value.size() == 0;
    case Harmless::off: return value.is_boolean() && !value.boolean();
    case Harmless::zero: return is_number(value, 0);
    case Harmless::one: return is_number(value, 1);
    case Harmless::no_tool: return value.is_string() && (value.string() == "none" || value.string() == "auto");
    case Harmless::text: return is_text(value);
  }
  return false;
}

}  // namespace

void refuse_unsupported(const Fields& fields) {
  for (const Unsupported& one : kTable) {
    const auto value = fields.object().find(one.key);  // nobody is told that there are such
    if (!value || is_harmless(*value, one.harmless)) continue;
    throw ApiError::unsupported(
        fmt::format("\"{}\" is {}, but this server has no {} yet: leave it out", one.key, value->excerpt(), one.what),
        one.key);
  }
}

}  // namespace megalith::serve
