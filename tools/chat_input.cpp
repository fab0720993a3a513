#include "tools/chat_input.h"

#include <utility>

#include "megalith/base/error.h"
#include "megalith/model/encode_budget.h"

namespace megalith::tools {

namespace {
constexpr std::string_view kQuotes = "\"\"\"";
}  // namespace

std::optional<std::string> ChatInput::line(std::string text) {
  MEGALITH_CHECK(held_.size() + text.size() <= kMaxTextBytes, "a message has more than {} bytes{}", kMaxTextBytes,
                 quoted_ ? ": the three quotes that end it may be missing" : "");
  if (text.ends_with('\r')) text.pop_back();
  if (!quoted_ && held_.empty() && text.starts_with(kQuotes)) {
    quoted_ = true;
    text.erase(0, kQuotes.size());
    if (text.empty()) return std::nullopt;
  }
  if (quoted_) {
    if (!text.ends_with(kQuotes)) {
      held_ += text + "\n";
      return std::nullopt;
    }
    text.resize(text.size() - kQuotes.size());
    quoted_ = false;
    held_ += text;
    if (text.empty() && held_.ends_with('\n')) held_.pop_back();
    return std::exchange(held_, "");
  }
  if (text.ends_with('\\')) {
    text.back() = '\n';
    held_ += text;
    return std::nullopt;
  }
  return std::exchange(held_, "") + text;
}

std::optional<std::string> ChatInput::finish() {
  if (!is_open()) return std::nullopt;
  quoted_ = false;
  return std::exchange(held_, "");
}

}  // namespace megalith::tools
