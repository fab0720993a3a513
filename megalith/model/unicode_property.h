// What Python's str methods ask of a character, and its forms in other cases: utf8proc's categories and mappings, and
// tables (tools/make_text_tables.py) where Python's answer does not follow from them.
#pragma once

#include <string>
#include <string_view>

namespace megalith {

/// The digit's value in any script, -1 if it is none.
int unicode_decimal(char32_t c);
bool unicode_is_digit(char32_t c);    // superscripts and the like, too
bool unicode_is_numeric(char32_t c);  // fractions and the like, too
bool unicode_is_alpha(char32_t c);
bool unicode_is_lower(char32_t c);
bool unicode_is_upper(char32_t c);
bool unicode_is_title(char32_t c);
bool unicode_is_cased(char32_t c);
/// What stands within a word without being a letter: the rule of the final sigma looks past it.
bool unicode_is_case_ignorable(char32_t c);
/// White_Space and the four separators of ASCII.
bool unicode_is_python_space(char32_t c);
bool unicode_is_printable(char32_t c);
bool unicode_is_identifier_start(char32_t c);
bool unicode_is_identifier_part(char32_t c);

// One character may become several.
std::string unicode_uppercase(char32_t c);
std::string unicode_titlecase(char32_t c);
std::string unicode_casefold(char32_t c);

}  // namespace megalith
