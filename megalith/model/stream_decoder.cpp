#include "megalith/model/stream_decoder.h"

#include "megalith/model/tokenizer.h"

namespace megalith {

std::string StreamDecoder::push(int id) { return tokenizer_->decode_push(state_, id, skip_special_); }

std::string StreamDecoder::finish() { return tokenizer_->decode_finish(state_); }

}  // namespace megalith
