#include "megalith/serve/answer_syntax.h"

#include <algorithm>

namespace megalith::serve {

namespace {

struct NamedCalls {
  CallFormat format;
  const char* name;
  std::vector<std::string> hints;    // a template that has all of them is of this format; the first such row counts
  std::vector<std::string> markers;  // around calls; they may be tokens
  std::vector<std::string> results;  // around what they gave, in prompts; likewise
};

const std::vector<NamedCalls>& call_formats() {
  static const std::vector<NamedCalls> table = {
      {CallFormat::qwen3_xml,
       "qwen3_xml",
       {"<tool_call>", "<function="},
       {"<tool_call>", "</tool_call>"},
       {"<tool_response>", "</tool_response>"}},
      {CallFormat::hermes,
       "hermes",
       {"<tool_call>"},
       {"<tool_call>", "</tool_call>"},
       {"<tool_response>", "</tool_response>"}},
      {CallFormat::mistral,
       "mistral",
       {"[TOOL_CALLS]"},
       {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"},
       {"[TOOL_RESULTS]", "[/TOOL_RESULTS]"}},
      {CallFormat::llama3_json, "llama3_json", {"<|start_header_id|>", "\"parameters\": "}, {"<|python_tag|>"}, {}},
  };
  return table;
}

struct ThinkTags {
  const char *begin, *end;
};
constexpr ThinkTags kThinkTags[] = {{"<think>", "</think>"}, {"[THINK]", "[/THINK]"}};

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

}  // namespace

const std::vector<std::string>& call_format_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const NamedCalls& one : call_formats()) all.emplace_back(one.name);
    std::ranges::sort(all);
    return all;
  }();
  return names;
}

std::optional<CallFormat> call_format(std::string_view name) {
  for (const NamedCalls& one : call_formats())
    if (name == one.name) return one.format;
  return std::nullopt;
}

const std::vector<std::string>& reasoning_format_names() {
  static const std::vector<std::string> names = {"none", "deepseek", "auto"};
  return names;
}

std::optional<ReasoningFormat> reasoning_format(std::string_view name) {
  const auto found = std::ranges::find(reasoning_format_names(), name);
  if (found == reasoning_format_names().end()) return std::nullopt;
  return static_cast<ReasoningFormat>(found - reasoning_format_names().begin());
}

AnswerSyntax answer_syntax(std::string_view source, std::optional<CallFormat> calls, ReasoningFormat reasoning) {
  AnswerSyntax syntax;
  const auto fits = [&](const NamedCalls& one) {
    return std::ranges::all_of(one.hints, [&](const std::string& hint) { return has(source, hint); });
  };
  const auto found = std::ranges::find_if(call_formats(), fits);
  if (found != call_formats().end() && has(source, "tools")) syntax.calls = found->format;
  syntax.calls = calls.value_or(syntax.calls);
  if (reasoning == ReasoningFormat::none) return syntax;
  const auto tags = std::ranges::find_if(kThinkTags, [&](const ThinkTags& one) { return has(source, one.end); });
  if (tags == std::end(kThinkTags) && reasoning == ReasoningFormat::automatic) return syntax;
  const ThinkTags& chosen = tags == std::end(kThinkTags) ? kThinkTags[0] : *tags;
  syntax.think_begin = chosen.begin;
  syntax.think_end = chosen.end;
  return syntax;
}

std::vector<std::string> answer_markers(const AnswerSyntax& syntax) {
  std::vector<std::string> markers;
  if (syntax.splits_reasoning()) markers = {syntax.think_begin, syntax.think_end};
  for (const NamedCalls& one : call_formats())
    if (one.format == syntax.calls) markers.insert(markers.end(), one.markers.begin(), one.markers.end());
  return markers;
}

std::vector<std::string> call_markers(const AnswerSyntax& syntax) {
  std::vector<std::string> markers;
  for (const NamedCalls& one : call_formats()) {
    if (one.format != syntax.calls) continue;
    markers = one.markers;
    markers.insert(markers.end(), one.results.begin(), one.results.end());
  }
  return markers;
}

std::vector<int> marker_tokens(const Tokenizer& tokenizer, const std::vector<std::string>& names) {
  std::vector<int> tokens;
  for (const std::string& name : names)
    if (const auto id = tokenizer.token_id(name); id && tokenizer.is_added(*id)) tokens.push_back(*id);
  std::ranges::sort(tokens);
  return tokens;
}

}  // namespace megalith::serve
