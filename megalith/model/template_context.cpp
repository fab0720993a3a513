#include "megalith/model/template_context.h"

#include <algorithm>

#include "megalith/base/error.h"
#include "megalith/model/template_lex.h"
#include "megalith/model/template_text.h"

namespace megalith {

using Kind = TemplateValue::Kind;

namespace {

// One text, the rendered prompt included. A million tokens are some 4 MB.
constexpr size_t kMostTextBytes = 64 << 20;
// Bytes that are copied in about the time of a step.
constexpr size_t kBytesPerStep = 64;

}  // namespace

void TemplateContext::fail(const std::string& message) const { template_fail(template_name_, line_, message); }

void TemplateContext::charge(int64_t steps) {
  steps_left_ -= steps;
  if (steps_left_ < 0) fail(fmt::format("rendering takes more than {} steps: the template may run away", kMostSteps));
}

void TemplateContext::check_length(size_t bytes) const {
  if (bytes > kMostTextBytes) fail(fmt::format("a text has more than {} bytes", kMostTextBytes));
}

void TemplateContext::charge_text(size_t bytes) {
  check_length(bytes);
  charge(1 + static_cast<int64_t>(bytes / kBytesPerStep));
}

std::time_t TemplateContext::now() const { return now_ ? *now_ : std::time(nullptr); }

void TemplateCall::check(size_t most_positional, std::initializer_list<std::string_view> names) const {
  if (positional_.size() > most_positional)
    fail(fmt::format("got {} arguments, want at most {}", positional_.size(), most_positional));
  for (const auto& [name, value] : named_) {
    const auto* entry = std::find(names.begin(), names.end(), name);
    if (entry == names.end()) fail(fmt::format("got the argument \"{}\", which it does not have", name));
    if (static_cast<size_t>(entry - names.begin()) < positional_.size())
      fail(fmt::format("got the argument \"{}\" twice", name));
  }
}

const TemplateValue* TemplateCall::find(size_t position, std::string_view name) const {
  if (position < positional_.size()) return &positional_[position];
  for (const auto& [key, value] : named_)
    if (!name.empty() && key == name) return &value;
  return nullptr;
}

const TemplateValue& TemplateCall::at(size_t position, std::string_view name) const {
  if (const TemplateValue* value = find(position, name)) return *value;
  fail(fmt::format("got {} arguments, want at least {}", positional_.size(), position + 1));
}

const MarkedText& TemplateCall::string(size_t position, std::string_view name) const {
  const TemplateValue& value = at(position, name);
  if (!value.is(Kind::string)) fail(fmt::format("got {}, want a string", value.describe()));
  return value.string();
}

int64_t TemplateCall::integer(size_t position, std::string_view name, int64_t absent) const {
  const TemplateValue* value = find(position, name);
  if (!value) return absent;
  if (!value->is_integer()) fail(fmt::format("got {}, want an integer", value->describe()));
  return value->integer();
}

bool TemplateCall::flag(size_t position, std::string_view name, bool absent) const {
  const TemplateValue* value = find(position, name);
  return value ? value->truth() : absent;
}

std::vector<TemplateValue> template_elements(TemplateContext& context, const TemplateValue& value) {
  std::vector<TemplateValue> result;
  switch (value.kind()) {
    case Kind::undefined: return {};
    case Kind::list: {
      const TemplateList& list = value.list();
      if (list.is_generator && list.is_consumed) return {};
      list.is_consumed = true;
      context.charge(std::ssize(list.elements));
      return list.elements;
    }
    case Kind::dict:
      context.charge(std::ssize(value.dict().members));
      for (const auto& [key, member] : value.dict().members) result.push_back(key);
      return result;
    case Kind::string:
      context.charge(std::ssize(value.text()));
      for (MarkedText& character : template_characters(value.string())) result.emplace_back(std::move(character));
      return result;
    default: context.fail(fmt::format("{} cannot be gone through", value.describe()));
  }
}

}  // namespace megalith
