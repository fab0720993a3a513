// Loop kernels of one's own. What is pleasant to use stands in python/megalith/loop/; a call is all C++.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/set.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include "megalith/base/capacity_error.h"
#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/base/hash.h"
#include "megalith/base/options.h"
#include "megalith/codegen/loop_source.h"
#include "megalith/jit/cache.h"
#include "megalith/jit/compiler.h"
#include "megalith/loop/count.h"
#include "megalith/loop/tag.h"
#include "megalith/loop/text.h"
#include "megalith/loop/transform/preprocess.h"
#include "megalith/loop/transform/steps.h"
#include "megalith/runtime/loop_clock.h"
#include "megalith/runtime/loop_kernel.h"
#include "python/src/bind.h"
#include "python/src/interpreter.h"
#include "python/src/loop_tensors.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace megalith::python {

namespace {

using runtime::LoopCall;
using runtime::LoopKernel;
using runtime::LoopSignature;
using runtime::LoopSpecializing;
using runtime::LoopTensor;

PyObject* capacity_error = nullptr;  // megalith.CapacityError

void translate_capacity(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const CapacityError& error) { PyErr_SetString(capacity_error, error.what()); }
}

// Python's hooks: how outputs are made, and who hears of compilations.
struct Hooks {
  nb::object allocate, compiled;
};
Hooks& hooks() {
  static auto* const all = new Hooks;
  return *all;
}

bool is_interpreted() { return option_integer("MEGALITH_INTERPRET") != 0; }

/// A kernel, and the names of its arguments as Python compares them.
class PyLoopKernel {
 public:
  explicit PyLoopKernel(LoopKernel kernel, bool interprets = is_interpreted())
      : kernel_(std::move(kernel)), interprets_(interprets) {
    const LoopSignature& signature = kernel_.signature();
    for (const LoopSignature::Tensor& tensor : signature.tensors()) add(tensor_names_, tensor.name);
    for (const std::string& size : signature.sizes()) add(size_names_, size);
    for (const loop::Attribute& attribute : signature.attributes()) add(attribute_names_, attribute.name);
  }

  const LoopKernel& kernel() const { return kernel_; }
  nb::object call(const nb::args& args, const nb::kwargs& kwargs) const;
  nb::tuple describe(const nb::args& args, const nb::kwargs& kwargs) const;
  double launch_ns(int64_t runs, const nb::args& args) const;
  bool warm(const std::vector<std::tuple<std::string, std::string, std::vector<int64_t>>>& tensors,
            const std::map<std::string, int64_t>& sizes, const std::string& target) const;

 private:
  using Words = std::vector<nb::object>;
  static void add(Words& words, const std::string& name) {
    words.push_back(nb::steal(PyUnicode_InternFromString(name.c_str())));
  }
  // Interned words are equal where they are the same.
  static int find(const Words& words, PyObject* name) {
    for (size_t i = 0; i < words.size(); ++i)
      if (words[i].ptr() == name) return static_cast<int>(i);
    for (size_t i = 0; i < words.size(); ++i)
      if (PyUnicode_Compare(words[i].ptr(), name) == 0) return static_cast<int>(i);
    return -1;
  }
  struct Taken {
    nb::handle like;  // outputs are made like this
    ArrayKind kind = ArrayKind::other;
    bool has_stream = false;
    bool torch_on_gpu = false;
  };
  void take_all(const nb::args& args, const nb::kwargs& kwargs, LoopCall& call, Taken& taken, PyObject** given) const;
  void take(size_t index, nb::handle object, LoopCall& call, Taken& taken, PyObject** given) const;
  void take_named(PyObject* name, PyObject* value, LoopCall& call, Taken& taken, PyObject** given) const;
  std::string usage() const;
  static void tell(const std::shared_ptr<const jit::LoopProgram>& made);
  void make_outputs(LoopCall& call, const Taken& taken, PyObject** given, nb::object* kept) const;

  LoopKernel kernel_;
  bool interprets_;
  Words tensor_names_, size_names_, attribute_names_;
};

