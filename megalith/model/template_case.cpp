// Python's changes of case: str.upper, str.title and the like, where one character may become several and a sigma at
// the end of a word has a form of its own.
#include "megalith/model/template_text.h"
#include "megalith/model/unicode_form.h"
#include "megalith/model/unicode_property.h"
#include "megalith/model/utf8.h"

namespace megalith {

namespace {

// Whether the capital sigma in [begin, end) ends a word: something with case stands before it and nothing such after,
// not counting what may stand within words.
bool is_final_sigma(std::string_view text, size_t begin, size_t end) {
  bool before = false;
  for (size_t at = begin; at > 0;) {
    at = utf8_last(text.substr(0, at));
    const char32_t c = utf8_code_point(text.substr(at));
    if (unicode_is_case_ignorable(c)) continue;
    before = unicode_is_cased(c);
    break;
  }
  if (!before) return false;
  for (size_t at = end; at < text.size(); at += static_cast<size_t>(utf8_next(text.substr(at)))) {
    const char32_t c = utf8_code_point(text.substr(at));
    if (!unicode_is_case_ignorable(c)) return !unicode_is_cased(c);
  }
  return true;
}

bool is_ascii(std::string_view text) {
  unsigned char all = 0;
  for (const char c : text) all |= static_cast<unsigned char>(c);
  return all < 0x80;
}

// The same for ASCII alone, where every letter stays in its place.
MarkedText ascii_case(const MarkedView& text, TemplateCase how) {
  MarkedText result{std::string(text.text), std::string(text.marks)};
  bool within = false;
  for (char& c : result.text) {
    const bool is_upper = c >= 'A' && c <= 'Z', is_lower = c >= 'a' && c <= 'z';
    const bool up = how == TemplateCase::upper || (how == TemplateCase::swapcase && is_lower) ||
                    ((how == TemplateCase::capitalize || how == TemplateCase::title) && !within);
    if (up ? is_lower : is_upper) c = static_cast<char>(c ^ 0x20);
    within = how == TemplateCase::capitalize || is_upper || is_lower;
  }
  return result;
}

}  // namespace

MarkedText template_case(const MarkedView& text, TemplateCase how) {
  if (is_ascii(text.text)) return ascii_case(text, how);
  TemplateTextBuilder result;
  bool within = false;  // a word, or anywhere but at the start
  template_each_character(text.text, [&](size_t begin, size_t end, char32_t c) {
    auto lower = [&] {
      constexpr char32_t kSigma = 0x3A3;
      return c == kSigma && is_final_sigma(text.text, begin, end) ? "\xCF\x82" : unicode_lowercase(c);
    };
    std::string changed;
    switch (how) {
      case TemplateCase::upper: changed = unicode_uppercase(c); break;
      case TemplateCase::lower: changed = lower(); break;
      case TemplateCase::casefold: changed = unicode_casefold(c); break;
      case TemplateCase::capitalize:
      case TemplateCase::title: changed = within ? lower() : unicode_titlecase(c); break;
      case TemplateCase::swapcase:
        changed = unicode_is_upper(c)   ? lower()
                  : unicode_is_lower(c) ? unicode_uppercase(c)
                                        : std::string(text.text.substr(begin, end - begin));
        break;
    }
    result.append_for(text.is_marked(begin, end), changed);
    within = how == TemplateCase::capitalize || unicode_is_cased(c);
  });
  return result.take();
}

}  // namespace megalith
