// The "post_processor" of a tokenizer.json: which tokens are put around a sequence, such as Llama 3's
// <|begin_of_text|>. Supported are ByteLevel (which only moves offsets, so does nothing here), TemplateProcessing, and
// sequences of them.
#pragma once

#include <vector>

namespace megalith {

class JsonValue;

struct PostProcessor {
  std::vector<int> before;  // ids in front of the sequence
  std::vector<int> after;   // ids behind it

  /// `value` is the "post_processor" member; other kinds are refused by name.
  static PostProcessor from_json(const JsonValue& value);
};

}  // namespace megalith
