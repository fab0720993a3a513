#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "megalith/base/dtype.h"
#include "megalith/base/error.h"
#include "megalith/engine/engine.h"
#include "megalith/jit/cuda/driver.h"
#include "megalith/runtime/cuda/memory.h"
#include "megalith/runtime/topology.h"
#include "python/src/bind.h"
#include "python/src/interpreter.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace megalith::python {

namespace {

// Memory of a GPU, for whoever has no library that owns such memory.
class DeviceArray {
 public:
  explicit DeviceArray(int64_t bytes) : bytes_(bytes) {
    const runtime::CudaContextGuard context(jit::cuda_device().ordinal);
    memory_ = runtime::DeviceMemory(bytes, "a tensor");
  }
  uintptr_t address() const { return static_cast<uintptr_t>(memory_.address()); }
  int64_t bytes() const { return bytes_; }
  void upload(uintptr_t from) {
    const runtime::CudaContextGuard context(jit::cuda_device().ordinal);
    memory_.upload(reinterpret_cast<const void*>(from), bytes_);  // NOLINT: an address came through Python
  }
  void download(uintptr_t to) const {
    const runtime::CudaContextGuard context(jit::cuda_device().ordinal);
    memory_.download(reinterpret_cast<void*>(to), bytes_);  // NOLINT: likewise
  }

 private:
  runtime::DeviceMemory memory_;
  int64_t bytes_;
};

}  // namespace

void bind_runtime(nb::module_& module) {
  nb::class_<DeviceArray>(module, "DeviceArray", "Zeroed memory on the GPU.")
      .def(nb::init<int64_t>(), "nbytes"_a)
      .def_prop_ro("address", &DeviceArray::address)
      .def_prop_ro("nbytes", &DeviceArray::bytes)
      .def("upload", &DeviceArray::upload, "address"_a, nb::call_guard<Unlocked>())
      .def("download", &DeviceArray::download, "address"_a, nb::call_guard<Unlocked>());

  module.def(
      "copy_from_device",
      [](uintptr_t from, uintptr_t to, size_t bytes) {
        const runtime::CudaContextGuard context(jit::cuda_device().ordinal);
        const jit::CudaDriver& driver = jit::CudaDriver::get();
        driver.check(driver.copy_to_host(reinterpret_cast<void*>(to), from, bytes), "copying from the GPU");  // NOLINT
      },
      "address"_a, "to"_a, "nbytes"_a, nb::call_guard<Unlocked>());

  nb::class_<jit::CudaDeviceInfo>(module, "CudaDevice", "A GPU.")
      .def_ro("ordinal", &jit::CudaDeviceInfo::ordinal)
      .def_ro("name", &jit::CudaDeviceInfo::name)
      .def_ro("architecture", &jit::CudaDeviceInfo::architecture, "\"sm_90a\"")
      .def_ro("num_multiprocessors", &jit::CudaDeviceInfo::num_multiprocessors)
      .def_ro("memory_bytes", &jit::CudaDeviceInfo::memory_bytes)
      .def("__repr__", [](const jit::CudaDeviceInfo& device) {
        return fmt::format("<GPU {}: {}, {}>", device.ordinal, device.name, device.architecture);
      });
  module.def("cuda_devices", &jit::cuda_devices, "The GPUs of this machine; SystemError if there is no driver.");
  module.def(
      "default_num_workers", [](const std::string& target) { return engine::default_num_workers(target); },
      "target"_a = "cpu", "Workers to use when nobody says: every usable core, or every multiprocessor.");
  module.def(
      "memory_available", [] { return runtime::memory_available_bytes(); },
      "Bytes of the host's memory that can still be had.");
}

}  // namespace megalith::python
