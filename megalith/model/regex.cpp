#include "megalith/model/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <exception>

#include "megalith/base/error.h"
#include "megalith/base/printable.h"
#include "megalith/model/encode_budget.h"
#include "megalith/model/json.h"
#include "megalith/model/utf8.h"

namespace megalith {

namespace {

// Backtracking steps from one place of the text. The patterns of GPT-2, Llama 3 and Qwen need a few steps for each
// character of one word; a pattern that needs a million on real text would hang a server on hostile text. What all
// places take together, EncodeBudget limits.
constexpr uint32_t kMaxMatchSteps = 10'000'000;
// How deep the library's interpreter may go back, and the memory it keeps for that; its own limit is 20 GB.
constexpr uint32_t kMaxDepth = 1'000'000;
constexpr uint32_t kMaxHeapKib = 64 << 10;
// The longest published pattern has some 500 bytes.
constexpr size_t kMaxPatternBytes = 8192;
constexpr size_t kShownPatternBytes = 200;
constexpr size_t kJitStackBytes = 1 << 20;
// The library cannot be interrupted, and a step may go through all of the text. So the text is looked at through a
// window, in which a search takes a second at most: its bytes, as places, times steps, times its bytes again. A word
// that reaches the window's end, or takes more steps, is matched by a program that looks at the time in between, which
// takes three times as long.
constexpr size_t kWindowBytes = 512;
constexpr uint32_t kWindowSteps = 10'000;
// What one step of that program may go through counts as a step for each so many bytes.
constexpr size_t kBytesPerStep = 64;

// What \w is in Oniguruma, character for character: PCRE2's own leaves out marks and connectors, and of the fractions
// and superscripts only those of Latin-1 count.
constexpr const char* kWordClass = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE})";

[[noreturn]] void refuse(const std::string& pattern, size_t place, std::string_view what) {
  throw UserError(fmt::format("regular expression \"{}\": {} (at byte {}) is not supported",
                              shortened(pattern, kShownPatternBytes), what, place));
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

// One stack, one match block and one set of limits for each thread, so that matching allocates nothing.
struct Scratch {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 << 10, kJitStackBytes, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  Scratch() {
    MEGALITH_CHECK(data && stack && context, "out of memory for regular expressions");
    pcre2_set_depth_limit(context, kMaxDepth);
    pcre2_set_heap_limit(context, kMaxHeapKib);
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~Scratch() {
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
    pcre2_jit_stack_free(stack);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
};

Scratch& scratch() {
  thread_local Scratch instance;
  return instance;
}

}  // namespace

namespace {

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
using Code = std::unique_ptr<pcre2_code, FreeCode>;

Code compile(const std::string& pattern, uint32_t more_options, uint32_t jit_modes) {
  const std::string translated = translate(pattern);
  int error = 0;
  size_t place = 0;
  const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | more_options;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(), options, &error, &place,
                          nullptr));
  if (!code) {
    char message[256];
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(message), sizeof message);
    throw UserError(fmt::format("regular expression \"{}\" is malformed near byte {}: {}",
                                shortened(pattern, kShownPatternBytes), place, message));
  }
  // Without JIT (a machine that forbids writable code) matching is slower, and the same.
  pcre2_jit_compile(code.get(), jit_modes);
  return code;
}

// A match in `text` that begins at `first` or behind it.
int match(const pcre2_code* code, std::string_view text, size_t first, uint32_t options) {
  const Scratch& thread = scratch();
  auto run = [&](uint32_t more) {
    return pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), first,
                       PCRE2_NO_UTF_CHECK | options | more, thread.data, thread.context);
  };
  const int count = run(0);
  // The interpreter keeps its state on the heap.
  return count == PCRE2_ERROR_JIT_STACKLIMIT ? run(PCRE2_NO_JIT) : count;
}

// Where the match of this thread's last call of match() begins.
size_t match_begin() { return pcre2_get_ovector_pointer(scratch().data)[0]; }

