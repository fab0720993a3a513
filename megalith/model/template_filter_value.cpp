// Filters on numbers and on values of every kind.
#include <algorithm>
#include <cmath>

#include "megalith/base/error.h"
#include "megalith/model/template_filter.h"
#include "megalith/model/template_json.h"
#include "megalith/model/template_number.h"
#include "megalith/model/template_object.h"
#include "megalith/model/template_operator.h"
#include "megalith/model/template_text.h"

namespace megalith {

using Kind = TemplateValue::Kind;

namespace {

TemplateValue abs_(const TemplateValue& value, const TemplateCall& call) {
  call.check(0);
  if (!value.is_number()) call.fail(fmt::format("got {}, want a number", value.describe()));
  if (value.is(Kind::number)) return std::abs(value.number());
  return mpz_class(abs(template_to_mpz(value)));
}

TemplateValue attr(const TemplateValue& value, const TemplateCall& call) {
  call.check(1, {"name"});
  const std::string& name = call.string(0, "name").text;
  if (value.is(Kind::undefined)) call.fail(fmt::format("is asked for \"{}\" of {}", name, value.describe()));
  const std::optional<TemplateValue> found = template_own_attribute(call.context(), value, name);
  return found ? *found : TemplateValue::undefined(name);
}

TemplateValue default_(const TemplateValue& value, const TemplateCall& call) {
  call.check(2, {"default_value", "boolean"});
  const bool replace = value.is(Kind::undefined) || (call.flag(1, "boolean", false) && !value.truth());
  if (!replace) return value;
  const TemplateValue* instead = call.find(0, "default_value");
  return instead ? *instead : TemplateValue("");
}

TemplateValue length(const TemplateValue& value, const TemplateCall& call) {
  call.check(0);
  if (const std::optional<int64_t> length = template_length_of(value)) return *length;
  call.fail(fmt::format("got {}, which has no length", value.describe()));
}

void refuse_undefined(const TemplateValue& value, const TemplateCall& call) {
  if (value.is(Kind::undefined)) call.fail(fmt::format("got {}", value.describe()));
}

// float(value); null where Python has no number for it.
std::optional<double> to_number(const TemplateValue& value, const TemplateCall& call) {
  if (value.is_number()) return template_to_double(value);
  if (!value.is(Kind::string)) return std::nullopt;
  call.context().charge(std::ssize(value.text()));
  return template_parse_number(value.text());
}

TemplateValue float_(const TemplateValue& value, const TemplateCall& call) {
  call.check(1, {"default"});
  refuse_undefined(value, call);
  if (const std::optional<double> number = to_number(value, call)) return *number;
  const TemplateValue* absent = call.find(0, "default");
  return absent ? *absent : TemplateValue(0.0);
}

TemplateValue int_(const TemplateValue& value, const TemplateCall& call) {
  call.check(2, {"default", "base"});
  refuse_undefined(value, call);
  const TemplateValue* absent = call.find(0, "default");
  const TemplateValue otherwise = absent ? *absent : TemplateValue(0);
  if (value.is_integer()) return template_to_mpz(value);
  if (value.is(Kind::number)) return std::isnan(value.number()) ? otherwise : template_truncated(value.number());
  if (!value.is(Kind::string)) return otherwise;
  const TemplateValue* base = call.find(1, "base");
  const int64_t to_base = !base ? 10 : base->is_integer() && !base->is_big() ? base->integer() : -1;
  call.context().charge(static_cast<int64_t>(value.text().size()));
  if (to_base == 0 || (to_base >= 2 && to_base <= 36))
    if (std::optional<TemplateValue> number = template_parse_integer(value.text(), to_base)) return *number;
  const std::optional<double> number = template_parse_number(value.text());
  return number && std::isfinite(*number) ? template_truncated(*number) : otherwise;
}

TemplateValue round_(const TemplateValue& value, const TemplateCall& call) {
  call.check(2, {"precision", "method"});
  const std::string method = call.find(1, "method") ? call.string(1, "method").text : "common";
  if (method != "common" && method != "ceil" && method != "floor")
    call.fail(fmt::format("got the method \"{}\", want common, ceil or floor", method));
  if (!value.is_number()) call.fail(fmt::format("got {}, want a number", value.describe()));
  const TemplateValue* digits = call.find(0, "precision");
  if (method == "common") {
    if (value.is_integer()) call.context().charge(template_bits(value) / 64);
    if (digits && digits->is(Kind::none))  // to an integer
      return value.is_integer() ? template_rounded(value, 0) : template_truncated(template_rounded(value, 0).number());
    return template_rounded(value, call.integer(0, "precision", 0));
  }
  TemplateContext& context = call.context();
  const TemplateValue scale = template_arithmetic(context, "**", 10, call.integer(0, "precision", 0));
  TemplateValue scaled = template_arithmetic(context, "*", value, scale);
  if (scaled.is(Kind::number))
    scaled = template_truncated(method == "ceil" ? std::ceil(scaled.number()) : std::floor(scaled.number()));
  return template_arithmetic(context, "/", scaled, scale);
}

TemplateValue filesizeformat(const TemplateValue& value, const TemplateCall& call) {
  call.check(1, {"binary"});
  const std::optional<double> number = to_number(value, call);
  if (!number) call.fail(fmt::format("got {}, want a number", value.describe()));
  const bool binary = call.flag(0, "binary", false);
  const double base = binary ? 1024 : 1000;
  if (*number == 1) return "1 Byte";
  if (*number < base) return fmt::format("{} Bytes", template_digits(template_truncated(*number)));
  constexpr std::string_view kPrefixes = "kMGTPEZY";
  size_t at = 0;
  auto unit = [&] { return std::pow(base, static_cast<double>(at + 2)); };
  while (at + 1 < kPrefixes.size() && !(*number < unit())) ++at;
  const std::string prefix = binary && at == 0 ? "K" : std::string(1, kPrefixes[at]);
  return fmt::format("{:.1f} {}{}", base * *number / unit(), prefix, binary ? "iB" : "B");
}

TemplateValue tojson(const TemplateValue& value, const TemplateCall& call) {
  call.check(4, {"ensure_ascii", "indent", "separators", "sort_keys"});
  TemplateContext& context = call.context();
  TemplateJsonStyle style{.ascii = call.flag(0, "ensure_ascii", false), .sort_keys = call.flag(3, "sort_keys", false)};
  if (const TemplateValue* indent = call.find_some(1, "indent")) {
    if (indent->is(Kind::string)) {
      style.indent = indent->string();
    } else {
      TemplateTextBuilder spaces;
      spaces.append({" "}, call.integer(1, "indent", 0));
      style.indent = spaces.take();
    }
  }
  style.item_separator = {style.indent ? "," : ", "};
  style.key_separator = {": "};
  if (const TemplateValue* separators = call.find_some(2, "separators")) {
    const std::vector<TemplateValue> both = template_elements(context, *separators);
    if (both.size() != 2) call.fail(fmt::format("got {} separators, want two", both.size()));
    for (const TemplateValue& separator : both)
      if (!separator.is(Kind::string))
        call.fail(fmt::format("got the separator {}, want a string", separator.describe()));
    style.item_separator = both[0].string();
    style.key_separator = both[1].string();
  }
  context.charge_walk(value);
  MarkedText text = template_to_json(value, style);
  context.charge_escaped(text.text);
  return text;
}

constexpr TemplateFilterRow kValueFilters[] = {
    {"abs", abs_},
    {"attr", attr},
    {"count", length},
    {"d", default_},
    {"default", default_},
    {"filesizeformat", filesizeformat},
    {"float", float_},
    {"int", int_},
    {"length", length},
    {"pprint",
     [](const TemplateValue& value, const TemplateCall& call) -> TemplateValue {
       call.check(0);
       return template_pretty(call.context(), value);
     }},
    {"round", round_},
    {"tojson", tojson},
};

}  // namespace

std::span<const TemplateFilterRow> template_value_filters() { return kValueFilters; }

}  // namespace megalith
