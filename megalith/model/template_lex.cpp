#include "megalith/model/template_lex.h"

#include <algorithm>

#include "megalith/model/template_text.h"
#include "megalith/model/unicode_property.h"
#include "megalith/model/utf8.h"

namespace megalith {

using Token = TemplateTokenKind;

namespace {

// The longest published template has some 20 KB.
constexpr size_t kMaxBytes = 1 << 20;
// Each scope of a rendering has names of its own.
constexpr size_t kMaxNameBytes = 1000;

bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }
bool is_binary(char c) { return c == '0' || c == '1'; }
bool is_octal(char c) { return c >= '0' && c <= '7'; }
bool is_hex(char c) { return isxdigit(static_cast<unsigned char>(c)); }
bool is_zero(char c) { return c == '0'; }

// Digits with single underscores between them: their length, 0 if there are none. `leading`: one may stand in front.
size_t digits_at(std::string_view text, size_t begin, bool (*is)(char), bool leading = false) {
  size_t at = begin;
  for (;;) {
    const bool underscore = (at > begin || leading) && at < text.size() && text[at] == '_';
    if (at + underscore >= text.size() || !is(text[at + underscore])) return at - begin;
    at += underscore + 1;
  }
}

size_t last_line(std::string_view text) {
  const size_t newline = text.rfind('\n');
  return newline == text.npos ? 0 : newline + 1;
}
bool is_blank(std::string_view text) {
  const TextRange bare = template_strip(text, std::nullopt, true, true);
  return bare.begin == bare.end;
}
std::string_view without_end_space(std::string_view text) {
  return text.substr(0, template_strip(text, std::nullopt, false, true).end);
}

class Lexer {
 public:
  Lexer(std::string source, const std::string& name) : source_(std::move(source)), rest_(source_), name_(name) {}

