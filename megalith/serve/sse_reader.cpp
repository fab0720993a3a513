#include "megalith/serve/sse_reader.h"

#include <algorithm>
#include <utility>

namespace megalith::serve {

bool SseReader::take(std::string_view bytes, const std::function<void(std::string_view data)>& on_event) {
  while (!bytes.empty() && !is_too_long_) {
    if (std::exchange(ended_by_cr_, false) && bytes[0] == '\n') {
      bytes.remove_prefix(1);
      continue;
    }
    const size_t end = std::min(bytes.find_first_of("\r\n"), bytes.size());
    line_ += bytes.substr(0, end);
    is_too_long_ = line_.size() + data_.size() > most_bytes_;
    if (is_too_long_ || end == bytes.size()) break;
    ended_by_cr_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    end_line(on_event);
  }
  return !is_too_long_;
}

void SseReader::end_line(const std::function<void(std::string_view)>& on_event) {
  std::string_view line = line_;
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (std::exchange(is_first_line_, false) && line.starts_with(kByteOrderMark))
    line.remove_prefix(kByteOrderMark.size());
  if (line.empty()) {
    if (std::exchange(has_data_, false)) on_event(data_);
    data_.clear();
  } else if (line.starts_with("data:") || line == "data") {
    line.remove_prefix(std::min<size_t>(line.size(), 5));
    if (line.starts_with(' ')) line.remove_prefix(1);
    if (std::exchange(has_data_, true)) data_ += '\n';
    data_ += line;
  }
  line_.clear();
}

}  // namespace megalith::serve
