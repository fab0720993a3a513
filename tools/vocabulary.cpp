#include "tools/vocabulary.h"

#include <fmt/format.h>

#include <charconv>

#include "megalith/base/error.h"
#include "megalith/base/file.h"

namespace megalith::tools {

Vocabulary::Vocabulary(const ModelOptions& model) : folder_(model.folder()) {
  if (!model.dummy() || file_exists(folder_ + "/tokenizer.json")) tokenizer_ = Tokenizer::open(folder_);
}

std::vector<int> Vocabulary::encode(const std::string& text) const {
  return tokenizer_ ? tokenizer_->encode(text) : ids_of(text);
}

std::vector<int> Vocabulary::encode(const std::vector<TextSegment>& segments, bool add_special) const {
  if (tokenizer_) return tokenizer_->encode(segments, add_special);
  std::string text;
  for (const TextSegment& segment : segments) text += segment.text;
  return ids_of(text);
}

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
                   folder_, text);
    ids.push_back(id);
    at = rest;
  }
  return ids;
}

Vocabulary::Stream::Stream(const Vocabulary& vocabulary) {
  if (vocabulary.tokenizer_) decoder_.emplace(*vocabulary.tokenizer_);
}

std::string Vocabulary::Stream::push(int token) { return decoder_ ? decoder_->push(token) : fmt::format(" {}", token); }

std::string Vocabulary::Stream::finish() { return decoder_ ? decoder_->finish() : ""; }

}  // namespace megalith::tools
