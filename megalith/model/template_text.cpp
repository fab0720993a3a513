#include "megalith/model/template_text.h"

#include <fmt/format.h>
#include <string.h>

#include <algorithm>

#include "megalith/base/error.h"
#include "megalith/model/unicode_property.h"
#include "megalith/model/utf8.h"

namespace megalith {

namespace {

// A million tokens are some 4 MB.
constexpr size_t kMaxTextBytes = 64 << 20;
// As many as a list may have.
constexpr size_t kMaxParts = 4'000'000;

// The white space at `at`: its length in bytes, 0 if there is none.
size_t space_at(std::string_view text, size_t at) {
  const std::string_view rest = text.substr(at);
  return unicode_is_python_space(utf8_code_point(rest)) ? static_cast<size_t>(utf8_next(rest)) : 0;
}

void add(std::vector<TextRange>& parts, size_t begin, size_t end) {
  MEGALITH_CHECK(parts.size() < kMaxParts, "a text is cut into more than {} parts", kMaxParts);
  parts.push_back({begin, end});
}

std::vector<TextRange> split_space(std::string_view text, int64_t most) {
  std::vector<TextRange> parts;
  for (size_t at = 0;;) {
    for (size_t space; at < text.size() && (space = space_at(text, at)); at += space) continue;
    if (at == text.size()) return parts;
    if (most >= 0 && std::ssize(parts) == most) {
      add(parts, at, text.size());
      return parts;
    }
    size_t end = at;
    while (end < text.size() && !space_at(text, end)) end += static_cast<size_t>(utf8_next(text.substr(end)));
    add(parts, at, end);
    at = end;
  }
}

std::vector<TextRange> rsplit_space(std::string_view text, int64_t most) {
  std::vector<TextRange> parts;
  const auto last = [&](size_t before) { return utf8_last(text.substr(0, before)); };
  for (size_t end = text.size();;) {
    while (end > 0 && space_at(text, last(end))) end = last(end);
    if (end == 0) break;
    if (most >= 0 && std::ssize(parts) == most) {
      add(parts, 0, end);
      break;
    }
    size_t begin = end;
    while (begin > 0 && !space_at(text, last(begin))) begin = last(begin);
    add(parts, begin, end);
    end = begin;
  }
  return {parts.rbegin(), parts.rend()};
}

// A backslash and what follows it: "\\n", "\\x1f".
struct Escaped {
  char text[12];
  size_t length = 0;

