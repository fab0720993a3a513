// Memory of a GPU, and memory of the host that the GPU reads and writes while a kernel runs.
#pragma once

#include <cstdint>
#include <string>
#include <thread>
#include <utility>

#include "megalith/jit/cuda/driver.h"

namespace megalith::runtime {

/// A kernel that does not return keeps the GPU: whatever frees something waits for it, for ever. So from now on nothing
/// is freed before the process ends, which frees all of it, and no new context is taken. `why`: what whoever wants one
/// is told.
void abandon_gpu(const std::string& why);
/// Whether that has happened, or this process was forked from the one that opened the GPU.
bool gpu_is_abandoned();

/// Keeps a GPU's context: it is there for as long as anybody does. Move-only.
class CudaContextHold {
 public:
  CudaContextHold() = default;
  explicit CudaContextHold(jit::CudaDevice device);
  /// Of the one that is current on this thread.
  static CudaContextHold of_current();
  CudaContextHold(CudaContextHold&& other) noexcept;
  CudaContextHold& operator=(CudaContextHold&& other) noexcept;
  ~CudaContextHold();

  jit::CudaContext context() const { return context_; }
  /// For destructors, which must not fail: makes the context current on this thread, until leave(). False if the GPU
  /// was abandoned, or if the driver refuses: then nothing can be freed.
  bool enter() const noexcept;
  static void leave() noexcept;

 private:
  jit::CudaDevice device_ = 0;
  jit::CudaContext context_ = nullptr;
};

/// The GPU's context on this thread, for as long as the object lives; then the one that was there before. Every thread
/// that calls the driver needs one. SystemError if the GPU was abandoned. Belongs into a scope: where another thread
/// ends it, the first one's context stays.
class CudaContextGuard {
 public:
  explicit CudaContextGuard(int ordinal);
  ~CudaContextGuard();
  CudaContextGuard(const CudaContextGuard&) = delete;
  CudaContextGuard& operator=(const CudaContextGuard&) = delete;

 private:
  CudaContextHold hold_;
  std::thread::id thread_ = std::this_thread::get_id();
};

/// What the driver makes and must be told to free: a stream, an event, a module, memory. It is freed in the context in
/// which it was made, on whichever thread, and not at all once the GPU was abandoned. Move-only.
///
///   CudaStreamOwner stream;
///   driver.check(driver.stream_create(stream.out(), 0), "making a stream");
template <class Handle, auto kFree>
class CudaOwner {
 public:
  CudaOwner() = default;
  CudaOwner(CudaOwner&& other) noexcept
      : hold_(std::move(other.hold_)), handle_(std::exchange(other.handle_, Handle{})) {}
  CudaOwner& operator=(CudaOwner&& other) noexcept {
    std::swap(hold_, other.hold_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~CudaOwner() {
    const bool is_made = handle_ != Handle{};
    if (!is_made || !hold_.enter()) return;
    (jit::CudaDriver::get().*kFree)(handle_);
    CudaContextHold::leave();
  }

  Handle get() const { return handle_; }
  /// Where the driver writes what it made, in the current context. Once.
  Handle* out() {
    hold_ = CudaContextHold::of_current();
    return &handle_;
  }

 private:
  CudaContextHold hold_;
  Handle handle_{};
};
using CudaStreamOwner = CudaOwner<jit::CudaStream, &jit::CudaDriver::stream_destroy>;
using CudaEventOwner = CudaOwner<jit::CudaEvent, &jit::CudaDriver::event_destroy>;
using CudaModuleOwner = CudaOwner<jit::CudaModule, &jit::CudaDriver::module_unload>;

/// Zeroed memory on the GPU. Move-only.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  /// SystemError naming `what`, the bytes wanted and the bytes free.
  DeviceMemory(int64_t bytes, const std::string& what);

  void upload(const void* from, int64_t bytes);
  void download(void* to, int64_t bytes) const;
  template <class T = void>
  T* data() const {
    return reinterpret_cast<T*>(address());
  }
  jit::CudaAddress address() const { return memory_.get(); }
  int64_t bytes() const { return bytes_; }

 private:
  CudaOwner<jit::CudaAddress, &jit::CudaDriver::memory_free> memory_;
  int64_t bytes_ = 0;
};

/// Zeroed, page-locked memory of the host, at the same address for the GPU. Move-only.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  PinnedMemory(int64_t bytes, const std::string& what);

  template <class T = void>
  T* data() const {
    return static_cast<T*>(memory_.get());
  }

 private:
  CudaOwner<void*, &jit::CudaDriver::host_free> memory_;
};

}  // namespace megalith::runtime
