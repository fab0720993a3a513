#include "megalith/model/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "megalith/base/error.h"
#include "megalith/model/json.h"
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

Normalizer Normalizer::from_json(const JsonValue& value) {
  const JsonValue type = value.at("type");
  const std::string& name = type.string();
  if (name == "NFC") return Normalizer(Form::nfc);
  if (name == "NFD") return Normalizer(Form::nfd);
  if (name == "NFKC") return Normalizer(Form::nfkc);
  if (name == "NFKD") return Normalizer(Form::nfkd);
  if (name == "Sequence") {
    const std::vector<JsonValue> parts = value.at("normalizers").elements();
    if (parts.empty()) return Normalizer();
    if (parts.size() == 1) return from_json(parts[0]);
    value.fail(fmt::format("is a sequence of {} normalizers, supported is one", parts.size()));
  }
  type.fail(fmt::format("is {}, supported are NFC, NFD, NFKC, NFKD", type.excerpt()));
}

std::string Normalizer::apply(std::string_view text) const {
  const bool is_ascii = std::all_of(text.begin(), text.end(), [](char c) { return static_cast<signed char>(c) >= 0; });
  if (form_ == Form::none || is_ascii) return std::string(text);

  const bool compose = form_ == Form::nfc || form_ == Form::nfkc;
  const bool compatible = form_ == Form::nfkc || form_ == Form::nfkd;
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

}  // namespace megalith
