#include "megalith/model/stream_decoder.h"

#include "megalith/model/tokenizer.h"

namespace megalith {

std::string StreamDecoder::push(int id) {
  if (skip_special_ && tokenizer_->is_special(id)) return "";
  return stream_.push(tokenizer_->token_bytes(id));
}

std::string StreamDecoder::finish() { return stream_.finish(); }

}  // namespace megalith