  std::vector<TemplateToken> run() {
    while (!rest_.empty()) text();
    push(Token::end, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& message) const { template_fail(name_, line_, message); }
  void push(Token kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  void take(size_t bytes) {
    line_ += static_cast<int>(std::count(rest_.begin(), rest_.begin() + static_cast<std::ptrdiff_t>(bytes), '\n'));
    rest_.remove_prefix(bytes);
  }
  void take_space() {
    while (!rest_.empty()) {
      const auto length = static_cast<size_t>(utf8_next(rest_));
      if (!is_blank(rest_.substr(0, length))) return;
      take(length);
    }
  }

  // What follows the end of a block or comment: its newline goes, or with "-" all white space. `sign` is in front of
  // it.
  void after_tag(char sign) {
    if (sign == '-') take_space();
    if (sign != '-' && sign != '+' && rest_.starts_with('\n')) take(1);
    at_line_start_ = line_start_before_rest();
  }
  bool line_start_before_rest() const { return rest_.data() == source_.data() || *(rest_.data() - 1) == '\n'; }

  // Text up to the next tag, and the tag's beginning.
  void text() {
    size_t tag = rest_.find('{');
    while (tag != rest_.npos && !(tag + 1 < rest_.size() && std::string_view("{%#").find(rest_[tag + 1]) != rest_.npos))
      tag = rest_.find('{', tag + 1);
    if (tag == rest_.npos) {
      push(Token::text, std::string(rest_));
      return take(rest_.size());
    }
    const char kind = rest_[tag + 1];
    const char sign = tag + 2 < rest_.size() ? rest_[tag + 2] : '\0';
    emit_text(rest_.substr(0, tag), sign, kind != '{');
    take(tag + 2);
    if (sign == '-' || sign == '+') take(1);
    if (kind == '#') return comment();
    if (kind == '{') {
      push(Token::output_begin, "{{");
      return expression("}}", Token::output_end);
    }
    if (raw()) return;
    push(Token::block_begin, "{%");
    expression("%}", Token::block_end);
  }

  void emit_text(std::string_view text, char sign, bool is_block) {
    std::string_view kept = text;
    if (sign == '-') {
      kept = without_end_space(text);
    } else if (sign != '+' && is_block) {
      const size_t line = last_line(text);
      if ((line > 0 || at_line_start_) && is_blank(text.substr(line))) kept = text.substr(0, line);
    }
    if (!kept.empty()) push(Token::text, std::string(kept));
  }

  void comment() {
    const size_t end = rest_.find("#}");
    if (end == rest_.npos) fail("a comment begins that has no #}");
    const char sign = end > 0 ? rest_[end - 1] : '\0';
    take(end + 2);
    after_tag(sign);
  }

  // {% raw %} ... {% endraw %}; the first is taken up to behind its "{%".
  bool raw() {
    size_t at = 0;
    auto skip = [&] {
      while (at < rest_.size() && isspace(static_cast<unsigned char>(rest_[at]))) ++at;
    };
    skip();
    if (!rest_.substr(at).starts_with("raw")) return false;
    at += 3;
    skip();
    const bool minus = rest_.substr(at).starts_with("-%}");
    if (!minus && !rest_.substr(at).starts_with("%}")) return false;
    take(at + (minus ? 3 : 2));
    if (minus) take_space();
    at_line_start_ = line_start_before_rest();
    for (size_t tag = rest_.find("{%"); tag != rest_.npos; tag = rest_.find("{%", tag + 2)) {
      at = tag + 2;
      const char sign = at < rest_.size() ? rest_[at] : '\0';
      if (sign == '-' || sign == '+') ++at;
      skip();
      if (!rest_.substr(at).starts_with("endraw")) continue;
      at += 6;
      skip();
      const char end_sign = at < rest_.size() && (rest_[at] == '-' || rest_[at] == '+') ? rest_[at] : '\0';
      if (end_sign) ++at;
      if (!rest_.substr(at).starts_with("%}")) continue;
      emit_text(rest_.substr(0, tag), sign, true);
      take(at + 2);
      after_tag(end_sign);
      return true;
    }
    fail("raw text begins that has no {% endraw %}");
  }

  // The tokens of a tag, up to its end.
  void expression(std::string_view end, Token end_kind) {
    std::string open;  // brackets
    for (;;) {
      take_space();
      if (rest_.empty()) fail(fmt::format("a tag begins that has no {}", end));
      if (open.empty()) {
        const char sign = rest_.front();
        const bool signed_end =
            (sign == '-' || (sign == '+' && end_kind == Token::block_end)) && rest_.substr(1).starts_with(end);
        if (signed_end || rest_.starts_with(end)) {
          push(end_kind, std::string(end));
          take(signed_end ? 3 : 2);
          if (end_kind == Token::block_end) {
            after_tag(signed_end ? sign : '\0');
          } else {
            if (signed_end) take_space();
            at_line_start_ = line_start_before_rest();
          }
          return;
        }
      }
      token(open);
    }
  }

  void token(std::string& open) {
    const char c = rest_.front();
    if (const size_t bytes = name()) {
      if (bytes > kMaxNameBytes) fail(fmt::format("a name has {} bytes, want at most {}", bytes, kMaxNameBytes));
      return push_and_take(Token::name, bytes);
    }
    if (is_ascii_digit(c)) return number();
    if (c == '"' || c == '\'') return string(c);
    for (std::string_view symbol : {"**", "//", "==", "!=", ">=", "<="})
      if (rest_.starts_with(symbol)) return push_and_take(Token::symbol, 2);
    if (std::string_view("+-*/%~[](){}<>=.:|,;").find(c) == std::string_view::npos)
      fail(fmt::format("found {}, which no expression has",
                       template_quote({std::string(rest_.substr(0, utf8_next(rest_)))}).text));
    if (c == '(') open += ')';
    if (c == '[') open += ']';
    if (c == '{') open += '}';
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty()) fail(fmt::format("found \"{}\", which closes nothing", c));
      if (open.back() != c) fail(fmt::format("found \"{}\", want \"{}\"", c, open.back()));
      open.pop_back();
    }
    push_and_take(Token::symbol, 1);
  }

  void push_and_take(Token kind, size_t bytes) {
    push(kind, std::string(rest_.substr(0, bytes)));
    take(bytes);
  }

  // The bytes of the name that begins here; 0: none does.
  size_t name() const {
    size_t at = 0;
    while (at < rest_.size()) {
      const std::string_view more = rest_.substr(at);
      const char32_t c = utf8_code_point(more);
      if (!(at == 0 ? unicode_is_identifier_start(c) : unicode_is_identifier_part(c))) break;
      at += static_cast<size_t>(utf8_next(more));
    }
    return at;
  }

