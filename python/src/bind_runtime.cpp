#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "megalith/base/dtype.h"
#include "megalith/base/error.h"
#include "megalith/engine/engine.h"
#include "megalith/jit/cuda/driver.h"
#include "megalith/runtime/cuda/memory.h"
#include "megalith/runtime/topology.h"
#include "python/src/bind.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace megalith::python {

namespace {

// A tensor that came by DLPack. Holds on to it: its memory stays for as long as this lives.
struct TensorView {
  nb::ndarray<nb::ro> array;
  bool writable = false;
};

std::string dtype_of(const nb::dlpack::dtype& dtype) {
  if (dtype.lanes == 1) {
    const auto code = static_cast<nb::dlpack::dtype_code>(dtype.code);
    if (code == nb::dlpack::dtype_code::Bfloat && dtype.bits == 16) return "bf16";
    if (code == nb::dlpack::dtype_code::Float) return fmt::format("f{}", dtype.bits);
    if (code == nb::dlpack::dtype_code::Int) return fmt::format("i{}", dtype.bits);
    if (code == nb::dlpack::dtype_code::UInt) return fmt::format("u{}", dtype.bits);
    if (code == nb::dlpack::dtype_code::Bool) return "bool";
  }
  return fmt::format("DLPack type {} of {} bits", dtype.code, dtype.bits);
}

const char* device_of(int type) {
  switch (type) {
    case nb::device::cpu::value: return "cpu";
    case nb::device::cuda_host::value: return "cpu";  // pinned, but the host's
    case nb::device::cuda::value:
    case nb::device::cuda_managed::value: return "cuda";
    default: return "other";
  }
}

// The GPU that a tensor lies on; -1 where that is the host's memory, or managed memory, which every GPU reaches.
int device_id_of(const TensorView& view) {
  return view.array.device_type() == nb::device::cuda::value ? view.array.device_id() : -1;
}

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
  nb::class_<TensorView>(module, "TensorView", "A tensor of some other library, taken without a copy.")
      .def_prop_ro("address", [](const TensorView& view) { return reinterpret_cast<uintptr_t>(view.array.data()); })
      .def_prop_ro("shape",
                   [](const TensorView& view) {
                     std::vector<int64_t> shape;
                     for (size_t i = 0; i < view.array.ndim(); ++i)
                       shape.push_back(static_cast<int64_t>(view.array.shape(i)));
                     return shape;
                   })
      .def_prop_ro(
          "strides",
          [](const TensorView& view) {
            std::vector<int64_t> strides;
            for (size_t i = 0; i < view.array.ndim(); ++i) strides.push_back(view.array.stride(i));
            return strides;
          },
          "In elements.")
      .def_prop_ro("dtype", [](const TensorView& view) { return dtype_of(view.array.dtype()); })
      .def_prop_ro("device", [](const TensorView& view) { return device_of(view.array.device_type()); })
      .def_prop_ro("device_id", &device_id_of)
      .def_ro("writable", &TensorView::writable);
  module.def(
      "tensor_view",
      [](nb::handle object) {
        nb::ndarray<> writable;
        if (nb::try_cast(object, writable)) return TensorView{nb::ndarray<nb::ro>(writable), true};
        return TensorView{nb::cast<nb::ndarray<nb::ro>>(object), false};
      },
      "tensor"_a, "The memory of anything with __dlpack__; TypeError for what has none.");

  nb::class_<DeviceArray>(module, "DeviceArray", "Zeroed memory on the GPU.")
      .def(nb::init<int64_t>(), "nbytes"_a)
      .def_prop_ro("address", &DeviceArray::address)
      .def_prop_ro("nbytes", &DeviceArray::bytes)
      .def("upload", &DeviceArray::upload, "address"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("download", &DeviceArray::download, "address"_a, nb::call_guard<nb::gil_scoped_release>());

  module.def(
      "copy_from_device",
      [](uintptr_t from, uintptr_t to, size_t bytes) {
        const runtime::CudaContextGuard context(jit::cuda_device().ordinal);
        const jit::CudaDriver& driver = jit::CudaDriver::get();
        driver.check(driver.copy_to_host(reinterpret_cast<void*>(to), from, bytes), "copying from the GPU");  // NOLINT
      },
      "address"_a, "to"_a, "nbytes"_a, nb::call_guard<nb::gil_scoped_release>());

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
