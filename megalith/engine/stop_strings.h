// Texts that end a text: looked for in what a model writes, across the borders of its tokens. What might be the
// beginning of one is held back until it is known, so no part of a stop string is ever shown. A model also writes what
// is never shown, its special tokens, and a stop string may be one of them or have a part in one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace megalith::engine {

class StopStrings {
 public:
  /// Empty ones are left out.
  explicit StopStrings(std::vector<std::string> stops);

  /// Takes in a piece; what may be shown now, "" once a stop string was found. A `hidden` piece is not shown. In one that
  /// does not `count` no stop string ends: it may begin there.
  std::string push(std::string_view piece, bool hidden = false, bool counts = true);
  /// At the end of the text: what was held back.
  std::string finish();
  bool found() const { return !found_stop_.empty(); }
  /// "": none.
  const std::string& found_stop() const { return found_stop_; }

 private:
  std::string release(size_t bytes);

  std::vector<std::string> stops_;
  std::string held_;
  std::string hidden_;    // a byte for each of held_: 1 if it is not shown
  size_t uncounted_ = 0;  // so many of them, the first ones, do not count
  std::string found_stop_;
};

}  // namespace megalith::engine
