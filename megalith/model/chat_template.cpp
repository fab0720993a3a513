#include "megalith/model/chat_template.h"

#include <algorithm>

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/model/chat_reasoning.h"
#include "megalith/model/json.h"
#include "megalith/model/special_tokens.h"
#include "megalith/model/template_eval.h"
#include "megalith/model/template_files.h"
#include "megalith/model/template_parse.h"
#include "megalith/model/utf8.h"

namespace megalith {

namespace {

using Variables = std::vector<std::pair<std::string, TemplateValue>>;

TemplateValue message_value(const ChatMessage& message, bool trusts_role) {
  auto users = [](const std::string& text) {
    // What a template is given is text; broken bytes are repaired before anything counts characters in them.
    const std::string repaired = utf8_repair(text);
    return TemplateValue(MarkedText{repaired, std::string(repaired.size(), '\1')});
  };
  const TemplateValue role = trusts_role ? TemplateValue(utf8_repair(message.role)) : users(message.role);
  return TemplateValue::dict({{"role", role}, {"content", users(message.content)}});
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
    std::string name, source;
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
  impl->usual = {name, std::string(source), template_parse(source, name)};
  impl->variables = std::move(variables);
  return ChatTemplate(std::move(impl));
}

bool ChatTemplate::is_in_folder(const std::string& folder) { return !template_files(folder).empty(); }

ChatTemplate ChatTemplate::from_folder(const std::string& folder, const std::string& chosen) {
  const std::vector<TemplateFile> files = template_files(folder);
  auto named = [&](std::string_view name) {
    const auto file = std::ranges::find(files, name, &TemplateFile::name);
    return file == files.end() ? nullptr : &*file;
  };
  auto program = [](const TemplateFile& file) {
    return Impl::Program{file.place, file.source, template_parse(file.source, file.place)};
  };
  std::vector<std::string> names;
  for (const TemplateFile& file : files) names.push_back(fmt::format("\"{}\"", file.name));
  const std::string all = fmt::format("{}", fmt::join(names, ", "));

  auto impl = std::make_unique<Impl>();
  for (const auto& [name, token] : SpecialTokens::from_folder(folder).names) impl->variables.emplace_back(name, token);
  if (const TemplateFile* const file = named(chosen.empty() ? "default" : chosen)) {
    impl->usual = program(*file);
    if (const TemplateFile* const tools = named("tool_use"); tools && chosen.empty())
      impl->with_tools = program(*tools);
    return ChatTemplate(std::move(impl));
  }
  MEGALITH_CHECK(!chosen.empty() || files.empty(),
                 "{}: \"chat_template\" has no template named \"default\", but {}: choose one", folder, all);
  MEGALITH_CHECK(!chosen.empty(),
                 "{} has no chat template: neither chat_template.jinja nor \"chat_template\" in tokenizer_config.json",
                 folder);
  MEGALITH_CHECK(files.empty() || file_is_named(chosen) || chosen.find('/') != std::string::npos,
                 "\"{}\" is neither a file nor one of the chat templates of {}, which are {}", chosen, folder, all);
  // Whoever names a file may pipe it in.
  impl->usual = program({"", chosen, stream_read(chosen, kMaxTemplateBytes)});
  return ChatTemplate(std::move(impl));
}

const std::string& ChatTemplate::source() const {
  return impl_->with_tools ? impl_->with_tools->source : impl_->usual.source;
}

std::vector<TextSegment> ChatTemplate::render(std::initializer_list<ChatMessage> messages,
                                              const ChatOptions& options) const {
  return render(std::span(messages.begin(), messages.size()), options);
}

std::vector<TextSegment> ChatTemplate::render(std::span<const ChatMessage> messages, const ChatOptions& options) const {
  std::vector<TemplateValue> values;
  for (const ChatMessage& message : messages) values.push_back(message_value(message, options.trusts_roles));
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
