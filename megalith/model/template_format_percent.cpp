// format % values, as Python has it: "%s", "%-5.2f", "%(name)s", "%*d".
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "megalith/base/error.h"
#include "megalith/model/template_format.h"
#include "megalith/model/template_markup.h"
#include "megalith/model/template_number.h"
#include "megalith/model/template_object.h"
#include "megalith/model/template_operator.h"
#include "megalith/model/template_text.h"

namespace megalith {

using Kind = TemplateValue::Kind;

namespace {

struct Place {
  bool left = false, sign = false, space = false, alternate = false, zero = false;
  int64_t width = -1, precision = -1;
  char kind = '\0';
};

class Percent {
 public:
  Percent(TemplateContext& context, const MarkedView& format, const TemplateValue& values, bool is_markup)
      : context_(context), format_(format), values_(values), is_markup_(is_markup) {
    // Python takes for a mapping whatever has a subscript and is no tuple or string.
    is_mapping_ = values.is(Kind::dict) || values.is(Kind::list) || values.is(Kind::undefined) ||
                  template_range_slice(values, 0, 0, 1);
  }

  MarkedText run() {
    const std::string_view all = format_.text;
    size_t done = 0;
    for (size_t at; (at = all.find('%', done)) != all.npos; done = at_) {
      out_.append(format_.part(done, at));
      at_ = at + 1;
      place();
    }
    out_.append(format_.part(done, all.size()));
    const size_t count = values_.is(Kind::tuple) ? values_.list().elements.size() : 1;
    if (!is_mapping_ && !was_named_ && used_ < count) fail(fmt::format("has {} places for {} values", used_, count));
    return out_.take();
  }

 private:
  [[noreturn]] void fail(const std::string& message) const {
    context_.fail(fmt::format("the format {} {}", template_quote(template_slice(format_, 0, 40).view()).text, message));
  }
  char next() {
    if (at_ == format_.text.size()) fail("ends within a place");
    return format_.text[at_++];
  }

  TemplateValue value() {
    if (named_) return *named_;
    const size_t count = values_.is(Kind::tuple) ? values_.list().elements.size() : 1;
    if (used_ >= count) fail(fmt::format("has more places than its {} values", count));
    const size_t at = used_++;
    return values_.is(Kind::tuple) ? values_.list().elements[at] : values_;
  }

  int64_t starred() {
    const TemplateValue count = value();
    if (!count.is_integer() || count.is_big()) fail(fmt::format("has {} for a *, want an integer", count.describe()));
    return std::clamp<int64_t>(count.integer(), -(1 << 30), 1 << 30);
  }

  int64_t integer(char& c) {
    int64_t number = 0;
    for (; c >= '0' && c <= '9'; c = next()) {
      number = number * 10 + (c - '0');
      template_check_text(static_cast<size_t>(number));
    }
    return number;
  }

  // (name): what it is the value of.
  char name() {
    if (!is_mapping_) fail(fmt::format("names its values, and found {}", values_.describe()));
    const size_t begin = at_;
    for (int open = 1; open > 0;) {
      const char c = next();
      open += c == '(' ? 1 : c == ')' ? -1 : 0;
    }
    const TemplateValue key = template_part(format_, begin, at_ - 1);
    named_ = values_.is(Kind::undefined) ? std::nullopt : template_item(context_, values_, key);
    if (!named_) fail(fmt::format("asks for {}, which {} does not have", key.describe(), values_.describe()));
    was_named_ = true;
    return next();
  }

  void place() {
    Place spec;
    named_.reset();
    char c = next();
    if (c == '%') return out_.append("%");
    if (c == '(') c = name();
    for (;; c = next()) {
      if (c == '-')
        spec.left = true;
      else if (c == '+')
        spec.sign = true;
      else if (c == ' ')
        spec.space = true;
      else if (c == '#')
        spec.alternate = true;
      else if (c == '0')
        spec.zero = true;
      else
        break;
    }
    if (c == '*') {
      spec.width = starred();
      spec.left |= spec.width < 0;
      spec.width = std::abs(spec.width);
      c = next();
    } else if (c >= '0' && c <= '9') {
      spec.width = integer(c);
    }
    if (c == '.') {
      c = next();
      if (c == '*') {
        spec.precision = std::max<int64_t>(starred(), 0);
        c = next();
      } else {
        spec.precision = integer(c);
      }
    }
    if (c == 'h' || c == 'l' || c == 'L') c = next();
    spec.kind = c;
    if (std::string_view("sra").find(c) != std::string_view::npos) return text(spec, value());
    if (c == 'c') return character(spec, value());
    if (std::string_view("diuoxX").find(c) != std::string_view::npos) return whole(spec, value());
    if (std::string_view("eEfFgG").find(c) != std::string_view::npos) return number(spec, value());
    fail(fmt::format(
        "has a place of the kind \"{}\", which there is not",
        format_.text.substr(at_ - 1, static_cast<size_t>(std::max(utf8_next(format_.text.substr(at_ - 1)), 1)))));
  }

