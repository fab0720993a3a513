// Filters on texts.
#include <algorithm>

#include "megalith/base/error.h"
#include "megalith/model/template_filter.h"
#include "megalith/model/template_format.h"
#include "megalith/model/template_object.h"
#include "megalith/model/template_operator.h"
#include "megalith/model/template_text.h"
#include "megalith/model/template_wrap.h"
#include "megalith/model/unicode_property.h"

namespace megalith {

using Kind = TemplateValue::Kind;

namespace {

// The text of any value; Markup stays what it is.
TemplateValue soft_text(const TemplateValue& value, const TemplateCall& call) {
  if (value.is(Kind::string)) return value;
  return template_str(call.context(), value);
}

const TemplateValue& want_text(const TemplateValue& value, const TemplateCall& call) {
  if (!value.is(Kind::string)) call.fail(fmt::format("got {}, want a string", value.describe()));
  call.context().charge_characters(value.text());
  return value;
}

// text.name(arguments)
TemplateValue method(const TemplateValue& text, const TemplateCall& call, const char* name,
                     std::vector<TemplateValue> arguments) {
  return template_own_attribute(call.context(), text, name)
      ->object()
      .call(TemplateCall(call.context(), "the method", name, std::move(arguments)));
}

// Those that are Python's method of the same name, without arguments.
TemplateValue same_method(const TemplateValue& value, const TemplateCall& call) {
  call.check(0);
  return method(soft_text(value, call), call, call.name().c_str(), {});
}

TemplateValue center(const TemplateValue& value, const TemplateCall& call) {
  call.check(1, {"width"});
  return method(soft_text(value, call), call, "center", {call.integer(0, "width", 80)});
}

TemplateValue trim(const TemplateValue& value, const TemplateCall& call) {
  call.check(1, {"chars"});
  const TemplateValue* chars = call.find(0, "chars");
  return method(soft_text(value, call), call, "strip", {chars ? *chars : TemplateValue::none()});
}

TemplateValue replace(const TemplateValue& value, const TemplateCall& call) {
  call.check(3, {"old", "new", "count"});
  TemplateContext& context = call.context();
  const TemplateTextOf text(context, value), from(context, call.at(0, "old")), to(context, call.at(1, "new"));
  const int64_t most = call.find_some(2, "count") ? call.integer(2, "count", -1) : -1;
  context.charge_search(text.text(), from.text());
  size_t replaced = 0;
  const MarkedText result = template_replace(text, from.text(), to, most, &replaced);
  context.charge(static_cast<int64_t>(replaced / 2));
  context.charge_text(result.text.size());
  return result;
}

TemplateValue indent(const TemplateValue& value, const TemplateCall& call) {
  call.check(3, {"width", "first", "blank"});
  TemplateTextBuilder with_end;  // Jinja adds a line break before it looks for lines
  with_end.append(want_text(value, call).string().view());
  with_end.append("\n");
  const MarkedText text = with_end.take();
  const TemplateValue* width = call.find(0, "width");
  TemplateTextBuilder margin_text;
  if (width && width->is(Kind::string))
    margin_text.append(width->string().view());
  else
    margin_text.append({" "}, call.integer(0, "width", 4));
  const MarkedText margin = margin_text.take();
  const bool blank = call.flag(2, "blank", false);
  TemplateTextBuilder result;
  const std::vector<TextRange> lines = template_splitlines(text.text, false);
  call.context().charge(std::ssize(lines));
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i) result.append("\n");
    const bool is_blank = lines[i].begin == lines[i].end;
    if (i ? blank || !is_blank : call.flag(1, "first", false)) result.append(margin.view());
    result.append(text.view().part(lines[i].begin, lines[i].end));
  }
  call.context().charge_text(result.size());
  return TemplateValue(result.take(), value.is_markup());
}

// Jinja's own title case: what follows white space or an opening bracket, and the rest in lower case.
TemplateValue title(const TemplateValue& value, const TemplateCall& call) {
  call.check(0);
  const TemplateTextOf text(call.context(), value);
  call.context().charge_characters(text.text());
  TemplateTextBuilder result;
  auto word = [&](size_t begin, size_t end) {
    if (begin == end) return;
    const MarkedView all = text.view().part(begin, end);
    const size_t first = static_cast<size_t>(utf8_next(all.text));
    result.append(template_case(all.part(0, first), TemplateCase::upper).view());
    result.append(template_case(all.part(first, all.text.size()), TemplateCase::lower).view());
  };
  size_t done = 0;
  int64_t borders = 0;
  template_each_character(text.text(), [&](size_t begin, size_t end, char32_t c) {
    const bool border = c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || unicode_is_python_space(c);
    if (!border) return;
    word(done, begin);
    result.append(text.view().part(begin, end));
    done = end;
    ++borders;
  });
  word(done, text.text().size());
  call.context().charge(borders);
  return result.take();
}

