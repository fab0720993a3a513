// A clock for work that somebody puts on a GPU's stream: a pair of events around each piece of it, and between the pieces the
// L2 cache is filled with something else.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "megalith/runtime/cuda/memory.h"

namespace megalith::runtime {

class LoopClock {
 public:
  /// `flush_bytes` are written before each piece of work; 0: none. SystemError of the driver.
  LoopClock(int ordinal, jit::CudaStream stream, int64_t flush_bytes);

  void begin();
  void end();
  /// Waits for the stream, and forgets: milliseconds of each piece, in order.
  std::vector<float> times_ms();

 private:
  int ordinal_;
  jit::CudaStream stream_;
  DeviceMemory flushed_;
  std::vector<std::pair<CudaEventOwner, CudaEventOwner>> events_;
};

}  // namespace megalith::runtime
