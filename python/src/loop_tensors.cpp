#include "python/src/loop_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "megalith/base/error.h"
#include "python/src/bind.h"

namespace nb = nanobind;

namespace megalith::python {

namespace {

using runtime::kMaxLoopDims;
using runtime::LoopTensor;

// Names and types that are looked for in each call, made once and kept for as long as the process lives.
PyObject* word(const char* text) { return PyUnicode_InternFromString(text); }

std::optional<DType> dtype_of_format(const char* format) {
  if (!format) return std::nullopt;
  if (*format == '@' || *format == '=') ++format;
  if (format[0] == '\0' || format[1] != '\0') return std::nullopt;
  switch (*format) {
    case 'f': return DType::f32;
    case 'e': return DType::f16;
    case 'b': return DType::i8;
    case 'i': return DType::i32;
    case 'l':
    case 'q': return sizeof(long) == 8 || *format == 'q' ? DType::i64 : DType::i32;
    default: return std::nullopt;
  }
}

// False where somebody else must look: other dtypes, more dimensions, masks.
bool read_buffer(nb::handle object, LoopTensor& tensor) {
  Py_buffer view;
  if (PyObject_GetBuffer(object.ptr(), &view, PyBUF_STRIDES | PyBUF_FORMAT) != 0) {
    PyErr_Clear();
    return false;
  }
  const std::optional<DType> dtype = dtype_of_format(view.format);
  const bool fits = dtype && view.ndim <= static_cast<int>(kMaxLoopDims);
  if (fits) {
    tensor.data = view.buf;
    tensor.dtype = *dtype;
    tensor.is_there = true;
    tensor.on_gpu = false;
    tensor.writable = !view.readonly;
    tensor.num_dims = view.ndim;
    Py_ssize_t stride = view.itemsize;
    bool is_row_major = true, is_empty = false;
    for (int d = view.ndim; d-- > 0;) {
      tensor.shape[static_cast<size_t>(d)] = view.shape[d];
      is_row_major &= view.shape[d] == 1 || view.strides[d] == stride;
      is_empty |= view.shape[d] == 0;
      stride *= view.shape[d];
    }
    tensor.row_major = is_row_major || is_empty;
  }
  PyBuffer_Release(&view);
  return fits;
}

int64_t whole(PyObject* number) {
  const long long value = PyLong_AsLongLong(number);
  if (value == -1 && PyErr_Occurred()) nb::raise_python_error();
  return value;
}

nb::object attribute(nb::handle object, PyObject* name) {
  PyObject* const value = PyObject_GetAttr(object.ptr(), name);
  if (!value) nb::raise_python_error();
  return nb::steal(value);
}

nb::object call_method(nb::handle object, PyObject* name) {
  PyObject* const value = PyObject_CallMethodNoArgs(object.ptr(), name);
  if (!value) nb::raise_python_error();
  return nb::steal(value);
}

// dtypes of torch and numpy are objects, one each.
std::optional<DType> dtype_of_object(nb::handle dtype) {
  static auto* const known = new std::vector<std::pair<PyObject*, DType>>;
  for (const auto& [object, type] : *known)
    if (object == dtype.ptr()) return type;
  std::string text = nb::str(dtype).c_str();
  if (text.starts_with("torch.")) text.erase(0, 6);
  static constexpr std::pair<const char*, DType> kNames[] = {{"float32", DType::f32}, {"bfloat16", DType::bf16},
                                                             {"float16", DType::f16}, {"int8", DType::i8},
                                                             {"int32", DType::i32},   {"int64", DType::i64}};
  constexpr size_t kMost = 64;  // they are kept alive
  for (const auto& [name, type] : kNames)
    if (text == name && known->size() < kMost) {
      known->emplace_back(nb::borrow(dtype).release().ptr(), type);
      return type;
    }
  return std::nullopt;
}

// False if there are too many dimensions.
bool read_shape(nb::handle dims, LoopTensor& tensor) {
  if (!PyTuple_Check(dims.ptr()) || PyTuple_GET_SIZE(dims.ptr()) > static_cast<Py_ssize_t>(kMaxLoopDims)) return false;
  tensor.num_dims = static_cast<int>(PyTuple_GET_SIZE(dims.ptr()));
  for (int d = 0; d < tensor.num_dims; ++d)
    tensor.shape[static_cast<size_t>(d)] = whole(PyTuple_GET_ITEM(dims.ptr(), d));
  return true;
}

// megalith.DeviceTensor, which is on the first GPU.
bool read_device_tensor(nb::handle object, LoopTensor& tensor) {
  static PyObject* const address = word("address");
  static PyObject* const dtype = word("dtype");
  static PyObject* const shape = word("shape");
  const std::optional<DType> type = dtype_of_object(attribute(object, dtype));
  if (!type || !read_shape(attribute(object, shape), tensor)) return false;
  tensor.data = PyLong_AsVoidPtr(attribute(object, address).ptr());
  if (!tensor.data && PyErr_Occurred()) nb::raise_python_error();
  tensor.dtype = *type;
  tensor.on_gpu = tensor.writable = tensor.row_major = tensor.is_there = true;
  tensor.ordinal = 0;
  return true;
}

bool read_torch(nb::handle object, LoopTensor& tensor) {
  static PyObject* const data_ptr = word("data_ptr");
  static PyObject* const dtype = word("dtype");
  static PyObject* const shape = word("shape");
  static PyObject* const is_cuda = word("is_cuda");
  static PyObject* const is_cpu = word("is_cpu");
  static PyObject* const get_device = word("get_device");
  static PyObject* const is_contiguous = word("is_contiguous");
  const std::optional<DType> type = dtype_of_object(attribute(object, dtype));
  if (!type) return false;
  if (!read_shape(attribute(object, shape), tensor)) return false;
  tensor.on_gpu = attribute(object, is_cuda).ptr() == Py_True;
  if (!tensor.on_gpu && attribute(object, is_cpu).ptr() != Py_True) return false;
  tensor.ordinal = tensor.on_gpu ? static_cast<int>(whole(call_method(object, get_device).ptr())) : 0;
  tensor.row_major = call_method(object, is_contiguous).ptr() == Py_True;
  tensor.data = PyLong_AsVoidPtr(call_method(object, data_ptr).ptr());
  if (!tensor.data && PyErr_Occurred()) nb::raise_python_error();
  tensor.dtype = *type;
  tensor.writable = true;
  tensor.is_there = true;
  return true;
}

// Types that were seen, and what they are of.
ArrayKind kind_of(nb::handle object) {
  static auto* const known = new std::vector<std::pair<PyTypeObject*, ArrayKind>>;
  PyTypeObject* const type = Py_TYPE(object.ptr());
  for (const auto& [one, kind] : *known)
    if (one == type) return kind;
  constexpr size_t kMost = 64;  // types are kept alive: whoever makes one for each call gets no quick way
  ArrayKind kind = ArrayKind::other;
  const nb::object module = nb::getattr(nb::handle(reinterpret_cast<PyObject*>(type)), "__module__", nb::none());
  const std::string from = nb::isinstance<nb::str>(module) ? nb::str(module).c_str() : "";
  // ndarray itself: what is made of it may have masks.
  if (from == "numpy" && std::strcmp(type->tp_name, "numpy.ndarray") == 0) kind = ArrayKind::numpy;
  if ((from == "torch" || from.starts_with("torch.nn.")) && nb::hasattr(object, "data_ptr")) kind = ArrayKind::torch;
  if (from == "megalith.tensors" && std::strcmp(type->tp_name, "DeviceTensor") == 0) kind = ArrayKind::device;
  if (known->size() < kMost) {
    Py_INCREF(type);
    known->emplace_back(type, kind);
  }
  return kind;
}

// megalith.tensors.memory_of() knows all that there is, and what is wrong with it.
void read_slowly(nb::handle object, const std::string& prefix, const std::string& name, LoopTensor& tensor) {
  nb::object memory;
  try {
    memory = nb::module_::import_("megalith.tensors").attr("memory_of")(object, name);
  } catch (nb::python_error& error) {
    const std::string text = nb::str(error.value()).c_str();
    if (!error.matches(nb::module_::import_("megalith").attr("UserError"))) throw;
    throw UserError(fmt::format("{} {}", prefix, text));
  }
  const auto shape = nb::tuple(memory.attr("shape"));
  MEGALITH_CHECK(nb::len(shape) <= kMaxLoopDims, "{} {} has {} dimensions, at most {} are taken", prefix, name,
                 nb::len(shape), kMaxLoopDims);
  tensor.num_dims = static_cast<int>(nb::len(shape));
  for (size_t d = 0; d < nb::len(shape); ++d) tensor.shape[d] = nb::cast<int64_t>(shape[d]);
  tensor.data = reinterpret_cast<void*>(nb::cast<uintptr_t>(memory.attr("address")));  // NOLINT: it came through Python
  tensor.dtype = dtype_parse(nb::cast<std::string>(memory.attr("dtype")));
  tensor.on_gpu = nb::cast<std::string>(memory.attr("device")) == "cuda";
  tensor.ordinal = std::max(0, nb::cast<int>(memory.attr("device_id")));
  tensor.writable = nb::cast<bool>(memory.attr("writable"));
  tensor.row_major = true;
  tensor.is_there = true;
}

}  // namespace

ArrayKind read_loop_tensor(nb::handle object, const std::string& prefix, const std::string& name, LoopTensor& tensor) {
  const ArrayKind kind = kind_of(object);
  const bool is_read = kind == ArrayKind::numpy    ? read_buffer(object, tensor)
                       : kind == ArrayKind::torch  ? read_torch(object, tensor)
                       : kind == ArrayKind::device ? read_device_tensor(object, tensor)
                                                   : false;
  if (!is_read) read_slowly(object, prefix, name, tensor);
  return kind;
}

void* torch_stream(int ordinal) {
  static PyObject* const current = [] {
    const nb::object torch = nb::module_::import_("torch");
    const nb::object inner = nb::getattr(torch, "_C", nb::none());
    return nb::getattr(inner, "_cuda_getCurrentRawStream", nb::none()).release().ptr();
  }();
  const nb::object stream =
      nb::handle(current).is_none()
          ? nb::module_::import_("torch").attr("cuda").attr("current_stream")(ordinal).attr("cuda_stream")
          : nb::handle(current)(ordinal);
  return PyLong_AsVoidPtr(stream.ptr());
}

}  // namespace megalith::python
