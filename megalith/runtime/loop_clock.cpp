#include "megalith/runtime/loop_clock.h"

namespace megalith::runtime {

using jit::CudaDriver;

LoopClock::LoopClock(int ordinal, jit::CudaStream stream, int64_t flush_bytes) : ordinal_(ordinal), stream_(stream) {
  const CudaContextGuard context(ordinal);
  if (flush_bytes > 0) flushed_ = DeviceMemory(flush_bytes, "what is written between measurements");
}

void LoopClock::begin() {
  const CudaDriver& driver = CudaDriver::get();
  const CudaContextGuard context(ordinal_);
  auto& [first, last] = events_.emplace_back();
  driver.check(driver.event_create(first.out(), 0), "making an event");
  driver.check(driver.event_create(last.out(), 0), "making an event");
  if (flushed_.bytes() > 0)
    driver.check(driver.memory_set_async(flushed_.address(), 0, static_cast<size_t>(flushed_.bytes()), stream_),
                 "writing over the L2 cache");
  driver.check(driver.event_record(first.get(), stream_), "recording an event");
}

void LoopClock::end() {
  const CudaDriver& driver = CudaDriver::get();
  const CudaContextGuard context(ordinal_);
  driver.check(driver.event_record(events_.back().second.get(), stream_), "recording an event");
}

std::vector<float> LoopClock::times_ms() {
  const CudaDriver& driver = CudaDriver::get();
  const CudaContextGuard context(ordinal_);
  std::vector<float> times;
  for (const auto& [first, last] : events_) {
    float ms = 0;
    driver.check(driver.event_synchronize(last.get()), "waiting for what is measured");
    driver.check(driver.event_elapsed(&ms, first.get(), last.get()), "asking for a time");
    times.push_back(ms);
  }
  events_.clear();
  return times;
}

}  // namespace megalith::runtime
