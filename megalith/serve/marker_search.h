// Text that is looked through for markers such as "<tool_call>" while it comes. What might be the beginning of one is held
// back, and so is white space, which in front of a marker is no part of the text.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "megalith/serve/json_scanner.h"

namespace megalith::serve {

class MarkerSearch {
 public:
  /// Takes in a byte. `text` grows by what is neither white space nor a marker, with the white space in front of it. The
  /// marker that this byte completes, or "".
  std::string_view push(char byte, std::initializer_list<std::string_view> markers, std::string& text) {
    held_ += byte;
    // Of "<<tool_call>" only the first byte is none of the marker's.
    while (!held_.empty()) {
      const auto begins = [&](std::string_view marker) { return !marker.empty() && marker.starts_with(held_); };
      const auto* const found = std::find_if(markers.begin(), markers.end(), begins);
      if (found != markers.end()) {
        if (found->size() > held_.size()) return "";
        held_.clear();
        return *found;
      }
      if (is_json_space(held_[0])) {
        spaces_ += held_[0];
      } else {
        text += std::exchange(spaces_, {});
        text += held_[0];
      }
      held_.erase(0, 1);
    }
    return "";
  }
  /// White space in front of a marker that was found, or of the end.
  std::string take_spaces() { return std::exchange(spaces_, {}); }
  /// All that is held back.
  std::string take() { return take_spaces() + std::exchange(held_, {}); }
  bool is_empty() const { return held_.empty() && spaces_.empty(); }

 private:
  std::string spaces_ = {}, held_ = {};
};

}  // namespace megalith::serve
