// How long ago this process began: what a user waits for before the first token, loading of the program included.
#pragma once

#include <string>

namespace megalith::runtime {

/// In milliseconds, to about ten; 0 where /proc does not say. `root` stands before /proc (for tests).
double process_age_ms(const std::string& root = "");

}  // namespace megalith::runtime
