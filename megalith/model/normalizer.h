// The "normalizer" of a tokenizer.json: what is done to text before anything is looked for in it. NFC, NFD, NFKC, NFKD
// (a composed and a decomposed "é" become the same tokens), Lowercase, Replace, Prepend, Strip, and sequences of them;
// SentencePiece-style files write spaces as "▁" this way.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megalith/model/marked_text.h"
#include "megalith/model/regex.h"
#include "megalith/model/unicode_form.h"

namespace megalith {

class EncodeBudget;
class JsonValue;

class Normalizer {
 public:
  /// One that changes nothing.
  Normalizer() = default;
  /// `value` is the "normalizer" member; kinds other than the above are refused by name.
  static Normalizer from_json(const JsonValue& value);

  /// `text` must be valid UTF-8, and the result is; with the marks of what it was made of.
  MarkedText apply(const MarkedView& text, EncodeBudget& budget) const;

 private:
  enum class Kind { form, lowercase, replace, prepend, strip };
  struct Step {
    Kind kind;
    UnicodeForm form = UnicodeForm::nfc;
    std::string text = {};              // what to replace, where it is no pattern; or what to prepend
    std::optional<Regex> pattern = {};  // what to replace
    std::string content = {};           // what to replace it with
    bool strip_left = false, strip_right = false;
  };

  void add_steps(const JsonValue& value);
  static MarkedText run(const Step& step, const MarkedView& text, EncodeBudget& budget);

  std::vector<Step> steps_;
};

}  // namespace megalith
