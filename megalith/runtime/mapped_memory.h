// What of this process's memory is there to be read and written: for addresses that come from outside, of which a wrong one
// would end the process.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace megalith::runtime {

class MappedMemory {
 public:
  /// As it is now. Where /proc does not say, all of it counts as there. `root` stands before /proc (for tests).
  static MappedMemory of_this_process(const std::string& root = "");

  /// What is wrong with `bytes` at `address`, as "is not mapped beyond byte 4096 of 8192" or "cannot be written"; or "".
  std::string trouble(const void* address, int64_t bytes, bool is_written) const;

 private:
  struct Range {
    uintptr_t begin, end;
    bool can_be_read, can_be_written;
  };
  std::vector<Range> ranges_;  // ascending
  bool is_known_ = false;
};

}  // namespace megalith::runtime
