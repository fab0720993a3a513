#include "megalith/model/template_filter.h"

#include <algorithm>
#include <array>

#include "megalith/base/error.h"
#include "megalith/model/template_number.h"
#include "megalith/model/template_operator.h"
#include "megalith/model/template_text.h"
#include "megalith/model/unicode_property.h"

namespace megalith {

using Kind = TemplateValue::Kind;

namespace {

std::array<std::span<const TemplateFilterRow>, 4> tables() {
  return {template_text_filters(), template_html_filters(), template_list_filters(), template_value_filters()};
}

const TemplateFilterRow* find_filter(std::string_view name) {
  for (const auto& table : tables())
    for (const TemplateFilterRow& row : table)
      if (row.name == name) return &row;
  return nullptr;
}

}  // namespace

bool template_has_filter(std::string_view name) { return find_filter(name); }

std::string template_no_filter(std::string_view name) {
  std::vector<std::string_view> known;
  for (const auto& table : tables())
    for (const TemplateFilterRow& row : table) known.push_back(row.name);
  std::sort(known.begin(), known.end());
  return fmt::format("found the filter \"{}\", supported are {}", name, fmt::join(known, ", "));
}

TemplateValue template_filter(const std::string& name, const TemplateValue& value, const TemplateCall& call) {
  call.context().charge(1);
  if (const TemplateFilterRow* row = find_filter(name)) return row->filter(value, call);
  call.context().fail(template_no_filter(name));
}

TemplatePath::TemplatePath(TemplateContext& context, const TemplateValue* attribute) {
  if (!attribute || attribute->is(Kind::none)) return;
  if (!attribute->is(Kind::string)) {
    parts_.push_back(*attribute);
    return;
  }
  const MarkedView path = attribute->string().view();
  context.charge_text(path.text.size());
  for (const TextRange& range : template_split(path.text, ".", -1, false)) {
    context.charge(3);
    const MarkedText part = template_part(path, range.begin, range.end);
    bool is_number = !part.text.empty();
    template_each_character(part.text, [&](size_t, size_t, char32_t c) { is_number &= unicode_is_digit(c); });
    if (!is_number) {
      parts_.emplace_back(part);
      continue;
    }
    const std::optional<TemplateValue> number = template_parse_integer(part.text, 10);
    if (!number)
      context.fail(fmt::format("an attribute begins with the digits {}, which are no integer or one of too many digits",
                               template_quote(template_slice(part.view(), 0, 40).view()).text));
    parts_.push_back(*number);
  }
}

TemplateValue TemplatePath::of(TemplateContext& context, TemplateValue value, const TemplateValue* absent) const {
  for (const TemplateValue& part : parts_) {
    context.charge(1);
    value = template_subscript(context, value, part);
    if (absent && value.is(Kind::undefined)) value = *absent;
  }
  return value;
}

}  // namespace megalith
