#include "codegen/program.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>

#include "base/temporary_folder.h"
#include "codegen/compiled.h"
#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/kernels/panel_layout.h"
#include "megalith/loop/infer.h"
#include "megalith/loop/linear_sum.h"
#include "megalith/loop/text.h"
#include "megalith/optimize/layout.h"
#include "megalith/runtime/protocol.h"
#include "support/configurations.h"

namespace megalith::codegen::testing {

using runtime::i32;
using runtime::u32;

namespace {

std::vector<int64_t> shape_of(const Spec& spec, const loop::TensorArgument& tensor) {
  std::vector<int64_t> shape;
  for (const loop::Expr& extent : tensor.shape) shape.push_back(loop::integer_value(extent, spec.sizes));
  return shape;
}

bool lies_in_panels(const Spec& spec, const loop::TensorArgument& tensor) {
  return spec.body && spec.body->packed &&
         std::ranges::find(spec.body->packed->operands, tensor.name) != spec.body->packed->operands.end();
}

// A tensor in memory as the kernel sees it, 64-byte aligned.
struct Buffer {
  std::unique_ptr<std::byte, decltype(&std::free)> bytes{nullptr, &std::free};

  Buffer(const loop::Array& array, DType dtype) {
    allocate(static_cast<int64_t>(array.values.size()) * dtype_bytes(dtype));
    for (size_t i = 0; i < array.values.size(); ++i)
      element_store(bytes.get(), dtype, static_cast<int64_t>(i), array.values[i]);
  }
  // [rows, columns] in panels.
  Buffer(const loop::Array& array, DType dtype, int64_t columns) {
    const auto size = static_cast<int64_t>(array.values.size());
    const int together = optimize::panel_columns(dtype);
    allocate(panel::elements(size / columns, columns, together) * dtype_bytes(dtype));
    for (int64_t i = 0; i < size; ++i)
      element_store(bytes.get(), dtype, panel::index(i / columns, i % columns, columns, together),
                    array.values[static_cast<size_t>(i)]);
  }

