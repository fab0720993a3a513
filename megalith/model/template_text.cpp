#include "megalith/model/template_text.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <cmath>

#include "megalith/base/json_quote.h"
#include "megalith/model/unicode_form.h"
#include "megalith/model/utf8.h"

namespace megalith {

namespace {

// Where the character `count` begins; the end if there are fewer.
size_t place_of(std::string_view text, int64_t count) {
  size_t at = 0;
  for (; count > 0 && at < text.size(); --count) at += utf8_next(text.substr(at));
  return at;
}

MarkedText part(const MarkedText& text, size_t begin, size_t end) {
  MarkedText result;
  result.append(text.view().part(begin, end));
  return result;
}

// str.isspace: White_Space and the four separators of ASCII.
bool is_space(char32_t c) { return unicode_is_space(c) || (c >= 0x1C && c <= 0x1F); }

bool is_cased_letter(char32_t c) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL || category == UTF8PROC_CATEGORY_LT;
}

// The first letter of a word, or every one.
std::string uppercase(char32_t c, bool is_first) {
  if (c == 0xDF) return is_first ? "Ss" : "SS";
  std::string result;
  utf8_append(result, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
  return result;
}

bool is_printable(char32_t c) {
  if (c == ' ') return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    default: return true;
  }
}

// Goes through the characters of valid text: visit(begin, end, code point).
template <class Visit>
void each_character(std::string_view text, Visit visit) {
  for (size_t begin = 0; begin < text.size();) {
    const std::string_view rest = text.substr(begin);
    const size_t end = begin + static_cast<size_t>(utf8_next(rest));
    visit(begin, end, utf8_code_point(rest));
    begin = end;
  }
}

// The white space at `at`: its length in bytes, 0 if there is none.
size_t space_at(std::string_view text, size_t at) {
  return is_space(utf8_code_point(text.substr(at))) ? static_cast<size_t>(utf8_next(text.substr(at))) : 0;
}

std::vector<MarkedText> split_space(const MarkedText& text, int64_t most) {
  std::vector<MarkedText> parts;
  const std::string_view all = text.text;
  for (size_t at = 0;;) {
    while (at < all.size() && space_at(all, at)) at += space_at(all, at);
    if (at == all.size()) return parts;
    if (most >= 0 && std::ssize(parts) == most) {
      parts.push_back(part(text, at, all.size()));
      return parts;
    }
    size_t end = at;
    while (end < all.size() && !space_at(all, end)) end += static_cast<size_t>(utf8_next(all.substr(end)));
    parts.push_back(part(text, at, end));
    at = end;
  }
}

std::vector<MarkedText> rsplit_space(const MarkedText& text, int64_t most) {
  std::vector<MarkedText> parts;
  const std::string_view all = text.text;
  for (size_t end = all.size();;) {
    auto last = [&](size_t before) { return utf8_last(all.substr(0, before)); };
    while (end > 0 && space_at(all, last(end))) end = last(end);
    if (end == 0) break;
    if (most >= 0 && std::ssize(parts) == most) {
      parts.push_back(part(text, 0, end));
      break;
    }
    size_t begin = end;
    while (begin > 0 && !space_at(all, last(begin))) begin = last(begin);
    parts.push_back(part(text, begin, end));
    end = begin;
  }
  return {parts.rbegin(), parts.rend()};
}

}  // namespace

int64_t template_length(std::string_view text) {
  int64_t length = 0;
  for (char c : text) length += (c & 0xC0) != 0x80;
  return length;
}

MarkedText template_slice(const MarkedText& text, int64_t begin, int64_t end) {
  if (end <= begin) return {};
  const size_t first = place_of(text.text, begin);
  return part(text, first, first + place_of(std::string_view(text.text).substr(first), end - begin));
}

std::vector<MarkedText> template_characters(const MarkedText& text) {
  std::vector<MarkedText> result;
  each_character(text.text, [&](size_t begin, size_t end, char32_t) { result.push_back(part(text, begin, end)); });
  return result;
}

MarkedText template_strip(const MarkedText& text, std::optional<std::string_view> chars, bool left, bool right) {
  auto taken = [&](size_t begin, size_t end) {
    const std::string_view character = std::string_view(text.text).substr(begin, end - begin);
    return chars ? chars->find(character) != std::string_view::npos : is_space(utf8_code_point(character));
  };
  const std::string_view all = text.text;
  size_t begin = 0, end = all.size();
  for (size_t next; left && begin < end; begin = next) {
    next = begin + static_cast<size_t>(utf8_next(all.substr(begin)));
    if (!taken(begin, next)) break;
  }
  for (size_t last; right && begin < end; end = last) {
    last = utf8_last(all.substr(0, end));
    if (!taken(last, end)) break;
  }
  return part(text, begin, end);
}

