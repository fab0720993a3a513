#include "megalith/engine/stop_strings.h"

#include <algorithm>
#include <utility>

namespace megalith::engine {

StopStrings::StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
}

// The first so many bytes that are held, as far as they are shown.
std::string StopStrings::release(size_t bytes) {
  std::string shown;
  for (size_t i = 0; i < bytes; ++i)
    if (hidden_[i] == 0) shown += held_[i];
  held_.erase(0, bytes);
  hidden_.erase(0, bytes);
  uncounted_ -= std::min(uncounted_, bytes);
  return shown;
}

std::string StopStrings::push(std::string_view piece, bool hidden, bool counts) {
  if (found()) return "";
  held_ += piece;
  hidden_.resize(held_.size(), hidden ? '\1' : '\0');
  if (!counts) uncounted_ = held_.size();
  size_t first = std::string::npos;
  for (const std::string& stop : stops_) {  // that ends behind what does not count
    const size_t place = held_.find(stop, uncounted_ - std::min(uncounted_, stop.size() - 1));
    if (place >= first) continue;
    first = place;
    found_stop_ = stop;
  }
  if (first != std::string::npos) {
    std::string shown = release(first);
    held_.clear();
    hidden_.clear();
    return shown;
  }
  // The longest end of the text that is the beginning of a stop string.
  size_t keep = 0;
  for (const std::string& stop : stops_)
    for (size_t length = std::min(stop.size() - 1, held_.size()); length > keep; --length)
      if (std::string_view(held_).ends_with(std::string_view(stop).substr(0, length))) keep = length;
  return release(held_.size() - keep);
}

std::string StopStrings::finish() { return release(held_.size()); }

}  // namespace megalith::engine
