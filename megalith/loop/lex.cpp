#include "megalith/loop/lex.h"

#include <algorithm>

#include "megalith/base/error.h"
#include "megalith/loop/function.h"

namespace megalith::loop {

namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

constexpr std::string_view kSymbols[] = {"<=", ">=", "==", "!=", "//", "->", "&&", "||", "<<", "+", "-", "*", "/", "<",
                                         ">",  "=",  "(",  ")",  "[",  "]",  "{",  "}",  ",",  ":", "%", "&", "|", "!"};
// A line that ends in one of these goes on.
constexpr std::string_view kContinues[] = {"<=", ">=", "==", "!=", "//", "+",   "-",  "*",
                                           "/",  "<",  ">",  "=",  ",",  "and", "or", "mod"};

// Something printable about one token or character for a message.
std::string shown(std::string_view text) {
  constexpr size_t kLongest = 40;
  std::string result;
  for (char c : text.substr(0, kLongest))
    result += (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f)
                  ? std::string(1, c)
                  : fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return text.size() > kLongest ? result + "..." : result;
}

size_t number_length(std::string_view text, bool& is_integer) {
  size_t n = 0;
  is_integer = true;
  while (n < text.size() && is_digit(text[n])) ++n;
  if (n < text.size() && text[n] == '.') {
    is_integer = false;
    for (++n; n < text.size() && is_digit(text[n]);) ++n;
  }
  if (n < text.size() && (text[n] == 'e' || text[n] == 'E')) {
    size_t exponent = n + 1;
    if (exponent < text.size() && (text[exponent] == '+' || text[exponent] == '-')) ++exponent;
    if (exponent < text.size() && is_digit(text[exponent])) {
      is_integer = false;
      for (n = exponent; n < text.size() && is_digit(text[n]);) ++n;
    }
  }
  return n;
}

}  // namespace

std::string message_prefix(const std::string& kernel) {
  return fmt::format("[{}]", kernel.empty() ? "kernel" : kernel);
}

std::vector<Token> lex(std::string_view text, const std::string& kernel) {
  MEGALITH_CHECK(text.size() <= kMaxTextBytes, "{} text of {} bytes, want at most {}", message_prefix(kernel),
                 text.size(), kMaxTextBytes);
  std::vector<Token> tokens;
  int line = 1, brackets = 0;
  size_t line_start = 0;
  bool space = false;
  auto push = [&](Token::Kind kind, size_t begin, size_t length) {
    tokens.push_back({kind, text.substr(begin, length), line, static_cast<int>(begin - line_start) + 1, space, false});
    space = false;
  };
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '#') {
      while (at < text.size() && text[at] != '\n') ++at;
    } else if (c == '\n') {
      const bool goes_on = brackets > 0 || (!tokens.empty() && tokens.back().kind != Token::Kind::number &&
                                            std::ranges::find(kContinues, tokens.back().text) != std::end(kContinues));
      if (!goes_on) push(Token::Kind::newline, at, 1);
      ++at, ++line;
      line_start = at;
      space = true;
    } else if (c == ' ' || c == '\t' || c == '\r') {
      ++at;
      space = true;
    } else if (is_letter(c)) {
      size_t n = 1;
      while (at + n < text.size() && (is_letter(text[at + n]) || is_digit(text[at + n]))) ++n;
      push(Token::Kind::name, at, n);
      at += n;
    } else if (is_digit(c) || (c == '.' && at + 1 < text.size() && is_digit(text[at + 1]))) {
      bool is_integer = false;
      const size_t n = number_length(text.substr(at), is_integer);
      push(Token::Kind::number, at, n);
      tokens.back().is_integer = is_integer;
      at += n;
    } else {
      const auto* symbol =
          std::ranges::find_if(kSymbols, [&](std::string_view s) { return text.substr(at).starts_with(s); });
      if (symbol == std::end(kSymbols))
        throw UserError(fmt::format("{} line {}, column {}: found \"{}\", wanted a name, a number or an operator",
                                    message_prefix(kernel), line, at - line_start + 1, shown(text.substr(at, 1))));
      if (c == '(' || c == '[' || c == '{') ++brackets;
      if (c == ')' || c == ']' || c == '}') brackets = std::max(0, brackets - 1);
      push(Token::Kind::symbol, at, symbol->size());
      at += symbol->size();
    }
  }
  push(Token::Kind::newline, text.size(), 0);
  push(Token::Kind::end, text.size(), 0);
  return tokens;
}

const Token& Cursor::peek(size_t ahead) const { return (*tokens_)[std::min(at_ + ahead, tokens_->size() - 1)]; }

const Token& Cursor::next() {
  const Token& token = peek();
  if (at_ + 1 < tokens_->size()) ++at_;
  return token;
}

bool Cursor::accept(std::string_view symbol) {
  if (!peek().is(symbol)) return false;
  next();
  return true;
}

void Cursor::expect(std::string_view symbol) {
  if (!accept(symbol)) fail(fmt::format("\"{}\"", symbol));
}

std::string Cursor::expect_name(std::string_view what) {
  const Token& token = peek();
  if (token.kind != Token::Kind::name) fail(what);
  if (is_reserved_name(token.text))
    fail_at(token, fmt::format("\"{}\" has a meaning of its own, wanted {}", token.text, what));
  return std::string(next().text);
}

void Cursor::fail(std::string_view wanted) const {
  const Token& token = peek();
  std::string found = fmt::format("\"{}\"", shown(token.text));
  if (token.kind == Token::Kind::newline) found = "the end of the line";
  if (token.kind == Token::Kind::end) found = "the end of the text";
  fail_at(token, fmt::format("found {}, wanted {}", found, wanted));
}

void Cursor::fail_at(const Token& token, std::string_view message) const {
  throw UserError(fmt::format("{} line {}, column {}: {}", message_prefix(kernel_), token.line, token.column, message));
}

}  // namespace megalith::loop
