#include "megalith/engine/memory_map.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <optional>
#include <set>

#include "megalith/base/error.h"
#include "megalith/base/format.h"
#include "megalith/base/progress.h"
#include "megalith/base/threads.h"
#include "megalith/engine/graph_memory.h"
#include "megalith/engine/quantize.h"
#include "megalith/model/draft_model.h"
#include "megalith/model/rope.h"
#include "megalith/runtime/topology.h"

namespace megalith::engine {

namespace {

// Of a file that is being read, so much at a time.
constexpr int64_t kStretchBytes = 4 << 20;

// The quantised matrix whose scales these are, or nullptr.
const graph::Tensor* scaled_by(const graph::Graph& graph, const graph::Tensor& tensor) {
  const std::string ending = graph::quant_scale_name("");
  if (!tensor.name.ends_with(ending)) return nullptr;
  const std::string name = tensor.name.substr(0, tensor.name.size() - ending.size());
  if (!graph.has(name) || graph.tensor(graph.find(name)).quant_columns == 0) return nullptr;
  return &graph.tensor(graph.find(name));
}

// The rows of a matrix, a stretch at a time, on every core that this process may use.
void for_rows(int64_t num_rows, int64_t step, const std::function<void(int64_t begin, int64_t end)>& work) {
  for_each_index(static_cast<size_t>((num_rows + step - 1) / step), runtime::cpu_topology().num_usable(),
                 [&](size_t i, const std::atomic<bool>&) {
                   const int64_t begin = static_cast<int64_t>(i) * step;
                   work(begin, std::min(begin + step, num_rows));
                 });
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

// A norm's weight or a bias that the graph wants in bf16 or f16 (DecoderOptions::rounded_weights).
bool is_rounded(const graph::Tensor& tensor, const WeightTensor& found) {
  return tensor.shape.size() == 1 && dtype_is_half(tensor.dtype) && found.dtype != tensor.dtype &&
         dtype_is_float(found.dtype);
}

void copy_elements(void* to, int64_t at, DType dtype, const WeightTensor& found, int64_t begin, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    element_store(to, dtype, at + i, element_load(found.bytes.data(), found.dtype, begin + i));
}

void refuse_surplus(const Weights& weights, const std::set<std::string>& used) {
  std::vector<std::string> surplus;
  for (const std::string& name : weights.names())
    if (!used.contains(name)) surplus.push_back(fmt::format("\"{}\"", name));
  if (surplus.empty()) return;
  constexpr size_t kShown = 3;
  const size_t count = surplus.size();
  surplus.resize(std::min(count, kShown));
  throw UserError(fmt::format(
      "the model that config.json describes has no use for {} of the tensors in {}: {}{}; \"architectures\", "
      "\"num_hidden_layers\", \"tie_word_embeddings\" and the biases must be those of the weights",
      count, weights.path(), fmt::join(surplus, ", "), count > kShown ? ", ..." : ""));
}

}  // namespace

bool is_kv_cache(const graph::Tensor& tensor) {
  return tensor.kind == graph::TensorKind::state &&
         (tensor.name.ends_with(".k_cache") || tensor.name.ends_with(".v_cache"));
}

bool is_rope_table(const graph::Tensor& tensor) {
  const std::string_view name =
      std::string_view(tensor.name).substr(tensor.name.starts_with(kDraftPrefix) ? std::strlen(kDraftPrefix) : 0);
  return name == "rope.cos" || name == "rope.sin";
}

void* MemoryMap::allocate(int64_t bytes, const std::string& what) {
  mappings_.emplace_back(bytes, what);
  return mappings_.back().data();
}

void MemoryMap::bind_weights(const graph::Graph& graph, const Weights& weights) {
  int64_t quantized = 0;
  for (const graph::Tensor& tensor : graph.tensors())
    if (tensor.quant_columns > 0 && tensor.dtype == DType::i8) quantized += tensor.bytes();
  std::optional<Progress> progress;
  if (quantized > 0) progress.emplace("quantizing weights", quantized, ProgressUnit::bytes);
  std::set<std::string> used;
  for (const graph::Tensor& tensor : graph.tensors()) {
    if (tensor.kind != graph::TensorKind::constant || is_rope_table(tensor) || scaled_by(graph, tensor)) continue;
    if (!tensor.parts.empty()) {
      stack(tensor, weights);
      used.insert(tensor.parts.begin(), tensor.parts.end());
      continue;
    }
    const WeightTensor& found = weights.get(tensor.name);
    used.insert(tensor.name);
    MEGALITH_CHECK(found.shape == shape_of(tensor),
                   "the weight \"{}\" has the shape [{}], want [{}] as config.json says", tensor.name,
                   fmt::join(found.shape, ", "), fmt::join(shape_of(tensor), ", "));
    if (tensor.quant_columns > 0 && tensor.dtype == DType::i8) {
      quantize(tensor, graph.tensor(graph.find(graph::quant_scale_name(tensor.name))), found);
      progress->advance(tensor.bytes());
      continue;
    }
    if (is_rounded(tensor, found)) {
      addresses_[tensor.name] = allocate(tensor.bytes(), fmt::format("the weight \"{}\"", tensor.name));
      copy_elements(addresses_[tensor.name], 0, tensor.dtype, found, 0, tensor.num_elements());
      continue;
    }
    MEGALITH_CHECK(found.dtype == tensor.dtype, "the weight \"{}\" is {}, want {}", tensor.name,
                   dtype_name(found.dtype), dtype_name(tensor.dtype));
    addresses_[tensor.name] = const_cast<std::byte*>(found.bytes.data());  // constants are never written: verified
  }
  refuse_surplus(weights, used);
}

void MemoryMap::quantize(const graph::Tensor& tensor, const graph::Tensor& scale, const WeightTensor& found) {
  MEGALITH_CHECK(dtype_is_float(found.dtype), "the weight \"{}\" is {}, want floats to quantize", tensor.name,
                 dtype_name(found.dtype));
  const int64_t columns = tensor.shape[1].size, row_bytes = columns * dtype_bytes(found.dtype);
  auto* to = static_cast<int8_t*>(allocate(tensor.bytes(), fmt::format("the weight \"{}\"", tensor.name)));
  auto* scales = static_cast<uint16_t*>(allocate(scale.bytes(), fmt::format("the scales \"{}\"", scale.name)));
  for_rows(tensor.shape[0].size, std::max<int64_t>(1, kStretchBytes / row_bytes), [&](int64_t begin, int64_t end) {
    quantize_rows(to, scales, found.bytes.data(), found.dtype, columns, tensor.quant_columns, begin, end);
    release(found.bytes.data() + begin * row_bytes, (end - begin) * row_bytes);
  });
  addresses_[tensor.name] = to;
  addresses_[scale.name] = scales;
}

void MemoryMap::stack(const graph::Tensor& tensor, const Weights& weights) {
  auto* to = static_cast<std::byte*>(allocate(tensor.bytes(), fmt::format("the weight \"{}\"", tensor.name)));
  addresses_[tensor.name] = to;
  const int64_t row_bytes = tensor.bytes() / tensor.shape[0].size;
  int64_t rows = 0;
  for (const std::string& part : tensor.parts) {
    const WeightTensor& found = weights.get(part);
    const bool fits = found.shape.size() == tensor.shape.size() && !found.shape.empty() &&
                      (found.shape.size() == 1 || found.shape[1] == tensor.shape[1].size) &&
                      found.shape[0] % tensor.groups == 0;
    MEGALITH_CHECK((found.dtype == tensor.dtype || is_rounded(tensor, found)) && fits,
                   "the weight \"{}\" is {} [{}], want {} with {} columns and a multiple of {} rows", part,
                   dtype_name(found.dtype), fmt::join(found.shape, ", "), dtype_name(tensor.dtype),
                   tensor.shape.size() == 1 ? 1 : tensor.shape[1].size, tensor.groups);
    rows += found.shape[0];
  }
  MEGALITH_CHECK(rows == tensor.shape[0].size, "the weights {} have {} rows together, want {} as config.json says",
                 fmt::join(tensor.parts, ", "), rows, tensor.shape[0].size);
  for (int64_t group = 0; group < tensor.groups; ++group)
    for (const std::string& part : tensor.parts) {
      const WeightTensor& found = weights.get(part);
      const int64_t count = found.shape[0] / tensor.groups, bytes = count * row_bytes;
      if (is_rounded(tensor, found))
        copy_elements(to, 0, tensor.dtype, found, group * count, count);
      else
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
    const graph::Tensor* const scaled = scaled_by(graph, tensor);
    const int64_t columns = scaled ? scaled->shape[1].size : tensor.shape.back().size;
    const bool matrix = tensor.shape.size() == 2;
    float spread = matrix ? 1.7f / std::sqrt(static_cast<float>(columns)) : 0.1f, centre = matrix ? 0 : 1;
    if (scaled) centre = spread / 127, spread = 0.1f * centre;
    if (tensor.dtype == DType::i8) spread = 127.9f;
    // A draft model that is the model itself has its weights, too.
    const bool is_of_draft = tensor.name.starts_with(kDraftPrefix);
    const std::string own_name = tensor.name.substr(is_of_draft ? std::string_view(kDraftPrefix).size() : 0);
    const uint64_t tensor_seed = seed ^ std::hash<std::string>()(own_name);
    for_rows(tensor.num_elements(), kStretchBytes, [&](int64_t begin, int64_t end) {
      fill_random(data, tensor.dtype, begin, end, centre, spread, tensor_seed);
    });
    progress.advance(tensor.bytes());
    addresses_[tensor.name] = data;
  }
}

void MemoryMap::bind_rope(const graph::Graph& graph, const ModelConfig& config, int64_t max_seq_len,
                          int64_t prompt_tokens, const std::string& prefix) {
  auto table = [&](const char* of_model) {
    const std::string name = prefix + of_model;
    const graph::Tensor& tensor = graph.tensor(graph.find(name));
    if (!addresses_.contains(name)) addresses_[name] = allocate(tensor.bytes(), "the rope tables");
    return std::span(get<float>(name), static_cast<size_t>(tensor.num_elements()));
  };
  const std::span<float> cos = table("rope.cos"), sin = table("rope.sin");
  rope_fill(cos, sin, config, max_seq_len, prompt_tokens);
}

void MemoryMap::bind_states(const graph::Graph& graph, bool written) {
  const auto has_enough = [&](const graph::Tensor& tensor) {
    const auto found = bytes_of_state_.find(tensor.name);
    return found != bytes_of_state_.end() && found->second >= tensor.bytes();
  };
  state_bytes_ = 0;
  int64_t wanted = 0;
  for (const graph::Tensor& tensor : graph.tensors()) {
    if (tensor.kind != graph::TensorKind::state) continue;
    state_bytes_ += tensor.bytes();
    if (!has_enough(tensor)) wanted += tensor.bytes();
  }
  // Each may fit where all do not, and the system would only notice when they are written.
  const int64_t available = runtime::memory_available_bytes();
  if (written && wanted > available)
    throw SystemError(
        fmt::format("[memory] the states, most of which are the KV cache, need {}, but {} are available; close "
                    "something, or use a shorter context (--max-seq-len), fewer sequences (--max-batch) or --num-pages",
                    format_bytes(wanted), format_bytes(available)));
  for (const graph::Tensor& tensor : graph.tensors())
    if (tensor.kind == graph::TensorKind::state && !has_enough(tensor)) {
      addresses_[tensor.name] = allocate(tensor.bytes(), fmt::format("the state \"{}\"", tensor.name));
      bytes_of_state_[tensor.name] = tensor.bytes();
    }
}

void MemoryMap::release(const std::byte* begin, int64_t bytes) const {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE)), address = reinterpret_cast<uintptr_t>(begin);
  const uintptr_t first = (address + page - 1) / page * page,
                  last = (address + static_cast<uintptr_t>(bytes)) / page * page;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

void MemoryMap::fill_state(const graph::Graph& graph, const std::string& name, uint64_t seed) {
  const graph::Tensor& tensor = graph.tensor(graph.find(name));
  void* const data = addresses_.at(name);
  for_rows(tensor.num_elements(), kStretchBytes,
           [&](int64_t begin, int64_t end) { fill_random(data, tensor.dtype, begin, end, 0, 1, seed); });
}

}  // namespace megalith::engine
