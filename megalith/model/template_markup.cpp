#include "megalith/model/template_markup.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "megalith/model/html_entity_table.h"
#include "megalith/model/template_text.h"
#include "megalith/model/utf8.h"

namespace megalith {

namespace {

struct Entity {
  std::string text;
  bool needs_semicolon;
};

const std::map<std::string, Entity, std::less<>>& entities() {
  static const auto kEntities = [] {
    std::map<std::string, Entity, std::less<>> all;
    std::string_view rest = kHtmlEntities;
    while (!rest.empty()) {
      const std::string_view row = rest.substr(0, rest.find(' '));
      rest.remove_prefix(row.size() + 1);
      const size_t sign = row.find_first_of(":!");
      Entity entity{"", row[sign] == ':'};
      for (size_t at = sign + 1; at < row.size();) {
        const size_t end = std::min(row.find('.', at), row.size());
        uint32_t code = 0;
        std::from_chars(row.data() + at, row.data() + end, code, 16);
        utf8_append(entity.text, code);
        at = end + 1;
      }
      all.emplace(row.substr(0, sign), std::move(entity));
    }
    return all;
  }();
  return kEntities;
}

// What a number stands for: HTML reads those of Windows' Latin letters, and drops those of control characters.
std::string numbered(uint32_t code) {
  static constexpr char16_t kWindows[] = {0x20AC, 0x81,   0x201A, 0x192,  0x201E, 0x2026, 0x2020, 0x2021,
                                          0x2C6,  0x2030, 0x160,  0x2039, 0x152,  0x8D,   0x17D,  0x8F,
                                          0x90,   0x2018, 0x2019, 0x201C, 0x201D, 0x2022, 0x2013, 0x2014,
                                          0x2DC,  0x2122, 0x161,  0x203A, 0x153,  0x9D,   0x17E,  0x178};
  std::string text;
  if (code == 0 || (code >= 0xD800 && code < 0xE000) || code > 0x10FFFF)
    utf8_append(text, 0xFFFD);
  else if (code >= 0x80 && code < 0xA0)
    utf8_append(text, kWindows[code - 0x80]);
  else if ((code >= 0x1 && code <= 0x8) || code == 0xB || (code >= 0xE && code <= 0x1F) || code == 0x7F ||
           (code >= 0xFDD0 && code <= 0xFDEF) || (code & 0xFFFE) == 0xFFFE)
    return "";
  else
    utf8_append(text, code);
  return text;
}

// The entity at the start of `text`, which begins with "&": what it stands for, and its length in bytes (0: there is
// none).
std::pair<std::string, size_t> entity_at(std::string_view text) {
  if (text.substr(1).starts_with('#')) {
    const bool hex = text.size() > 2 && (text[2] | 0x20) == 'x';
    const size_t begin = hex ? 3 : 2;
    size_t end = begin;
    uint32_t code = 0;
    for (; end < text.size() &&
           (hex ? isxdigit(static_cast<unsigned char>(text[end])) != 0 : text[end] >= '0' && text[end] <= '9');
         ++end) {
      const char c = text[end];
      const auto digit = static_cast<uint32_t>(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
      code = std::min<uint32_t>(code * (hex ? 16 : 10) + digit, 0x110000);
    }
    if (end == begin) return {"", 0};
    return {numbered(code), end + text.substr(end).starts_with(';')};
  }
  size_t end = 1;
  for (int count = 0;
       count < 32 && end < text.size() && std::string_view("\t\n\f <&#;").find(text[end]) == std::string_view::npos;
       ++count)
    end += static_cast<size_t>(utf8_next(text.substr(end)));
  const auto& all = entities();
  const std::string_view name = text.substr(1, end - 1);
  if (text.substr(end).starts_with(';'))
    if (const auto entry = all.find(name); entry != all.end()) return {entry->second.text, end + 1};
  for (size_t length = name.size(); length > 1; --length) {
    const auto entry = all.find(name.substr(0, length));
    if (entry != all.end() && !entry->second.needs_semicolon) return {entry->second.text, 1 + length};
  }
  return {"", 0};
}

}  // namespace

MarkedText template_escape(const MarkedView& text) {
  TemplateTextBuilder result;
  size_t done = 0;
  for (size_t at; (at = text.text.find_first_of("&<>'\"", done)) != text.text.npos; done = at + 1) {
    result.append(text.part(done, at));
    const char c = text.text[at];
    result.append_for(text.is_marked(at, at + 1), c == '&'    ? "&amp;"
                                                  : c == '<'  ? "&lt;"
                                                  : c == '>'  ? "&gt;"
                                                  : c == '\'' ? "&#39;"
                                                              : "&#34;");
  }
  result.append(text.part(done, text.text.size()));
  return result.take();
}

TemplateValue template_escaped_value(const TemplateValue& value) {
  return value.is_markup() ? value : TemplateValue(template_escape(value.to_text().view()), true);
}

MarkedText template_unescape(const MarkedView& text) {
  TemplateTextBuilder result;
  size_t done = 0;
  for (size_t at; (at = text.text.find('&', done)) != text.text.npos;) {
    result.append(text.part(done, at));
    const auto [instead, length] = entity_at(text.text.substr(at));
    if (length == 0)
      result.append(text.part(at, at + 1));
    else
      result.append_for(text.is_marked(at, at + length), instead);
    done = at + std::max<size_t>(length, 1);
  }
  result.append(text.part(done, text.text.size()));
  return result.take();
}

MarkedText template_striptags(const MarkedView& text) {
  TemplateTextBuilder bare;
  size_t done = 0;
  for (size_t begin; (begin = text.text.find('<', done)) != text.text.npos;) {
    const bool comment = text.text.substr(begin).starts_with("<!--");
    const size_t end = comment ? text.text.find("-->", begin + 4) : text.text.find('>', begin);
    if (end == text.text.npos) break;
    bare.append(text.part(done, begin));
    done = end + (comment ? 3 : 1);
  }
  bare.append(text.part(done, text.text.size()));
  const MarkedText without = bare.take();
  TemplateTextBuilder words;
  size_t end = 0;
  for (const TextRange& word : template_split(without.text, std::nullopt, -1, false)) {
    if (words.size() > 0) words.append_for(without.view().is_marked(end, word.begin), " ");
    words.append(without.view().part(word.begin, word.end));
    end = word.end;
  }
  return template_unescape(words.take().view());
}

MarkedText template_url_quote(const MarkedView& text, bool in_query) {
  TemplateTextBuilder result;
  for (size_t i = 0; i < text.text.size(); ++i) {
    const char c = text.text[i];
    const bool safe = isalnum(static_cast<unsigned char>(c)) ||
                      std::string_view("_.-~").find(c) != std::string_view::npos || (c == '/' && !in_query);
    if (safe)
      result.append(text.part(i, i + 1));
    else if (c == ' ' && in_query)
      result.append_for(text.is_marked(i, i + 1), "+");
    else
      result.append_for(text.is_marked(i, i + 1), fmt::format("%{:02X}", static_cast<unsigned char>(c)));
  }
  return result.take();
}

}  // namespace megalith