  // 0x1f, 0b1, 0o7, 1_000, 1.5, 1e10. Behind a point there are no fractions: "list.0.1" has two places.
  void number() {
    const bool is_place = rest_.data() != source_.data() && *(rest_.data() - 1) == '.';
    size_t at = digits_at(rest_, 0, is_ascii_digit);
    bool is_float = false;
    if (at < rest_.size() && rest_[at] == '.') {
      if (const size_t fraction = digits_at(rest_, at + 1, is_ascii_digit)) {
        is_float = true;
        at += 1 + fraction;
      }
    }
    if (at < rest_.size() && (rest_[at] == 'e' || rest_[at] == 'E')) {
      const bool sign = at + 1 < rest_.size() && (rest_[at + 1] == '+' || rest_[at + 1] == '-');
      if (const size_t exponent = digits_at(rest_, at + 1 + sign, is_ascii_digit)) {
        is_float = true;
        at += 1 + sign + exponent;
      }
    }
    if (is_float && !is_place) return push_and_take(Token::number, at);
    const char base = rest_.size() > 1 && rest_[0] == '0' ? static_cast<char>(rest_[1] | 0x20) : '\0';
    const size_t coded = base == 'x'   ? digits_at(rest_, 2, is_hex, true)
                         : base == 'o' ? digits_at(rest_, 2, is_octal, true)
                         : base == 'b' ? digits_at(rest_, 2, is_binary, true)
                                       : 0;
    push_and_take(Token::integer, coded ? 2 + coded : digits_at(rest_, 0, rest_[0] == '0' ? is_zero : is_ascii_digit));
  }

  void string(char quote) {
    std::string text;
    size_t at = 1;
    auto hex = [&](size_t count) {
      uint32_t value = 0;
      for (size_t i = 0; i < count; ++i, ++at) {
        if (at >= rest_.size() || !is_hex(rest_[at]))
          fail(fmt::format("a string has an escape with fewer than {} hexadecimal digits", count));
        value = value * 16 +
                static_cast<uint32_t>(is_ascii_digit(rest_[at]) ? rest_[at] - '0' : (rest_[at] | 0x20) - 'a' + 10);
      }
      if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) fail("a string has an escape that is no character");
      utf8_append(text, value);
    };
    for (;;) {
      if (at >= rest_.size()) fail(fmt::format("a string begins that has no closing {}", quote));
      const char c = rest_[at++];
      if (c == quote) break;
      if (c != '\\' || at >= rest_.size()) {
        text += c;
        continue;
      }
      const char escaped = rest_[at++];
      switch (escaped) {
        case 'n': text += '\n'; break;
        case 't': text += '\t'; break;
        case 'r': text += '\r'; break;
        case 'a': text += '\a'; break;
        case 'b': text += '\b'; break;
        case 'f': text += '\f'; break;
        case 'v': text += '\v'; break;
        case '\n': break;
        case '\\':
        case '\'':
        case '"': text += escaped; break;
        case 'x': hex(2); break;
        case 'u': hex(4); break;
        case 'U': hex(8); break;
        case 'N': fail("a string names a character with \\N, which is not supported");
        default: {
          if (!is_octal(escaped)) {
            text += '\\';
            text += escaped;
            if (static_cast<signed char>(escaped) < 0) {  // Python's way leaves the escape that it makes of it
              const size_t length = static_cast<size_t>(utf8_next(rest_.substr(at - 1)));
              text.pop_back();
              text += template_ascii({rest_.substr(at - 1, length)}).text.substr(1);
              at += length - 1;
            }
            break;
          }
          uint32_t value = static_cast<uint32_t>(escaped - '0');
          for (int i = 0; i < 2 && at < rest_.size() && is_octal(rest_[at]); ++i)
            value = value * 8 + static_cast<uint32_t>(rest_[at++] - '0');
          utf8_append(text, value);
        }
      }
    }
    push(Token::string, std::move(text));
    take(at);
  }

  std::string source_;
  std::string_view rest_;
  const std::string& name_;
  int line_ = 1;
  bool at_line_start_ = true;
  std::vector<TemplateToken> tokens_;
};

}  // namespace

void template_fail(const std::string& template_name, int line, const std::string& message) {
  throw TemplateError(fmt::format("{}, line {}: {}", template_name, line, message));
}

std::vector<TemplateToken> template_lex(std::string_view source, const std::string& template_name) {
  MEGALITH_CHECK(source.size() <= kMaxBytes, "{} has {} bytes, want at most {}", template_name, source.size(),
                 kMaxBytes);
  // Newlines of every system are \n, and the one at the end of the file is not the template's.
  std::string text;
  for (const char c : utf8_repair(source)) {
    if (c == '\n' && text.ends_with('\r')) text.pop_back();
    if (text.ends_with('\r')) text.back() = '\n';
    text += c;
  }
  if (text.ends_with('\r')) text.back() = '\n';
  if (text.ends_with('\n')) text.pop_back();
  return Lexer(std::move(text), template_name).run();
}

}  // namespace megalith
