// Python's string functions on marked text: what chat templates call on content. Places and lengths are in characters,
// as Python counts them; every result keeps the marks of what it was made of.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megalith/base/json_quote.h"
#include "megalith/model/marked_text.h"

namespace megalith {

int64_t template_length(std::string_view text);
/// text[begin:end], both within the text.
MarkedText template_slice(const MarkedText& text, int64_t begin, int64_t end);
/// The characters, one by one.
std::vector<MarkedText> template_characters(const MarkedText& text);

/// str.strip: takes characters of `chars`, or white space, from the sides.
MarkedText template_strip(const MarkedText& text, std::optional<std::string_view> chars, bool left, bool right);
/// str.split and str.rsplit; without a separator at white space. `most` splits, below 0: any number.
std::vector<MarkedText> template_split(const MarkedText& text, std::optional<std::string_view> separator, int64_t most,
                                       bool from_right);
std::vector<MarkedText> template_splitlines(const MarkedText& text, bool keep_ends);
/// The first `most` of `from` (all below 0) become `to`.
MarkedText template_replace(const MarkedText& text, std::string_view from, const MarkedText& to, int64_t most);

enum class TemplateCase { upper, lower, capitalize, title };
/// `title` as str.title has it: each letter after one that is none.
MarkedText template_case(const MarkedText& text, TemplateCase how);

/// Python's repr of a string.
MarkedText template_quote(const MarkedText& text);
/// As json.dumps quotes, without ensure_ascii.
MarkedText template_json_quote(const MarkedText& text);
/// Python's repr of a float: "1.0", "1e+16", "nan".
std::string template_number(double value);

}  // namespace megalith
