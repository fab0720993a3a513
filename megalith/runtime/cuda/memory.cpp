#include "megalith/runtime/cuda/memory.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <utility>

#include "megalith/base/error.h"
#include "megalith/base/format.h"
#include "megalith/runtime/memory.h"
#include "megalith/runtime/topology.h"

namespace megalith::runtime {

using jit::CudaDriver;

namespace {

std::atomic<bool> is_abandoned{false};
std::mutex why_mutex;
std::string why_abandoned;

}  // namespace

void abandon_gpu(const std::string& why) {
  const std::lock_guard guard(why_mutex);
  why_abandoned = why;
  is_abandoned.store(true, std::memory_order_release);
}

bool gpu_is_abandoned() { return is_abandoned.load(std::memory_order_acquire) || CudaDriver::is_of_another_process(); }

CudaContextHold::CudaContextHold(jit::CudaDevice device) : device_(device) {
  const CudaDriver& driver = CudaDriver::get();
  driver.check(driver.context_retain(&context_, device_), "making a context on the GPU");
}

CudaContextHold CudaContextHold::of_current() {
  const CudaDriver& driver = CudaDriver::get();
  jit::CudaDevice device = 0;
  driver.check(driver.context_device(&device), "asking for this thread's context on the GPU");
  return CudaContextHold(device);
}

CudaContextHold::CudaContextHold(CudaContextHold&& other) noexcept
    : device_(other.device_), context_(std::exchange(other.context_, nullptr)) {}

CudaContextHold& CudaContextHold::operator=(CudaContextHold&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(context_, other.context_);
  return *this;
}

CudaContextHold::~CudaContextHold() {
  if (context_ != nullptr && !gpu_is_abandoned()) CudaDriver::get().context_release(device_);
}

bool CudaContextHold::enter() const noexcept {
  return !gpu_is_abandoned() && CudaDriver::get().context_push(context_) == 0;
}

void CudaContextHold::leave() noexcept {
  if (CudaDriver::is_of_another_process()) return;
  jit::CudaContext popped = nullptr;
  CudaDriver::get().context_pop(&popped);
}

CudaContextGuard::CudaContextGuard(int ordinal) {
  if (is_abandoned.load(std::memory_order_acquire)) {
    const std::lock_guard guard(why_mutex);
    throw SystemError(why_abandoned);
  }
  const CudaDriver& driver = CudaDriver::get();
  jit::CudaDevice device = 0;
  driver.check(driver.device_get(&device, ordinal), fmt::format("opening GPU {}", ordinal));
  hold_ = CudaContextHold(device);
  driver.check(driver.context_push(hold_.context()), "taking the GPU's context");
}

CudaContextGuard::~CudaContextGuard() {
  if (thread_ == std::this_thread::get_id()) CudaContextHold::leave();
}

DeviceMemory::DeviceMemory(int64_t bytes, const std::string& what) : bytes_(std::max<int64_t>(bytes, 16)) {
  const CudaDriver& driver = CudaDriver::get();
  const auto size = static_cast<size_t>(bytes_);
  const jit::CudaCode code = driver.memory_allocate(memory_.out(), size);
  size_t free = 0, total = 0;
  // Only of a card that is full is it worth to say how full; one that is gone answers no questions.
  if (code == jit::kCudaOutOfMemory && driver.memory_info(&free, &total) == 0)
    driver.check(code,
                 fmt::format("allocating {} for {} ({} of the GPU's {} are free)", format_bytes(bytes), what,
                             format_bytes(static_cast<int64_t>(free)), format_bytes(static_cast<int64_t>(total))));
  driver.check(code, fmt::format("allocating {} for {}", format_bytes(bytes), what));
  driver.check(driver.memory_set(address(), 0, size), fmt::format("clearing {}", what));
}

void DeviceMemory::upload(const void* from, int64_t bytes) {
  MEGALITH_ASSERT(bytes <= bytes_, "[cuda] {} bytes into memory of {}", bytes, bytes_);
  if (bytes == 0) return;
  const CudaDriver& driver = CudaDriver::get();
  driver.check(driver.copy_to_device(address(), from, static_cast<size_t>(bytes)), "copying to the GPU");
}

void DeviceMemory::download(void* to, int64_t bytes) const {
  MEGALITH_ASSERT(bytes <= bytes_, "[cuda] {} bytes from memory of {}", bytes, bytes_);
  if (bytes == 0) return;
  const CudaDriver& driver = CudaDriver::get();
  driver.check(driver.copy_to_host(to, address(), static_cast<size_t>(bytes)), "copying from the GPU");
}

PinnedMemory::PinnedMemory(int64_t bytes, const std::string& what) {
  constexpr unsigned kPortable = 1, kDeviceMap = 2;
  const CudaDriver& driver = CudaDriver::get();
  const auto size = static_cast<size_t>(std::max<int64_t>(bytes, 16));
  const jit::CudaCode code = driver.host_allocate(memory_.out(), size, kPortable | kDeviceMap);
  if (code == jit::kCudaOutOfMemory)
    throw SystemError(
        fmt::format("[cuda] cannot lock {} of host memory for {}: {} are available; close other programs, or raise the "
                    "limit of this process or container (ulimit -l)",
                    format_bytes(bytes), what, format_bytes(memory_available_bytes())));
  driver.check(code, fmt::format("locking {} of host memory for {}", format_bytes(bytes), what));
  std::memset(data(), 0, size);
}

}  // namespace megalith::runtime
