#include "megalith/model/unicode_form.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "megalith/base/error.h"
#include "megalith/model/utf8.h"

namespace megalith {

namespace {

// Appends the decomposition of one character; the longest (U+FDFA) has 18 code points.
void decompose(std::vector<utf8proc_int32_t>& out, char32_t c, utf8proc_option_t options) {
  utf8proc_int32_t buffer[32];
  int last_boundary_class = 0;
  const utf8proc_ssize_t count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), buffer, std::size(buffer),
                                                         options, &last_boundary_class);
  MEGALITH_ASSERT(count >= 0 && count <= std::ssize(buffer), "cannot decompose U+{:04X}: {}", static_cast<uint32_t>(c),
                  count);
  out.insert(out.end(), buffer, buffer + count);
}

int combining_class(utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; }

// Sorts each run of combining marks by class. utf8proc's own decompose does this by exchanging neighbours, which takes
// quadratic time on a long run of marks.
void reorder_marks(std::vector<utf8proc_int32_t>& text) {
  auto is_starter = [](utf8proc_int32_t c) { return combining_class(c) == 0; };
  auto begin = text.begin();
  while (begin != text.end()) {
    begin = std::find_if_not(begin, text.end(), is_starter);
    const auto end = std::find_if(begin, text.end(), is_starter);
    std::stable_sort(begin, end, [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    begin = end;
  }
}

}  // namespace

std::string unicode_normalize(std::string_view text, UnicodeForm form) {
  const bool is_ascii = std::all_of(text.begin(), text.end(), [](char c) { return static_cast<signed char>(c) >= 0; });
  if (is_ascii) return std::string(text);

  const bool compose = form == UnicodeForm::nfc || form == UnicodeForm::nfkc;
  const bool compatible = form == UnicodeForm::nfkc || form == UnicodeForm::nfkd;
  const auto options =
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0));
  std::vector<utf8proc_int32_t> points;
  points.reserve(text.size());
  for (std::string_view rest = text; !rest.empty(); rest.remove_prefix(utf8_next(rest)))
    decompose(points, utf8_code_point(rest), options);
  reorder_marks(points);
  if (compose) {
    const auto options_compose = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    const utf8proc_ssize_t count =
        utf8proc_normalize_utf32(points.data(), static_cast<utf8proc_ssize_t>(points.size()), options_compose);
    MEGALITH_ASSERT(count >= 0, "cannot compose: {}", utf8proc_errmsg(count));
    points.resize(count);
  }
  std::string result;
  result.reserve(text.size());
  for (utf8proc_int32_t c : points) utf8_append(result, static_cast<char32_t>(c));
  return result;
}

std::string unicode_lowercase(char32_t c) {
  std::string result;
  if (c == 0x130) return "i\u0307";  // the only one that is not one character
  utf8_append(result, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  return result;
}

bool unicode_is_space(char32_t c) {
  if (c == ' ' || (c >= 0x09 && c <= 0x0D) || c == 0x85) return true;
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP;
}

}  // namespace megalith
