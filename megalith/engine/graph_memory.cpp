#include "megalith/engine/graph_memory.h"

#include <algorithm>
#include <cmath>

#include "megalith/base/error.h"
#include "megalith/base/format.h"
#include "megalith/runtime/topology.h"

namespace megalith::engine {

namespace {

// Before memory is touched that there is not: Linux would end the process, or others, for it.
void check_memory(const graph::Graph& graph) {
  int64_t bytes = 0, most_elements = 0;
  for (const graph::Tensor& tensor : graph.tensors()) {
    if (tensor.kind == graph::TensorKind::activation) continue;
    bytes += tensor.bytes();
    most_elements = std::max(most_elements, tensor.num_elements());
  }
  bytes += most_elements * static_cast<int64_t>(sizeof(double));  // random_values() of one after the other
  const int64_t available = runtime::memory_available_bytes();
  if (bytes > available)
    throw SystemError(fmt::format(
        "[memory] the operands of \"{}\" and their random values take {}, and {} are available: "
        "take smaller sizes",
        graph.name(), format_bytes(static_cast<double>(bytes)), format_bytes(static_cast<double>(available))));
}

}  // namespace

std::vector<int64_t> shape_of(const graph::Tensor& tensor) {
  std::vector<int64_t> shape;
  for (const graph::Dim& dim : tensor.shape) shape.push_back(dim.size);
  return shape;
}

GraphMemory::GraphMemory(const graph::Graph& graph) : graph_(graph) {
  check_memory(graph);
  for (const graph::Tensor& tensor : graph.tensors()) {
    if (tensor.kind == graph::TensorKind::activation) continue;
    // 64 spare bytes so that the start can be aligned as the runtime's own memory is.
    std::vector<std::byte>& bytes = bytes_[tensor.name];
    bytes.resize(static_cast<size_t>(tensor.bytes()) + 64);
    const auto address = reinterpret_cast<uintptr_t>(bytes.data());
    addresses_[tensor.name] = bytes.data() + (64 - address % 64) % 64;
  }
}

void GraphMemory::set(const std::string& name, const std::vector<double>& values) {
  const graph::Tensor& tensor = graph_.tensor(graph_.find(name));
  for (size_t i = 0; i < values.size(); ++i)
    element_store(addresses_.at(name), tensor.dtype, static_cast<int64_t>(i), values[i]);
}

loop::Array GraphMemory::array(const std::string& name) const {
  const graph::Tensor& tensor = graph_.tensor(graph_.find(name));
  loop::Array array = loop::Array::zeros(shape_of(tensor));
  for (size_t i = 0; i < array.values.size(); ++i)
    array.values[i] = element_load(addresses_.at(name), tensor.dtype, static_cast<int64_t>(i));
  return array;
}

loop::Arrays GraphMemory::arrays() const {
  loop::Arrays arrays;
  for (const auto& [name, address] : addresses_) arrays[name] = array(name);
  return arrays;
}

std::vector<double> random_values(int64_t n, DType dtype, int64_t limit, std::mt19937_64& random) {
  std::normal_distribution<double> normal;
  std::uniform_int_distribution<int64_t> integer(0, std::max<int64_t>(limit, 1) - 1);
  std::vector<double> values(static_cast<size_t>(n));
  for (double& value : values) value = dtype_is_float(dtype) ? normal(random) : static_cast<double>(integer(random));
  return values;
}

Difference largest_difference(const loop::Array& found, const loop::Array& wanted, DType dtype, double slack,
                              double roundings) {
  double square = 0;
  for (double v : wanted.values) square += std::isfinite(v) ? v * v : 0;
  const double typical = std::sqrt(square / static_cast<double>(std::max<size_t>(wanted.values.size(), 1)));
  const double epsilon =
      dtype_is_float(dtype) ? std::max(roundings * dtype_epsilon(dtype), slack * dtype_epsilon(DType::f32)) : 0;
  Difference worst;
  for (size_t i = 0; i < wanted.values.size(); ++i) {
    if (found.values[i] == wanted.values[i]) continue;  // covers equal infinities
    const double allowed = epsilon * (std::abs(wanted.values[i]) + typical);
    double error = std::abs(found.values[i] - wanted.values[i]) / allowed;
    if (!std::isfinite(error)) error = 1e30;
    if (error > worst.roundings) worst = {error, i};
  }
  return worst;
}

}  // namespace megalith::engine
