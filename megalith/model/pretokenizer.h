// The "pre_tokenizer" of a tokenizer.json: cuts text into words, the pieces within which BPE merges. A list of steps,
// each cutting what the one before it left: Split (a regular expression or a string), Digits, ByteLevel.
//
// ByteLevel must be the last step; its translation into GPT-2's alphabet is left out (see byte_level.h), so that words
// come out as plain bytes.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "megalith/model/regex.h"

namespace megalith {

class JsonValue;

class PreTokenizer {
 public:
  /// `value` is the "pre_tokenizer" member; kinds of step that are not supported are refused by name.
  static PreTokenizer from_json(const JsonValue& value);

  /// Calls visit(word) for each word of valid UTF-8 `text`, in order. A word may lie outside of `text`
  /// (add_prefix_space) and is good only during the call.
  void each_word(std::string_view text, const std::function<void(std::string_view)>& visit) const;

 private:
  // What becomes of the text that the pattern matches, and so where the cuts fall.
  enum class Behavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };
  struct Step {
    bool add_prefix_space = false;
    std::vector<Regex> pattern;  // none: do not split; else one
    Behavior behavior = Behavior::isolated;
    bool invert = false;  // swap what matched and what lies between
  };
  struct Piece {
    size_t begin;
    size_t end;
    bool is_match;
  };

  void add_step(const JsonValue& value);
  void run(size_t step, std::string_view text, const std::function<void(std::string_view)>& visit) const;
  static std::vector<Piece> split(const Step& step, std::string_view text);
  static Behavior read_behavior(const JsonValue& value);

  std::vector<Step> steps_;
  bool is_byte_level_ = false;
};

}  // namespace megalith
