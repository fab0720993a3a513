// Runs a graph once through the whole compilation, and beside it through the interpreter, on the same random inputs.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "megalith/graph/interpret.h"
#include "megalith/graph/sizes.h"
#include "megalith/jit/compile.h"
#include "megalith/runtime/program.h"

namespace megalith::testing {

inline std::vector<int64_t> shape_of(const graph::Tensor& tensor) {
  std::vector<int64_t> shape;
  for (const graph::Dim& dim : tensor.shape) shape.push_back(dim.size);
  return shape;
}

/// Memory for every constant and state of a graph, and its conversion to and from the interpreter's arrays.
class GraphMemory {
 public:
  explicit GraphMemory(const graph::Graph& graph) : graph_(graph) {
    for (const graph::Tensor& tensor : graph.tensors()) {
      if (tensor.kind == graph::TensorKind::activation) continue;
      // 64 spare bytes so that the start can be aligned as the runtime's own memory is.
      std::vector<std::byte>& bytes = bytes_[tensor.name];
      bytes.resize(static_cast<size_t>(tensor.bytes()) + 64);
      const auto address = reinterpret_cast<uintptr_t>(bytes.data());
      addresses_[tensor.name] = bytes.data() + (64 - address % 64) % 64;
    }
  }

  const std::map<std::string, void*>& addresses() const { return addresses_; }
  void* address(const std::string& name) { return addresses_.at(name); }

  void set(const std::string& name, const std::vector<double>& values) {
    const graph::Tensor& tensor = graph_.tensor(graph_.find(name));
    for (size_t i = 0; i < values.size(); ++i)
      element_store(addresses_.at(name), tensor.dtype, static_cast<int64_t>(i), values[i]);
  }

  loop::Array array(const std::string& name) const {
    const graph::Tensor& tensor = graph_.tensor(graph_.find(name));
    loop::Array array = loop::Array::zeros(shape_of(tensor));
    for (size_t i = 0; i < array.values.size(); ++i)
      array.values[i] = element_load(addresses_.at(name), tensor.dtype, static_cast<int64_t>(i));
    return array;
  }

  /// Everything, as the interpreter wants it.
  loop::Arrays arrays() const {
    loop::Arrays arrays;
    for (const auto& [name, address] : addresses_) arrays[name] = array(name);
    return arrays;
  }

 private:
  const graph::Graph& graph_;
  std::map<std::string, std::vector<std::byte>> bytes_;
  std::map<std::string, void*> addresses_;
};

/// Normal values for floats, uniform ones in [0, limit) for integers.
inline std::vector<double> random_values(int64_t n, DType dtype, int64_t limit, std::mt19937_64& random) {
  std::normal_distribution<double> normal;
  std::uniform_int_distribution<int64_t> integer(0, std::max<int64_t>(limit, 1) - 1);
  std::vector<double> values(static_cast<size_t>(n));
  for (double& value : values) value = dtype_is_float(dtype) ? normal(random) : static_cast<double>(integer(random));
  return values;
}

/// Largest |a - b| over what rounding of `dtype` and of f32 sums may explain, 1 being the limit: errors grow with the
/// element and, since sums cancel, with the tensor's typical size.
inline double error_in_roundings(const loop::Array& a, const loop::Array& b, DType dtype, double slack = 8,
                                 double roundings = 1) {
  double square = 0;
  for (double v : b.values) square += std::isfinite(v) ? v * v : 0;
  const double typical = std::sqrt(square / static_cast<double>(std::max<size_t>(b.values.size(), 1)));
  const double epsilon =
      dtype_is_float(dtype) ? std::max(roundings * dtype_epsilon(dtype), slack * dtype_epsilon(DType::f32)) : 0;
  double worst = 0;
  for (size_t i = 0; i < b.values.size(); ++i) {
    if (a.values[i] == b.values[i]) continue;  // covers equal infinities
    const double allowed = epsilon * (std::abs(b.values[i]) + typical);
    const double error = std::abs(a.values[i] - b.values[i]) / allowed;
    worst = std::isfinite(error) ? std::max(worst, error) : 1e30;
  }
  return worst;
}

/// Compiles and runs `graph` for one iteration on `memory`.
inline jit::CompiledKernel run_compiled(const graph::Graph& graph, GraphMemory& memory, int num_workers) {
  jit::CompiledKernel kernel = jit::compile(graph, {.num_workers = num_workers});
  runtime::Program program(graph, kernel, memory.addresses());
  runtime::Launcher launcher(program.entry(), program.image());
  launcher.run();
  return kernel;
}

}  // namespace megalith::testing
