// Tokens of kernel text, and a cursor over them that knows how to complain: line, column, what was found, what was
// wanted. Internal to loop/; domains and expressions are both read through it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace megalith::loop {

// What a text may ask of us; a kernel a person writes stays far below.
inline constexpr size_t kMaxTextBytes = 1 << 20;
inline constexpr int kMaxNesting = 200;

struct Token {
  enum class Kind { name, number, symbol, newline, end };
  Kind kind = Kind::end;
  std::string_view text;  // into the text that was read
  int line = 1, column = 1;
  bool space_before = false;
  bool is_integer = false;  // of a number

  bool is(std::string_view symbol) const { return (kind == Kind::symbol || kind == Kind::name) && text == symbol; }
};

/// Splits `text` into tokens, the last of kind `end`. A newline counts only outside brackets and not after an operator;
/// `#` to the end of the line is a comment.
std::vector<Token> lex(std::string_view text, const std::string& kernel);

class Cursor {
 public:
  /// `tokens` must end with a token of kind `end`. `kernel` is the name that messages begin with.
  Cursor(const std::vector<Token>& tokens, std::string kernel, size_t at = 0)
      : tokens_(&tokens), at_(at), kernel_(std::move(kernel)) {}

  const Token& peek(size_t ahead = 0) const;
  const Token& next();
  bool accept(std::string_view symbol);
  void expect(std::string_view symbol);
  /// The next token as a name that is not reserved; `what` says what it would name.
  std::string expect_name(std::string_view what);
  /// Throws UserError: at the next token, `wanted` was expected.
  [[noreturn]] void fail(std::string_view wanted) const;
  /// Throws UserError with `message` at the position of `token`.
  [[noreturn]] void fail_at(const Token& token, std::string_view message) const;

  size_t position() const { return at_; }
  void seek(size_t position) { at_ = position; }
  const std::string& kernel() const { return kernel_; }

 private:
  const std::vector<Token>* tokens_;
  size_t at_;
  std::string kernel_;
};

/// "[name]", or "[kernel]" for a kernel without a name: how every message begins.
std::string message_prefix(const std::string& kernel);

}  // namespace megalith::loop
