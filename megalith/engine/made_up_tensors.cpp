#include "megalith/engine/made_up_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "megalith/base/error.h"
#include "megalith/engine/graph_memory.h"
#include "megalith/graph/sizes.h"
#include "megalith/runtime/topology.h"

namespace megalith::engine {

using graph::Graph;
using graph::Operand;
using graph::Tensor;
using graph::TensorKind;

namespace {

// The sizes of a node as they are: a dynamic one at its largest, or as the file says.
std::map<std::string, int64_t> sizes_of(const graph::GraphFile& file, const graph::Node& node) {
  std::map<std::string, int64_t> sizes = node.sizes;
  for (const auto& [size, dynamic] : node.dynamic) {
    const graph::DynamicSize where = file.graph.dynamic_sizes().at(dynamic);
    const auto said = file.values.find(file.graph.tensor(where.tensor).name);
    if (said != file.values.end()) sizes[size] = std::min(sizes[size], said->second[static_cast<size_t>(where.index)]);
  }
  return sizes;
}

// Of states of integers that operators point with: what all of them may be.
std::map<std::string, int64_t> limits_of(const graph::GraphFile& file) {
  const Graph& graph = file.graph;
  std::map<std::string, int64_t> limits;
  for (const graph::Node& node : graph.nodes())
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const Operand& operand = node.op->operands[i];
      if (operand.index_into.empty()) continue;
      const Operand into{"x", loop::Role::input, {operand.index_into}, DType::i32};
      const int64_t limit = graph::operand_shape(*node.op, into, {sizes_of(file, node), {}})[0].size;
      const auto [at, is_new] = limits.try_emplace(graph.tensor(node.operands[i]).name, limit);
      at->second = std::min(at->second, limit);
    }
  return limits;
}

void check_room(const Graph& graph) {
  int64_t bytes = 0;
  for (const Tensor& tensor : graph.tensors())
    if (tensor.kind != TensorKind::activation) bytes += tensor.bytes();
  if (bytes > runtime::memory_available_bytes())
    throw SystemError(fmt::format("[memory] the tensors of \"{}\" take {} bytes, and {} are available", graph.name(),
                                  bytes, runtime::memory_available_bytes()));
}

}  // namespace

MadeUpTensors::MadeUpTensors(const graph::GraphFile& file, const Graph& graph, bool on_gpu)
    : file_(file), on_gpu_(on_gpu) {
  const std::map<std::string, int64_t> limits = limits_of(file);
  check_room(graph);
  for (const Tensor& tensor : graph.tensors()) {
    if (tensor.kind == TensorKind::activation) continue;
    if (!tensor.parts.empty())
      add_parts(tensor);
    else if (!places_.contains(tensor.name))
      add(tensor.name, tensor, tensor.shape[0].size, limits);
  }
}
// The graph does not say how many rows each part has, but those that are tensors of it themselves do.
void MadeUpTensors::add_parts(const Tensor& stacked) {
  std::map<std::string, int64_t> rows;
  int64_t left = stacked.shape[0].size;
  for (const std::string& part : stacked.parts)
    if (file_.graph.has(part)) left -= rows[part] = file_.graph.tensor(file_.graph.find(part)).shape[0].size;
  for (auto part = stacked.parts.begin(); part != stacked.parts.end(); ++part) {
    if (rows.contains(*part)) continue;
    const bool is_last = std::all_of(part + 1, stacked.parts.end(), [&](const auto& p) { return rows.contains(p); });
    left -= rows[*part] = is_last ? left : stacked.groups;
  }
  for (const std::string& part : stacked.parts)
    if (!places_.contains(part)) add(part, stacked, rows.at(part), {});
}

// `rows` rows of a tensor like this one.
void MadeUpTensors::add(const std::string& name, const Tensor& like, int64_t rows,
                        const std::map<std::string, int64_t>& limits) {
  const int64_t elements = like.num_elements() / like.shape[0].size * rows;
  const int64_t bytes = elements * dtype_bytes(like.dtype);
  std::vector<std::byte>& memory = host_.emplace_back(static_cast<size_t>(bytes) + 64);
  std::byte* const at = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
  if (dtype_is_float(like.dtype) || like.dtype == DType::i8)
    fill_random(at, like, elements);
  else
    fill_integers(at, name, like, elements, limits);
  places_[name] = {.address = at, .rows = rows};
  if (!on_gpu_ || like.kind != TensorKind::state) return;  // constants go to a GPU by themselves
  runtime::DeviceMemory& device = device_.emplace_back(bytes, name);
  device.upload(at, bytes);
  places_[name] = {.address = device.data(), .on_device = true};
}

// Of a matrix such that products are of about the size of what is multiplied. A million values, again and again.
void MadeUpTensors::fill_random(std::byte* at, const Tensor& like, int64_t elements) {
  const int64_t columns = like.shape.back().size, some = std::min<int64_t>(elements, 1 << 20);
  const bool is_matrix = like.kind == TensorKind::constant && like.shape.size() == 2;
  const double scale = is_matrix && like.dtype != DType::i8 ? 1 / std::sqrt(static_cast<double>(columns)) : 1;
  const std::vector<double> values = random_values(some, like.dtype, 100, random_);
  for (int64_t i = 0; i < some; ++i) element_store(at, like.dtype, i, scale * values[static_cast<size_t>(i)]);
  const int64_t bytes = dtype_bytes(like.dtype);
  for (int64_t i = some; i < elements; i += some)
    std::memcpy(at + i * bytes, at, static_cast<size_t>(std::min(some, elements - i) * bytes));
}

void MadeUpTensors::fill_integers(std::byte* at, const std::string& name, const Tensor& like, int64_t elements,
                                  const std::map<std::string, int64_t>& limits) {
  std::vector<double> values(static_cast<size_t>(elements));
  if (const auto said = file_.values.find(name); said != file_.values.end()) {
    std::ranges::copy(said->second, values.begin());
  } else {
    if (const auto limit = limits.find(name); limit != limits.end())
      values = random_values(elements, like.dtype, limit->second, random_);
    for (const auto& [size, where] : file_.graph.dynamic_sizes())
      if (file_.graph.tensor(where.tensor).name == name)
        values[static_cast<size_t>(where.index)] = static_cast<double>(largest(size));
  }
  for (int64_t i = 0; i < elements; ++i) element_store(at, like.dtype, i, values[static_cast<size_t>(i)]);
}

int64_t MadeUpTensors::largest(const std::string& dynamic) const {
  int64_t size = 0;
  for (const Tensor& tensor : file_.graph.tensors())
    for (const graph::Dim& dim : tensor.shape)
      if (dim.dynamic == dynamic) size = std::max(size, dim.size);
  return size;
}

}  // namespace megalith::engine
