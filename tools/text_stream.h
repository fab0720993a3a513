// The text of a request as it is made: tokens in, what may be shown out.
#pragma once

#include <string>
#include <vector>

#include "megalith/engine/stop_strings.h"
#include "tools/vocabulary.h"

namespace megalith::tools {

class TextStream {
 public:
  TextStream(const Vocabulary& vocabulary, std::vector<std::string> stops)
      : decoder_(vocabulary), stops_(std::move(stops)) {}

  std::string push(int token) { return over_ ? "" : shown(stops_.push(decoder_.push(token))); }
  /// What is left, once; also where the request was cut short.
  std::string finish() {
    if (over_) return "";
    std::string text = stops_.push(decoder_.finish());
    if (!stops_.found()) text += stops_.finish();
    over_ = true;
    return text;
  }
  /// The request has ended, or its text has by a stop string.
  bool is_over() const { return over_; }
  /// Its text has, by a stop string.
  bool is_stopped() const { return stops_.found(); }

 private:
  std::string shown(std::string text) {
    over_ = stops_.found();
    return text;
  }

  Vocabulary::Stream decoder_;
  engine::StopStrings stops_;
  bool over_ = false;
};

}  // namespace megalith::tools
