#include "megalith/engine/text_stream.h"

#include <fmt/format.h>

#include <algorithm>

#include "megalith/model/tokenizer.h"

namespace megalith::engine {

TextStream::TextStream(const Tokenizer* tokenizer, TextOptions options)
    : tokenizer_(tokenizer), options_(std::move(options)), stops_(options_.stops) {
  if (tokenizer) decoder_.emplace(*tokenizer, false);
}

bool TextStream::is_hidden(int token) const {
  if (options_.show_special) return false;
  if (std::ranges::binary_search(options_.stop_tokens, token)) return true;
  return tokenizer_->is_special(token) && !std::ranges::binary_search(options_.shown_special, token);
}

std::string TextStream::push(int token) {
  if (is_over_) return "";
  ++num_tokens_;
  std::string shown;
  if (!tokenizer_)
    shown = stops_.push(fmt::format(" {}", token), false, may_stop());
  else if (is_hidden(token))
    shown = stops_.push(tokenizer_->token_bytes(token), true, may_stop());
  else
    shown = stops_.push(decoder_->push(token), false, may_stop());
  is_over_ = stops_.found();
  return shown;
}

std::string TextStream::finish() {
  if (is_over_) return "";
  std::string text = decoder_ ? stops_.push(decoder_->finish(), false, may_stop()) : "";
  if (!stops_.found()) text += stops_.finish();
  is_over_ = true;
  return text;
}

}  // namespace megalith::engine
