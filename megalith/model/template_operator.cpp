#include "megalith/model/template_operator.h"

#include <algorithm>

#include "megalith/base/error.h"
#include "megalith/model/template_call.h"
#include "megalith/model/template_format.h"
#include "megalith/model/template_markup.h"
#include "megalith/model/template_method.h"
#include "megalith/model/template_number.h"
#include "megalith/model/template_object.h"
#include "megalith/model/template_text.h"

namespace megalith {

using Kind = TemplateValue::Kind;

namespace {

[[noreturn]] void fail_operands(TemplateContext& context, std::string_view op, const TemplateValue& left,
                                const TemplateValue& right) {
  context.fail(fmt::format("\"{}\" has {} on its left and {} on its right, which do not go together", op,
                           left.describe(), right.describe()));
}

// A repetition is worth charging for before it is made.
TemplateValue repeated(TemplateContext& context, const TemplateValue& value, const TemplateValue& times) {
  if (times.is_big()) context.fail(fmt::format("{} is repeated {} times", value.kind_name(), times.describe()));
  const int64_t count = std::max<int64_t>(times.integer(), 0);
  if (value.is(Kind::string)) {
    const MarkedView text = value.string().view();
    TemplateTextBuilder result;
    if (!text.text.empty()) template_check_text(static_cast<size_t>(count));
    if (!text.text.empty()) context.charge(count / 4);
    result.append(text, count);
    context.charge_text(result.size());
    return TemplateValue(result.take(), value.is_markup());
  }
  const std::vector<TemplateValue>& from = value.list().elements;
  if (from.empty() || count == 0) return value.is(Kind::tuple) ? TemplateValue::tuple({}) : TemplateValue::list({});
  constexpr int64_t kMaxElements = 4'000'000;
  if (count > kMaxElements / std::ssize(from))
    context.fail(fmt::format("a value has more than {} parts: a list is repeated too often", kMaxElements));
  context.charge(std::ssize(from) * count);
  std::vector<TemplateValue> elements;
  elements.reserve(from.size() * static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) elements.insert(elements.end(), from.begin(), from.end());
  return value.is(Kind::tuple) ? TemplateValue::tuple(std::move(elements)) : TemplateValue::list(std::move(elements));
}

TemplateValue concatenated(TemplateContext& context, const TemplateValue& left, const TemplateValue& right) {
  const bool is_markup = left.is_markup() || right.is_markup();
  context.charge_text(left.text().size() + right.text().size());
  TemplateTextBuilder result;
  for (const TemplateValue* side : {&left, &right}) {
    if (is_markup && !side->is_markup()) {
      const MarkedText escaped = template_escape(side->string().view());
      context.charge_escaped(escaped.text);
      result.append(escaped.view());
    } else {
      result.append(side->string().view());
    }
  }
  return TemplateValue(result.take(), is_markup);
}

bool contains(TemplateContext& context, const TemplateValue& all, const TemplateValue& one) {
  if (all.is(Kind::string)) {
    if (!one.is(Kind::string)) context.fail(fmt::format("\"in\" looks for {} in a string", one.describe()));
    context.charge_search(all.text(), one.text());
    return template_find(all.text(), one.text()) != std::string_view::npos;
  }
  context.charge_walk(one);
  if (all.is(Kind::dict)) return all.dict().find(one) != nullptr;
  if (all.is(Kind::object))
    if (const std::optional<bool> answer = all.object().contains(one)) return *answer;
  const auto elements = template_iterate(context, all);
  while (const std::optional<TemplateValue> element = elements->next()) {
    context.charge(std::min(element->weight(), one.weight()));
    if (*element == one) return true;
  }
  return false;
}

// Whether left comes before right, or is equal to it if that counts.
bool before(TemplateContext& context, std::string_view op, const TemplateValue& left, const TemplateValue& right,
            bool or_equal) {
  if (left.is_number() && right.is_number()) {
    const std::partial_ordering order = template_compare_numbers(left, right);
    return order < 0 || (or_equal && order == 0);
  }
  if (left.kind() != right.kind()) fail_operands(context, op, left, right);
  switch (left.kind()) {
    case Kind::string: return left.less(right) || (or_equal && left == right);
    case Kind::list:
    case Kind::tuple: {
      const auto &a = left.list().elements, &b = right.list().elements;
      for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
        if (!(a[i] == b[i])) return before(context, op, a[i], b[i], or_equal);
      return or_equal ? a.size() <= b.size() : a.size() < b.size();
    }
    case Kind::object:
      if (const std::optional<bool> answer = left.object().within(right.object(), or_equal)) return *answer;
      [[fallthrough]];
    default: fail_operands(context, op, left, right);
  }
}

MarkedText stepped(const MarkedView& text, int64_t first, int64_t last, int64_t by) {
  const TemplateHeld held((text.text.size() + 1) * sizeof(uint32_t));
  std::vector<uint32_t> places;  // where each character begins
  places.reserve(text.text.size() + 1);
  template_each_character(text.text, [&](size_t at, size_t, char32_t) { places.push_back(static_cast<uint32_t>(at)); });
  places.push_back(static_cast<uint32_t>(text.text.size()));
  TemplateTextBuilder result;
  for (int64_t i = first; by > 0 ? i < last : i > last; i += by)
    result.append(text.part(places[static_cast<size_t>(i)], places[static_cast<size_t>(i) + 1]));
  return result.take();
}

}  // namespace

TemplateValue template_binary(TemplateContext& context, std::string_view op, const TemplateValue& left,
                              const TemplateValue& right) {
  if (op == "%" && left.is(Kind::string))
    return TemplateValue(template_format_percent(context, left.string().view(), right, left.is_markup()),
                         left.is_markup());
  for (const TemplateValue* side : {&left, &right})
    if (side->is(Kind::undefined)) context.fail(fmt::format("\"{}\" has {} at its side", op, side->describe()));
  if (left.is_number() && right.is_number()) return template_arithmetic(context, op, left, right);
  if (op == "+" && left.is(Kind::string) && right.is(Kind::string)) return concatenated(context, left, right);
  if (op == "+" && left.is_sequence() && left.kind() == right.kind()) {
    const auto &a = left.list().elements, &b = right.list().elements;
    context.charge(std::ssize(a) + std::ssize(b));
    std::vector<TemplateValue> elements;
    elements.reserve(a.size() + b.size());
    elements.insert(elements.end(), a.begin(), a.end());
    elements.insert(elements.end(), b.begin(), b.end());
    return left.is(Kind::tuple) ? TemplateValue::tuple(std::move(elements)) : TemplateValue::list(std::move(elements));
  }
  if (op == "*" && right.is_integer() && (left.is(Kind::string) || left.is_sequence()))
    return repeated(context, left, right);
  if (op == "*" && left.is_integer() && (right.is(Kind::string) || right.is_sequence()))
    return repeated(context, right, left);
  fail_operands(context, op, left, right);
}

TemplateValue template_unary(TemplateContext& context, std::string_view op, const TemplateValue& value) {
  if (!value.is_number()) context.fail(fmt::format("\"{}\" is in front of {}, want a number", op, value.describe()));
  if (op == "-") return template_negative(value);
  return value.is(Kind::boolean) ? TemplateValue(value.integer()) : value;
}

bool template_compare(TemplateContext& context, std::string_view op, const TemplateValue& left,
                      const TemplateValue& right) {
  context.charge(std::min(left.weight(), right.weight()));
  if (left.is(Kind::string) && right.is(Kind::string))
    context.charge_text(std::min(left.text().size(), right.text().size()));
  if (op == "==") return left == right;
  if (op == "!=") return !(left == right);
  if (op == "in") return contains(context, right, left);
  if (op == "not in") return !contains(context, right, left);
  if (op == "<" || op == "<=") return before(context, op, left, right, op == "<=");
  return before(context, op, right, left, op == ">=");
}

std::optional<TemplateValue> template_item(TemplateContext& context, const TemplateValue& object,
                                           const TemplateValue& key) {
  switch (object.kind()) {
    case Kind::undefined: context.fail(fmt::format("{} is subscripted", object.describe()));
    case Kind::dict: {
      if (!key.is_hashable()) return std::nullopt;
      context.charge_walk(key);
      const TemplateValue* value = object.dict().find(key);
      return value ? std::optional(*value) : std::nullopt;
    }
    case Kind::list:
    case Kind::tuple:
    case Kind::string: {
      if (!key.is_integer() || key.is_big()) return std::nullopt;
      const int64_t length = *template_length_of(object);
      const int64_t index = key.integer() < 0 ? key.integer() + length : key.integer();
      if (index < 0 || index >= length) return std::nullopt;
      if (object.is_sequence()) return object.list().elements[static_cast<size_t>(index)];
      const MarkedView text = object.string().view();
      if (length == std::ssize(text.text)) {
        const auto at = static_cast<size_t>(index);
        return TemplateValue(template_part(text, at, at + 1), object.is_markup());
      }
      context.charge_text(text.text.size());
      return TemplateValue(template_slice(text, index, index + 1), object.is_markup());
    }
    case Kind::object: return object.object().item(key);
    default: return std::nullopt;
  }
}

TemplateValue template_subscript(TemplateContext& context, const TemplateValue& object, const TemplateValue& key) {
  if (const std::optional<TemplateValue> value = template_item(context, object, key)) return *value;
  if (!key.is(Kind::string))
    return TemplateValue::missing(fmt::format("the element {} of {}", key.describe(), object.kind_name()));
  if (const std::optional<TemplateValue> value = template_own_attribute(context, object, key.text())) return *value;
  return TemplateValue::undefined(key.text());
}

TemplateValue template_attribute(TemplateContext& context, const TemplateValue& object, std::string_view name) {
  if (object.is(Kind::undefined))
    context.fail(fmt::format("the attribute \"{}\" is asked of {}", name, object.describe()));
  if (const std::optional<TemplateValue> value = template_own_attribute(context, object, name)) return *value;
  if (object.is(Kind::dict)) {
    if (const TemplateValue* value = object.dict().find(name)) return *value;
  }
  return TemplateValue::undefined(name);
}

TemplateValue template_slice_of(TemplateContext& context, const TemplateValue& object, const TemplateValue* begin,
                                const TemplateValue* end, const TemplateValue* step) {
  const bool is_range = template_range_slice(object, 0, 0, 1).has_value();
  if (!object.is(Kind::string) && !object.is_sequence() && !is_range)
    context.fail(fmt::format("{} cannot be sliced", object.describe()));
  auto part = [&](const TemplateValue* value) -> std::optional<int64_t> {
    if (!value || value->is(Kind::none)) return std::nullopt;
    if (!value->is_integer())
      context.fail(fmt::format("a slice has {} as a bound, want an integer", value->describe()));
    constexpr int64_t kFar = INT64_MAX / 2;  // beyond everything that can be sliced
    if (value->is_big()) return value->big() < 0 ? -kFar : kFar;
    return std::clamp(value->integer(), -kFar, kFar);
  };
  const int64_t length = *template_length_of(object);
  const int64_t by = part(step).value_or(1);
  if (by == 0) context.fail("a slice has the step 0");
  const int64_t low = by > 0 ? 0 : -1, high = by > 0 ? length : length - 1;
  auto bound = [&](std::optional<int64_t> value, int64_t absent) {
    return value ? std::clamp(*value < 0 ? *value + length : *value, low, high) : absent;
  };
  const int64_t first = bound(part(begin), by > 0 ? low : high), last = bound(part(end), by > 0 ? high : low);
  if (is_range) return *template_range_slice(object, first, last, by);
  if (object.is(Kind::string)) {
    const MarkedView text = object.string().view();
    context.charge_text(text.text.size());
    if (by == 1) return TemplateValue(template_slice(text, first, last), object.is_markup());
    context.charge_characters(text.text);
    context.charge(std::ssize(text.text) / 8);
    return TemplateValue(stepped(text, first, last, by), object.is_markup());
  }
  const std::vector<TemplateValue>& all = object.list().elements;
  std::vector<TemplateValue> elements;
  for (int64_t i = first; by > 0 ? i < last : i > last; i += by) elements.push_back(all[static_cast<size_t>(i)]);
  context.charge(std::ssize(elements));
  return object.is(Kind::tuple) ? TemplateValue::tuple(std::move(elements)) : TemplateValue::list(std::move(elements));
}

}  // namespace megalith