  void allocate(int64_t size) {
    const auto rounded = static_cast<size_t>((size + 127) / 64 * 64);
    bytes.reset(static_cast<std::byte*>(std::aligned_alloc(64, rounded)));
    std::memset(bytes.get(), 0, rounded);
  }
};

}  // namespace

Spec spec_of(const graph::Operator& op, std::string name, std::map<std::string, int64_t> sizes,
             const std::map<std::string, DType>& dtypes) {
  Spec spec{.name = std::move(name), .text = "parameter T dynamic\n", .sizes = std::move(sizes)};
  for (const loop::Attribute& attribute : op.attributes)
    spec.text += fmt::format("attribute {} = {}\n", attribute.name, attribute.value);
  for (const graph::Operand& operand : op.operands) {
    const auto dtype = dtypes.find(operand.name);
    spec.text +=
        fmt::format("{} {}: {}[{}]\n", operand.role == loop::Role::output ? "output" : "input", operand.name,
                    dtype_name(dtype == dtypes.end() ? operand.dtype : dtype->second), fmt::join(operand.shape, ", "));
  }
  spec.text += op.loops;
  for (const graph::TaskAxis& axis : op.axes) spec.tiled.push_back(axis.iname);
  for (const graph::TunedBody& body : op.bodies)
    if (body.target == "cpu") spec.body = &body;
  if (op.epilogue) spec.op = &op;
  return spec;
}

graph::LoweredKernel lower(const Spec& spec) {
  graph::LoweredKernel lowered;
  lowered.name = spec.name;
  lowered.signature = spec.name;
  std::string text = fmt::format("kernel {}\n", spec.name);
  for (const auto& [size, value] : spec.sizes)
    if (spec.text.find("parameter " + size) == std::string::npos) text += fmt::format("parameter {}\n", size);
  lowered.kernel = loop::parse_kernel(text + spec.text);
  lowered.binding.sizes = spec.sizes;
  loop::infer_types(lowered.kernel);
  loop::infer_shapes(lowered.kernel);
  for (const loop::Attribute& attribute : lowered.kernel.attributes)
    lowered.binding.attributes[attribute.name] = attribute.value;
  lowered.tiled = spec.tiled;
  lowered.body = spec.body;
  lowered.op = spec.op;
  lowered.steps = spec.steps;
  return lowered;
}

loop::Arrays random_arrays(const Spec& spec, unsigned seed) {
  const graph::LoweredKernel lowered = lower(spec);
  std::mt19937 random(seed);
  loop::Arrays arrays;
  for (const loop::TensorArgument& tensor : lowered.kernel.tensors) {
    if (tensor.role != loop::Role::input && tensor.role != loop::Role::inout) continue;
    loop::Array array = loop::Array::zeros(shape_of(spec, tensor));
    std::vector<std::byte> rounding(8);
    const auto values = spec.values.find(tensor.name);
    const auto given = spec.magnitudes.find(tensor.name);
    const double magnitude = given == spec.magnitudes.end() ? 1 : given->second;
    for (double& value : array.values) {
      if (values != spec.values.end())
        value = static_cast<double>(
            std::uniform_int_distribution<int64_t>(values->second.first, values->second.second)(random));
      else
        value = std::uniform_real_distribution<double>(-1, 1)(random) * magnitude;
      element_store(rounding.data(), *tensor.dtype, 0, value);
      value = element_load(rounding.data(), *tensor.dtype, 0);
    }
    arrays[tensor.name] = std::move(array);
  }
  return arrays;
}

bool compiler_exists(const std::string& compiler) {
  return std::system(fmt::format("command -v {} > /dev/null 2>&1", compiler).c_str()) == 0;
}

void on_other_machines(const std::vector<Spec>& specs,
                       const std::function<void(const Program& there, const std::string& machine)>& visit,
                       const std::string& more_flags) {
  struct Machine {
    const char *compiler, *flags;
  };
  for (const auto& [compiler, flags] : megalith::test::some_of<Machine>(
           {{"c++", "-march=x86-64-v3"}, {"c++", "-march=x86-64 -O1"}, {"clang++", "-march=native"}},
           {{"clang++", "-march=x86-64-v3"}})) {
#if !defined(__x86_64__)
    if (std::string(flags).find("x86") != std::string::npos) continue;
#endif
    if (!compiler_exists(compiler)) {
      printf("[SKIP] no %s\n", compiler);
      continue;
    }
    visit(Program(specs, compiler, std::string(flags) + more_flags), fmt::format("{} {}", compiler, flags));
  }
}

Program::Program(const std::vector<Spec>& specs, const std::string& compiler, const std::string& flags,
                 const std::string& more_source)
    : specs_(specs) {
  for (const Spec& spec : specs_) kernels_.push_back(lower(spec));
  source_ = emit_cpu(kernels_, "a test");
  const auto begin = std::chrono::steady_clock::now();
  const std::string library = compiled(
      source_.text + more_source, compiler,
      fmt::format("{} {} -Wall -Wextra -Werror kernel.cpp -o kernel.so", fmt::join(cpu_compile_flags(), " "), flags),
      "kernel.so");
  compile_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const test::TemporaryFolder folder;
  file_write_atomic(folder / "kernel.so", library);
  library_ = dlopen((folder / "kernel.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  MEGALITH_CHECK(library_, "{}", dlerror());
  entry_ = dlsym(library_, "megalith_worker");
  info_ = static_cast<const char*>(dlsym(library_, "megalith_kernel_info"));
}

Program::~Program() {
  if (library_) dlclose(library_);
}

size_t Program::index_of(const std::string& name) const {
  for (size_t i = 0; i < specs_.size(); ++i)
    if (specs_[i].name == name) return i;
  throw UserError(fmt::format("no kernel {} in this program", name));
}

const Spec& Program::spec(const std::string& name) const { return specs_[index_of(name)]; }

void Program::run(const std::string& name, loop::Arrays& arrays, const std::map<std::string, int64_t>& tiles,
                  const std::map<std::string, int64_t>& sizes,
                  const std::map<std::string, std::string>& aliases) const {
  const size_t index = index_of(name);
  const Spec& spec = specs_[index];
  const graph::LoweredKernel& lowered = kernels_[index];

  std::vector<Buffer> buffers;
  std::vector<void*> operands;
  std::vector<const loop::TensorArgument*> tensors;
  for (const loop::TensorArgument& tensor : lowered.kernel.tensors) {
    if (tensor.role == loop::Role::temporary) continue;
    auto [array, fresh] = arrays.try_emplace(tensor.name);
    if (fresh) array->second = loop::Array::zeros(shape_of(spec, tensor));
    if (lies_in_panels(spec, tensor))
      buffers.emplace_back(array->second, *tensor.dtype, shape_of(spec, tensor)[1]);
    else
      buffers.emplace_back(array->second, *tensor.dtype);
    operands.push_back(buffers.back().bytes.get());
    tensors.push_back(&tensor);
  }
  for (const auto& [alias, name_of_other] : aliases) {
    size_t from = 0, to = 0;
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i]->name == alias) from = i;
      if (tensors[i]->name == name_of_other) to = i;
    }
    operands[from] = operands[to];
  }
  std::vector<std::unique_ptr<i32>> dynamic;
  for (const loop::Parameter& parameter : lowered.kernel.parameters) {
    if (!parameter.dynamic) continue;
    const auto given = sizes.find(parameter.name);
    dynamic.push_back(
        std::make_unique<i32>(static_cast<i32>(given == sizes.end() ? spec.sizes.at(parameter.name) : given->second)));
    operands.push_back(dynamic.back().get());
  }
  if (spec.body && spec.body->packed) operands.push_back(nullptr);  // no weights are read next

