// format(value, spec): Python's language of formats, [[fill]align][sign][z][#][0][width][,|_][.precision][type].
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "megalith/base/error.h"
#include "megalith/model/template_format.h"
#include "megalith/model/template_number.h"
#include "megalith/model/template_text.h"
#include "megalith/model/unicode_property.h"

namespace megalith {

using Kind = TemplateValue::Kind;

namespace {

struct Spec {
  MarkedText fill{std::string(1, ' ')};
  char align;
  char sign = '-';
  bool has_sign = false, no_negative_zero = false, alternate = false;
  int64_t width = -1, precision = -1;  // below 0: absent
  char separator = '\0';               // ',' or '_'
  char type;

  bool fills_zeros() const { return align == '=' && fill.text == "0"; }
};

class SpecReader {
 public:
  SpecReader(TemplateContext& context, const MarkedView& spec) : context_(context), spec_(spec) {}

  Spec read(char default_type, char default_align) {
    Spec spec{.align = default_align, .type = default_type};
    const size_t first = at_end() ? 0 : static_cast<size_t>(utf8_next(rest()));
    bool has_fill = false, has_align = false;
    if (first < rest().size() && is_align(rest()[first])) {
      spec.fill = template_part(spec_, at_, at_ + first);
      spec.align = rest()[first];
      at_ += first + 1;
      has_fill = has_align = true;
    } else if (!at_end() && is_align(peek())) {
      spec.align = next();
      has_align = true;
    }
    if (!at_end() && (peek() == ' ' || peek() == '+' || peek() == '-')) {
      spec.sign = next();
      spec.has_sign = true;
    }
    spec.no_negative_zero = take('z');
    spec.alternate = take('#');
    if (!has_fill && take('0')) {
      spec.fill.text.assign(1, '0');
      if (!has_align && default_align == '>') spec.align = '=';
    }
    spec.width = integer();
    if (take(',')) spec.separator = ',';
    if (take('_')) {
      if (spec.separator) fail("has both \",\" and \"_\"");
      spec.separator = '_';
    }
    if (spec.separator && !at_end() && peek() == ',') fail("has both \",\" and \"_\"");
    if (take('.')) {
      spec.precision = integer();
      if (spec.precision < 0) fail("has no precision behind its point");
    }
    if (!at_end()) spec.type = next();
    if (!at_end() || static_cast<signed char>(spec.type) < 0) fail("is not understood");
    const bool in_fours = spec.type && std::string_view("boxX").find(spec.type) != std::string_view::npos;
    const bool in_threes = !spec.type || std::string_view("deEfFgG%").find(spec.type) != std::string_view::npos;
    if (spec.separator && !in_threes && !(in_fours && spec.separator == '_'))
      fail(fmt::format("has \"{}\" with the type \"{}\"", spec.separator, spec.type));
    return spec;
  }

  [[noreturn]] void fail(const std::string& message) const {
    context_.fail(fmt::format("the format {} {}", template_quote(spec_).text, message));
  }

 private:
  std::string_view rest() const { return spec_.text.substr(at_); }
  bool at_end() const { return at_ == spec_.text.size(); }
  char peek() const { return spec_.text[at_]; }
  char next() { return spec_.text[at_++]; }
  bool take(char c) { return !at_end() && peek() == c && (++at_, true); }
  static bool is_align(char c) { return c == '<' || c == '>' || c == '=' || c == '^'; }

  int64_t integer() {
    int64_t value = -1;
    while (!at_end()) {
      const int digit = unicode_decimal(utf8_code_point(rest()));
      if (digit < 0) break;
      value = std::max<int64_t>(value, 0) * 10 + digit;
      template_check_text(static_cast<size_t>(value));
      at_ += static_cast<size_t>(utf8_next(rest()));
    }
    return value;
  }