std::string PyLoopKernel::usage() const {
  const LoopSignature& signature = kernel_.signature();
  std::vector<std::string> names;
  for (size_t i = 0; i < signature.tensors().size(); ++i)
    names.push_back(signature.tensors()[i].name + (i < signature.num_inputs() ? "" : "=..."));
  for (const std::string& size : signature.sizes()) names.push_back(size + "=...");
  for (const loop::Attribute& attribute : signature.attributes()) names.push_back(attribute.name + "=...");
  names.emplace_back("stream=...");
  return fmt::format("({})", fmt::join(names, ", "));
}

void PyLoopKernel::take(size_t index, nb::handle object, LoopCall& call, Taken& taken, PyObject** given) const {
  const LoopSignature& signature = kernel_.signature();
  const std::string& name = signature.tensors()[index].name;
  MEGALITH_CHECK(!call.tensors[index].is_there, "{} {} is given twice", signature.prefix(), name);
  const ArrayKind kind = read_loop_tensor(object, signature.prefix(), name, call.tensors[index]);
  if (!taken.like.is_valid()) taken.like = object, taken.kind = kind;
  taken.torch_on_gpu |= kind == ArrayKind::torch && call.tensors[index].on_gpu;
  given[index] = object.ptr();
}

void PyLoopKernel::take_named(PyObject* name, PyObject* value, LoopCall& call, Taken& taken, PyObject** given) const {
  const LoopSignature& signature = kernel_.signature();
  if (const int tensor = find(tensor_names_, name); tensor >= 0) {
    if (value != Py_None) take(static_cast<size_t>(tensor), value, call, taken, given);
  } else if (const int size = find(size_names_, name); size >= 0) {
    PyObject* const number = PyBool_Check(value) ? nullptr : PyNumber_Index(value);
    int overflow = 1;
    const long long is = number ? PyLong_AsLongLongAndOverflow(number, &overflow) : -1;
    Py_XDECREF(number);
    PyErr_Clear();
    MEGALITH_CHECK(overflow == 0 && is >= 0, "{} {} is {}, want a whole number of 0 or more", signature.prefix(),
                   signature.sizes()[static_cast<size_t>(size)], shown(value));
    call.sizes[static_cast<size_t>(size)] = is;
  } else if (const int attribute = find(attribute_names_, name); attribute >= 0) {
    const double number = PyFloat_AsDouble(value);
    const bool is_number = !PyErr_Occurred() && !PyUnicode_Check(value);
    PyErr_Clear();
    MEGALITH_CHECK(is_number, "{} {} is {}, want a number", signature.prefix(),
                   signature.attributes()[static_cast<size_t>(attribute)].name, shown(value));
    call.attributes[static_cast<size_t>(attribute)] = static_cast<float>(number);
  } else if (PyUnicode_CompareWithASCIIString(name, "stream") == 0) {
    taken.has_stream = value != Py_None;
    if (!taken.has_stream) return;
    const nb::object address = PyLong_Check(value)                 ? nb::borrow(value)
                               : nb::hasattr(value, "cuda_stream") ? nb::object(nb::handle(value).attr("cuda_stream"))
                                                                   : nb::getattr(value, "ptr", nb::none());
    MEGALITH_CHECK(PyLong_Check(address.ptr()), "{} stream is {}, want a stream of torch or cupy, or its address",
                   signature.prefix(), shown(value));
    call.stream = PyLong_AsVoidPtr(address.ptr());
    const bool is_address = !PyErr_Occurred();
    PyErr_Clear();
    MEGALITH_CHECK(is_address, "{} stream is {}, which is no address", signature.prefix(), shown(value));
  } else {
    throw UserError(fmt::format("{} there is no argument {}: want {}", signature.prefix(), shown(name), usage()));
  }
}

// In Python: a compiler's time is long, and hooks may do anything.
void PyLoopKernel::tell(const std::shared_ptr<const jit::LoopProgram>& made) {
  if (!made || !hooks().compiled.is_valid() || hooks().compiled.is_none()) return;
  hooks().compiled(nb::cast(made->report), made->target);
}

