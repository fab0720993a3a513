#include "tools/chat_prompt.h"

#include <fmt/format.h>

#include <algorithm>

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/model/unicode_form.h"
#include "megalith/model/utf8.h"

namespace megalith::tools {

namespace {

// Descriptions of a few hundred functions.
constexpr size_t kMaxToolsBytes = 4 << 20;

std::optional<ChatTemplate> template_of(const std::string& folder, const ChatPromptOptions& options) {
  if (options.no_template) return std::nullopt;
  if (options.template_name.empty() && !ChatTemplate::is_in_folder(folder)) return std::nullopt;
  return ChatTemplate::from_folder(folder, options.template_name);
}

bool is_white_space(std::string_view text) {
  for (; !text.empty(); text.remove_prefix(static_cast<size_t>(utf8_next(text))))
    if (utf8_next(text) <= 0 || !unicode_is_space(utf8_code_point(text))) return false;
  return true;
}

// Some tokenizers have runs of spaces or newlines as tokens of their own; those mark nothing.
bool is_marker(const Tokenizer& tokenizer, int id) {
  return tokenizer.is_added(id) && !is_white_space(tokenizer.token_bytes(id));
}

// The template's text behind the message `content`.
std::string text_behind(const std::vector<TextSegment>& segments, std::string_view content) {
  for (size_t i = 0; i + 1 < segments.size(); ++i)
    if (segments[i].is_user_content && segments[i].text.find(content) != std::string::npos)
      return segments[i + 1].is_user_content ? "" : segments[i + 1].text;
  return "";
}

}  // namespace

ChatPrompt::ChatPrompt(const std::string& folder, const ChatPromptOptions& options) : system_(options.system) {
  try {
    template_ = template_of(folder, options);
  } catch (const UserError& error) {
    throw UserError(
        fmt::format("{}; --chat-template takes another one, --no-chat-template goes on from plain text", error.what()));
  }
  read_options(options);
  try {
    render({{"user", "Hello"}});
  } catch (const UserError& error) {
    throw UserError(
        fmt::format("{}; --chat-template takes another one, --no-chat-template goes on from plain text", error.what()));
  }
}

void ChatPrompt::read_options(const ChatPromptOptions& options) {
  const bool is_for_template =
      !options.variables.empty() || !options.tools_file.empty() || options.thinking.has_value();
  MEGALITH_CHECK(template_ || !is_for_template,
                 "there is no chat template that --chat-template-kwargs, --tools or --enable-thinking could be for");
  using Kind = TemplateValue::Kind;
  if (!options.variables.empty()) {
    const std::string name = "--chat-template-kwargs";
    const TemplateValue variables = TemplateValue::from_json(options.variables, name);
    MEGALITH_CHECK(variables.is(Kind::dict), "{} is {}, want an object such as {{\"enable_thinking\": false}}", name,
                   variables.kind_name());
    for (const auto& [key, value] : variables.dict().members) {
      const std::string& variable = key.string().text;
      for (const char* ours : {"messages", "tools", "add_generation_prompt"})
        MEGALITH_CHECK(variable != ours, "{} names \"{}\", which the conversation sets{}", name, ours,
                       variable == "tools" ? ": give them with --tools" : "");
      options_.variables.emplace_back(variable, value);
    }
  }
  if (options.thinking) options_.variables.emplace_back("enable_thinking", *options.thinking);
  if (!options.tools_file.empty()) {
    options_.tools = TemplateValue::from_json(stream_read(options.tools_file, kMaxToolsBytes), options.tools_file);
    MEGALITH_CHECK(options_.tools->is(Kind::list), "{} is {}, want a JSON list of tools", options.tools_file,
                   options_.tools->kind_name());
  }
}

std::vector<TextSegment> ChatPrompt::render(const std::vector<ChatMessage>& messages,
                                            bool add_generation_prompt) const {
  std::vector<ChatMessage> all;
  if (!system_.empty()) all.push_back({"system", system_});
  all.insert(all.end(), messages.begin(), messages.end());
  ChatOptions options = options_;
  options.add_generation_prompt = add_generation_prompt;
  options.trusts_roles = true;
  return template_->render(all, options);
}

std::vector<TextSegment> ChatPrompt::render(const std::vector<ChatMessage>& messages) const {
  if (template_) return render(messages, true);
  std::vector<TextSegment> segments;
  if (!system_.empty()) segments.push_back({system_ + "\n\n", true});
  for (const ChatMessage& message : messages) segments.push_back({message.content, true});
  return segments;
}

TurnTokens ChatPrompt::turn_tokens(const Tokenizer& tokenizer) const {
  TurnTokens tokens;
  if (!template_) return tokens;
  auto add = [&](std::vector<int>& to, int id) {
    if (std::ranges::find(to, id) == to.end()) to.push_back(id);
  };
  // Numbers are no added tokens, and stay what they are in other cases and trimmed. Some templates write an end only
  // behind the last answer, some only where another message follows; some write none, but begin the next message.
  const std::string question = "1357", answer = "7531";
  const std::vector<ChatMessage> answered = {{"user", question}, {"assistant", answer}};
  const std::vector<ChatMessage> asked_again = {{"user", question}, {"assistant", answer}, {"user", question}};
  for (const auto& messages : {answered, asked_again}) {
    std::vector<TextSegment> segments;
    try {
      segments = render(messages, false);
    } catch (const UserError&) {
      continue;  // one that takes no answers; the first real one will be refused by name
    }
    for (int id : tokenizer.encode(text_behind(segments, answer), false)) {
      if (!is_marker(tokenizer, id)) continue;
      add(tokens.ends, id);
      break;
    }
    for (int id : tokenizer.encode(segments, false))
      if (is_marker(tokenizer, id)) add(tokens.markers, id);
  }
  return tokens;
}

}  // namespace megalith::tools
