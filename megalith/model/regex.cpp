#include "megalith/model/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "megalith/base/error.h"
#include "megalith/model/json.h"
#include "megalith/model/utf8.h"

namespace megalith {

namespace {

// Steps of backtracking for one match. The patterns of GPT-2, Llama 3 and Qwen need a few for each character of one
// word; a pattern that needs a million on real text would hang a server on hostile text.
constexpr uint32_t kMostSteps = 10'000'000;
constexpr size_t kMostPatternBytes = 1 << 16;
constexpr size_t kJitStackBytes = 1 << 20;

// What \w is in Oniguruma, character for character: PCRE2's own leaves out marks and connectors, and of the fractions
// and superscripts only those of Latin-1 count.
constexpr const char* kWordClass = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE})";

[[noreturn]] void refuse(const std::string& pattern, size_t place, std::string_view what) {
  throw UserError(fmt::format("regular expression \"{}\": {} (at byte {}) is not supported", pattern, what, place));
}

// Rewrites what PCRE2 reads differently from Oniguruma's Ruby syntax:
// \s is White_Space there, while PCRE2 adds U+180E; \w as above.
std::string translate(const std::string& pattern) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    const char next = i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (c == '\\') {
      if (++i == pattern.size()) return out + c;  // for the compiler to complain about
      switch (next) {
        case 's': out += R"(\p{White_Space})"; break;
        case 'S': out += R"(\P{White_Space})"; break;
        case 'w': out += in_class ? kWordClass : fmt::format("[{}]", kWordClass); break;
        case 'W':
          if (in_class) refuse(pattern, i, "\\W in a class");
          out += fmt::format("[^{}]", kWordClass);
          break;
        // \h is a hexadecimal digit in Ruby and horizontal space in PCRE2; the others differ or do not exist there.
        case 'h':
        case 'H':
        case 'b':
        case 'B':
        case 'R':
        case 'X':
        case 'K':
        case 'g':
        case 'k':
        case 'Q':
        case 'E':
        case 'C':
        case 'N':
        case 'v': refuse(pattern, i - 1, fmt::format("\\{}", next));
        case 'p':
        case 'P':
        case 'x': {  // with its braces, so that the plus of \p{L}+ is not taken for that of a{2}+
          const size_t end = i + 1 < pattern.size() && pattern[i + 1] == '{' ? pattern.find('}', i) : i;
          if (end == std::string::npos) refuse(pattern, i - 1, "an unclosed brace");
          out += pattern.substr(i - 1, end - i + 2);
          i = end;
          break;
        }
        default: out += c, out += next;
      }
      continue;
    }
    if (in_class) {
      // A nested class in Ruby, a bracket in PCRE2; and their [:punct:] are not the same characters.
      if (c == '[') refuse(pattern, i, "a class within a class");
      if (c == '&' && next == '&') refuse(pattern, i, "an intersection of classes");
      if (c == ']') in_class = false;
      out += c;
      continue;
    }
    if (c == '[') in_class = true;
    if (c == '(' && next == '*') refuse(pattern, i, "a verb");
    if (c == '(' && next == '?') {
      const char kind = i + 2 < pattern.size() ? pattern[i + 2] : '\0';
      // (?i) and (?i: mean the same in both; (?m means "dot matches newline" in Ruby. Calls and conditions are left
      // out.
      if (!isalpha(kind) && std::string_view(":=!><-").find(kind) == std::string_view::npos)
        refuse(pattern, i, fmt::format("the group (?{}", kind));
      for (size_t j = i + 2; j < pattern.size() && (isalpha(pattern[j]) || pattern[j] == '-'); ++j)
        if (pattern[j] != 'i' && pattern[j] != '-') refuse(pattern, j, fmt::format("the option \"{}\"", pattern[j]));
    }
    if (c == '}' && next == '+') refuse(pattern, i, "\"}+\", a possessive count in one syntax only");
    out += c;
  }
  return out;
}

// One stack and one match block for each thread, so that matching allocates nothing.
struct Scratch {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 << 10, kJitStackBytes, nullptr);
  ~Scratch() {
    pcre2_match_data_free(data);
    pcre2_jit_stack_free(stack);
  }
};

Scratch& scratch() {
  thread_local Scratch instance;
  return instance;
}

pcre2_jit_stack* scratch_stack(void*) { return scratch().stack; }

}  // namespace

struct Regex::Impl {
  std::string pattern;
  pcre2_code* code = nullptr;
  pcre2_match_context* context = nullptr;
  ~Impl() {
    pcre2_match_context_free(context);
    pcre2_code_free(code);
  }
};

Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

Regex::Regex(const std::string& pattern) {
  MEGALITH_CHECK(pattern.size() <= kMostPatternBytes, "a regular expression has {} bytes, want at most {}",
                 pattern.size(), kMostPatternBytes);
  auto impl = std::make_unique<Impl>();
  impl->pattern = pattern;
  const std::string translated = translate(pattern);
  int error = 0;
  size_t place = 0;
  impl->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &place, nullptr);
  if (!impl->code) {
    char message[256];
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(message), sizeof message);
    throw UserError(fmt::format("regular expression \"{}\" is malformed near byte {}: {}", pattern, place, message));
  }
  // Without JIT (a machine that forbids writable code) matching is slower, and the same.
  pcre2_jit_compile(impl->code, PCRE2_JIT_COMPLETE);
  impl->context = pcre2_match_context_create(nullptr);
  MEGALITH_CHECK(impl->context, "out of memory for the regular expression \"{}\"", pattern);
  pcre2_set_match_limit(impl->context, kMostSteps);
  pcre2_jit_stack_assign(impl->context, scratch_stack, nullptr);
  impl_ = std::move(impl);
}

Regex Regex::from_json(const JsonValue& value) {
  try {
    return Regex(value.string());
  } catch (const UserError& error) { value.fail(fmt::format("cannot be used: {}", error.what())); }
}

void Regex::each_match(std::string_view text, const std::function<void(size_t, size_t)>& visit) const {
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  pcre2_match_data* data = scratch().data;
  MEGALITH_CHECK(data, "out of memory for the regular expression \"{}\"", impl_->pattern);
  size_t from = 0;
  while (from <= text.size()) {
    int count = pcre2_match(impl_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, data, impl_->context);
    if (count == PCRE2_ERROR_JIT_STACKLIMIT)  // the interpreter keeps its state on the heap
      count =
          pcre2_match(impl_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data, impl_->context);
    if (count == PCRE2_ERROR_NOMATCH) return;
    MEGALITH_CHECK(count >= 0, "regular expression \"{}\" gives up on this text (code {}): it backtracks too much",
                   impl_->pattern, count);
    const size_t* place = pcre2_get_ovector_pointer(data);
    const size_t begin = place[0], end = place[1];
    visit(begin, end);
    if (end > begin) {
      from = end;
    } else {  // an empty match: look again from the next character
      if (end == text.size()) return;
      from = end + utf8_next(text.substr(end));
    }
  }
}

std::string Regex::quote(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (std::string_view("\\^$.|?*+()[]{}-&/#").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

}  // namespace megalith