void PyLoopKernel::make_outputs(LoopCall& call, const Taken& taken, PyObject** given, nb::object* kept) const {
  const LoopSignature& signature = kernel_.signature();
  for (size_t i = signature.num_inputs(); i < signature.tensors().size(); ++i) {
    if (call.tensors[i].is_there) continue;
    MEGALITH_CHECK(taken.like.is_valid(), "{} {} is not given, and there is no input that it could be made like",
                   signature.prefix(), signature.tensors()[i].name);
    std::array<int64_t, runtime::kMaxLoopDims> shape;
    signature.shape_of(i, {call.sizes.data(), signature.sizes().size()}, shape);
    nb::list dims;
    for (size_t d = 0; d < signature.tensors()[i].shape.size(); ++d) dims.append(shape[d]);
    const std::string_view dtype = dtype_name(call.tensors[i].dtype);
    kept[i] = hooks().allocate(taken.like, nb::tuple(dims), nb::str(dtype.data(), dtype.size()));
    given[i] = kept[i].ptr();
    read_loop_tensor(kept[i], signature.prefix(), signature.tensors()[i].name, call.tensors[i]);
  }
}

void PyLoopKernel::take_all(const nb::args& args, const nb::kwargs& kwargs, LoopCall& call, Taken& taken,
                            PyObject** given) const {
  const LoopSignature& signature = kernel_.signature();
  const size_t num_tensors = signature.tensors().size();
  MEGALITH_CHECK(args.size() <= num_tensors, "{} it is called with {} tensors, want {}: {}", signature.prefix(),
                 args.size(), num_tensors, usage());
  for (size_t i = 0; i < args.size(); ++i) take(i, PyTuple_GET_ITEM(args.ptr(), i), call, taken, given);
  if (kwargs.size() > 0) {
    PyObject *name = nullptr, *value = nullptr;
    for (Py_ssize_t at = 0; PyDict_Next(kwargs.ptr(), &at, &name, &value);) take_named(name, value, call, taken, given);
  }
  for (size_t i = 0; i < signature.num_inputs(); ++i)
    MEGALITH_CHECK(call.tensors[i].is_there, "{} {} is not given: want {}", signature.prefix(),
                   signature.tensors()[i].name, usage());
  kernel_.find_sizes(call);
}

// What a call is about, without running it: sizes, dtypes, and where.
nb::tuple PyLoopKernel::describe(const nb::args& args, const nb::kwargs& kwargs) const {
  LoopCall call = kernel_.call();
  Taken taken;
  std::array<PyObject*, runtime::kMaxLoopTensors> given{};
  take_all(args, kwargs, call, taken, given.data());
  nb::dict sizes;
  nb::list dtypes;
  for (size_t i = 0; i < kernel_.signature().sizes().size(); ++i)
    sizes[kernel_.signature().sizes()[i].c_str()] = call.sizes[i];
  for (size_t i = 0; i < kernel_.signature().tensors().size(); ++i)
    dtypes.append(call.tensors[i].is_there ? nb::object(nb::cast(std::string(dtype_name(call.tensors[i].dtype))))
                                           : nb::none());
  const bool on_gpu = call.tensors[0].on_gpu;
  void* const stream = taken.torch_on_gpu && !taken.has_stream ? torch_stream(call.tensors[0].ordinal) : call.stream;
  return nb::make_tuple(sizes, nb::tuple(dtypes), on_gpu ? call.tensors[0].ordinal : -1,
                        reinterpret_cast<uintptr_t>(stream));  // NOLINT: for Python
}

// What a call costs without Python: that much of it is the function's, or the driver's.
double PyLoopKernel::launch_ns(int64_t runs, const nb::args& args) const {
  LoopCall call = kernel_.call();
  Taken taken;
  std::array<PyObject*, runtime::kMaxLoopTensors> given{};
  take_all(args, nb::kwargs(), call, taken, given.data());
  const LoopSignature& signature = kernel_.signature();
  runtime::LoadedLoops* const loaded = kernel_.find(call);
  MEGALITH_CHECK(loaded && given[signature.tensors().size() - 1] && runs > 0,
                 "{} want a call that was made before, with its outputs", signature.prefix());
  if (taken.torch_on_gpu) call.stream = torch_stream(call.tensors[0].ordinal);
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t run = 0; run < runs; ++run)
    loaded->launch({call.tensors.data(), signature.tensors().size()}, {call.sizes.data(), signature.sizes().size()},
                   {call.attributes.data(), signature.attributes().size()}, call.stream);
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count() /
         static_cast<double>(runs);
}

