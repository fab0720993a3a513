// The "normalizer" of a tokenizer.json: NFC, NFD, NFKC, NFKD, or none. First in the pipeline, so that text that looks
// the same (a composed and a decomposed "é") becomes the same tokens.
#pragma once

#include <string>
#include <string_view>

namespace megalith {

class JsonValue;

class Normalizer {
 public:
  enum class Form { none, nfc, nfd, nfkc, nfkd };

  explicit Normalizer(Form form = Form::none) : form_(form) {}
  /// `value` is the "normalizer" member; kinds other than the above are refused by name.
  static Normalizer from_json(const JsonValue& value);

  /// `text` must be valid UTF-8. O(n log n), also for text made of nothing but combining marks.
  std::string apply(std::string_view text) const;
  bool is_identity() const { return form_ == Form::none; }

 private:
  Form form_;
};

}  // namespace megalith
