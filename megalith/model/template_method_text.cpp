// The methods of Python's str.
#include <algorithm>

#include "megalith/base/error.h"
#include "megalith/model/template_format.h"
#include "megalith/model/template_markup.h"
#include "megalith/model/template_method.h"
#include "megalith/model/template_number.h"
#include "megalith/model/template_object.h"
#include "megalith/model/template_operator.h"
#include "megalith/model/template_text.h"
#include "megalith/model/unicode_property.h"

namespace megalith {

using Kind = TemplateValue::Kind;
using Row = TemplateMethodRow;

namespace {

// What joins Markup is escaped.
MarkedText escaped_for(const TemplateValue& object, const TemplateValue& value) {
  if (!object.is_markup() || value.is_markup()) return value.string();
  return template_escape(value.string().view());
}

TemplateValue text_part(const TemplateValue& object, const TextRange& range) {
  return template_part(object.string().view(), range.begin, range.end);
}

TemplateValue text_parts(const TemplateValue& object, const TemplateCall& call, const std::vector<TextRange>& ranges) {
  std::vector<TemplateValue> parts;
  parts.reserve(ranges.size());
  for (const TextRange& range : ranges) parts.push_back(text_part(object, range));
  call.context().charge(2 * std::ssize(parts));
  return TemplateValue::list(std::move(parts));
}

template <TemplateCase how>
TemplateValue in_case(const TemplateValue& object, const TemplateCall& call) {
  call.check(0);
  return template_case(object.string().view(), how);
}

template <bool left, bool right>
TemplateValue strip(const TemplateValue& object, const TemplateCall& call) {
  call.check(1);
  std::optional<std::string_view> chars;
  if (call.find_some(0)) chars = call.string(0).text;
  if (chars) call.context().charge_text(chars->size() * 4 + object.text().size() * 2);
  return text_part(object, template_strip(object.text(), chars, left, right));
}

template <bool from_right>
TemplateValue split(const TemplateValue& object, const TemplateCall& call) {
  call.check(2, {"sep", "maxsplit"});
  std::optional<std::string_view> at;
  if (call.find_some(0, "sep")) {
    at = call.string(0, "sep").text;
    if (at->empty()) call.fail("got an empty separator");
    call.context().charge_search(object.text(), *at);
  }
  return text_parts(object, call, template_split(object.text(), at, call.integer(1, "maxsplit", -1), from_right));
}

TemplateValue splitlines(const TemplateValue& object, const TemplateCall& call) {
  call.check(1, {"keepends"});
  return text_parts(object, call, template_splitlines(object.text(), call.flag(0, "keepends", false)));
}

// The part of the text that the arguments behind the first name, in bytes; null if it begins behind its end.
std::optional<TextRange> window(const TemplateValue& object, const TemplateCall& call) {
  call.check(3);
  const int64_t length = object.string_object().length;
  auto bound = [&](size_t position, int64_t absent) {
    if (!call.find_some(position)) return absent;
    const int64_t value = call.integer(position, "", absent);
    return std::max<int64_t>(value < 0 ? value + length : value, 0);
  };
  const int64_t begin = bound(1, 0), end = std::min(bound(2, length), length);
  if (begin > end) return std::nullopt;
  const size_t first = template_place(object.text(), begin);
  return TextRange{first, first + template_place(object.text().substr(first), end - begin)};
}

// In characters; -1 if it is not there.
template <bool last>
int64_t place(const TemplateValue& object, const TemplateCall& call) {
  const std::string_view what = call.string(0).text;
  const std::optional<TextRange> range = window(object, call);
  if (!range) return -1;
  call.context().charge_search(object.text(), what);
  const std::string_view text = object.text().substr(range->begin, range->end - range->begin);
  const size_t at = last ? template_rfind(text, what) : template_find(text, what);
  return at == text.npos ? -1 : template_length(object.text().substr(0, range->begin + at));
}

template <bool last>
TemplateValue find(const TemplateValue& object, const TemplateCall& call) {
  return place<last>(object, call);
}

template <bool last>
TemplateValue index(const TemplateValue& object, const TemplateCall& call) {
  const int64_t found = place<last>(object, call);
  if (found < 0) call.fail(fmt::format("looks for {}, which is not there", call.at(0).describe()));
  return found;
}

TemplateValue count(const TemplateValue& object, const TemplateCall& call) {
  const std::string_view what = call.string(0).text;
  const std::optional<TextRange> range = window(object, call);
  call.context().charge_search(object.text(), what);
  const int64_t found = range ? template_count(object.text().substr(range->begin, range->end - range->begin), what) : 0;
  call.context().charge(found / 4);
  return found;
}

// startswith and endswith, with one string or a tuple of them.
template <bool at_start>
TemplateValue starts_or_ends(const TemplateValue& object, const TemplateCall& call) {
  const std::optional<TextRange> range = window(object, call);
  auto matches = [&](const TemplateValue& part) {
    if (!part.is(Kind::string)) call.fail(fmt::format("got {}, want a string or a tuple of strings", part.describe()));
    call.context().charge_text(std::min(part.text().size(), object.text().size()));
    if (!range) return false;
    const std::string_view text = object.text().substr(range->begin, range->end - range->begin);
    return at_start ? text.starts_with(part.text()) : text.ends_with(part.text());
  };
  const TemplateValue& what = call.at(0);
  if (!what.is(Kind::tuple)) return matches(what);
  return std::any_of(what.list().elements.begin(), what.list().elements.end(), matches);
}

TemplateValue replace(const TemplateValue& object, const TemplateCall& call) {
  call.check(3, {"", "", "count"});
  const MarkedText& from = call.string(0);
  call.string(1);
  const MarkedText to = escaped_for(object, call.at(1));
  call.context().charge_search(object.text(), from.text);
  size_t replaced = 0;
  const MarkedText result =
      template_replace(object.string().view(), from.text, to.view(), call.integer(2, "count", -1), &replaced);
  call.context().charge(static_cast<int64_t>(replaced / 2));
  call.context().charge_text(result.text.size());
  return result;
}

TemplateValue join(const TemplateValue& object, const TemplateCall& call) {
  call.check(1);
  TemplateTextBuilder result;
  bool is_first = true;
  const auto elements = template_iterate(call.context(), call.at(0));
  while (const std::optional<TemplateValue> element = elements->next()) {
    if (!std::exchange(is_first, false)) result.append(object.string().view());
    if (object.is_markup() && !element->is_markup()) {
      result.append(template_escape(TemplateTextOf(call.context(), *element)).view());
    } else {
      if (!element->is(Kind::string)) call.fail(fmt::format("got {} to join, want strings", element->describe()));
      result.append(element->string().view());
    }
    call.context().charge_text(element->is(Kind::string) ? element->text().size() : 0);
  }
  call.context().charge_text(result.size());
  return result.take();
}

template <bool from_right>
TemplateValue partition(const TemplateValue& object, const TemplateCall& call) {
  call.check(1);
  const MarkedText& separator = call.string(0);
  if (separator.text.empty()) call.fail("got an empty separator");
  call.context().charge_search(object.text(), separator.text);
  const std::vector<TextRange> parts = template_split(object.text(), separator.text, 1, from_right);
  const TemplateValue whole = text_part(object, {0, object.text().size()});
  if (parts.size() < 2)
    return TemplateValue::tuple(from_right ? std::vector<TemplateValue>{"", "", whole}
                                           : std::vector<TemplateValue>{whole, "", ""});
  return TemplateValue::tuple({text_part(object, parts[0]), call.at(0), text_part(object, parts[1])});
}

template <bool prefix>
TemplateValue remove(const TemplateValue& object, const TemplateCall& call) {
  call.check(1);
  const std::string_view text = object.text(), part = call.string(0).text;
  const bool there = prefix ? text.starts_with(part) : text.ends_with(part);
  const size_t cut = there ? part.size() : 0;
  return text_part(object, prefix ? TextRange{cut, text.size()} : TextRange{0, text.size() - cut});
}

enum class Side { left, right, center };
template <Side side>
TemplateValue justify(const TemplateValue& object, const TemplateCall& call) {
  call.check(2);
  call.at(0);
  const int64_t width = std::max<int64_t>(call.integer(0, "", 0), 0);
  const int64_t padding = std::max<int64_t>(width - object.string_object().length, 0);
  MarkedText fill{" "};
  if (call.find(1)) {
    call.string(1);
    fill = escaped_for(object, call.at(1));
    if (template_length(fill.text) != 1)
      call.fail(fmt::format("fills with {}, want a character", call.at(1).describe()));
  }
  const int64_t left = side == Side::left    ? 0
                       : side == Side::right ? padding
                                             : padding / 2 + (padding & width & 1);  // as Python shares an odd rest
  TemplateTextBuilder result;
  result.append(fill.view(), left);
  result.append(object.string().view());
  result.append(fill.view(), padding - left);
  call.context().charge_text(result.size());
  return result.take();
}

TemplateValue zfill(const TemplateValue& object, const TemplateCall& call) {
  call.check(1);
  call.at(0);
  const int64_t width = std::max<int64_t>(call.integer(0, "", 0), 0);
  const int64_t padding = std::max<int64_t>(width - object.string_object().length, 0);
  const MarkedView text = object.string().view();
  const size_t sign = text.text.starts_with('+') || text.text.starts_with('-') ? 1 : 0;
  TemplateTextBuilder result;
  result.append(text.part(0, sign));
  result.append({"0"}, padding);
  result.append(text.part(sign, text.text.size()));
  call.context().charge_text(result.size());
  return result.take();
}

TemplateValue expandtabs(const TemplateValue& object, const TemplateCall& call) {
  call.check(1, {"tabsize"});
  const int64_t size = call.integer(0, "tabsize", 8);
  TemplateTextBuilder result;
  int64_t column = 0;
  template_each_character(object.text(), [&](size_t begin, size_t end, char32_t c) {
    if (c != '\t') {
      result.append(object.string().view().part(begin, end));
      column = c == '\n' || c == '\r' ? 0 : column + 1;
    } else if (size > 0) {
      const int64_t spaces = size - column % size;
      template_check_text(static_cast<size_t>(spaces));
      result.append_for(object.string().view().is_marked(begin, end), std::string(static_cast<size_t>(spaces), ' '));
      column += spaces;
    }
  });
  call.context().charge_text(result.size());
  return result.take();
}

TemplateValue maketrans(const TemplateValue&, const TemplateCall& call) {
  call.check(3);
  auto code = [](const TemplateValue& character) -> TemplateValue {
    return static_cast<int64_t>(utf8_code_point(character.text()));
  };
  TemplateValue::Members table;
  if (call.positional().size() == 1) {
    if (!call.at(0).is(Kind::dict)) call.fail(fmt::format("got {}, want a dictionary", call.at(0).describe()));
    for (const auto& [key, value] : call.at(0).dict().members) {
      const bool is_character = key.is(Kind::string) && key.string_object().length == 1;
      if (!is_character && !key.is_integer())
        call.fail(fmt::format("got the key {}, want a character", key.describe()));
      table.emplace_back(is_character ? code(key) : key, value);
    }
    return TemplateValue::dict(std::move(table));
  }
  auto characters = [&](size_t position) {
    call.string(position);
    return template_elements(call.context(), call.at(position));
  };
  const std::vector<TemplateValue> from = characters(0), to = characters(1);
  if (from.size() != to.size()) call.fail(fmt::format("got texts of {} and {} characters", from.size(), to.size()));
  for (size_t i = 0; i < from.size(); ++i) table.emplace_back(code(from[i]), code(to[i]));
  if (call.find(2))
    for (const TemplateValue& character : characters(2)) table.emplace_back(code(character), TemplateValue::none());
  return TemplateValue::dict(std::move(table));
}

TemplateValue translate(const TemplateValue& object, const TemplateCall& call) {
  call.check(1);
  const MarkedView text = object.string().view();
  TemplateTextBuilder result;
  template_each_character(text.text, [&](size_t begin, size_t end, char32_t c) {
    call.context().charge(2);
    const std::optional<TemplateValue> instead = template_item(call.context(), call.at(0), static_cast<int64_t>(c));
    if (!instead) return result.append(text.part(begin, end));
    if (instead->is(Kind::none)) return;
    if (instead->is(Kind::string)) {
      call.context().charge_text(instead->text().size());
      return text.is_marked(begin, end) ? result.append_for(true, instead->text())
                                        : result.append(instead->string().view());
    }
    if (!instead->is_integer()) call.fail(fmt::format("makes {} of a character, want a string", instead->describe()));
    result.append(template_format_value(call.context(), *instead, {"c"}).view());
  });
  return result.take();
}

template <bool (*is)(char32_t)>
TemplateValue all_are(const TemplateValue& object, const TemplateCall& call) {
  call.check(0);
  bool all = !object.text().empty();
  template_each_character(object.text(), [&](size_t, size_t, char32_t c) { all &= is(c); });
  return all;
}

bool is_decimal(char32_t c) { return unicode_decimal(c) >= 0; }
bool is_alphanumeric(char32_t c) { return unicode_is_alpha(c) || unicode_is_numeric(c) || unicode_is_digit(c); }

// There are letters with case, and all are of this one.
template <bool (*is)(char32_t)>
TemplateValue cased_are(const TemplateValue& object, const TemplateCall& call) {
  call.check(0);
  bool any = false, all = true;
  template_each_character(object.text(), [&](size_t, size_t, char32_t c) {
    any |= is(c);
    all &= is(c) || !unicode_is_cased(c);
  });
  return any && all;
}

// Capitals stand where no letter is in front, small ones everywhere else.
TemplateValue is_title(const TemplateValue& object, const TemplateCall& call) {
  call.check(0);
  bool any = false, all = true, within = false;
  template_each_character(object.text(), [&](size_t, size_t, char32_t c) {
    const bool capital = unicode_is_upper(c) || unicode_is_title(c), small = unicode_is_lower(c);
    all &= !(capital && within) && !(small && !within);
    within = capital || small;
    any |= within;
  });
  return any && all;
}

TemplateValue is_identifier(const TemplateValue& object, const TemplateCall& call) {
  call.check(0);
  bool all = !object.text().empty();
  template_each_character(object.text(), [&](size_t begin, size_t, char32_t c) {
    all &= begin == 0 ? unicode_is_identifier_start(c) : unicode_is_identifier_part(c);
  });
  return all;
}

TemplateValue format_map(const TemplateValue& object, const TemplateCall& call) {
  call.check(1);
  return template_format_fields(object.string().view(), call, &call.at(0), object.is_markup());
}

constexpr auto kMarkup = Row::Access::markup, kMethod = Row::Access::method;

constexpr Row kTextMethods[] = {
    {"capitalize", kMarkup, in_case<TemplateCase::capitalize>},
    {"casefold", kMarkup, in_case<TemplateCase::casefold>},
    {"center", kMarkup, justify<Side::center>},
    {"count", kMethod, count},
    {"encode", Row::Access::unsupported},
    {"endswith", kMethod, starts_or_ends<false>},
    {"expandtabs", kMarkup, expandtabs},
    {"find", kMethod, find<false>},
    {"format", kMarkup,
     [](const TemplateValue& object, const TemplateCall& call) -> TemplateValue {
       return template_format_fields(object.string().view(), call, nullptr, object.is_markup());
     }},
    {"format_map", kMarkup, format_map},
    {"index", kMethod, index<false>},
    {"isalnum", kMethod, all_are<is_alphanumeric>},
    {"isalpha", kMethod, all_are<unicode_is_alpha>},
    {"isascii", kMethod,
     [](const TemplateValue& object, const TemplateCall& call) -> TemplateValue {
       call.check(0);
       const std::string_view text = object.text();
       return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<signed char>(c) >= 0; });
     }},
    {"isdecimal", kMethod, all_are<is_decimal>},
    {"isdigit", kMethod, all_are<unicode_is_digit>},
    {"isidentifier", kMethod, is_identifier},
    {"islower", kMethod, cased_are<unicode_is_lower>},
    {"isnumeric", kMethod, all_are<unicode_is_numeric>},
    {"isprintable", kMethod,
     [](const TemplateValue& object, const TemplateCall& call) -> TemplateValue {
       return object.text().empty() ? TemplateValue(true) : all_are<unicode_is_printable>(object, call);
     }},
    {"isspace", kMethod, all_are<unicode_is_python_space>},
    {"istitle", kMethod, is_title},
    {"isupper", kMethod, cased_are<unicode_is_upper>},
    {"join", kMarkup, join},
    {"ljust", kMarkup, justify<Side::left>},
    {"lower", kMarkup, in_case<TemplateCase::lower>},
    {"lstrip", kMarkup, strip<true, false>},
    {"maketrans", kMethod, maketrans},
    {"partition", kMarkup, partition<false>},
    {"removeprefix", kMarkup, remove<true>},
    {"removesuffix", kMarkup, remove<false>},
    {"replace", kMarkup, replace},
    {"rfind", kMethod, find<true>},
    {"rindex", kMethod, index<true>},
    {"rjust", kMarkup, justify<Side::right>},
    {"rpartition", kMarkup, partition<true>},
    {"rsplit", kMarkup, split<true>},
    {"rstrip", kMarkup, strip<false, true>},
    {"split", kMarkup, split<false>},
    {"splitlines", kMarkup, splitlines},
    {"startswith", kMethod, starts_or_ends<true>},
    {"strip", kMarkup, strip<true, true>},
    {"swapcase", kMarkup, in_case<TemplateCase::swapcase>},
    {"title", kMarkup, in_case<TemplateCase::title>},
    {"translate", kMarkup, translate},
    {"upper", kMarkup, in_case<TemplateCase::upper>},
    {"zfill", kMarkup, zfill},
};

// Of Markup alone.
constexpr Row kMarkupMethods[] = {
    {"escape", kMethod,
     [](const TemplateValue&, const TemplateCall& call) -> TemplateValue {
       call.check(1);
       return template_escaped_value(call.at(0));
     }},
    {"striptags", kMethod,
     [](const TemplateValue& object, const TemplateCall& call) -> TemplateValue {
       call.check(0);
       call.context().charge(std::ssize(object.text()));
       return template_striptags(object.string().view());
     }},
    {"unescape", kMethod,
     [](const TemplateValue& object, const TemplateCall& call) -> TemplateValue {
       call.check(0);
       call.context().charge(std::ssize(object.text()));
       return template_unescape(object.string().view());
     }},
};

}  // namespace

std::span<const TemplateMethodRow> template_text_methods() { return kTextMethods; }
std::span<const TemplateMethodRow> template_markup_methods() { return kMarkupMethods; }

}  // namespace megalith
