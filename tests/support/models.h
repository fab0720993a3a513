// Folders of models that come with the sources.
#pragma once

#include <string>

namespace megalith::test {

inline const std::string kStoryteller = MEGALITH_SOURCE_DIR "/models/storyteller";
/// Random weights, compared with what transformers makes of them.
inline const std::string kTinyModel = MEGALITH_SOURCE_DIR "/tests/golden/tiny/qwen3_tied";

}  // namespace megalith::test
