#include "megalith/engine/memory_map.h"

#include <cmath>
#include <cstring>
#include <thread>

#include "megalith/base/error.h"
#include "megalith/base/progress.h"
#include "megalith/model/rope.h"

namespace megalith::engine {

namespace {

bool is_rope_table(const graph::Tensor& tensor) { return tensor.name == "rope.cos" || tensor.name == "rope.sin"; }

std::vector<int64_t> shape_of(const graph::Tensor& tensor) {
  std::vector<int64_t> shape;
  for (const graph::Dim& dim : tensor.shape) shape.push_back(dim.size);
  return shape;
}

// Uniform in [centre - spread, centre + spread); cheap, since an 8-billion-parameter model is filled with it.
void fill_random(void* data, DType dtype, int64_t begin, int64_t end, float centre, float spread, uint64_t seed) {
  for (int64_t i = begin; i < end; ++i) {
    uint64_t z = seed + static_cast<uint64_t>(i) * 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 32)) * 0xd6e8feb86659fd93ull;
    const float unit = static_cast<float>(static_cast<int64_t>(z ^ (z >> 32)) >> 40) * (1.0f / 8388608.0f);
    const float value = centre + spread * unit;
    if (dtype == DType::bf16)
      static_cast<uint16_t*>(data)[i] = bf16_from_float(value);
    else
      element_store(data, dtype, i, value);
  }
}

}  // namespace

void* MemoryMap::allocate(int64_t bytes, const std::string& what) {
  mappings_.emplace_back(bytes, what);
  return mappings_.back().data();
}

void MemoryMap::bind_weights(const graph::Graph& graph, const Weights& weights) {
  for (const graph::Tensor& tensor : graph.tensors()) {
    if (tensor.kind != graph::TensorKind::constant || is_rope_table(tensor)) continue;
    if (!tensor.parts.empty()) {
      stack(tensor, weights);
      continue;
    }
    const WeightTensor& found = weights.get(tensor.name);
    MEGALITH_CHECK(found.shape == shape_of(tensor),
                   "the weight \"{}\" has the shape [{}], want [{}] as config.json says", tensor.name,
                   fmt::join(found.shape, ", "), fmt::join(shape_of(tensor), ", "));
    MEGALITH_CHECK(found.dtype == tensor.dtype, "the weight \"{}\" is {}, want {}", tensor.name,
                   dtype_name(found.dtype), dtype_name(tensor.dtype));
    addresses_[tensor.name] = const_cast<std::byte*>(found.bytes.data());  // constants are never written: verified
  }
}

void MemoryMap::stack(const graph::Tensor& tensor, const Weights& weights) {
  auto* to = static_cast<std::byte*>(allocate(tensor.bytes(), fmt::format("the weight \"{}\"", tensor.name)));
  addresses_[tensor.name] = to;
  const int64_t row_bytes = tensor.bytes() / tensor.shape[0].size;
  int64_t rows = 0;
  for (const std::string& part : tensor.parts) {
    const WeightTensor& found = weights.get(part);
    MEGALITH_CHECK(found.dtype == tensor.dtype && found.shape.size() == 2 && found.shape[1] == tensor.shape[1].size &&
                       found.shape[0] % tensor.groups == 0,
                   "the weight \"{}\" is {} [{}], want {} with {} columns and a multiple of {} rows", part,
                   dtype_name(found.dtype), fmt::join(found.shape, ", "), dtype_name(tensor.dtype),
                   tensor.shape[1].size, tensor.groups);
    rows += found.shape[0];
  }
  MEGALITH_CHECK(rows == tensor.shape[0].size, "the weights {} have {} rows together, want {} as config.json says",
                 fmt::join(tensor.parts, ", "), rows, tensor.shape[0].size);
  for (int64_t group = 0; group < tensor.groups; ++group)
    for (const std::string& part : tensor.parts) {
      const WeightTensor& found = weights.get(part);
      const int64_t bytes = found.shape[0] / tensor.groups * row_bytes;
      std::memcpy(to, found.bytes.data() + group * bytes, static_cast<size_t>(bytes));
      to += bytes;
    }
}

void MemoryMap::bind_random(const graph::Graph& graph, uint64_t seed) {
  int64_t total = 0;
  for (const graph::Tensor& tensor : graph.tensors())
    if (tensor.kind == graph::TensorKind::constant) total += tensor.bytes();
  Progress progress("making up weights", total, ProgressUnit::bytes);
  for (const graph::Tensor& tensor : graph.tensors()) {
    if (tensor.kind != graph::TensorKind::constant || is_rope_table(tensor)) continue;
    void* data = allocate(tensor.bytes(), fmt::format("the weight \"{}\"", tensor.name));
    // A matrix row sums over its inputs: 1 / sqrt of their number keeps activations at the size they came in.
    const bool matrix = tensor.shape.size() == 2;
    const float spread = matrix ? 1.7f / std::sqrt(static_cast<float>(tensor.shape[1].size)) : 0.1f;
    const uint64_t tensor_seed = seed ^ std::hash<std::string>()(tensor.name);
    const int64_t n = tensor.num_elements(), half = n / 2;
    std::thread other([&] { fill_random(data, tensor.dtype, half, n, matrix ? 0 : 1, spread, tensor_seed); });
    fill_random(data, tensor.dtype, 0, half, matrix ? 0 : 1, spread, tensor_seed);
    other.join();
    progress.advance(tensor.bytes());
    addresses_[tensor.name] = data;
  }
}

void MemoryMap::bind_rope(const graph::Graph& graph, const ModelConfig& config) {
  const graph::Tensor& tensor = graph.tensor(graph.find("rope.cos"));
  const int64_t positions = std::min(tensor.shape[0].size, config.max_position_embeddings);
  const RopeTable table = rope_table(config, positions);
  for (const char* name : {"rope.cos", "rope.sin"}) {
    const std::vector<float>& values = std::strcmp(name, "rope.cos") == 0 ? table.cos : table.sin;
    addresses_[name] = allocate(tensor.bytes(), "the rope tables");
    std::memcpy(addresses_[name], values.data(), values.size() * sizeof(float));
  }
}

void MemoryMap::bind_states(const graph::Graph& graph) {
  for (const graph::Tensor& tensor : graph.tensors()) {
    if (tensor.kind != graph::TensorKind::state) continue;
    addresses_[tensor.name] = allocate(tensor.bytes(), fmt::format("the state \"{}\"", tensor.name));
    state_bytes_ += tensor.bytes();
  }
}

void MemoryMap::fill_state(const graph::Graph& graph, const std::string& name, uint64_t seed) {
  const graph::Tensor& tensor = graph.tensor(graph.find(name));
  fill_random(addresses_.at(name), tensor.dtype, 0, tensor.num_elements(), 0, 1, seed);
}

}  // namespace megalith::engine
