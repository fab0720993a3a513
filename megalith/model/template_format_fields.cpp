// format.format(...), as Python's string.Formatter and Jinja's sandbox have it: "{}", "{0.name[key]!r:>{width}}".
#include <algorithm>

#include <fmt/format.h>

#include "megalith/base/error.h"
#include "megalith/model/template_format.h"
#include "megalith/model/template_markup.h"
#include "megalith/model/template_number.h"
#include "megalith/model/template_object.h"
#include "megalith/model/template_operator.h"
#include "megalith/model/template_text.h"
#include "megalith/model/unicode_property.h"

namespace megalith {

using Kind = TemplateValue::Kind;

namespace {

bool is_index(std::string_view text) {
  bool all = !text.empty();
  template_each_character(text, [&](size_t, size_t, char32_t c) { all &= unicode_is_digit(c); });
  return all;
}

class Fields {
 public:
  Fields(const TemplateCall& call, const TemplateValue* mapping, bool is_markup)
      : call_(call), mapping_(mapping), is_markup_(is_markup) {}

  // Formats may stand within formats, once.
  MarkedText run(const MarkedView& format, int levels) {
    if (levels < 0) call_.fail("got a format within a format within a format");
    const std::string_view all = format.text;
    TemplateTextBuilder out;
    for (size_t at = 0; at < all.size();) {
      const size_t brace = std::min(all.find_first_of("{}", at), all.size());
      out.append(format.part(at, brace));
      if (brace == all.size()) break;
      at = brace + 1;
      if (at < all.size() && all[at] == all[brace]) {
        out.append(format.part(brace, at++));
        continue;
      }
      if (all[brace] == '}' || at == all.size())
        call_.fail(fmt::format("got a format with a single \"{}\"", all[brace]));
      out.append(field(format, at, levels).view());
    }
    return out.take();
  }

 private:
  // From behind its "{" to behind its "}".
  MarkedText field(const MarkedView& format, size_t& at, int levels) {
    const std::string_view all = format.text;
    const size_t begin = at;
    for (; at < all.size() && std::string_view("}:!").find(all[at]) == std::string_view::npos; ++at) {
      if (all[at] == '{') call_.fail("got a format with a \"{\" in the name of a field");
      if (all[at] == '[') at = std::min(all.find(']', at), all.size() - 1);
    }
    if (at >= all.size()) call_.fail("got a format with a field that has no end");
    const MarkedView name = format.part(begin, at);
    char conversion = '\0', end = all[at++];
    if (end == '!') {
      if (at == all.size()) call_.fail("got a format that ends within a conversion");
      conversion = all[at++];
      end = at < all.size() ? all[at++] : '\0';
      if (end != '}' && end != ':') call_.fail("got a format with a conversion of several letters");
    }
    size_t spec_begin = at, spec_end = at;
    if (end == ':') {
      for (int open = 1; open > 0;) {
        if (at == all.size()) call_.fail("got a format with a field that has no end");
        const char c = all[at++];
        open += c == '{' ? 1 : c == '}' ? -1 : 0;
      }
      spec_end = at - 1;
    }
    TemplateValue value = converted(named(name), conversion);
    const MarkedText spec = run(format.part(spec_begin, spec_end), levels - 1);
    return shown(value, spec.view());
  }

  MarkedText shown(const TemplateValue& value, const MarkedView& spec) {
    if (!is_markup_) return template_format_value(call_.context(), value, spec);
    if (value.is_markup()) {
      if (!spec.text.empty()) call_.fail("got a format for a text that is safe");
      return value.string();
    }
    return template_escape(template_format_value(call_.context(), value, spec).view());
  }

  TemplateValue converted(const TemplateValue& value, char conversion) {
    TemplateContext& context = call_.context();
    switch (conversion) {
      case '\0': return value;
      case 's': return value.is(Kind::string) && !value.is_markup() ? value : template_str(context, value);
      case 'r': return template_repr(context, value);
      case 'a': return template_ascii(template_repr(context, value).view());
      default: call_.fail(fmt::format("got the conversion \"{}\", want s, r or a", conversion));
    }
  }

  // first.attribute[element]...
  TemplateValue named(const MarkedView& name) {
    const std::string_view all = name.text;
    if (all.empty()) {
      if (is_numbered_) call_.fail("got a format with numbers for some fields and not for others");
      return argument(static_cast<int64_t>(automatic_++));
    }
    if (is_index(all)) {
      if (automatic_) call_.fail("got a format with numbers for some fields and not for others");
      is_numbered_ = true;
    }
    size_t at = std::min(all.find_first_of(".["), all.size());
    const std::string_view first = all.substr(0, at);
    const std::optional<int64_t> number = index(first);
    TemplateValue value = number ? argument(*number) : keyword(template_part(name, 0, at));
    while (at < all.size()) {
      if (all[at] == '.') {
        const size_t end = std::min(all.find_first_of(".[", at + 1), all.size());
        if (end == at + 1) call_.fail("got a format with an empty attribute");
        value = template_attribute(call_.context(), value, all.substr(at + 1, end - at - 1));
        at = end;
      } else if (all[at] == '[') {
        const size_t end = all.find(']', at);
        if (end == all.npos) call_.fail("got a format with a \"[\" that nothing closes");
        if (end == at + 1) call_.fail("got a format with an empty attribute");
        const std::optional<int64_t> element = index(all.substr(at + 1, end - at - 1));
        value = template_subscript(call_.context(), value,
                                   element ? TemplateValue(*element) : TemplateValue(template_part(name, at + 1, end)));
        at = end + 1;
      } else {
        call_.fail("got a format where \".\" or \"[\" should follow \"]\"");
      }
    }
    return value;
  }

  std::optional<int64_t> index(std::string_view text) const {
    int64_t value = 0;
    bool all = !text.empty();
    template_each_character(text, [&](size_t, size_t, char32_t c) {
      const int digit = unicode_decimal(c);
      all &= digit >= 0;
      if (all && (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, digit, &value)))
        call_.fail("got a format with a number that is too large");
    });
    return all ? std::optional(value) : std::nullopt;
  }

  TemplateValue argument(int64_t at) const {
    const auto count = mapping_ ? 0 : std::ssize(call_.positional());
    if (at >= count) call_.fail(fmt::format("got a format with the field {} for {} values", at, count));
    return call_.positional()[static_cast<size_t>(at)];
  }

  TemplateValue keyword(const MarkedText& name) const {
    if (mapping_) {
      if (const std::optional<TemplateValue> value = template_item(call_.context(), *mapping_, name)) return *value;
    } else {
      call_.context().charge(std::ssize(call_.named()) / 8);
      for (const auto& [key, value] : call_.named())
        if (key == name.text) return value;
    }
    call_.fail(fmt::format("got a format with the field {}, which has no value", template_quote(name.view()).text));
  }

  const TemplateCall& call_;
  const TemplateValue* mapping_;
  bool is_markup_, is_numbered_ = false;
  size_t automatic_ = 0;
};

}  // namespace

MarkedText template_format_fields(const MarkedView& format, const TemplateCall& call, const TemplateValue* mapping,
                                  bool is_markup) {
  MarkedText text = Fields(call, mapping, is_markup).run(format, 2);
  call.context().charge_text(text.text.size());
  return text;
}

}  // namespace megalith
