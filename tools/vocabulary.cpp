#include "tools/vocabulary.h"

#include <fmt/format.h>

#include <charconv>

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/base/printable.h"

namespace megalith::tools {

namespace {

// Of a prompt that is not what it should be.
constexpr size_t kShownBytes = 80;

}  // namespace

Vocabulary::Vocabulary(const ModelOptions& model) : folder_(model.folder()) {
  if (!model.dummy() || file_exists(folder_ + "/tokenizer.json")) tokenizer_ = Tokenizer::open(folder_);
}

std::vector<int> Vocabulary::encode(const std::string& text) const {
  return tokenizer_ ? tokenizer_->encode(text) : ids_of(text);
}

std::vector<int> Vocabulary::encode(const std::vector<TextSegment>& segments, bool add_special,
                                    const std::vector<int>& markers) const {
  if (tokenizer_) return tokenizer_->encode(segments, add_special, markers);
  std::string text;
  for (const TextSegment& segment : segments) text += segment.text;
  return ids_of(text);
}

std::optional<int> Vocabulary::end_token() const { return tokenizer_ ? tokenizer_->end_token() : std::nullopt; }

std::vector<int> Vocabulary::ids_of(const std::string& text) const {
  std::vector<int> ids;
  for (const char *at = text.data(), *end = at + text.size(); at != end;) {
    if (*at == ' ' || *at == ',' || *at == '\n') {
      ++at;
      continue;
    }
    int id = 0;
    auto [rest, code] = std::from_chars(at, end, id);
    MEGALITH_CHECK(code == std::errc(),
                   "{} has no tokenizer.json, so a prompt is a list of token ids such as \"1 2 3\", not \"{}\"",
                   folder_, shortened(text, kShownBytes));
    ids.push_back(id);
    at = rest;
  }
  return ids;
}

}  // namespace megalith::tools
