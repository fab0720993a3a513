// The chat template of a Hugging Face folder: the Jinja program that turns messages into a prompt, as transformers runs
// it (trim_blocks, lstrip_blocks, loop controls, tojson, strftime_now, raise_exception).
//
// Rendering gives stretches of text, and of each whether it came from the template or from what was put into it. So
// Tokenizer::encode(segments) makes special tokens of the template's text only: "<|im_end|>" in a message is ten
// characters.
//
//   const ChatTemplate chat = ChatTemplate::from_folder("models/storyteller");
//   const std::vector<int> prompt = tokenizer.encode(chat.render({{"user", "Tell me a story"}}));
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "megalith/model/marked_text.h"
#include "megalith/model/template_value.h"

namespace megalith {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

struct ChatOptions {
  bool add_generation_prompt = true;        // ends with the beginning of the assistant's answer
  std::optional<TemplateValue> tools = {};  // a list, as TemplateValue::from_json reads it
  std::vector<std::pair<std::string, TemplateValue>> variables = {};  // further ones: {"enable_thinking", false}
  std::optional<std::time_t> now = {};                                // instead of the clock
  bool trusts_roles = false;  // no user wrote them: some templates make markers, "<|" and the role and "|>"
};

class ChatTemplate {
 public:
  /// The folder's own (template_files.h), named "default" if there are several; its files also name the special tokens
  /// that templates print. UserError if there is none. `chosen` is the name of another one of them, or a file with a
  /// template that takes their place.
  static ChatTemplate from_folder(const std::string& folder, const std::string& chosen = "");
  /// Whether from_folder finds one.
  static bool is_in_folder(const std::string& folder);
  /// From its text; `variables` are what the folder's would be: {"bos_token", "<s>"}. `name` is for messages.
  static ChatTemplate parse(std::string_view source, const std::string& name = "chat template",
                            std::vector<std::pair<std::string, TemplateValue>> variables = {});
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  /// Its text; of the one for prompts with tools, if the folder has one of its own for these.
  const std::string& source() const;

  /// UserError naming the line for what the template refuses, and for one that runs away. From several threads at once.
  std::vector<TextSegment> render(std::span<const ChatMessage> messages, const ChatOptions& options = {}) const;
  std::vector<TextSegment> render(std::initializer_list<ChatMessage> messages, const ChatOptions& options = {}) const;
  /// The same for messages with more than a content (tool calls): a list of dictionaries.
  std::vector<TextSegment> render(const TemplateValue& messages, const ChatOptions& options = {}) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace megalith
