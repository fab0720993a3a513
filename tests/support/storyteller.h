// The model that comes with the sources.
#pragma once

#include <string>

namespace megalith::test {

inline const std::string kStoryteller = MEGALITH_SOURCE_DIR "/models/storyteller";

}  // namespace megalith::test
