#include "megalith/engine/stop_strings.h"

#include <algorithm>
#include <utility>

namespace megalith::engine {

StopStrings::StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
}

std::string StopStrings::push(std::string_view piece) {
  if (found_) return "";
  held_ += piece;
  size_t first = std::string::npos;
  for (const std::string& stop : stops_) first = std::min(first, held_.find(stop));
  if (first != std::string::npos) {
    found_ = true;
    std::string shown = held_.substr(0, first);
    held_.clear();
    return shown;
  }
  // The longest end of the text that is the beginning of a stop string.
  size_t keep = 0;
  for (const std::string& stop : stops_)
    for (size_t length = std::min(stop.size() - 1, held_.size()); length > keep; --length)
      if (std::string_view(held_).ends_with(std::string_view(stop).substr(0, length))) keep = length;
  std::string shown = held_.substr(0, held_.size() - keep);
  held_.erase(0, shown.size());
  return shown;
}

std::string StopStrings::finish() { return std::exchange(held_, ""); }

}  // namespace megalith::engine
