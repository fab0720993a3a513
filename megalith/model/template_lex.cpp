#include "megalith/model/template_lex.h"

#include <algorithm>

#include "megalith/model/template_text.h"
#include "megalith/model/utf8.h"

namespace megalith {

using Kind = TemplateTokenKind;

namespace {

// The longest published template has some 20 KB.
constexpr size_t kMostBytes = 1 << 20;

bool is_name_start(char c) { return isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_part(char c) { return is_name_start(c) || is_digit(c); }

size_t last_line(std::string_view text) {
  const size_t newline = text.rfind('\n');
  return newline == text.npos ? 0 : newline + 1;
}
bool is_blank(std::string_view text) {
  return template_strip({std::string(text)}, std::nullopt, true, true).text.empty();
}
std::string without_end_space(std::string_view text) {
  return template_strip({std::string(text)}, std::nullopt, false, true).text;
}

class Lexer {
 public:
  Lexer(std::string source, const std::string& name) : source_(std::move(source)), rest_(source_), name_(name) {}

  std::vector<TemplateToken> run() {
    while (!rest_.empty()) text();
    push(Kind::end, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& message) const { template_fail(name_, line_, message); }
  void push(Kind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
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
      push(Kind::text, std::string(rest_));
      return take(rest_.size());
    }
    const char kind = rest_[tag + 1];
    const char sign = tag + 2 < rest_.size() ? rest_[tag + 2] : '\0';
    emit_text(rest_.substr(0, tag), sign, kind != '{');
    take(tag + 2);
    if (sign == '-' || sign == '+') take(1);
    if (kind == '#') return comment();
    if (kind == '{') {
      push(Kind::output_begin, "{{");
      return expression("}}", Kind::output_end);
    }
    if (raw()) return;
    push(Kind::block_begin, "{%");
    expression("%}", Kind::block_end);
  }

  void emit_text(std::string_view text, char sign, bool is_block) {
    std::string kept(text);
    if (sign == '-') {
      kept = without_end_space(text);
    } else if (sign != '+' && is_block) {
      const size_t line = last_line(text);
      if ((line > 0 || at_line_start_) && is_blank(text.substr(line))) kept = text.substr(0, line);
    }
    if (!kept.empty()) push(Kind::text, std::move(kept));
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
  void expression(std::string_view end, Kind end_kind) {
    std::string open;  // brackets
    for (;;) {
      take_space();
      if (rest_.empty()) fail(fmt::format("a tag begins that has no {}", end));
      if (open.empty()) {
        const char sign = rest_.front();
        const bool signed_end =
            (sign == '-' || (sign == '+' && end_kind == Kind::block_end)) && rest_.substr(1).starts_with(end);
        if (signed_end || rest_.starts_with(end)) {
          push(end_kind, std::string(end));
          take(signed_end ? 3 : 2);
          if (end_kind == Kind::block_end) {
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
    if (is_name_start(c)) {
      const auto end = std::find_if_not(rest_.begin(), rest_.end(), is_name_part);
      return push_and_take(Kind::name, static_cast<size_t>(end - rest_.begin()));
    }
    if (is_digit(c)) return number();
    if (c == '"' || c == '\'') return string(c);
    for (std::string_view symbol : {"**", "//", "==", "!=", ">=", "<="})
      if (rest_.starts_with(symbol)) return push_and_take(Kind::symbol, 2);
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
    push_and_take(Kind::symbol, 1);
  }

  void push_and_take(Kind kind, size_t bytes) {
    push(kind, std::string(rest_.substr(0, bytes)));
    take(bytes);
  }

  void number() {
    size_t at = 0;
    auto digits = [&] {
      while (at < rest_.size() && (is_digit(rest_[at]) || rest_[at] == '_')) ++at;
    };
    digits();
    Kind kind = Kind::integer;
    if (at + 1 < rest_.size() && rest_[at] == '.' && is_digit(rest_[at + 1])) {
      kind = Kind::number;
      ++at;
      digits();
    }
    if (at < rest_.size() && (rest_[at] == 'e' || rest_[at] == 'E')) {
      size_t exponent = at + 1;
      if (exponent < rest_.size() && (rest_[exponent] == '+' || rest_[exponent] == '-')) ++exponent;
      if (exponent < rest_.size() && is_digit(rest_[exponent])) {
        kind = Kind::number;
        at = exponent;
        digits();
      }
    }
    std::string text(rest_.substr(0, at));
    std::erase(text, '_');
    push(kind, text);
    take(at);
  }

  void string(char quote) {
    std::string text;
    size_t at = 1;
    auto hex = [&](size_t count) {
      uint32_t value = 0;
      for (size_t i = 0; i < count; ++i, ++at) {
        if (at >= rest_.size() || !isxdigit(static_cast<unsigned char>(rest_[at])))
          fail(fmt::format("a string has an escape with fewer than {} hexadecimal digits", count));
        value =
            value * 16 + static_cast<uint32_t>(is_digit(rest_[at]) ? rest_[at] - '0' : (rest_[at] | 0x20) - 'a' + 10);
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
          if (escaped < '0' || escaped > '7') {
            text += '\\';
            text += escaped;
            break;
          }
          uint32_t value = static_cast<uint32_t>(escaped - '0');
          for (int i = 0; i < 2 && at < rest_.size() && rest_[at] >= '0' && rest_[at] <= '7'; ++i)
            value = value * 8 + static_cast<uint32_t>(rest_[at++] - '0');
          utf8_append(text, value);
        }
      }
    }
    push(Kind::string, std::move(text));
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
  MEGALITH_CHECK(source.size() <= kMostBytes, "{} has {} bytes, want at most {}", template_name, source.size(),
                 kMostBytes);
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