  // One task per tile: the product of the ranges' cuts. Extents come from the domain's bounding box.
  std::vector<runtime::TaskRecord> tasks(1, runtime::TaskRecord{});
  for (size_t axis = 0; axis < spec.tiled.size(); ++axis) {
    const std::string& iname = spec.tiled[axis];
    const int64_t extent = spec.sizes.at(std::string(1, static_cast<char>(std::toupper(iname[0]))));
    const auto tile = tiles.find(iname);
    const int64_t step = tile == tiles.end() ? extent : tile->second;
    std::vector<runtime::TaskRecord> cut;
    for (const runtime::TaskRecord& task : tasks)
      for (int64_t begin = 0; begin < extent; begin += step) {
        cut.push_back(task);
        cut.back().begin[axis] = static_cast<i32>(begin);
        cut.back().end[axis] = static_cast<i32>(std::min(begin + step, extent));
      }
    tasks = std::move(cut);
  }
  launch(name, operands, tasks);

  for (size_t i = 0; i < tensors.size(); ++i) {
    if (lies_in_panels(spec, *tensors[i])) continue;
    loop::Array& array = arrays.at(tensors[i]->name);
    for (size_t e = 0; e < array.values.size(); ++e)
      array.values[e] = element_load(operands[i], *tensors[i]->dtype, static_cast<int64_t>(e));
  }
}

void Program::launch(const std::string& name, const std::vector<void*>& operands,
                     const std::vector<runtime::TaskRecord>& given) const {
  std::vector<runtime::TaskRecord> tasks = given;
  for (runtime::TaskRecord& task : tasks) task.body = static_cast<u32>(index_of(name));
  std::vector<u32> list(tasks.size());
  for (size_t i = 0; i < list.size(); ++i) list[i] = static_cast<u32>(i);
  const u32 list_begin[] = {0, static_cast<u32>(list.size())};

  runtime::WorkerStatus status{};
  runtime::Control control{};
  std::unique_ptr<std::byte, decltype(&std::free)> scratch(
      static_cast<std::byte*>(std::aligned_alloc(64, static_cast<size_t>(source_.scratch_bytes) / 64 * 64 + 64)),
      &std::free);
  std::memset(scratch.get(), 0xff, static_cast<size_t>(source_.scratch_bytes));  // what tasks before left there
  runtime::Launch image{};
  image.tasks = tasks.data();
  image.list = list.data();
  image.list_begin = list_begin;
  image.operands = operands.data();
  image.status = &status;
  image.control = &control;
  image.scratch = reinterpret_cast<runtime::u8*>(scratch.get());
  image.scratch_bytes = static_cast<runtime::u64>(source_.scratch_bytes);
  image.num_workers = 1;
  image.num_iterations = 1;
  image.gate = runtime::kNone;
  reinterpret_cast<runtime::WorkerEntry>(entry_)(&image, 0);
  if (const runtime::Fault& fault = status.fault; fault.found != 0) {
    const CheckText& text = source_.checks.at(tasks[fault.task].body).at(fault.check);
    throw UserError(fmt::format("{}: {} is {}, below {}", text.what, text.value, fault.value, fault.extent));
  }
  MEGALITH_CHECK(status.tasks_done == tasks.size(), "{} of {} tasks ran", status.tasks_done, tasks.size());
}

void* Program::symbol(const char* symbol_name) const { return dlsym(library_, symbol_name); }

double difference(const Program& program, const std::string& name, unsigned seed,
                  const std::map<std::string, int64_t>& tiles, const std::map<std::string, int64_t>& sizes) {
  const Spec& spec = program.spec(name);
  loop::Arrays want = random_arrays(spec, seed), got = want;
  graph::LoweredKernel lowered = lower(spec);
  for (const auto& [size, value] : sizes) lowered.binding.sizes[size] = value;
  // Outputs exist at their largest size, whatever the dynamic sizes are.
  for (const loop::TensorArgument& tensor : lowered.kernel.tensors)
    if (tensor.role == loop::Role::output) want[tensor.name] = loop::Array::zeros(shape_of(spec, tensor));
  loop::interpret(lowered.kernel, lowered.binding, want);
  program.run(name, got, tiles, sizes);

  double worst = 0;
  for (const loop::TensorArgument& tensor : lowered.kernel.tensors) {
    if (tensor.role == loop::Role::temporary || tensor.role == loop::Role::input) continue;
    const bool whole = !dtype_is_float(*tensor.dtype);
    const double tolerance = whole ? 0.5 : 2e-5 + 1.01 * dtype_epsilon(*tensor.dtype);
    const auto &a = got.at(tensor.name).values, &b = want.at(tensor.name).values;
    for (size_t i = 0; i < b.size(); ++i) {
      if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
      const double error = std::abs(a[i] - b[i]) / (whole ? 1 : 1 + std::abs(b[i])) / tolerance;
      worst = std::isnan(error) ? INFINITY : std::max(worst, error);
    }
  }
  return worst;
}

}  // namespace megalith::codegen::testing
