// How much memory this process really holds, by what the system counts.
#pragma once

#include <cstdint>
#include <string>

namespace megalith::runtime {

/// In bytes; 0 where /proc does not say.
struct ResidentMemory {
  int64_t now = 0;
  int64_t peak = 0;        // the most since the process began, or since the last resident_peak_reset()
  int64_t from_files = 0;  // of `now`, mapped files: weights, programs, libraries
};

/// `root` stands before /proc (for tests).
ResidentMemory resident_memory(const std::string& root = "");

/// Lets the peak begin again at what is held now. False where the system does not know how.
bool resident_peak_reset();

}  // namespace megalith::runtime
