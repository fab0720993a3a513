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

bool gpu_is_abandoned() { return is_abandoned.load(std::memory_order_acquire); }

CudaContextGuard::CudaContextGuard(int ordinal) {
  if (gpu_is_abandoned()) {
    const std::lock_guard guard(why_mutex);
    throw SystemError(why_abandoned);
  }
  const CudaDriver& driver = CudaDriver::get();
  driver.check(driver.device_get(&device_, ordinal), fmt::format("opening GPU {}", ordinal));
  jit::CudaContext context = nullptr;
  driver.check(driver.context_retain(&context, device_), "making a context on the GPU");
  driver.check(driver.context_set(context), "taking the GPU's context");
}

CudaContextGuard::~CudaContextGuard() {
  if (!gpu_is_abandoned()) CudaDriver::get().context_release(device_);
}

DeviceMemory::DeviceMemory(int64_t bytes, const std::string& what) : bytes_(std::max<int64_t>(bytes, 16)) {
  const CudaDriver& driver = CudaDriver::get();
  const auto size = static_cast<size_t>(bytes_);
  const jit::CudaCode code = driver.memory_allocate(&address_, size);
  size_t free = 0, total = 0;
  // Only of a card that is full is it worth to say how full; one that is gone answers no questions.
  if (code == jit::kCudaOutOfMemory && driver.memory_info(&free, &total) == 0)
    driver.check(code,
                 fmt::format("allocating {} for {} ({} of the GPU's {} are free)", format_bytes(bytes), what,
                             format_bytes(static_cast<int64_t>(free)), format_bytes(static_cast<int64_t>(total))));
  driver.check(code, fmt::format("allocating {} for {}", format_bytes(bytes), what));
  driver.check(driver.memory_set(address_, 0, size), fmt::format("clearing {}", what));
}

DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept
    : address_(std::exchange(other.address_, 0)), bytes_(std::exchange(other.bytes_, 0)) {}

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  std::swap(address_, other.address_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

DeviceMemory::~DeviceMemory() {
  if (address_ != 0 && !gpu_is_abandoned()) CudaDriver::get().memory_free(address_);
}

void DeviceMemory::upload(const void* from, int64_t bytes) {
  MEGALITH_ASSERT(bytes <= bytes_, "[cuda] {} bytes into memory of {}", bytes, bytes_);
  if (bytes == 0) return;
  const CudaDriver& driver = CudaDriver::get();
  driver.check(driver.copy_to_device(address_, from, static_cast<size_t>(bytes)), "copying to the GPU");
}

void DeviceMemory::clear() {
  if (bytes_ == 0) return;
  const CudaDriver& driver = CudaDriver::get();
  driver.check(driver.memory_set(address_, 0, static_cast<size_t>(bytes_)), "clearing memory of the GPU");
}

void DeviceMemory::download(void* to, int64_t bytes) const {
  MEGALITH_ASSERT(bytes <= bytes_, "[cuda] {} bytes from memory of {}", bytes, bytes_);
  if (bytes == 0) return;
  const CudaDriver& driver = CudaDriver::get();
  driver.check(driver.copy_to_host(to, address_, static_cast<size_t>(bytes)), "copying from the GPU");
}

PinnedMemory::PinnedMemory(int64_t bytes, const std::string& what) {
  constexpr unsigned kPortable = 1, kDeviceMap = 2;
  const CudaDriver& driver = CudaDriver::get();
  const auto size = static_cast<size_t>(std::max<int64_t>(bytes, 16));
  const jit::CudaCode code = driver.host_allocate(&data_, size, kPortable | kDeviceMap);
  if (code == jit::kCudaOutOfMemory)
    throw SystemError(
        fmt::format("[cuda] cannot lock {} of host memory for {}: {} are available; close other programs, or raise the "
                    "limit of this process or container (ulimit -l)",
                    format_bytes(bytes), what, format_bytes(memory_available_bytes())));
  driver.check(code, fmt::format("locking {} of host memory for {}", format_bytes(bytes), what));
  std::memset(data_, 0, size);
}

PinnedMemory::PinnedMemory(PinnedMemory&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}

PinnedMemory& PinnedMemory::operator=(PinnedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  return *this;
}

PinnedMemory::~PinnedMemory() {
  if (data_ != nullptr && !gpu_is_abandoned()) CudaDriver::get().host_free(data_);
}

}  // namespace megalith::runtime
