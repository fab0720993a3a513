// Operators on template values, as Python has them: arithmetic, comparison, subscripts, slices, attributes, formatting.
#include <algorithm>
#include <cmath>

#include "megalith/base/error.h"
#include "megalith/model/template_context.h"
#include "megalith/model/template_text.h"

namespace megalith {

using Kind = TemplateValue::Kind;

namespace {

[[noreturn]] void fail_operands(TemplateContext& context, std::string_view op, const TemplateValue& left,
                                const TemplateValue& right) {
  context.fail(fmt::format("\"{}\" has {} on its left and {} on its right, which do not go together", op,
                           left.describe(), right.describe()));
}

TemplateValue integer_arithmetic(TemplateContext& context, std::string_view op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  if (op == "+") overflow = __builtin_add_overflow(a, b, &result);
  if (op == "-") overflow = __builtin_sub_overflow(a, b, &result);
  if (op == "*") overflow = __builtin_mul_overflow(a, b, &result);
  if (op == "//" || op == "%") {
    if (b == 0) context.fail(fmt::format("{} {} 0 divides by zero", a, op));
    if (b == -1) {
      if (op == "%") return 0;
      overflow = __builtin_sub_overflow(int64_t{0}, a, &result);
    } else {
      const int64_t rest = a % b, down = rest != 0 && (rest < 0) != (b < 0);
      result = op == "%" ? rest + down * b : a / b - down;
    }
  }
  if (op == "**") {
    result = 1;
    for (int64_t i = 0; i < b && !overflow && (a < -1 || a > 1); ++i)
      overflow = __builtin_mul_overflow(result, a, &result);
    if (a == 0) result = b == 0;
    if (a == -1) result = b % 2 ? -1 : 1;
  }
  if (overflow) context.fail(fmt::format("{} {} {} is too large", a, op, b));
  return result;
}

TemplateValue number_arithmetic(TemplateContext& context, std::string_view op, double a, double b) {
  if (op == "+") return a + b;
  if (op == "-") return a - b;
  if (op == "*") return a * b;
  if (op == "**") return std::pow(a, b);
  if (b == 0) context.fail(fmt::format("{} {} 0 divides by zero", template_number(a), op));
  if (op == "/") return a / b;
  if (op == "//") return std::floor(a / b);
  const double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

TemplateValue repeated(TemplateContext& context, const TemplateValue& value, int64_t count) {
  count = std::max<int64_t>(count, 0);
  if (value.is(Kind::string)) {
    const size_t bytes = value.text().size();
    if (bytes > 0 && count > (int64_t{1} << 30)) context.fail("a text is repeated too often");
    context.charge_text(bytes * static_cast<size_t>(count));
    MarkedText result;
    for (int64_t i = 0; bytes > 0 && i < count; ++i) result.append(value.string().view());
    return result;
  }
  const std::vector<TemplateValue>& from = value.list().elements;
  if (from.empty()) count = 0;
  if (count > (int64_t{1} << 30)) context.fail("a list is repeated too often");
  context.charge(std::ssize(from) * count);
  std::vector<TemplateValue> elements;
  for (int64_t i = 0; i < count; ++i) elements.insert(elements.end(), from.begin(), from.end());
  return TemplateValue::list(std::move(elements), value.list().is_tuple);
}

bool is_sequence(const TemplateValue& value) { return value.is(Kind::list) && !value.list().is_generator; }

bool contains(TemplateContext& context, const TemplateValue& all, const TemplateValue& one) {
  switch (all.kind()) {
    case Kind::string:
      if (!one.is(Kind::string)) context.fail(fmt::format("\"in\" looks for {} in a string", one.describe()));
      context.charge_text(all.text().size());
      return all.text().find(one.text()) != std::string_view::npos;
    case Kind::dict: return all.dict().find(one) != nullptr;
    default: {
      const std::vector<TemplateValue> elements = template_elements(context, all);
      context.charge(all.weight());
      return std::find(elements.begin(), elements.end(), one) != elements.end();
    }
  }
}

}  // namespace

TemplateValue template_binary(TemplateContext& context, std::string_view op, const TemplateValue& left,
                              const TemplateValue& right) {
  for (const TemplateValue* side : {&left, &right})
    if (side->is(Kind::undefined)) context.fail(fmt::format("\"{}\" has {} at its side", op, side->describe()));
  if (op == "%" && left.is(Kind::string)) {
    const bool several = right.is(Kind::list) && right.list().is_tuple;
    return template_format(context, left.string(), several ? right.list().elements : std::vector{right});
  }
  if (left.is_number() && right.is_number()) {
    const bool whole = left.is_integer() && right.is_integer() && op != "/" && !(op == "**" && right.integer() < 0);
    return whole ? integer_arithmetic(context, op, left.integer(), right.integer())
                 : number_arithmetic(context, op, left.number(), right.number());
  }
  if (op == "+" && left.is(Kind::string) && right.is(Kind::string)) {
    context.charge_text(left.text().size() + right.text().size());
    MarkedText result = left.string();
    result.append(right.string().view());
    return result;
  }
  if (op == "+" && is_sequence(left) && is_sequence(right) && left.list().is_tuple == right.list().is_tuple) {
    std::vector<TemplateValue> elements = left.list().elements;
    elements.insert(elements.end(), right.list().elements.begin(), right.list().elements.end());
    context.charge(std::ssize(elements));
    return TemplateValue::list(std::move(elements), left.list().is_tuple);
  }
  if (op == "*" && right.is_integer() && (left.is(Kind::string) || is_sequence(left)))
    return repeated(context, left, right.integer());
  if (op == "*" && left.is_integer() && (right.is(Kind::string) || is_sequence(right)))
    return repeated(context, right, left.integer());
  fail_operands(context, op, left, right);
}

bool template_compare(TemplateContext& context, std::string_view op, const TemplateValue& left,
                      const TemplateValue& right) {
  context.charge(1 + std::min(left.weight(), right.weight()));
  if (op == "==") return left == right;
  if (op == "!=") return !(left == right);
  if (op == "in") return contains(context, right, left);
  if (op == "not in") return !contains(context, right, left);
  const bool ordered = (left.is_number() && right.is_number()) || (left.is(Kind::string) && right.is(Kind::string)) ||
                       (is_sequence(left) && is_sequence(right));
  if (!ordered) fail_operands(context, op, left, right);
  if (op == "<") return left.less(right);
  if (op == ">") return right.less(left);
  return left == right || (op == "<=" ? left.less(right) : right.less(left));
}

TemplateValue template_subscript(TemplateContext& context, const TemplateValue& object, const TemplateValue& key) {
  switch (object.kind()) {
    case Kind::undefined: context.fail(fmt::format("{} is subscripted", object.describe()));
    case Kind::dict:
      if (const TemplateValue* value = object.dict().find(key)) return *value;
      break;
    case Kind::namespace_:
      if (key.is(Kind::string))
        if (const TemplateValue* value = object.space()->find(key.text())) return *value;
      break;
    case Kind::list:
    case Kind::string: {
      if (object.is(Kind::list) && object.list().is_generator) break;
      if (!key.is_integer()) break;
      const int64_t length =
          object.is(Kind::list) ? std::ssize(object.list().elements) : template_length(object.text());
      const int64_t index = key.integer() < 0 ? key.integer() + length : key.integer();
      if (index < 0 || index >= length) break;
      if (object.is(Kind::list)) return object.list().elements[static_cast<size_t>(index)];
      context.charge_text(object.text().size());
      return template_slice(object.string(), index, index + 1);
    }
    default: break;
  }
  if (key.is(Kind::string) && template_has_method(object, key.text()))
    return TemplateValue::method(object, key.string().text);
  return TemplateValue::undefined(key.is(Kind::string) ? key.string().text : "an element");
}

TemplateValue template_attribute(TemplateContext& context, const TemplateValue& object, const std::string& name) {
  if (object.is(Kind::undefined))
    context.fail(fmt::format("the attribute \"{}\" is asked of {}", name, object.describe()));
  if (template_has_method(object, name)) return TemplateValue::method(object, name);
  return template_subscript(context, object, name);
}

TemplateValue template_slice_of(TemplateContext& context, const TemplateValue& object, const TemplateValue* begin,
                                const TemplateValue* end, const TemplateValue* step) {
  if (!object.is(Kind::string) && !is_sequence(object))
    context.fail(fmt::format("{} cannot be sliced", object.describe()));
  auto part = [&](const TemplateValue* value) -> std::optional<int64_t> {
    if (!value || value->is(Kind::none)) return std::nullopt;
    if (!value->is_integer())
      context.fail(fmt::format("a slice has {} as a bound, want an integer", value->describe()));
    return value->integer();
  };
  const int64_t length = object.is(Kind::string) ? template_length(object.text()) : std::ssize(object.list().elements);
  const int64_t by = part(step).value_or(1);
  if (by == 0) context.fail("a slice has the step 0");
  const int64_t low = by > 0 ? 0 : -1, high = by > 0 ? length : length - 1;
  auto bound = [&](std::optional<int64_t> value, int64_t absent) {
    if (!value) return absent;
    return std::clamp(*value < 0 ? *value + length : *value, low, high);
  };
  const int64_t first = bound(part(begin), by > 0 ? low : high), last = bound(part(end), by > 0 ? high : low);
  if (object.is(Kind::string) && by == 1) {
    context.charge_text(object.text().size());
    return template_slice(object.string(), first, last);
  }
  const std::vector<TemplateValue> all = template_elements(context, object);
  std::vector<TemplateValue> elements;
  for (int64_t i = first; by > 0 ? i < last : i > last;) {
    elements.push_back(all[static_cast<size_t>(i)]);
    if (__builtin_add_overflow(i, by, &i)) break;
  }
  if (!object.is(Kind::string)) return TemplateValue::list(std::move(elements), object.list().is_tuple);
  MarkedText text;
  for (const TemplateValue& character : elements) text.append(character.string().view());
  return text;
}

MarkedText template_format(TemplateContext& context, const MarkedText& format,
                           const std::vector<TemplateValue>& values) {
  MarkedText result;
  size_t used = 0, done = 0;
  const std::string_view all = format.text;
  for (size_t at; (at = all.find('%', done)) != all.npos;) {
    result.append(format.view().part(done, at));
    size_t end = at + 1;
    while (end < all.size() && std::string_view("0123456789.-+ #").find(all[end]) != all.npos) ++end;
    const std::string flags(all.substr(at + 1, end - at - 1));
    const char kind = end < all.size() ? all[end] : '\0';
    done = end + 1;
    if (kind == '%' && flags.empty()) {
      result.append({"%"});
      continue;
    }
    if (used >= values.size()) context.fail(fmt::format("a format has more places than its {} values", values.size()));
    const TemplateValue& value = values[used++];
    if (kind == 's' && flags.empty()) {
      const MarkedText text = value.to_text();
      context.charge_text(result.text.size() + text.text.size());
      result.append(text.view());
      continue;
    }
    if (flags.size() > 6 || !value.is_number() || std::string_view("dixXofFeEgG").find(kind) == all.npos)
      context.fail(fmt::format("the format %{}{} of {} is not supported", flags, kind, value.describe()));
    const bool whole = std::string_view("dixXo").find(kind) != all.npos;
    const std::string pattern = whole ? fmt::format("%{}ll{}", flags, kind) : fmt::format("%{}{}", flags, kind);
    char buffer[512];
    const int length = whole ? std::snprintf(buffer, sizeof buffer, pattern.c_str(),
                                             value.is_integer() ? static_cast<long long>(value.integer())
                                                                : static_cast<long long>(value.number()))
                             : std::snprintf(buffer, sizeof buffer, pattern.c_str(), value.number());
    if (length < 0 || length >= static_cast<int>(sizeof buffer))
      context.fail(fmt::format("the format %{}{} makes a text too long", flags, kind));
    result.append({buffer});
  }
  if (used < values.size()) context.fail(fmt::format("a format has {} places for {} values", used, values.size()));
  if (done < all.size()) result.append(format.view().part(done, all.size()));
  return result;
}

}  // namespace megalith
