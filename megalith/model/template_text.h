// Python's string functions on marked text: what chat templates call on content. Places and lengths are in characters,
// as Python counts them; every result keeps the marks of what it was made of. No function takes more than linear time,
// or makes a text longer than any may be.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "megalith/model/marked_text.h"

namespace megalith {

/// UserError if that is too long for one text, the rendered prompt included.
void template_check_text(size_t bytes);

/// A text that grows up to the most that a text may have.
class TemplateTextBuilder {
 public:
  void append(const MarkedView& part);
  void append(std::string_view part) { append(MarkedView{part}); }
  void append(const char* part) { append(MarkedView{part}); }
  /// `count` times.
  void append(const MarkedView& part, int64_t count);
  /// Text that stands for what a user wrote, or for what not.
  void append_for(bool is_marked, std::string_view part);
  size_t size() const { return text_.text.size(); }
  MarkedText take() { return std::move(text_); }

 private:
  MarkedText text_;
};

/// Part of a text, in bytes.
struct TextRange {
  size_t begin, end;
};

int64_t template_length(std::string_view text);
/// Where the character `count` begins; the end if there are fewer.
size_t template_place(std::string_view text, int64_t count);
/// text[begin:end], both within the text.
MarkedText template_slice(const MarkedView& text, int64_t begin, int64_t end);
MarkedText template_part(const MarkedView& text, size_t begin, size_t end);

/// Where `what` first (last) begins; npos if nowhere.
size_t template_find(std::string_view text, std::string_view what, size_t from = 0);
size_t template_rfind(std::string_view text, std::string_view what);
/// How often, without overlaps.
int64_t template_count(std::string_view text, std::string_view what);

/// str.strip: takes characters of `chars`, or white space, from the sides.
TextRange template_strip(std::string_view text, std::optional<std::string_view> chars, bool left, bool right);
/// str.split and str.rsplit; without a separator at white space. `most` splits, below 0: any number.
std::vector<TextRange> template_split(std::string_view text, std::optional<std::string_view> separator, int64_t most,
                                      bool from_right);
std::vector<TextRange> template_splitlines(std::string_view text, bool keep_ends);
/// The first `most` of `from` (all below 0) become `to`; `replaced` is how many did.
MarkedText template_replace(const MarkedView& text, std::string_view from, const MarkedView& to, int64_t most,
                            size_t* replaced);

enum class TemplateCase { upper, lower, capitalize, title, casefold, swapcase };
MarkedText template_case(const MarkedView& text, TemplateCase how);

/// Python's repr of a string.
MarkedText template_quote(const MarkedView& text);
/// As Python's ascii() has it, of a repr: escapes for everything beyond ASCII.
MarkedText template_ascii(const MarkedView& repr);
/// As json.dumps quotes.
MarkedText template_json_quote(const MarkedView& text, bool ascii);

/// Goes through the characters of valid text: visit(begin, end, code point).
template <class Visit>
void template_each_character(std::string_view text, Visit visit);

}  // namespace megalith

#include "megalith/model/utf8.h"

template <class Visit>
void megalith::template_each_character(std::string_view text, Visit visit) {
  for (size_t begin = 0; begin < text.size();) {
    const std::string_view rest = text.substr(begin);
    const size_t end = begin + static_cast<size_t>(utf8_next(rest));
    visit(begin, end, utf8_code_point(rest));
    begin = end;
  }
}
