// What a chat template wrote, as one text.
#pragma once

#include <string>
#include <vector>

#include "megalith/model/chat_template.h"

namespace megalith {

inline std::string joined(const std::vector<TextSegment>& segments) {
  std::string text;
  for (const TextSegment& segment : segments) text += segment.text;
  return text;
}

}  // namespace megalith
