#include "megalith/model/template_call.h"

#include <algorithm>

#include "megalith/base/error.h"
#include "megalith/model/template_number.h"

namespace megalith {

using Kind = TemplateValue::Kind;

void TemplateCall::fail(const std::string& message) const {
  context_->fail(*role_ ? fmt::format("{} \"{}\" {}", role_, name_, message) : fmt::format("{}() {}", name_, message));
}

void TemplateCall::check(size_t most_positional, std::initializer_list<std::string_view> names) const {
  if (positional().size() > most_positional)
    fail(fmt::format("got {} arguments, want at most {}", positional().size(), most_positional));
  for (const auto& [name, value] : named()) {
    const auto* entry = std::find(names.begin(), names.end(), name);
    if (entry == names.end() || name.empty())
      fail(fmt::format("got the argument \"{}\", which it does not have", name));
    if (static_cast<size_t>(entry - names.begin()) < positional().size())
      fail(fmt::format("got the argument \"{}\" twice", name));
  }
}

const TemplateValue* TemplateCall::find(size_t position, std::string_view name) const {
  if (position < positional().size()) return &positional()[position];
  for (const auto& [key, value] : named())
    if (!name.empty() && key == name) return &value;
  return nullptr;
}

const TemplateValue* TemplateCall::find_some(size_t position, std::string_view name) const {
  const TemplateValue* value = find(position, name);
  return value && !value->is(Kind::none) ? value : nullptr;
}

const TemplateValue& TemplateCall::at(size_t position, std::string_view name) const {
  if (const TemplateValue* value = find(position, name)) return *value;
  fail(fmt::format("got {} arguments, want at least {}", positional().size(), position + 1));
}

const MarkedText& TemplateCall::string(size_t position, std::string_view name) const {
  const TemplateValue& value = at(position, name);
  if (!value.is(Kind::string)) fail(fmt::format("got {}, want a string", value.describe()));
  return value.string();
}

int64_t TemplateCall::integer(size_t position, std::string_view name, int64_t absent) const {
  const TemplateValue* value = find(position, name);
  if (!value) return absent;
  if (!value->is_integer() || value->is_big()) fail(fmt::format("got {}, want an integer", value->describe()));
  return value->integer();
}

bool TemplateCall::flag(size_t position, std::string_view name, bool absent) const {
  const TemplateValue* value = find(position, name);
  return value ? value->truth() : absent;
}

MarkedText template_str(TemplateContext& context, const TemplateValue& value) {
  if (value.is(Kind::string)) {
    context.charge_text(value.text().size());
    return value.string();
  }
  if (value.is_big()) context.charge(template_bits(value) / 64);
  context.charge_walk(value);
  MarkedText text = value.to_text();
  context.charge_escaped(text.text);
  return text;
}

MarkedText template_repr(TemplateContext& context, const TemplateValue& value) {
  context.charge_walk(value);
  MarkedText text = value.to_repr();
  context.charge_escaped(text.text);
  return text;
}

TemplateTextOf::TemplateTextOf(TemplateContext& context, const TemplateValue& value) : value_(value) {
  if (value.is(Kind::string)) {
    view_ = value.string().view();
    context.charge_text(view_.text.size());
  } else {
    made_ = template_str(context, value);
    view_ = made_.view();
  }
}

}  // namespace megalith
