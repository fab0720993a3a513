#include "megalith/base/message.h"

#include "megalith/base/printable.h"

namespace megalith {

namespace {

// The longest message of ours has some 700 characters (what to do about memory); twice that for each of two quoted
// paths. Beyond this, somebody's file is being printed.
constexpr size_t kMaxLineBytes = 4096;
// 20 lines of a compiler's log, cut to a sane width each, and the command to repeat it.
constexpr size_t kMaxLinesBytes = 32768;

}  // namespace

// Cut before and after: escapes are longer than what they stand for, and a huge text is not worth escaping.
std::string message_text(const std::string& message) {
  return shortened(printable_line(shortened(message, kMaxLineBytes)), kMaxLineBytes);
}

std::string message_text(const Lines& message) {
  return shortened(printable(shortened(message.text, kMaxLinesBytes)), kMaxLinesBytes);
}

}  // namespace megalith
