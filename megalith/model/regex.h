// Regular expressions of tokenizer.json files, matched by PCRE2 (compiled to machine code where it can be).
//
// Those files are written for Oniguruma with Ruby's syntax. The two agree on everything that published tokenizers use
// once white space and word characters are spelled out, `^` and `$` mean lines; the constructs that mean something else
// in Ruby are refused by name, because a wrong split is silent and gives other tokens.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace megalith {

class EncodeBudget;
class JsonValue;

class Regex {
 public:
  /// UserError showing pattern and place if it is malformed or not supported.
  explicit Regex(const std::string& pattern);
  /// The same from a string in a file, which a complaint then names.
  static Regex from_json(const JsonValue& value);
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  /// Calls visit(begin, end) for each match in valid UTF-8 `text`, left to right, not overlapping; a match may be
  /// empty. UserError if a match takes more steps than any sensible pattern needs, or all of them more than is left of
  /// the budget. Safe to call from several threads.
  void each_match(std::string_view text, EncodeBudget& budget,
                  const std::function<void(size_t begin, size_t end)>& visit) const;

  /// `text` with everything that has a meaning in patterns escaped.
  static std::string quote(std::string_view text);

 private:
  struct Impl;
  bool find(std::string_view text, size_t from, EncodeBudget& budget) const;
  bool find_watched(std::string_view text, size_t first, EncodeBudget& budget) const;

  std::unique_ptr<const Impl> impl_;
};

}  // namespace megalith
