// Texts that end a text: looked for in what a model writes, across the borders of its tokens. What might be the
// beginning of one is held back until it is known, so no part of a stop string is ever shown.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace megalith::engine {

class StopStrings {
 public:
  /// Empty ones are left out.
  explicit StopStrings(std::vector<std::string> stops);

  /// Takes in a piece; what may be shown now, "" once a stop string was found.
  std::string push(std::string_view piece);
  /// At the end of the text: what was held back.
  std::string finish();
  bool found() const { return found_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool found_ = false;
};

}  // namespace megalith::engine