std::vector<MarkedText> template_split(const MarkedText& text, std::optional<std::string_view> separator, int64_t most,
                                       bool from_right) {
  if (!separator) return from_right ? rsplit_space(text, most) : split_space(text, most);
  std::vector<MarkedText> parts;
  const std::string_view all = text.text;
  if (!from_right) {
    size_t done = 0;
    for (size_t at; (most < 0 || std::ssize(parts) < most) && (at = all.find(*separator, done)) != all.npos;
         done = at + separator->size())
      parts.push_back(part(text, done, at));
    parts.push_back(part(text, done, all.size()));
    return parts;
  }
  size_t end = all.size();
  while (most < 0 || std::ssize(parts) < most) {
    if (end < separator->size()) break;
    const size_t at = all.rfind(*separator, end - separator->size());
    if (at == all.npos) break;
    parts.push_back(part(text, at + separator->size(), end));
    end = at;
  }
  parts.push_back(part(text, 0, end));
  return {parts.rbegin(), parts.rend()};
}

std::vector<MarkedText> template_splitlines(const MarkedText& text, bool keep_ends) {
  std::vector<MarkedText> lines;
  size_t done = 0, skip = 0;
  const std::string_view all = text.text;
  each_character(all, [&](size_t begin, size_t end, char32_t c) {
    if (begin < skip) return;
    const bool ends = (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
    if (!ends) return;
    if (c == '\r' && end < all.size() && all[end] == '\n') ++end;
    lines.push_back(part(text, done, keep_ends ? end : begin));
    done = skip = end;
  });
  if (done < all.size()) lines.push_back(part(text, done, all.size()));
  return lines;
}

MarkedText template_replace(const MarkedText& text, std::string_view from, const MarkedText& to, int64_t most) {
  MarkedText result;
  const std::string_view all = text.text;
  if (from.empty()) {  // Python puts `to` around every character
    int64_t count = 0;
    each_character(all, [&](size_t begin, size_t end, char32_t) {
      if (most < 0 || count++ < most) result.append(to.view());
      result.append(text.view().part(begin, end));
    });
    if (most < 0 || count < most) result.append(to.view());
    return result;
  }
  size_t done = 0;
  for (size_t at; most != 0 && (at = all.find(from, done)) != all.npos; done = at + from.size(), --most) {
    result.append(text.view().part(done, at));
    result.append(to.view());
  }
  result.append(text.view().part(done, all.size()));
  return result;
}

MarkedText template_case(const MarkedText& text, TemplateCase how) {
  MarkedText result;
  bool within = false;  // a word, or anywhere but at the start
  each_character(text.text, [&](size_t begin, size_t end, char32_t c) {
    const bool up = how == TemplateCase::upper || (how != TemplateCase::lower && !within);
    MarkedText one{up ? uppercase(c, how != TemplateCase::upper) : unicode_lowercase(c), {}};
    if (text.view().is_marked(begin, end)) one.marks.assign(one.text.size(), '\1');
    result.append(one.view());
    within = how != TemplateCase::title || is_cased_letter(c);
  });
  return result;
}

MarkedText template_quote(const MarkedText& text) {
  const bool has_single = text.text.find('\'') != std::string::npos,
             has_double = text.text.find('"') != std::string::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  MarkedText result;
  const std::string edge(1, quote);
  result.append({edge});
  each_character(text.text, [&](size_t begin, size_t end, char32_t c) {
    std::string escaped;
    if (c == '\\' || c == static_cast<char32_t>(quote)) {
      escaped = fmt::format("\\{}", static_cast<char>(c));
    } else if (c == '\n' || c == '\r' || c == '\t') {
      escaped = c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (is_printable(c)) {
      escaped = text.text.substr(begin, end - begin);
    } else {
      const auto code = static_cast<uint32_t>(c);
      escaped = code < 0x100     ? fmt::format("\\x{:02x}", code)
                : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                                 : fmt::format("\\U{:08x}", code);
    }
    MarkedText one{escaped, {}};
    if (text.view().is_marked(begin, end)) one.marks.assign(one.text.size(), '\1');
    result.append(one.view());
  });
  result.append({edge});
  return result;
}

MarkedText template_json_quote(const MarkedText& text) {
  MarkedText result{"\"", {}};
  each_character(text.text, [&](size_t begin, size_t end, char32_t c) {
    MarkedText one;
    switch (c) {
      case '"': one.text = "\\\""; break;
      case '\\': one.text = "\\\\"; break;
      case '\n': one.text = "\\n"; break;
      case '\r': one.text = "\\r"; break;
      case '\t': one.text = "\\t"; break;
      case '\b': one.text = "\\b"; break;
      case '\f': one.text = "\\f"; break;
      default:
        one.text = c < 0x20 ? fmt::format("\\u{:04x}", static_cast<uint32_t>(c)) : text.text.substr(begin, end - begin);
    }
    if (text.view().is_marked(begin, end)) one.marks.assign(one.text.size(), '\1');
    result.append(one.view());
  });
  result.append({"\""});
  return result;
}

std::string template_number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

}  // namespace megalith
