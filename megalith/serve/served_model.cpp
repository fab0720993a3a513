#include "megalith/serve/served_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "megalith/serve/api_error.h"

namespace megalith::serve {

namespace {

TemplateValue user_text(const std::string& text) {
  return TemplateValue(MarkedText{text, std::string(text.size(), '\1')});
}

TemplateValue template_value(const ChatTurn& turn) {
  TemplateValue::Members members = {{"role", turn.role}, {"content", user_text(turn.content)}};
  if (turn.name) members.emplace_back("name", user_text(*turn.name));
  if (turn.reasoning) members.emplace_back("reasoning_content", user_text(*turn.reasoning));
  return TemplateValue::dict(std::move(members));
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

std::vector<int> ServedModel::encode(const GenerationRequest& chat) const {
  if (!tokenizer)
    throw ApiError::invalid("this model has no tokenizer.json: use /v1/completions with token ids",
                            prompt_member(chat.api));
  if (!chat_template && !chat.variables.empty())
    throw ApiError::invalid("this model has no chat template that could know variables", "chat_template_kwargs");
  std::vector<TextSegment> segments;
  try {
    if (chat_template) {
      std::vector<TemplateValue> messages;
      for (const ChatTurn& turn : chat.messages) messages.push_back(template_value(turn));
      ChatOptions options;
      options.add_generation_prompt = chat.add_generation_prompt;
      options.variables = chat.variables;
      options.trusts_roles = true;
      segments = chat_template->render(TemplateValue::list(std::move(messages)), options);
    } else {
      segments = plain_text(chat.messages);
    }
  } catch (const UserError& error) { throw ApiError::invalid(error.what(), prompt_member(chat.api)); }
  return tokenizer->encode(segments, chat.add_special_tokens.value_or(!chat_template), markers);
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
