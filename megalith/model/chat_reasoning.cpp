#include "megalith/model/chat_reasoning.h"

#include <algorithm>

#include "megalith/base/error.h"

namespace megalith {

using Kind = TemplateValue::Kind;

namespace {

// The first one that is there counts.
constexpr std::string_view kNames[] = {"reasoning_content", "thinking", "reasoning"};

const TemplateValue* reasoning_of(const TemplateValue& message) {
  for (const std::string_view name : kNames)
    if (const TemplateValue* value = message.dict().find(name); value && !value->is(Kind::none)) return value;
  return nullptr;
}

// The order of the names is that of transformers, too: a template may print the whole message.
TemplateValue aliased(const TemplateValue& message) {
  const TemplateValue* reasoning = reasoning_of(message);
  if (!reasoning) return message;
  TemplateValue::Members members = {{"thinking", *reasoning}};
  const auto& all = message.dict().members;
  members.insert(members.end(), all.begin(), all.end());
  members.emplace_back("reasoning_content", *reasoning);
  return TemplateValue::dict(std::move(members));
}

}  // namespace

TemplateValue chat_alias_reasoning(const TemplateValue& messages) {
  MEGALITH_CHECK(messages.is(Kind::list), "the messages are {}, want a list", messages.kind_name());
  std::vector<TemplateValue> all = messages.list().elements;
  for (size_t i = 0; i < all.size(); ++i) {
    MEGALITH_CHECK(all[i].is(Kind::dict), "message {} is {}, want a dictionary with a role and a content", i,
                   all[i].describe());
    all[i] = aliased(all[i]);
  }
  return TemplateValue::list(std::move(all));
}

}  // namespace megalith
