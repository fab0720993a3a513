#include "megalith/model/unicode_property.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

#include "megalith/base/error.h"
#include "megalith/model/unicode_form.h"
#include "megalith/model/unicode_table.h"
#include "megalith/model/utf8.h"

namespace megalith {

namespace {

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }
bool is_of(char32_t c, std::initializer_list<utf8proc_category_t> categories) {
  return std::find(categories.begin(), categories.end(), category(c)) != categories.end();
}

template <size_t count>
bool is_in(char32_t c, const UnicodeRange (&ranges)[count]) {
  const auto* range = std::upper_bound(std::begin(ranges), std::end(ranges), c,
                                       [](char32_t character, const UnicodeRange& r) { return character < r.first; });
  return range != std::begin(ranges) && c <= std::prev(range)->last;
}

const UnicodeCase* special_case(char32_t c) {
  const auto* entry = std::lower_bound(std::begin(kSpecialCase), std::end(kSpecialCase), c,
                                       [](const UnicodeCase& row, char32_t wanted) { return row.character < wanted; });
  return entry != std::end(kSpecialCase) && entry->character == c ? entry : nullptr;
}

std::string joined(const char32_t (&characters)[3]) {
  std::string text;
  for (const char32_t c : characters)
    if (c) utf8_append(text, c);
  return text;
}

std::string one(utf8proc_int32_t c) {
  std::string text;
  utf8_append(text, static_cast<char32_t>(c));
  return text;
}

}  // namespace

int unicode_decimal(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9' ? static_cast<int>(c - '0') : -1;
  const auto* after = std::upper_bound(std::begin(kZeros), std::end(kZeros), c);
  const char32_t zero = *std::prev(after);
  return c >= zero && c < zero + 10 ? static_cast<int>(c - zero) : -1;
}

bool unicode_is_digit(char32_t c) { return unicode_decimal(c) >= 0 || is_in(c, kDigit); }
bool unicode_is_numeric(char32_t c) {
  return is_of(c, {UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NL, UTF8PROC_CATEGORY_NO}) || is_in(c, kNumeric);
}
bool unicode_is_alpha(char32_t c) {
  return is_of(c, {UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LL, UTF8PROC_CATEGORY_LT, UTF8PROC_CATEGORY_LM,
                   UTF8PROC_CATEGORY_LO});
}
bool unicode_is_lower(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LL || is_in(c, kLower); }
bool unicode_is_upper(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LU || is_in(c, kUpper); }
bool unicode_is_title(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LT; }
bool unicode_is_cased(char32_t c) { return unicode_is_lower(c) || unicode_is_upper(c) || unicode_is_title(c); }
bool unicode_is_case_ignorable(char32_t c) {
  return is_of(c, {UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_ME, UTF8PROC_CATEGORY_CF, UTF8PROC_CATEGORY_LM,
                   UTF8PROC_CATEGORY_SK}) ||
         is_in(c, kIgnorable);
}

bool unicode_is_python_space(char32_t c) { return (c >= 0x1C && c <= 0x1F) || unicode_is_space(c); }

bool unicode_is_printable(char32_t c) {
  return c == ' ' ||
         !is_of(c, {UTF8PROC_CATEGORY_CC, UTF8PROC_CATEGORY_CF, UTF8PROC_CATEGORY_CS, UTF8PROC_CATEGORY_CO,
                    UTF8PROC_CATEGORY_CN, UTF8PROC_CATEGORY_ZS, UTF8PROC_CATEGORY_ZL, UTF8PROC_CATEGORY_ZP});
}

bool unicode_is_identifier_start(char32_t c) {
  const bool usual = c == '_' || category(c) == UTF8PROC_CATEGORY_NL || unicode_is_alpha(c);
  return usual != is_in(c, kIdentifierStart);
}

bool unicode_is_identifier_part(char32_t c) {
  const bool usual = c == '_' || unicode_is_alpha(c) ||
                     is_of(c, {UTF8PROC_CATEGORY_NL, UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_MC, UTF8PROC_CATEGORY_ND,
                               UTF8PROC_CATEGORY_PC});
  return usual != is_in(c, kIdentifierPart);
}

std::string unicode_uppercase(char32_t c) {
  if (const UnicodeCase* entry = special_case(c)) return joined(entry->upper);
  return one(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}

std::string unicode_titlecase(char32_t c) {
  if (const UnicodeCase* entry = special_case(c)) return joined(entry->title);
  return one(utf8proc_totitle(static_cast<utf8proc_int32_t>(c)));
}

std::string unicode_casefold(char32_t c) {
  utf8proc_int32_t buffer[8];
  int boundary = 0;
  const utf8proc_ssize_t count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), buffer, std::size(buffer),
                                                         UTF8PROC_CASEFOLD, &boundary);
  MEGALITH_ASSERT(count >= 0 && count <= std::ssize(buffer), "cannot fold U+{:04X}", static_cast<uint32_t>(c));
  std::string text;
  for (utf8proc_ssize_t i = 0; i < count; ++i) utf8_append(text, static_cast<char32_t>(buffer[i]));
  return text;
}

}  // namespace megalith