// The window from `first` on, whole characters.
size_t window_end(std::string_view text, size_t first) {
  if (text.size() - first <= kWindowBytes) return text.size();
  size_t end = first + kWindowBytes;
  while ((text[end] & 0xC0) == 0x80) --end;
  return end;
}

// Looks at the time while the library matches. An error must not be thrown through its code.
struct Watch {
  EncodeBudget& budget;
  std::exception_ptr error;

  static int look(pcre2_callout_block* at, void* data) {
    auto& watch = *static_cast<Watch*>(data);
    try {
      watch.budget.charge_steps(1 + (at->subject_length - at->current_position) / kBytesPerStep);
      return 0;
    } catch (...) {
      watch.error = std::current_exception();
      return PCRE2_ERROR_CALLOUT;
    }
  }
};

}  // namespace

struct Regex::Impl {
  std::string pattern;
  Code in_window;  // may say that a match reaches the window's end
  Code watched;    // calls Watch::look between all its parts
};

Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

Regex::Regex(const std::string& pattern) {
  MEGALITH_CHECK(pattern.size() <= kMaxPatternBytes, "a regular expression has {} bytes, want at most {}",
                 pattern.size(), kMaxPatternBytes);
  auto impl = std::make_unique<Impl>();
  impl->pattern = pattern;
  impl->in_window = compile(pattern, 0, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
  impl->watched = compile(pattern, PCRE2_AUTO_CALLOUT, PCRE2_JIT_COMPLETE);
  impl_ = std::move(impl);
}

Regex Regex::from_json(const JsonValue& value) {
  try {
    return Regex(value.string());
  } catch (const UserError& error) { value.fail(fmt::format("cannot be used: {}", error.what())); }
}

bool Regex::find(std::string_view text, size_t from, EncodeBudget& budget) const {
  for (size_t first = from;;) {
    const size_t end = window_end(text, first);
    const bool is_rest = end == text.size();
    pcre2_set_match_limit(scratch().context, kWindowSteps);
    const int count =
        match(impl_->in_window.get(), text.substr(0, end), first, is_rest ? 0 : uint32_t{PCRE2_PARTIAL_HARD});
    budget.check_time();
    if (count == PCRE2_ERROR_PARTIAL) return find_watched(text, match_begin(), budget);
    if (count < 0 && count != PCRE2_ERROR_NOMATCH) return find_watched(text, first, budget);
    if (is_rest) return count >= 0;
    // An empty match at the window's end does not know what comes behind it.
    if (count >= 0 && match_begin() < end) return true;
    first = end;
  }
}

bool Regex::find_watched(std::string_view text, size_t first, EncodeBudget& budget) const {
  Watch watch{budget, nullptr};
  pcre2_match_context* context = scratch().context;
  pcre2_set_match_limit(context, kMaxMatchSteps);
  pcre2_set_callout(context, Watch::look, &watch);
  const int count = match(impl_->watched.get(), text, first, 0);
  pcre2_set_callout(context, nullptr, nullptr);
  if (watch.error) std::rethrow_exception(watch.error);
  MEGALITH_CHECK(count >= 0 || count == PCRE2_ERROR_NOMATCH,
                 "regular expression \"{}\" gives up on this text (code {}): it backtracks too much",
                 shortened(impl_->pattern, kShownPatternBytes), count);
  return count >= 0;
}

void Regex::each_match(std::string_view text, EncodeBudget& budget,
                       const std::function<void(size_t, size_t)>& visit) const {
  for (size_t from = 0; from <= text.size() && find(text, from, budget);) {
    const size_t* place = pcre2_get_ovector_pointer(scratch().data);
    const size_t begin = place[0], end = place[1];
    visit(begin, end);
    if (end > begin) {
      from = end;
    } else {  // an empty match: look again from the next character
      if (end == text.size()) return;
      from = end + static_cast<size_t>(utf8_next(text.substr(end)));
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
