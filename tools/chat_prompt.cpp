#include "tools/chat_prompt.h"

#include <fmt/format.h>

#include "megalith/base/error.h"

namespace megalith::tools {

namespace {

std::optional<ChatTemplate> template_of(const std::string& folder, const ChatPromptOptions& options) {
  if (options.no_template) return std::nullopt;
  if (options.template_file.empty() && !ChatTemplate::is_in_folder(folder)) return std::nullopt;
  return ChatTemplate::from_folder(folder, options.template_file);
}

}  // namespace

ChatPrompt::ChatPrompt(const std::string& folder, const ChatPromptOptions& options) : system_(options.system) {
  try {
    template_ = template_of(folder, options);
    render({{"user", "Hello"}});
  } catch (const UserError& error) {
    throw UserError(
        fmt::format("{}; --chat-template takes another one, --no-chat-template goes on from plain text", error.what()));
  }
}

std::vector<ChatMessage> ChatPrompt::with_system(const std::vector<ChatMessage>& messages) const {
  std::vector<ChatMessage> all;
  if (!system_.empty()) all.push_back({"system", system_});
  all.insert(all.end(), messages.begin(), messages.end());
  return all;
}

std::vector<TextSegment> ChatPrompt::render(const std::vector<ChatMessage>& messages) const {
  if (template_) return template_->render(with_system(messages));
  std::vector<TextSegment> segments;
  if (!system_.empty()) segments.push_back({system_ + "\n\n", true});
  for (const ChatMessage& message : messages) segments.push_back({message.content, true});
  return segments;
}

std::optional<int> ChatPrompt::turn_end(const Tokenizer& tokenizer) const {
  if (!template_) return std::nullopt;
  std::vector<TextSegment> segments;
  try {
    segments =
        template_->render(with_system({{"user", "Hello"}, {"assistant", "Hi"}}), {.add_generation_prompt = false});
  } catch (const UserError&) {
    return std::nullopt;  // one that takes no answers; the first real one will be refused by name
  }
  if (segments.empty() || segments.back().is_user_content) return std::nullopt;
  for (int id : tokenizer.encode(segments.back().text, false))
    if (tokenizer.is_special(id)) return id;
  return std::nullopt;
}

}  // namespace megalith::tools