nb::object PyLoopKernel::call(const nb::args& args, const nb::kwargs& kwargs) const {
  const LoopSignature& signature = kernel_.signature();
  const size_t num_tensors = signature.tensors().size(), num_inputs = signature.num_inputs();
  LoopCall call = kernel_.call();
  Taken taken;
  std::array<PyObject*, runtime::kMaxLoopTensors> given{};
  take_all(args, kwargs, call, taken, given.data());
  const bool makes_outputs = std::any_of(call.tensors.begin() + static_cast<ptrdiff_t>(num_inputs),
                                         call.tensors.begin() + static_cast<ptrdiff_t>(num_tensors),
                                         [](const LoopTensor& tensor) { return !tensor.is_there; });
  runtime::LoadedLoops* loaded = interprets_ ? nullptr : kernel_.find(call);
  if (!loaded && !interprets_) {
    std::shared_ptr<const jit::LoopProgram> made;
    {
      const Unlocked unlocked;
      loaded = &kernel_.make(call, &made);
    }
    tell(made);
  }
  std::array<nb::object, runtime::kMaxLoopTensors> kept;
  if (makes_outputs) {
    for (size_t i = num_inputs; i < num_tensors; ++i)
      if (!call.tensors[i].is_there) call.tensors[i].dtype = kernel_.output_dtype(call, i);
    make_outputs(call, taken, given.data(), kept.data());
    // Made for outputs that are aligned; most are.
    const bool is_aligned = std::all_of(
        call.tensors.begin(), call.tensors.begin() + static_cast<ptrdiff_t>(num_tensors),
        [](const LoopTensor& tensor) { return reinterpret_cast<uintptr_t>(tensor.data) % jit::kLoopAlignment == 0; });
    if (!is_aligned && !interprets_) {
      const Unlocked unlocked;
      loaded = &kernel_.make(call);
    }
  }
  signature.check_memory({call.tensors.data(), num_tensors});
  if (taken.torch_on_gpu && !taken.has_stream) call.stream = torch_stream(call.tensors[0].ordinal);
  if (interprets_) {
    const Unlocked unlocked;
    kernel_.interpret(call);
  } else {
    std::optional<Unlocked> unlocked;
    if (!call.tensors[0].on_gpu) unlocked.emplace();
    loaded->launch({call.tensors.data(), num_tensors}, {call.sizes.data(), signature.sizes().size()},
                   {call.attributes.data(), signature.attributes().size()}, call.stream);
  }
  const size_t num_outputs = num_tensors - num_inputs;
  if (num_outputs == 0) return nb::none();
  if (num_outputs == 1) return nb::borrow(given[num_inputs]);
  nb::list outputs;
  for (size_t i = num_inputs; i < num_tensors; ++i) outputs.append(nb::borrow(given[i]));
  return nb::tuple(outputs);
}

bool PyLoopKernel::warm(const std::vector<std::tuple<std::string, std::string, std::vector<int64_t>>>& tensors,
                        const std::map<std::string, int64_t>& sizes, const std::string& target) const {
  const LoopSignature& signature = kernel_.signature();
  LoopCall call = kernel_.call();
  for (const auto& [name, dtype, shape] : tensors) {
    const auto found = std::ranges::find(signature.tensors(), name, &LoopSignature::Tensor::name);
    MEGALITH_CHECK(found != signature.tensors().end(), "{} there is no tensor {}: want {}", signature.prefix(), name,
                   usage());
    MEGALITH_CHECK(shape.size() <= runtime::kMaxLoopDims, "{} {} has {} dimensions, at most {} are taken",
                   signature.prefix(), name, shape.size(), runtime::kMaxLoopDims);
    LoopTensor& tensor = call.tensors[static_cast<size_t>(found - signature.tensors().begin())];
    tensor.is_there = true;
    tensor.dtype = dtype_parse(dtype);
    tensor.num_dims = static_cast<int>(shape.size());
    std::ranges::copy(shape, tensor.shape.begin());
  }
  for (size_t i = 0; i < signature.num_inputs(); ++i)
    MEGALITH_CHECK(call.tensors[i].is_there, "{} {} is not given: want {}", signature.prefix(),
                   signature.tensors()[i].name, usage());
  for (const auto& [name, value] : sizes) {
    const auto found = std::ranges::find(signature.sizes(), name);
    MEGALITH_CHECK(found != signature.sizes().end(), "{} there is no size {}: want {}", signature.prefix(), name,
                   usage());
    call.sizes[static_cast<size_t>(found - signature.sizes().begin())] = value;
  }
  kernel_.find_sizes(call);
  for (size_t i = 0; i < signature.tensors().size(); ++i) call.tensors[i].on_gpu = target != "cpu";
  std::shared_ptr<const jit::LoopProgram> made;
  {
    const Unlocked unlocked;
    if (target == "cpu" || target == "cuda")
      kernel_.make(call, &made);
    else
      kernel_.make_for(call, target, &made);
  }
  tell(made);
  return made != nullptr;
}

