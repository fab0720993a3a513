// The chat templates of a model's folder, by name: chat_template.jinja is "default", and
// additional_chat_templates/NAME.jinja is NAME; where there is none of these files, "chat_template" in
// tokenizer_config.json, a text or a list of them.
#pragma once

#include <string>
#include <vector>

namespace megalith {

/// Bytes of one, far above every published one: those have up to 30 KB.
constexpr size_t kMaxTemplateBytes = 1 << 20;

struct TemplateFile {
  std::string name;   // "default", "tool_use"
  std::string place;  // for messages: "models/x/chat_template.jinja"
  std::string source;
};

/// All of them, sorted by name; none if the folder has no template.
std::vector<TemplateFile> template_files(const std::string& folder);

}  // namespace megalith
