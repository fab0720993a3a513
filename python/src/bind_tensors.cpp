// Memory of other libraries. Tensors come by DLPack, whose structs are an ABI (dmlc.github.io/dlpack): a capsule comes from
// whoever has a method called __dlpack__, so nothing in it is believed that can be looked at.
#include <fmt/format.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "megalith/base/error.h"
#include "python/src/bind.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace megalith::python {

namespace {

struct DlDevice {
  int32_t type, id;
};
struct DlType {
  uint8_t code, bits;
  uint16_t lanes;
};
struct DlTensor {
  void* data;
  DlDevice device;
  int32_t num_dims;
  DlType dtype;
  const int64_t* shape;
  const int64_t* strides;  // in elements; nullptr: row-major
  uint64_t byte_offset;
};
// What owns a tensor, until `release` is called: as capsules called "dltensor" hold it, and those called
// "dltensor_versioned".
struct Managed {
  DlTensor tensor;
  void* context;
  void (*release)(Managed*);
};
struct VersionedManaged {
  uint32_t major, minor;
  void* context;
  void (*release)(VersionedManaged*);
  uint64_t flags;
  DlTensor tensor;
};
constexpr uint32_t kMajor = 1;
constexpr uint64_t kReadOnly = 1;
constexpr int kMaxDims = 64;
enum DeviceType { kCpu = 1, kCuda = 2, kCudaHost = 3, kCudaManaged = 13 };

// Those that are held here. One that comes a second time would be released twice.
std::set<const void*>& held() {
  static auto* const all = new std::set<const void*>;
  return *all;
}

/// A tensor that came in a capsule, which it empties. Its memory stays for as long as this lives.
class TensorView {
 public:
  TensorView(nb::handle capsule, std::string name);
  ~TensorView() {
    held().erase(managed_);
    if (versioned_ && versioned_->release) versioned_->release(versioned_);
    if (plain_ && plain_->release) plain_->release(plain_);
  }
  TensorView(const TensorView&) = delete;
  TensorView& operator=(const TensorView&) = delete;

