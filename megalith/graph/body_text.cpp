#include <algorithm>
#include <cctype>
#include <map>

#include "megalith/base/error.h"
#include "megalith/graph/declare.h"

namespace megalith::graph {

namespace {

constexpr const char* kWorker =
    "a task cannot know which worker runs it: what it does may depend on its operands and its ranges alone";
constexpr const char* kThreads = "a body has kThreads threads, and this one is number thread()";

// Each word with the reason. The emitter defines most of them away as well (codegen/views.cpp), so that none can be put
// together from pieces.
const std::map<std::string, const char*, std::less<>>& forbidden() {
  static const std::map<std::string, const char*, std::less<>> words = {
      {"blockIdx", kWorker},
      {"gridDim", kWorker},
      {"clusterIdx", kWorker},
      {"cooperative_groups", kWorker},
      {"megalith_worker", kWorker},
      {"runtime", "what runs tasks is no business of a task"},
      {"threadIdx", kThreads},
      {"blockDim", kThreads},
      {"__syncthreads", "it would wait for warps that run no bodies: take block_sync()"},
      {"__shared__", "shared memory is the worker's: declare the body with shared_bytes, and take task.shared"},
      {"thread_local", kWorker},
      {"__thread", kWorker},
      {"asm", "it can read what a task cannot know: take the functions of C++ and CUDA"},
      {"__asm", "it can read what a task cannot know: take the functions of C++ and CUDA"},
      {"__asm__", "it can read what a task cannot know: take the functions of C++ and CUDA"},
      {"extern", "a body stands by itself: functions of the system are not there"},
      {"include", "a body stands by itself: nothing can be included"},
  };
  return words;
}

struct Word {
  std::string_view text;
  int line;
};

// The identifiers of a C++ text, comments and literals left out.
std::vector<Word> words_of(std::string_view text) {
  std::vector<Word> words;
  int line = 1;
  auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    size_t end = at + 1;
    if (text.substr(at, 2) == "//") {
      end = std::min(text.find('\n', at), text.size());
    } else if (text.substr(at, 2) == "/*") {
      const size_t close = text.find("*/", at + 2);
      end = close == std::string_view::npos ? text.size() : close + 2;
    } else if (c == '"' || (c == '\'' && (at == 0 || !is_word(text[at - 1])))) {
      while (end < text.size() && text[end] != c && text[end] != '\n') end += text[end] == '\\' ? 2 : 1;
      end = std::min(end + 1, text.size());
    } else if (is_word(c)) {
      while (end < text.size() && is_word(text[end])) ++end;
      words.push_back({text.substr(at, end - at), line});
    }
    for (; at < end; ++at) line += text[at] == '\n';
  }
  return words;
}

}  // namespace

void check_body_text(const std::string& op, const BodyText& body) {
  MEGALITH_CHECK(body.target == "cpu" || body.target == "cuda",
                 "[{}] has a body for the target \"{}\"; targets are cpu and cuda", op, body.target);
  MEGALITH_CHECK(body.shared_bytes == 0 || body.target == "cuda", "[{}] the body for {} has no shared memory", op,
                 body.target);
  MEGALITH_CHECK(body.shared_bytes >= 0 && body.shared_bytes <= 32 << 10,
                 "[{}] the body for {} wants {} bytes of shared memory, and may have {}", op, body.target,
                 body.shared_bytes, 32 << 10);
  // Some compilers take them for the end of a line, or of the text.
  for (size_t i = 0; i < body.text.size(); ++i) {
    const char c = body.text[i];
    const bool is_control = (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7F;
    const bool ends_line = c == '\r' && i + 1 < body.text.size() && body.text[i + 1] == '\n';
    MEGALITH_CHECK(!is_control || ends_line, "[{}] the body for {} has the control character \\x{:02x} in line {}", op,
                   body.target, static_cast<unsigned char>(c),
                   1 + std::count(body.text.begin(), body.text.begin() + static_cast<std::ptrdiff_t>(i), '\n'));
  }
  const std::vector<Word> words = words_of(body.text);
  bool defines = false;
  for (size_t i = 0; i < words.size(); ++i) {
    const auto found = forbidden().find(words[i].text);
    MEGALITH_CHECK(found == forbidden().end(), "[{}] the body for {} says \"{}\" in line {}: {}", op, body.target,
                   words[i].text, words[i].line, found->second);
    MEGALITH_CHECK(words[i].text != "static" || (i + 1 < words.size() && words[i + 1].text == "constexpr"),
                   "[{}] the body for {} keeps something from task to task (\"static\" in line {}): take static "
                   "constexpr for constants, and nothing for functions",
                   op, body.target, words[i].line);
    defines |= words[i].text == op && i > 0 && words[i - 1].text == "void";
  }
  MEGALITH_CHECK(defines,
                 "[{}] the body for {} defines no function of that name, want: void {}(const auto& task) {{ ... }}", op,
                 body.target, op);
}

}  // namespace megalith::graph
