// The text of a request as it is made: tokens in, what may be shown out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megalith/engine/stop_strings.h"
#include "megalith/model/stream_decoder.h"

namespace megalith::engine {

struct TextOptions {
  std::vector<std::string> stops = {};  // texts that end it
  std::vector<int> stop_tokens = {};    // tokens that end it, and are no part of it; sorted
  bool show_special = false;            // special and stop tokens, as the tokenizer's files write them
  std::vector<int> shown_special = {};  // special tokens that are shown in any case; sorted
  int64_t min_tokens = 0;               // no text ends it before it has more tokens than these
};

class TextStream {
 public:
  /// Without a tokenizer, texts are ids: " 12 7 3". A tokenizer must outlive the stream.
  TextStream(const Tokenizer* tokenizer, TextOptions options);

  std::string push(int token);
  /// What is left, once; also where the request was cut short.
  std::string finish();
  /// The request has ended, or its text has by a stop string.
  bool is_over() const { return is_over_; }
  /// Its text has, by a stop string.
  bool is_stopped() const { return stops_.found(); }
  /// That one; "": none has.
  const std::string& stop() const { return stops_.found_stop(); }

 private:
  bool is_hidden(int token) const;
  bool may_stop() const { return num_tokens_ > options_.min_tokens; }

  const Tokenizer* tokenizer_;
  std::optional<StreamDecoder> decoder_;
  TextOptions options_;
  StopStrings stops_;
  int64_t num_tokens_ = 0;
  bool is_over_ = false;
};

}  // namespace megalith::engine