  std::string_view view() const { return {text, length}; }
  static Escaped letter(char c) { return {{'\\', c}, 2}; }
  static Escaped hex(char32_t c, int digits) {
    Escaped result{{'\\', digits == 2 ? 'x' : digits == 4 ? 'u' : 'U'}, 2};
    for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4)
      result.text[result.length++] = "0123456789abcdef"[c >> shift & 15];
    return result;
  }
  Escaped then(const Escaped& next) const {
    Escaped result = *this;
    for (const char c : next.view()) result.text[result.length++] = c;
    return result;
  }
};

bool ends_line(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

}  // namespace

void template_check_text(size_t bytes) {
  MEGALITH_CHECK(bytes <= kMaxTextBytes, "a text has more than {} bytes", kMaxTextBytes);
}

void TemplateTextBuilder::append(const MarkedView& part) {
  template_check_text(text_.text.size() + part.text.size());
  text_.append(part);
}

void TemplateTextBuilder::append(const MarkedView& part, int64_t count) {
  if (part.text.empty() || count <= 0) return;
  template_check_text(static_cast<size_t>(count));
  const size_t bytes = part.text.size() * static_cast<size_t>(count);
  template_check_text(text_.text.size() + bytes);
  const bool has_marks = !part.marks.empty() || !text_.marks.empty();
  if (has_marks) text_.marks.resize(text_.text.size(), '\0');
  // Doubled until it is enough: a character may be wanted a million times.
  const size_t begin = text_.text.size(), end = begin + bytes;
  text_.text.reserve(end);
  text_.text += part.text;
  while (text_.text.size() < end)
    text_.text.append(text_.text, begin, std::min(text_.text.size() - begin, end - text_.text.size()));
  if (!has_marks) return;
  if (part.marks.empty()) return text_.marks.resize(end, '\0');
  text_.marks += part.marks;
  while (text_.marks.size() < end)
    text_.marks.append(text_.marks, begin, std::min(text_.marks.size() - begin, end - text_.marks.size()));
}

void TemplateTextBuilder::append_for(bool is_marked, std::string_view part) {
  append(part);
  if (!is_marked) return;
  text_.marks.resize(text_.text.size() - part.size(), '\0');
  text_.marks.append(part.size(), '\1');
}

int64_t template_length(std::string_view text) {
  int64_t length = 0;
  for (const char c : text) length += (c & 0xC0) != 0x80;
  return length;
}

size_t template_place(std::string_view text, int64_t count) {
  size_t at = 0;
  for (; count > 0 && at < text.size(); --count) at += static_cast<size_t>(utf8_next(text.substr(at)));
  return at;
}

MarkedText template_part(const MarkedView& text, size_t begin, size_t end) {
  MarkedText result;
  result.append(text.part(begin, end));
  return result;
}

MarkedText template_slice(const MarkedView& text, int64_t begin, int64_t end) {
  if (end <= begin) return {};
  const size_t first = template_place(text.text, begin);
  return template_part(text, first, first + template_place(text.text.substr(first), end - begin));
}

size_t template_find(std::string_view text, std::string_view what, size_t from) {
  if (from > text.size()) return text.npos;
  if (what.empty()) return from;
  if (what.size() == 1) return text.find(what[0], from);
  // Of linear time, as string_view::find is not.
  const void* found = memmem(text.data() + from, text.size() - from, what.data(), what.size());
  return found ? static_cast<size_t>(static_cast<const char*>(found) - text.data()) : text.npos;
}

size_t template_rfind(std::string_view text, std::string_view what) {
  const std::string reversed(text.rbegin(), text.rend()), wanted(what.rbegin(), what.rend());
  const size_t at = template_find(reversed, wanted);
  return at == text.npos ? at : text.size() - at - what.size();
}

int64_t template_count(std::string_view text, std::string_view what) {
  if (what.empty()) return template_length(text) + 1;
  int64_t count = 0;
  for (size_t at = 0; (at = template_find(text, what, at)) != text.npos; at += what.size()) ++count;
  return count;
}

TextRange template_strip(std::string_view text, std::optional<std::string_view> chars, bool left, bool right) {
  std::u32string set;
  if (chars) {
    template_each_character(*chars, [&](size_t, size_t, char32_t c) { set += c; });
    std::sort(set.begin(), set.end());
  }
  auto taken = [&](size_t at) {
    const char32_t c = utf8_code_point(text.substr(at));
    return chars ? std::binary_search(set.begin(), set.end(), c) : unicode_is_python_space(c);
  };
  size_t begin = 0, end = text.size();
  while (left && begin < end && taken(begin)) begin += static_cast<size_t>(utf8_next(text.substr(begin)));
  for (size_t last; right && begin < end && taken(last = utf8_last(text.substr(0, end))); end = last) continue;
  return {begin, end};
}

std::vector<TextRange> template_split(std::string_view text, std::optional<std::string_view> separator, int64_t most,
                                      bool from_right) {
  if (!separator) return from_right ? rsplit_space(text, most) : split_space(text, most);
  if (from_right) {
    // The same from the left of the text reversed: the separators that are found do not overlap.
    const std::string reversed(text.rbegin(), text.rend()), wanted(separator->rbegin(), separator->rend());
    std::vector<TextRange> parts = template_split(reversed, wanted, most, false);
    std::reverse(parts.begin(), parts.end());
    for (TextRange& part : parts) part = {text.size() - part.end, text.size() - part.begin};
    return parts;
  }
  std::vector<TextRange> parts;
  size_t done = 0;
  for (size_t at; (most < 0 || std::ssize(parts) < most) && (at = template_find(text, *separator, done)) != text.npos;
       done = at + separator->size())
    add(parts, done, at);
  add(parts, done, text.size());
  return parts;
}

std::vector<TextRange> template_splitlines(std::string_view text, bool keep_ends) {
  std::vector<TextRange> lines;
  size_t done = 0, skip = 0;
  template_each_character(text, [&](size_t begin, size_t end, char32_t c) {
    if (begin < skip || !ends_line(c)) return;
    if (c == '\r' && end < text.size() && text[end] == '\n') ++end;
    add(lines, done, keep_ends ? end : begin);
    done = skip = end;
  });
  if (done < text.size()) add(lines, done, text.size());
  return lines;
}

MarkedText template_replace(const MarkedView& text, std::string_view from, const MarkedView& to, int64_t most,
                            size_t* replaced) {
  TemplateTextBuilder result;
  *replaced = 0;
  if (from.empty()) {  // Python puts `to` around every character
    auto put = [&] {
      if (most >= 0 && static_cast<int64_t>(*replaced) >= most) return;
      result.append(to);
      ++*replaced;
    };
    template_each_character(text.text, [&](size_t begin, size_t end, char32_t) {
      put();
      result.append(text.part(begin, end));
    });
    put();
    return result.take();
  }
  size_t done = 0;
  for (size_t at; (most < 0 || static_cast<int64_t>(*replaced) < most) &&
                  (at = template_find(text.text, from, done)) != text.text.npos;
       done = at + from.size()) {
    result.append(text.part(done, at));
    result.append(to);
    ++*replaced;
  }
  result.append(text.part(done, text.text.size()));
  return result.take();
}

namespace {

// `text` with some characters replaced: escape(code point) is what stands for one, "" for what stays as it is.
template <class Escape>
void append_escaped(TemplateTextBuilder& out, const MarkedView& text, Escape escape) {
  size_t done = 0;
  template_each_character(text.text, [&](size_t begin, size_t end, char32_t c) {
    const Escaped instead = escape(c);
    if (instead.length == 0) return;
    if (done < begin) out.append(text.part(done, begin));
    out.append_for(text.is_marked(begin, end), instead.view());
    done = end;
  });
  out.append(text.part(done, text.text.size()));
}

}  // namespace

MarkedText template_quote(const MarkedView& text) {
  const bool has_single = text.text.find('\'') != text.text.npos, has_double = text.text.find('"') != text.text.npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  TemplateTextBuilder result;
  const std::string_view edge(&quote, 1);
  result.append(edge);
  append_escaped(result, text, [&](char32_t c) {
    if (c == '\\' || c == static_cast<char32_t>(quote)) return Escaped::letter(static_cast<char>(c));
    if (c == '\n' || c == '\r' || c == '\t') return Escaped::letter(c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
    return unicode_is_printable(c) ? Escaped{} : Escaped::hex(c, c < 0x100 ? 2 : c < 0x10000 ? 4 : 8);
  });
  result.append(edge);
  return result.take();
}

MarkedText template_ascii(const MarkedView& repr) {
  TemplateTextBuilder result;
  append_escaped(result, repr, [](char32_t c) {
    return c < 0x80 ? Escaped{} : Escaped::hex(c, c < 0x100 ? 2 : c < 0x10000 ? 4 : 8);
  });
  return result.take();
}

MarkedText template_json_quote(const MarkedView& text, bool ascii) {
  TemplateTextBuilder result;
  result.append("\"");
  append_escaped(result, text, [&](char32_t c) {
    if (c >= 0x20 && c != '"' && c != '\\' && (!ascii || c < 0x7F)) return Escaped{};
    switch (c) {
      case '"':
      case '\\': return Escaped::letter(static_cast<char>(c));
      case '\n': return Escaped::letter('n');
      case '\r': return Escaped::letter('r');
      case '\t': return Escaped::letter('t');
      case '\b': return Escaped::letter('b');
      case '\f': return Escaped::letter('f');
      default: break;
    }
    if (c < 0x10000) return Escaped::hex(c, 4);
    const char32_t above = c - 0x10000;  // as two surrogates
    return Escaped::hex(0xD800 + (above >> 10), 4).then(Escaped::hex(0xDC00 + (above & 0x3FF), 4));
  });
  result.append("\"");
  return result.take();
}

}  // namespace megalith