  void padded(const Place& spec, const MarkedView& text) {
    const int64_t padding = std::max<int64_t>(spec.width - template_length(text.text), 0);
    if (!spec.left) out_.append({" "}, padding);
    out_.append(text);
    if (spec.left) out_.append({" "}, padding);
  }

  void text(const Place& spec, const TemplateValue& value) {
    MarkedText shown = spec.kind == 's' ? template_str(context_, value) : template_repr(context_, value);
    if (spec.kind == 'a') shown = template_ascii(shown.view());
    if (is_markup_ && !(spec.kind == 's' && value.is_markup())) shown = template_escape(shown.view());
    const size_t end = spec.precision < 0 ? shown.text.size() : template_place(shown.text, spec.precision);
    padded(spec, shown.view().part(0, end));
  }

  void character(const Place& spec, const TemplateValue& value) {
    if (value.is_integer()) return padded(spec, template_format_value(context_, value, {"c"}).view());
    if (!value.is(Kind::string) || value.string_object().length != 1)
      fail(fmt::format("has {} for a %c, want a character", value.describe()));
    padded(spec, value.string().view());
  }

  // Sign and prefix stand in front of zeros, and behind spaces.
  void signed_text(const Place& spec, bool is_negative, std::string prefix, const std::string& digits) {
    prefix = (is_negative ? "-" : spec.sign ? "+" : spec.space ? " " : "") + prefix;
    const int64_t padding = std::max<int64_t>(spec.width - std::ssize(prefix) - std::ssize(digits), 0);
    if (!spec.left && !spec.zero) out_.append({" "}, padding);
    out_.append(prefix);
    if (!spec.left && spec.zero) out_.append({"0"}, padding);
    out_.append(digits);
    if (spec.left) out_.append({" "}, padding);
  }

  void whole(const Place& spec, TemplateValue value) {
    const bool decimal = spec.kind == 'd' || spec.kind == 'i' || spec.kind == 'u';
    if (!value.is_integer()) {
      if (!value.is(Kind::number) || !decimal)
        fail(fmt::format("has {} for a %{}, want an integer", value.describe(), spec.kind));
      value = template_truncated(value.number());
    }
    const int base = decimal ? 10 : spec.kind == 'o' ? 8 : 16;
    std::string digits = template_digits(value, base);
    const bool is_negative = digits.starts_with('-');
    if (is_negative) digits.erase(0, 1);
    if (spec.precision > std::ssize(digits)) digits.insert(0, static_cast<size_t>(spec.precision) - digits.size(), '0');
    if (spec.kind == 'X')
      for (char& c : digits) c = static_cast<char>(toupper(static_cast<unsigned char>(c)));
    signed_text(spec, is_negative, spec.alternate && base != 10 ? std::string{'0', spec.kind} : "", digits);
  }

  void number(const Place& spec, const TemplateValue& value) {
    if (!value.is_number()) fail(fmt::format("has {} for a %{}, want a number", value.describe(), spec.kind));
    std::string digits = template_format_double(template_to_double(value), spec.kind,
                                                spec.precision < 0 ? 6 : spec.precision, spec.alternate, false);
    const bool is_negative = digits.starts_with('-');
    if (is_negative) digits.erase(0, 1);
    signed_text(spec, is_negative, "", digits);
  }

  TemplateContext& context_;
  MarkedView format_;
  const TemplateValue& values_;
  bool is_markup_, is_mapping_ = false, was_named_ = false;
  std::optional<TemplateValue> named_;  // of the place at hand
  size_t at_ = 0, used_ = 0;
  TemplateTextBuilder out_;
};

}  // namespace

MarkedText template_format_percent(TemplateContext& context, const MarkedView& format, const TemplateValue& values,
                                   bool is_markup) {
  context.charge_text(format.text.size());
  MarkedText text = Percent(context, format, values, is_markup).run();
  context.charge_text(text.text.size());
  return text;
}

}  // namespace megalith