loop::Binding binding_of(const LoopKernel& kernel, const std::map<std::string, int64_t>& sizes) {
  loop::Binding binding{sizes, {}};
  for (const std::string& size : kernel.signature().sizes())
    MEGALITH_CHECK(sizes.contains(size), "{} the size {} is not given", kernel.signature().prefix(), size);
  for (const auto& [name, value] : sizes)
    MEGALITH_CHECK(std::ranges::find(kernel.signature().sizes(), name) != kernel.signature().sizes().end(),
                   "{} there is no size {}: want {}", kernel.signature().prefix(), name,
                   fmt::join(kernel.signature().sizes(), ", "));
  return binding;
}

nb::dict counts(const PyLoopKernel& self, const std::map<std::string, int64_t>& sizes) {
  const loop::Kernel& kernel = self.kernel().schedule().kernel();
  const loop::Binding binding = binding_of(self.kernel(), sizes);
  loop::OpCounts ops;
  std::map<std::string, loop::AccessCount> accesses;
  {
    const Unlocked unlocked;
    ops = loop::count_ops(kernel, binding);
    accesses = loop::count_accesses(kernel, binding);
  }
  nb::dict result, operations, tensors;
  for (const auto& [what, number] : ops.ops)
    operations[nb::make_tuple(std::string(dtype_name(what.first)), what.second)] = number;
  int64_t moved = 0;
  for (const auto& [name, count] : accesses) {
    nb::dict one;
    one["loads"] = count.loads;
    one["stores"] = count.stores;
    one["load_bytes"] = count.load_bytes;
    one["store_bytes"] = count.store_bytes;
    tensors[name.c_str()] = one;
    moved += count.moved_bytes();
  }
  result["ops"] = operations;
  result["flops"] = ops.flops();
  result["tensors"] = tensors;
  result["moved_bytes"] = moved;
  return result;
}

nb::dict artifacts(const jit::LoopProgram& program) {
  nb::dict all;
  all["loops"] = loop::print(program.kernel);
  const bool is_cuda = jit::is_cuda_target(program.target);
  all[is_cuda ? "cu" : "cpp"] = program.text;
  if (is_cuda) {
    if (!program.cuda.ptx.empty()) all["ptx"] = program.cuda.ptx;
    all["cubin"] = nb::bytes(program.cuda.cubin.data(), program.cuda.cubin.size());
  } else {
    const std::string object = file_read(program.build.library.path());
    all["so"] = nb::bytes(object.data(), object.size());
  }
  return all;
}

