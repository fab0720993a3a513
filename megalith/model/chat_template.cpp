#include "megalith/model/chat_template.h"

#include <algorithm>

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/model/chat_reasoning.h"
#include "megalith/model/json.h"
#include "megalith/model/template_eval.h"
#include "megalith/model/template_parse.h"
#include "megalith/model/utf8.h"

namespace megalith {

namespace {

constexpr size_t kMostConfigBytes = 16 << 20;
constexpr size_t kMostTemplateBytes = 16 << 20;

using Variables = std::vector<std::pair<std::string, TemplateValue>>;

// "bos_token": "<s>", or {"content": "<s>", ...}.
Variables read_special_tokens(const JsonValue& config) {
  Variables variables;
  for (const char* key : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    const auto token = config.find(key);
    if (!token) continue;
    variables.emplace_back(key, token->is_object() ? token->at("content").string() : token->string());
  }
  return variables;
}

TemplateValue message_value(const ChatMessage& message) {
  auto users = [](const std::string& text) {
    // What a template is given is text; broken bytes are repaired before anything counts characters in them.
    const std::string repaired = utf8_repair(text);
    return TemplateValue(MarkedText{repaired, std::string(repaired.size(), '\1')});
  };
  return TemplateValue::dict({{"role", users(message.role)}, {"content", users(message.content)}});
}

std::vector<TextSegment> cut(const MarkedText& text) {
  std::vector<TextSegment> segments;
  for (size_t begin = 0; begin < text.text.size();) {
    const bool marked = text.view().is_marked(begin, begin + 1);
    const size_t found = text.marks.empty() ? std::string::npos : text.marks.find(marked ? '\0' : '\1', begin);
    const size_t end = std::min(found, text.text.size());
    segments.push_back({text.text.substr(begin, end - begin), marked});
    begin = end;
  }
  return segments;
}

}  // namespace

struct ChatTemplate::Impl {
  // A folder may have a template of its own for prompts with tools.
  struct Program {
    std::string name;
    TemplateBody body;
  };
  Program usual;
  std::optional<Program> with_tools;
  Variables variables;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

ChatTemplate ChatTemplate::parse(std::string_view source, const std::string& name, Variables variables) {
  auto impl = std::make_unique<Impl>();
  impl->usual = {name, template_parse(source, name)};
  impl->variables = std::move(variables);
  return ChatTemplate(std::move(impl));
}

bool ChatTemplate::is_in_folder(const std::string& folder) {
  if (file_is_named(folder + "/chat_template.jinja")) return true;
  const std::string config = folder + "/tokenizer_config.json";
  return file_is_named(config) && JsonFile::read(config, kMostConfigBytes).root().find("chat_template");
}

ChatTemplate ChatTemplate::from_folder(const std::string& folder, const std::string& template_file) {
  const std::string config_path = folder + "/tokenizer_config.json";
  const std::string file_path = template_file.empty() ? folder + "/chat_template.jinja" : template_file;
  auto impl = std::make_unique<Impl>();
  auto set = [&](std::optional<Impl::Program>& program, const std::string& source, const std::string& name) {
    program = {name, template_parse(source, name)};
  };
  std::optional<Impl::Program> usual;
  if (!template_file.empty())
    set(usual, stream_read(file_path, kMostTemplateBytes), file_path);  // whoever names it may pipe it in
  else if (file_is_named(file_path))
    set(usual, file_read(file_path), file_path);
  if (file_is_named(config_path)) {
    const JsonFile file = JsonFile::read(config_path, kMostConfigBytes);
    impl->variables = read_special_tokens(file.root());
    const auto value = file.root().find("chat_template");
    const std::string name = config_path + ": \"chat_template\"";
    if (!usual && value && value->is_array()) {
      value->each_element([&](const JsonValue& element) {
        const std::string& which = element.at("name").string();
        const std::string named = fmt::format("{} \"{}\"", name, which);
        if (which == "default") set(usual, element.at("template").string(), named);
        if (which == "tool_use") set(impl->with_tools, element.at("template").string(), named);
      });
      if (!usual) value->fail("has no template named \"default\"");
    } else if (!usual && value) {
      set(usual, value->string(), name);
    }
  }
  MEGALITH_CHECK(usual,
                 "{} has no chat template: neither chat_template.jinja nor \"chat_template\" in tokenizer_config.json",
                 folder);
  impl->usual = std::move(*usual);
  return ChatTemplate(std::move(impl));
}

std::vector<TextSegment> ChatTemplate::render(std::initializer_list<ChatMessage> messages,
                                              const ChatOptions& options) const {
  return render(std::span(messages.begin(), messages.size()), options);
}

std::vector<TextSegment> ChatTemplate::render(std::span<const ChatMessage> messages, const ChatOptions& options) const {
  std::vector<TemplateValue> values;
  for (const ChatMessage& message : messages) values.push_back(message_value(message));
  return render(TemplateValue::list(std::move(values)), options);
}

std::vector<TextSegment> ChatTemplate::render(const TemplateValue& messages, const ChatOptions& options) const {
  Variables variables = impl_->variables;
  variables.emplace_back("messages", chat_alias_reasoning(messages));
  variables.emplace_back("tools", options.tools.value_or(TemplateValue::none()));
  variables.emplace_back("documents", TemplateValue::none());
  variables.emplace_back("add_generation_prompt", options.add_generation_prompt);
  for (const auto& variable : options.variables) variables.push_back(variable);
  const Impl::Program& program = options.tools && impl_->with_tools ? *impl_->with_tools : impl_->usual;
  return cut(template_render(program.body, program.name, std::move(variables), options.now));
}

}  // namespace megalith