  uintptr_t address() const { return address_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  const std::vector<int64_t>& strides() const { return strides_; }
  std::string dtype() const;
  std::string device() const;
  DlDevice where() const { return tensor_->device; }
  bool is_writable() const { return !versioned_ || (versioned_->flags & kReadOnly) == 0; }

 private:
  void check();

  std::string name_;
  Managed* plain_ = nullptr;
  VersionedManaged* versioned_ = nullptr;
  const void* managed_ = nullptr;
  const DlTensor* tensor_ = nullptr;
  uintptr_t address_ = 0;
  std::vector<int64_t> shape_, strides_;
};

TensorView::TensorView(nb::handle capsule, std::string name) : name_(std::move(name)) {
  MEGALITH_CHECK(PyCapsule_CheckExact(capsule.ptr()), "the tensor \"{}\": its __dlpack__ gave {}, want a capsule",
                 name_, nb::type_name(capsule.type()).c_str());
  const char* const label = PyCapsule_GetName(capsule.ptr());
  const std::string called = label ? label : "";
  MEGALITH_CHECK(!called.starts_with("used_dltensor"),
                 "the tensor \"{}\": its __dlpack__ gave a capsule that was taken before, want a new one for each call",
                 name_);
  const bool is_versioned = called == "dltensor_versioned";
  MEGALITH_CHECK(is_versioned || called == "dltensor",
                 "the tensor \"{}\": its __dlpack__ gave a capsule called \"{}\", want \"dltensor\" or "
                 "\"dltensor_versioned\"",
                 name_, called);
  managed_ = PyCapsule_GetPointer(capsule.ptr(), label);
  if (!managed_) nb::raise_python_error();
  MEGALITH_CHECK(!held().contains(managed_),
                 "the tensor \"{}\": its __dlpack__ gave what is attached already, want a new capsule for each call",
                 name_);
  auto* const versioned = is_versioned ? static_cast<VersionedManaged*>(const_cast<void*>(managed_)) : nullptr;
  auto* const plain = is_versioned ? nullptr : static_cast<Managed*>(const_cast<void*>(managed_));
  MEGALITH_CHECK(!versioned || versioned->major == kMajor,
                 "the tensor \"{}\": its __dlpack__ speaks version {}.{} of DLPack, want {}", name_, versioned->major,
                 versioned->minor, kMajor);
  tensor_ = versioned ? &versioned->tensor : &plain->tensor;
  check();
  // From here on it is ours to release.
  if (PyCapsule_SetName(capsule.ptr(), is_versioned ? "used_dltensor_versioned" : "used_dltensor") != 0)
    nb::raise_python_error();
  versioned_ = versioned;
  plain_ = plain;
  held().insert(managed_);
}

void TensorView::check() {
  const DlTensor& t = *tensor_;
  MEGALITH_CHECK(t.num_dims >= 0 && t.num_dims <= kMaxDims,
                 "the tensor \"{}\" says by DLPack that it has {} dimensions", name_, t.num_dims);
  MEGALITH_CHECK(t.num_dims == 0 || t.shape,
                 "the tensor \"{}\" says by DLPack that it has {} dimensions, and not which", name_, t.num_dims);
  shape_.assign(t.shape, t.shape + t.num_dims);
  // All of it must be addressable, in bytes.
  int64_t room = std::numeric_limits<int64_t>::max() / 16;
  bool is_empty = false;
  for (const int64_t size : shape_) {
    MEGALITH_CHECK(size >= 0, "the tensor \"{}\" says by DLPack that its shape is [{}]", name_,
                   fmt::join(shape_, ", "));
    is_empty |= size == 0;
  }
  for (const int64_t size : shape_) {
    MEGALITH_CHECK(is_empty || size <= room,
                   "the tensor \"{}\" says by DLPack that its shape is [{}], which is more than memory can hold", name_,
                   fmt::join(shape_, ", "));
    if (!is_empty) room /= size;
  }
  strides_.resize(shape_.size(), 1);
  if (t.strides)
    strides_.assign(t.strides, t.strides + t.num_dims);
  else
    for (size_t d = shape_.size(); d-- > 1;) strides_[d - 1] = is_empty ? 1 : strides_[d] * shape_[d];
  address_ = reinterpret_cast<uintptr_t>(t.data) + t.byte_offset;
  MEGALITH_CHECK(is_empty || (t.data && address_ >= t.byte_offset), "the tensor \"{}\" has no memory, as DLPack has it",
                 name_);
}

std::string TensorView::dtype() const {
  enum Code { kInt = 0, kUInt = 1, kFloat = 2, kBfloat = 4, kBool = 6 };
  const DlType& type = tensor_->dtype;
  if (type.lanes == 1) {
    if (type.code == kBfloat && type.bits == 16) return "bf16";
    if (type.code == kFloat) return fmt::format("f{}", type.bits);
    if (type.code == kInt) return fmt::format("i{}", type.bits);
    if (type.code == kUInt) return fmt::format("u{}", type.bits);
    if (type.code == kBool) return "bool";
  }
  return fmt::format("of DLPack, {} of {} bits, {} at a time,", type.code, type.bits, type.lanes);
}

std::string TensorView::device() const {
  switch (tensor_->device.type) {
    case kCpu:
    case kCudaHost: return "cpu";  // pinned, but the host's
    case kCuda:
    case kCudaManaged: return "cuda";
    default: return fmt::format("{} of DLPack", tensor_->device.type);
  }
}

// What numpy's __array_struct__ has (numpy.org, "The array interface protocol").
struct ArrayInterface {
  int two, num_dims;
  char kind;
  int item_bytes, flags;
  Py_ssize_t *shape, *strides;
  void* data;
  PyObject* description;
};

using Place = std::pair<uintptr_t, int64_t>;  // address, bytes

Place array_place(nb::handle array) {
  const nb::object capsule = array.attr("__array_struct__");
  const auto* const interface =
      PyCapsule_CheckExact(capsule.ptr())
          ? static_cast<const ArrayInterface*>(PyCapsule_GetPointer(capsule.ptr(), PyCapsule_GetName(capsule.ptr())))
          : nullptr;
  MEGALITH_CHECK(interface && interface->two == 2, "a {} is no array: its __array_struct__ is none",
                 nb::type_name(array.type()).c_str());
  int64_t bytes = interface->item_bytes;
  for (int d = 0; d < interface->num_dims; ++d) bytes *= interface->shape[d];
  return {reinterpret_cast<uintptr_t>(interface->data), bytes};
}

Place buffer_place(nb::handle buffer) {
  Py_buffer view;
  if (PyObject_GetBuffer(buffer.ptr(), &view, PyBUF_SIMPLE) != 0) nb::raise_python_error();
  const Place place{reinterpret_cast<uintptr_t>(view.buf), view.len};
  PyBuffer_Release(&view);
  return place;
}

}  // namespace

void bind_tensors(nb::module_& module) {
  nb::class_<TensorView>(module, "TensorView", "A tensor of some other library, taken without a copy.")
      .def(
          "__init__",
          [](TensorView* self, nb::handle capsule, const std::string& name) { new (self) TensorView(capsule, name); },
          "capsule"_a.none(), "name"_a, "What an object's __dlpack__ gave; UserError calling it `name`.")
      .def_prop_ro("address", &TensorView::address)
      .def_prop_ro("shape", &TensorView::shape)
      .def_prop_ro("strides", &TensorView::strides, "In elements.")
      .def_prop_ro("dtype", &TensorView::dtype)
      .def_prop_ro("device", &TensorView::device)
      .def_prop_ro(
          "where", [](const TensorView& view) { return nb::make_tuple(view.where().type, view.where().id); },
          "As __dlpack_device__ has it.")
      .def_prop_ro(
          "device_id", [](const TensorView& view) { return view.where().type == kCuda ? view.where().id : -1; },
          "The GPU that it lies on; -1 where that is the host's memory, or managed memory, which every GPU reaches.")
      .def_prop_ro("writable", &TensorView::is_writable);
  module.def("array_place", &array_place, "array"_a, "(address, bytes) of an array of numpy.");
  module.def("buffer_place", &buffer_place, "buffer"_a, "(address, bytes) of what has a buffer.");
}

}  // namespace megalith::python