void bind_kernel(nb::module_& module) {
  nb::class_<PyLoopKernel>(module, "LoopKernel", "A scheduled loop kernel; megalith.loop.Kernel is made of it.")
      .def(
          "__init__",
          [](PyLoopKernel* self, const std::string& text, bool alignment, bool divisibility, bool ones,
             const std::set<std::string>& never) {
            std::optional<LoopKernel> kernel;
            {
              const Unlocked unlocked;
              kernel.emplace(text, LoopSpecializing{alignment, divisibility, ones, never});
            }
            new (self) PyLoopKernel(std::move(*kernel));
          },
          "text"_a, "alignment"_a, "divisibility"_a, "ones"_a, "never"_a)
      .def(
          "__init__",
          [](PyLoopKernel* self, const PyLoopKernel& other, const std::string& line) {
            std::optional<LoopKernel> kernel;
            {
              const Unlocked unlocked;
              kernel.emplace(other.kernel().then(line));
            }
            new (self) PyLoopKernel(std::move(*kernel));
          },
          "other"_a, "line"_a, "`other` with one more step.")
      .def(
          "__init__",
          [](PyLoopKernel* self, const PyLoopKernel& other) {
            new (self) PyLoopKernel(LoopKernel(other.kernel().schedule().plain(), {}), true);
          },
          "other"_a, "`other` without its steps, run by the interpreter.")
      .def(
          "__init__",
          [](PyLoopKernel* self, const PyLoopKernel& other, const std::string& name, const PyLoopKernel& named) {
            new (self) PyLoopKernel(LoopKernel(other.kernel().schedule().with(name, named.kernel().schedule().kernel()),
                                               other.kernel().specializing()));
          },
          "other"_a, "name"_a, "named"_a, "`other`, whose steps may name another kernel.")
      .def(
          "__init__",
          [](PyLoopKernel* self, const PyLoopKernel& other, bool alignment, bool divisibility, bool ones,
             const std::set<std::string>& never) {
            new (self) PyLoopKernel(LoopKernel(other.kernel().schedule(), {alignment, divisibility, ones, never}));
          },
          "other"_a, "alignment"_a, "divisibility"_a, "ones"_a, "never"_a, "`other`, specialized otherwise.")
      .def("__call__", &PyLoopKernel::call, "args"_a, "kwargs"_a)
      .def("describe", &PyLoopKernel::describe, "args"_a, "kwargs"_a,
           "(sizes, dtypes, GPU or -1, stream) of a call with these arguments.")
      .def("launch_ns", &PyLoopKernel::launch_ns, "runs"_a, "args"_a,
           "Nanoseconds of a launch alone, of so many in a row: what a call costs without Python.")
      .def("warm", &PyLoopKernel::warm, "tensors"_a, "sizes"_a, "target"_a)
      .def("counts_of", &counts, "sizes"_a)
      .def(
          "source_for",
          [](const PyLoopKernel& self, const std::string& target) {
            const loop::Kernel& kernel = self.kernel().schedule().kernel();
            const auto to = jit::is_cuda_target(target) ? codegen::LoopTarget::cuda : codegen::LoopTarget::cpu;
            std::string text;
            for (const codegen::LoopSource& source :
                 codegen::emit_stages(kernel, to, kernel.name.empty() ? "loop_kernel" : kernel.name))
              text += (text.empty() ? "" : "\n") + source.text;
            return text;
          },
          "target"_a)
      .def("passes_of",
           [](const PyLoopKernel& self) {
             std::vector<std::tuple<std::string, std::string>> texts;
             for (const loop::Pass& pass : loop::preprocess(self.kernel().schedule().kernel()))
               texts.emplace_back(pass.name, pass.text);
             return texts;
           })
      .def("artifacts",
           [](const PyLoopKernel& self) -> nb::object {
             const auto program = self.kernel().newest();
             return program ? nb::object(artifacts(*program)) : nb::none();
           })
      .def_prop_ro("text", [](const PyLoopKernel& self) { return loop::print(self.kernel().schedule().kernel()); })
      .def_prop_ro("origin_text",
                   [](const PyLoopKernel& self) { return loop::print(self.kernel().schedule().schedule().origin()); })
      .def_prop_ro("name", [](const PyLoopKernel& self) { return self.kernel().schedule().kernel().name; })
      .def_prop_ro("steps", [](const PyLoopKernel& self) { return self.kernel().schedule().schedule().steps(); })
      .def_prop_ro("hash", [](const PyLoopKernel& self) { return self.kernel().schedule().schedule().hash(); })
      .def_prop_ro("inames", [](const PyLoopKernel& self) { return self.kernel().schedule().kernel().inames(); })
      .def_prop_ro("sizes", [](const PyLoopKernel& self) { return self.kernel().signature().sizes(); })
      .def_prop_ro("num_compiled", [](const PyLoopKernel& self) { return self.kernel().num_compiled(); })
      .def_prop_ro("specializing",
                   [](const PyLoopKernel& self) {
                     const LoopSpecializing& how = self.kernel().specializing();
                     return std::make_tuple(how.alignment, how.divisibility, how.ones, how.never);
                   })
      .def_prop_ro("arguments",
                   [](const PyLoopKernel& self) {
                     std::vector<std::tuple<std::string, std::string, std::optional<std::string>, std::string>> all;
                     for (const LoopSignature::Tensor& tensor : self.kernel().signature().tensors()) {
                       const char* const role = tensor.role == loop::Role::input    ? "input"
                                                : tensor.role == loop::Role::output ? "output"
                                                                                    : "inout";
                       std::optional<std::string> dtype;
                       if (!tensor.is_open) dtype = dtype_name(tensor.dtype);
                       all.emplace_back(tensor.name, role, dtype, tensor.shape_text);
                     }
                     return all;
                   })
      .def(
          "shapes",
          [](const PyLoopKernel& self, const std::map<std::string, int64_t>& given) {
            const LoopSignature& signature = self.kernel().signature();
            binding_of(self.kernel(), given);
            LoopCall call = self.kernel().call();
            for (size_t i = 0; i < signature.sizes().size(); ++i) call.sizes[i] = given.at(signature.sizes()[i]);
            self.kernel().find_sizes(call);
            std::map<std::string, std::vector<int64_t>> result;
            for (size_t i = 0; i < signature.tensors().size(); ++i) {
              std::array<int64_t, runtime::kMaxLoopDims> shape;
              signature.shape_of(i, {call.sizes.data(), signature.sizes().size()}, shape);
              result[signature.tensors()[i].name].assign(
                  shape.begin(), shape.begin() + static_cast<ptrdiff_t>(signature.tensors()[i].shape.size()));
            }
            return result;
          },
          "sizes"_a, "Tensor -> its shape for these sizes.");
}

}  // namespace