  TemplateContext& context_;
  MarkedView spec_;
  size_t at_ = 0;
};

// `digits` with separators between groups, zeros in front of it up to `least` characters.
std::string grouped(const std::string& digits, int64_t least, char separator, int64_t group) {
  if (!separator) group = INT64_MAX;
  std::string reversed;
  auto remaining = std::ssize(digits);
  for (;;) {
    const int64_t length = std::min(group, std::max({remaining, least, int64_t{1}}));
    const int64_t taken = std::min<int64_t>(remaining, length);
    for (int64_t i = 0; i < taken; ++i) reversed += digits[static_cast<size_t>(--remaining)];
    reversed.append(static_cast<size_t>(length - taken), '0');
    least -= length;
    if (remaining <= 0 && least <= 0) break;
    reversed += separator;
    --least;
  }
  return {reversed.rbegin(), reversed.rend()};
}

// What a number is made of: sign, prefix ("0x"), whole digits, and the rest (".5", "e+10", "inf", "%").
MarkedText laid_out(const Spec& spec, bool is_negative, std::string_view prefix, const std::string& digits,
                    const MarkedView& rest, int64_t rest_length) {
  const std::string_view sign = is_negative ? "-" : spec.sign == '+' ? "+" : spec.sign == ' ' ? " " : "";
  const auto around = std::ssize(sign) + std::ssize(prefix) + rest_length;
  const bool in_fours = spec.type && std::string_view("boxX").find(spec.type) != std::string_view::npos;
  std::string whole;
  if (!digits.empty())
    whole = grouped(digits, spec.fills_zeros() ? spec.width - around : 0, spec.separator, in_fours ? 4 : 3);
  const int64_t padding = std::max<int64_t>(spec.width - around - std::ssize(whole), 0);
  const int64_t left = spec.align == '>' ? padding : spec.align == '^' ? padding / 2 : 0;
  const int64_t between = spec.align == '=' ? padding : 0;
  TemplateTextBuilder text;
  text.append(spec.fill.view(), left);
  text.append(sign);
  text.append(prefix);
  text.append(spec.fill.view(), between);
  text.append(whole);
  text.append(rest);
  text.append(spec.fill.view(), padding - left - between);
  return text.take();
}

MarkedText format_string(const SpecReader& reader, const Spec& spec, const MarkedView& value) {
  if (spec.has_sign || spec.no_negative_zero || spec.alternate || spec.align == '=')
    reader.fail("is for numbers, and found a string");
  if (spec.type != 's') reader.fail(fmt::format("has the type \"{}\", and found a string", spec.type));
  int64_t length = template_length(value.text);
  MarkedView shown = value;
  if (spec.precision >= 0 && spec.precision < length) {
    length = spec.precision;
    shown = value.part(0, template_place(value.text, length));
  }
  const int64_t padding = std::max<int64_t>(spec.width - length, 0);
  const int64_t left = spec.align == '>' ? padding : spec.align == '^' ? padding / 2 : 0;
  TemplateTextBuilder text;
  text.append(spec.fill.view(), left);
  text.append(shown);
  text.append(spec.fill.view(), padding - left);
  return text.take();
}

MarkedText format_float(const SpecReader& reader, Spec spec, double value) {
  if (spec.type && std::string_view("eEfFgGn%").find(spec.type) == std::string_view::npos)
    reader.fail(fmt::format("has the type \"{}\", and found a float", spec.type));
  const bool percent = spec.type == '%';
  if (percent) value *= 100;
  char type = percent ? 'f' : spec.type == 'n' ? 'g' : spec.type ? spec.type : spec.precision < 0 ? 'r' : 'g';
  std::string text =
      template_format_double(value, type, spec.precision < 0 ? 6 : spec.precision, spec.alternate, !spec.type);
  const bool is_zero = text.find_first_not_of("-0.") == std::string::npos;
  if (spec.no_negative_zero && is_zero && text.starts_with('-')) text.erase(0, 1);
  const bool is_negative = text.starts_with('-');
  if (is_negative) text.erase(0, 1);
  if (percent) text += '%';
  const size_t whole = std::min(text.find_first_not_of("0123456789"), text.size());
  const std::string rest = text.substr(whole);
  return laid_out(spec, is_negative, "", text.substr(0, whole), {rest}, std::ssize(rest));
}

MarkedText format_integer(TemplateContext& context, const SpecReader& reader, const Spec& spec,
                          const TemplateValue& value) {
  if (std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos)
    return format_float(reader, spec, template_to_double(value));
  if (spec.precision >= 0) reader.fail("has a precision, and found an integer");
  if (spec.no_negative_zero) reader.fail("has \"z\", and found an integer");
  if (spec.type == 'c') {
    if (spec.has_sign || spec.alternate) reader.fail("has a sign or \"#\" with the type \"c\"");
    const int64_t code = value.is_big() ? -1 : value.integer();
    if (code < 0 || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
      context.fail(fmt::format("{} is no character", value.describe()));
    MarkedText character;
    utf8_append(character.text, static_cast<char32_t>(code));
    character.marks.assign(character.text.size(), '\1');  // nobody knows whose the number was
    return laid_out(spec, false, "", "", character.view(), 1);
  }
  const int base = spec.type == 'b' ? 2 : spec.type == 'o' ? 8 : spec.type == 'x' || spec.type == 'X' ? 16 : 10;
  if (base == 10 && spec.type != 'd' && spec.type != 'n')
    reader.fail(fmt::format("has the type \"{}\", and found an integer", spec.type));
  std::string digits = template_digits(value, base);
  const bool is_negative = digits.starts_with('-');
  if (is_negative) digits.erase(0, 1);
  const std::string prefix = spec.alternate && base != 10 ? std::string{'0', spec.type} : "";
  if (spec.type == 'X')
    for (char& c : digits) c = static_cast<char>(toupper(static_cast<unsigned char>(c)));
  return laid_out(spec, is_negative, prefix, digits, {}, 0);
}

}  // namespace

std::string template_format_double(double value, char type, int64_t precision, bool alternate, bool with_point) {
  const bool upper = type == 'E' || type == 'F' || type == 'G';
  if (!std::isfinite(value)) {
    std::string text = template_number(value);
    if (upper)
      for (char& c : text) c = static_cast<char>(toupper(static_cast<unsigned char>(c)));
    return text;
  }
  if (type == 'r') {
    std::string text = template_number(value);
    if (alternate && text.find('.') == std::string::npos) text.insert(text.find('e'), 1, '.');
    return text;
  }
  // No double has more digits that are not 0.
  constexpr int64_t kMaxDigits = 1100;
  template_check_text(static_cast<size_t>(precision));
  const int digits = static_cast<int>(std::min(precision, kMaxDigits));
  const std::string zeros(static_cast<size_t>(precision - digits), '0');
  const char kind = static_cast<char>(tolower(static_cast<unsigned char>(type)));
  std::string text;
  if (kind == 'f') {
    text = (alternate ? fmt::format("{:#.{}f}", value, digits) : fmt::format("{:.{}f}", value, digits)) + zeros;
  } else if (kind == 'e') {
    text = alternate ? fmt::format("{:#.{}e}", value, digits) : fmt::format("{:.{}e}", value, digits);
    text.insert(text.find('e'), zeros);
  } else {
    const int significant = std::max(digits, 1);
    text = fmt::format("{:.{}e}", value, significant - 1);
    const int exponent = std::stoi(text.substr(text.find('e') + 1));
    const bool scientific = exponent < -4 || exponent >= significant - (with_point ? 1 : 0);
    if (!scientific) text = fmt::format("{:.{}f}", value, significant - 1 - exponent);
    const size_t end = std::min(text.find('e'), text.size());
    std::string tail = text.substr(end);
    text.erase(end);
    if (alternate) {
      if (text.find('.') == std::string::npos) text += '.';
      text += zeros;
    } else if (text.find('.') != std::string::npos) {
      text.erase(text.find_last_not_of('0') + 1);
      if (text.ends_with('.')) text.pop_back();
    }
    text += tail;
    if (with_point && text.find_first_of(".e") == std::string::npos) text += ".0";
  }
  if (upper)
    for (char& c : text) c = static_cast<char>(toupper(static_cast<unsigned char>(c)));
  return text;
}

MarkedText template_format_value(TemplateContext& context, const TemplateValue& value, const MarkedView& spec_text) {
  if (spec_text.text.empty()) return template_str(context, value);
  SpecReader reader(context, spec_text);
  context.charge_walk(value);
  MarkedText text;
  switch (value.kind()) {
    case Kind::string: text = format_string(reader, reader.read('s', '<'), value.string().view()); break;
    case Kind::boolean:
    case Kind::integer: text = format_integer(context, reader, reader.read('d', '>'), value); break;
    case Kind::number: text = format_float(reader, reader.read('\0', '>'), value.number()); break;
    default: reader.fail(fmt::format("is not for {}", value.describe()));
  }
  context.charge_text(text.text.size());
  return text;
}

}  // namespace megalith
