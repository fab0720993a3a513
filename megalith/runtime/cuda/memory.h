// Memory of a GPU, and memory of the host that the GPU reads and writes while a kernel runs.
#pragma once

#include <cstdint>
#include <string>

#include "megalith/jit/cuda/driver.h"

namespace megalith::runtime {

/// A kernel that does not return keeps the GPU: whatever frees something waits for it, for ever. So from now on nothing
/// is freed before the process ends, which frees all of it, and no new context is taken. `why`: what whoever wants one
/// is told.
void abandon_gpu(const std::string& why);
/// Whether that has happened.
bool gpu_is_abandoned();

/// The GPU's context on this thread, for as long as the object lives. Every thread that calls the driver needs one.
/// SystemError if the GPU was abandoned.
class CudaContextGuard {
 public:
  explicit CudaContextGuard(int ordinal);
  ~CudaContextGuard();
  CudaContextGuard(const CudaContextGuard&) = delete;
  CudaContextGuard& operator=(const CudaContextGuard&) = delete;

 private:
  jit::CudaDevice device_ = 0;
};

/// Zeroed memory on the GPU. Move-only.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  /// SystemError naming `what`, the bytes wanted and the bytes free.
  DeviceMemory(int64_t bytes, const std::string& what);
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;
  ~DeviceMemory();

  void upload(const void* from, int64_t bytes);
  /// To zeros.
  void clear();
  void download(void* to, int64_t bytes) const;
  template <class T = void>
  T* data() const {
    return reinterpret_cast<T*>(address_);
  }
  jit::CudaAddress address() const { return address_; }
  int64_t bytes() const { return bytes_; }

 private:
  jit::CudaAddress address_ = 0;
  int64_t bytes_ = 0;
};

/// Zeroed, page-locked memory of the host, at the same address for the GPU. Move-only.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  PinnedMemory(int64_t bytes, const std::string& what);
  PinnedMemory(PinnedMemory&& other) noexcept;
  PinnedMemory& operator=(PinnedMemory&& other) noexcept;
  ~PinnedMemory();

  template <class T = void>
  T* data() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
};

}  // namespace megalith::runtime