void bind_loop(nb::module_& module) {
  const nb::object user = module.attr("UserError");
  capacity_error = PyErr_NewExceptionWithDoc(
      "megalith.CapacityError",
      "The kernel is right, but the machine cannot hold it; the message says what is needed and what there is.",
      user.ptr(), nullptr);
  if (!capacity_error) nb::raise_python_error();
  module.attr("CapacityError") = nb::handle(capacity_error);
  nb::register_exception_translator(translate_capacity);  // the newest is asked first

  bind_kernel(module);
  module.def("loop_step_aliases", &loop::step_aliases, "Other names of steps, and what they are called here.");
  module.def("loop_step_usages", &loop::step_usages, "How each step of a schedule is written.");
  module.def(
      "cache_note", [](const std::string& key) { return jit::KernelCache::from_environment().note(key); }, "key"_a,
      "A text that was kept beside compiled kernels; \"\" if there is none.");
  module.def(
      "cache_note_set",
      [](const std::string& key, const std::string& text) { jit::KernelCache::from_environment().note_set(key, text); },
      "key"_a, "text"_a);
  module.def(
      "loop_machine",
      [](int gpu) { return gpu < 0 ? jit::cpu_features() : jit::cuda_devices().at(static_cast<size_t>(gpu)).name; },
      "gpu"_a, "What measurements depend on: this CPU, or a GPU.");
  module.def(
      "content_hash", [](const std::string& text) { return hash_hex(text); }, "text"_a);
  module.def(
      "is_loop_tag", [](const std::string& name) { return loop::tag_of_name(name).has_value(); }, "name"_a);
  module.def(
      "loop_hooks_set",
      [](nb::handle allocate, nb::handle compiled) {
        hooks().allocate = nb::borrow(allocate);
        hooks().compiled = nb::borrow(compiled);
      },
      "allocate"_a, "compiled"_a);
  nb::class_<runtime::LoopClock>(module, "LoopClock", "Times work on a GPU's stream by its events.")
      .def(
          "__init__",
          [](runtime::LoopClock* self, int ordinal, uintptr_t stream, int64_t flush_bytes) {
            new (self) runtime::LoopClock(ordinal, reinterpret_cast<void*>(stream), flush_bytes);  // NOLINT
          },
          "ordinal"_a, "stream"_a, "flush_bytes"_a)
      .def("begin", &runtime::LoopClock::begin)
      .def("end", &runtime::LoopClock::end)
      .def("times_ms", &runtime::LoopClock::times_ms, nb::call_guard<Unlocked>());
}

}  // namespace megalith::python
