// The "pre_tokenizer" of a tokenizer.json: cuts text into words, the pieces within which BPE merges. A list of steps,
// each cutting what the one before it left: Split (a regular expression or a string), Digits, Metaspace, ByteLevel.
//
// ByteLevel makes a byte-level tokenizer, and must be the last step; its translation into GPT-2's alphabet is left out
// (see byte_level.h), so that words come out as plain bytes. Without it, words are text, as SentencePiece has them; so
// a file without any pre-tokenizer is of that kind, and each stretch of text is one word.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "megalith/model/regex.h"

namespace megalith {

class EncodeBudget;
class JsonValue;

class PreTokenizer {
 public:
  /// One that leaves text whole.
  PreTokenizer() = default;
  /// `value` is the "pre_tokenizer" member; kinds of step that are not supported are refused by name.
  static PreTokenizer from_json(const JsonValue& value);

  /// Calls visit(word) for each word of valid UTF-8 `text`, in order. A word may lie outside of `text`
  /// (add_prefix_space) and is good only during the call. `at_start`: nothing stands before `text`.
  void each_word(std::string_view text, bool at_start, EncodeBudget& budget,
                 const std::function<void(std::string_view)>& visit) const;

  /// Whether words are bytes, not text.
  bool is_byte_level() const { return is_byte_level_; }

 private:
  // What becomes of the text that the pattern matches, and so where the cuts fall.
  enum class Behavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };
  // Where a Metaspace step puts its character in front.
  enum class Prepend { always, first, never };
  struct Step {
    bool add_prefix_space = false;
    std::string metaspace;  // what a Metaspace step writes for a space; "" for other steps
    Prepend prepend = Prepend::never;
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
  void run(size_t step, std::string_view text, bool at_start, EncodeBudget& budget,
           const std::function<void(std::string_view)>& visit) const;
  static Step read_metaspace(const JsonValue& value);
  static std::vector<Piece> split(const Step& step, std::string_view text, EncodeBudget& budget);
  static Behavior read_behavior(const JsonValue& value);

  std::vector<Step> steps_;
  bool is_byte_level_ = false;
};

}  // namespace megalith