TemplateValue format(const TemplateValue& value, const TemplateCall& call) {
  if (!call.positional().empty() && !call.named().empty()) call.fail("got arguments both with names and without");
  TemplateValue values;
  if (call.named().empty()) {
    values = TemplateValue::tuple(call.positional());
  } else {
    TemplateValue::Members members;
    for (const auto& [name, argument] : call.named()) members.emplace_back(name, argument);
    values = TemplateValue::dict(std::move(members));
  }
  return template_binary(call.context(), "%", soft_text(value, call), values);
}

TemplateValue truncate(const TemplateValue& value, const TemplateCall& call) {
  call.check(4, {"length", "killwords", "end", "leeway"});
  const TemplateValue end = call.find(2, "end") ? *call.find(2, "end") : TemplateValue("...");
  const int64_t length = call.integer(0, "length", 255);
  const int64_t leeway = call.find_some(3, "leeway") ? call.integer(3, "leeway", 0) : 5;
  const std::optional<int64_t> end_length = template_length_of(end), has = template_length_of(value);
  if (!end_length) call.fail(fmt::format("got the end {}, want a string", end.describe()));
  if (length < *end_length)
    call.fail(fmt::format("got the length {}, want at least the {} of the end", length, *end_length));
  if (leeway < 0) call.fail(fmt::format("got the leeway {}, want 0 or more", leeway));
  if (!has) call.fail(fmt::format("got {}, which has no length", value.describe()));
  if (*has <= length || *has - length <= leeway) return value;
  const MarkedView text = want_text(value, call).string().view();
  size_t cut = template_place(text.text, length - *end_length);
  if (!call.flag(1, "killwords", false)) cut = std::min(text.text.substr(0, cut).rfind(' '), cut);
  return template_binary(call.context(), "+", TemplateValue(template_part(text, 0, cut), value.is_markup()), end);
}

TemplateValue wordwrap(const TemplateValue& value, const TemplateCall& call) {
  call.check(4, {"width", "break_long_words", "wrapstring", "break_on_hyphens"});
  const MarkedView text = want_text(value, call).string().view();
  const TemplateWrap how{call.integer(0, "width", 79), call.flag(1, "break_long_words", true),
                         call.flag(3, "break_on_hyphens", true)};
  const TemplateValue between = call.find_some(2, "wrapstring") ? *call.find(2, "wrapstring") : TemplateValue("\n");
  std::vector<TemplateValue> paragraphs;
  for (const TextRange& line : template_splitlines(text.text, false)) {
    if (how.width <= 0) call.fail(fmt::format("got the width {}, want 1 or more", how.width));
    call.context().charge(static_cast<int64_t>(line.end - line.begin));
    std::vector<TemplateValue> lines;
    for (MarkedText& part : template_wrap(text.part(line.begin, line.end), how)) lines.emplace_back(std::move(part));
    paragraphs.push_back(method(want_text(between, call), call, "join", {TemplateValue::list(std::move(lines))}));
  }
  return method(want_text(between, call), call, "join", {TemplateValue::list(std::move(paragraphs))});
}

TemplateValue wordcount(const TemplateValue& value, const TemplateCall& call) {
  call.check(0);
  const TemplateTextOf text(call.context(), value);
  call.context().charge_characters(text.text());
  int64_t count = 0;
  bool within = false;
  template_each_character(text.text(), [&](size_t, size_t, char32_t c) {
    const bool is_word = c == '_' || unicode_is_alpha(c) || unicode_is_numeric(c) || unicode_is_digit(c);
    count += is_word && !within;
    within = is_word;
  });
  return count;
}

constexpr TemplateFilterRow kTextFilters[] = {
    {"capitalize", same_method},
    {"center", center},
    {"format", format},
    {"indent", indent},
    {"lower", same_method},
    {"replace", replace},
    {"string",
     [](const TemplateValue& value, const TemplateCall& call) {
       call.check(0);
       return soft_text(value, call);
     }},
    {"title", title},
    {"trim", trim},
    {"truncate", truncate},
    {"upper", same_method},
    {"wordcount", wordcount},
    {"wordwrap", wordwrap},
};

}  // namespace

std::span<const TemplateFilterRow> template_text_filters() { return kTextFilters; }

}  // namespace megalith
