#include "megalith/serve/served_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "megalith/serve/api_error.h"
#include "megalith/serve/user_value.h"

namespace megalith::serve {

namespace {

// Templates of Mistral's models take no longer ones, and other models make them (vLLM cuts them alike).
constexpr size_t kMistralIdBytes = 9;

TemplateValue call_id(const std::string& id, CallFormat format) {
  const bool is_cut = format == CallFormat::mistral && id.size() > kMistralIdBytes;
  return user_text(is_cut ? id.substr(id.size() - kMistralIdBytes) : id);
}

// Templates want an object, and print it as JSON. What is none, as of a call that was cut short, stays a text.
TemplateValue arguments_value(const std::string& json) {
  if (json.empty()) return TemplateValue::dict({});
  try {
    TemplateValue value = TemplateValue::from_json(json, "arguments");
    if (value.is(TemplateValue::Kind::dict)) return value;
  } catch (const UserError&) {}
  return user_text(json);
}

TemplateValue call_value(const ToolCall& call, CallFormat format) {
  TemplateValue function =
      TemplateValue::dict({{"name", user_text(call.name)}, {"arguments", arguments_value(call.arguments)}});
  return TemplateValue::dict(
      {{"id", call_id(call.id, format)}, {"type", "function"}, {"function", std::move(function)}});
}

TemplateValue template_value(const ChatTurn& turn, CallFormat format) {
  TemplateValue::Members members = {{"role", turn.role}, {"content", user_text(turn.content)}};
  if (turn.name) members.emplace_back("name", user_text(*turn.name));
  if (turn.reasoning) members.emplace_back("reasoning_content", user_text(*turn.reasoning));
  if (turn.tool_call_id) members.emplace_back("tool_call_id", call_id(*turn.tool_call_id, format));
  if (!turn.tool_calls.empty()) {
    std::vector<TemplateValue> calls;
    for (const ToolCall& call : turn.tool_calls) calls.push_back(call_value(call, format));
    members.emplace_back("tool_calls", TemplateValue::list(std::move(calls)));
  }
  return TemplateValue::dict(std::move(members));
}

// Whether the template has begun the reasoning, as those of models do that always reason.
bool begins_reasoning(const std::vector<TextSegment>& segments, const AnswerSyntax& syntax) {
  if (!syntax.splits_reasoning() || segments.empty() || segments.back().is_user_content) return false;
  std::string_view text = segments.back().text;
  text = text.substr(0, text.find_last_not_of(" \n\t\r") + 1);
  return text.ends_with(syntax.think_begin);
}

// As `megalith chat` has it for a model without a template.
std::vector<TextSegment> plain_text(const std::vector<ChatTurn>& turns) {
  std::vector<TextSegment> segments;
  for (const ChatTurn& turn : turns)
    segments.push_back({turn.role == "system" ? turn.content + "\n\n" : turn.content, true});
  return segments;
}

}  // namespace

bool ServedModel::is_called(const std::string& name) const { return std::ranges::find(names, name) != names.end(); }

std::vector<int> ServedModel::encode(const std::string& text, bool add_special, bool parse_special) const {
  if (!tokenizer)
    throw ApiError::invalid("this model has no tokenizer.json: give the prompt as token ids, [1, 2, 3]", "prompt");
  return tokenizer->encode(text, add_special, parse_special);
}

std::vector<TextSegment> ServedModel::render(const GenerationRequest& chat) const {
  if (!tokenizer)
    throw ApiError::invalid("this model has no tokenizer.json: use /v1/completions with token ids",
                            prompt_member(chat.api));
  if (!chat_template && !chat.variables.empty())
    throw ApiError::invalid("this model has no chat template that could know variables", "chat_template_kwargs");
  if (!chat_template && !chat.tools.empty())
    throw ApiError::invalid("this model has no chat template that could tell it of tools", "tools");
  std::vector<TextSegment> segments;
  try {
    if (chat_template) {
      std::vector<TemplateValue> messages;
      for (const ChatTurn& turn : chat.messages) messages.push_back(template_value(turn, syntax.calls));
      ChatOptions options;
      options.add_generation_prompt = chat.add_generation_prompt;
      options.variables = chat.variables;
      if (!chat.tools.empty()) options.tools = TemplateValue::list(chat.tools);
      options.trusts_roles = true;
      segments = chat_template->render(TemplateValue::list(std::move(messages)), options);
    } else {
      segments = plain_text(chat.messages);
    }
  } catch (const UserError& error) { throw ApiError::invalid(error.what(), prompt_member(chat.api)); }
  return segments;
}

ChatTokens ServedModel::encode(const GenerationRequest& chat) const {
  const std::vector<TextSegment> segments = render(chat);
  return {tokenizer->encode(segments, chat.add_special_tokens.value_or(!chat_template), markers),
          begins_reasoning(segments, syntax)};
}

std::string ServedModel::decode(const std::vector<int>& tokens) const {
  if (tokenizer) return tokenizer->decode(tokens, false);
  return fmt::format("{}", fmt::join(tokens, " "));
}

std::string ServedModel::token_bytes(int token) const {
  return tokenizer ? std::string(tokenizer->token_bytes(token)) : fmt::format(" {}", token);
}

SamplingFields default_sampling(const GenerationConfig& theirs, const SamplingFields& given) {
  SamplingFields sampling = given;
  const auto fill = [](auto& field, auto value) {
    if (!field) field = value;
  };
  fill(sampling.temperature, theirs.do_sample ? theirs.temperature : 1);
  if (theirs.do_sample) {
    fill(sampling.top_p, theirs.top_p);
    fill(sampling.top_k, theirs.top_k);
    fill(sampling.min_p, theirs.min_p);
  }
  fill(sampling.repetition_penalty, theirs.repetition_penalty);
  fill(sampling.presence_penalty, theirs.presence_penalty);
  fill(sampling.frequency_penalty, theirs.frequency_penalty);
  return sampling;
}

}  // namespace megalith::serve
