#include "megalith/engine/memory_report.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "megalith/base/error.h"
#include "megalith/base/format.h"

namespace megalith::engine {

namespace {

/// What the driver takes for itself while a kernel is loaded and runs: code, stacks, and allocations rounded up to 2
/// MiB.
constexpr int64_t kDriverBytes = int64_t{256} << 20;

bool is_cache(const std::string& name) { return name.ends_with(".k_cache") || name.ends_with(".v_cache"); }

// The cache holds a page for every position of every text, so it grows with both.
int64_t cache_bytes(const MemoryNeeds& needs, int64_t requests, int64_t seq_len) {
  const int64_t pages = (needs.max_seq_len + needs.page_size - 1) / needs.page_size * needs.max_requests;
  return needs.kv_cache / std::max<int64_t>(pages, 1) * requests * ((seq_len + needs.page_size - 1) / needs.page_size);
}

// The largest multiple of `step` below `size` for which the cache fits into `room`, or 0.
template <class Bytes>
int64_t largest(int64_t size, int64_t step, int64_t room, Bytes&& bytes) {
  const int64_t each = bytes(step);
  return each <= 0 ? 0 : std::clamp<int64_t>(room / each * step, 0, (size - 1) / step * step);
}

}  // namespace

MemoryNeeds memory_needs(const graph::Graph& graph, const task::TaskGraph& tasks, const runtime::StreamPlan& streams) {
  MemoryNeeds needs{.weights = streams.bytes(),
                    .activations = tasks.arena_bytes,
                    .other = streams.largest_packed(graph) + streams.largest_table()};
  for (const task::Buffer& buffer : tasks.buffers)
    if (buffer.memory == task::Memory::exchange) needs.activations += buffer.bytes;
  for (size_t i = 0; i < graph.tensors().size(); ++i) {
    const graph::Tensor& tensor = graph.tensors()[i];
    if (tensor.kind == graph::TensorKind::constant) {
      if (streams.in_place(static_cast<graph::TensorId>(i))) needs.weights += tensor.bytes();
    } else if (tensor.kind == graph::TensorKind::state && is_cache(tensor.name)) {
      needs.kv_cache += tensor.bytes();
      needs.page_size = tensor.shape[1].size;
    } else if (tensor.kind == graph::TensorKind::state) {
      needs.other += tensor.bytes();
      if (tensor.name != "history") continue;
      needs.max_requests = tensor.shape[0].size;
      needs.max_seq_len = tensor.shape[1].size;
    }
  }
  return needs;
}

std::string memory_report(const MemoryNeeds& needs, int64_t free_bytes) {
  const int64_t usable = free_bytes - kDriverBytes;
  if (needs.total() <= usable) return "";
  std::string text = fmt::format(
      "the model does not fit on the GPU: it needs {} (weights {}, KV cache {} for {} x {} positions, "
      "activations {}, other {}) and {} for the driver, but {} are free",
      format_bytes(needs.total()), format_bytes(needs.weights), format_bytes(needs.kv_cache), needs.max_requests,
      needs.max_seq_len, format_bytes(needs.activations), format_bytes(needs.other), format_bytes(kDriverBytes),
      format_bytes(std::max<int64_t>(free_bytes, 0)));
  const int64_t room = usable - (needs.total() - needs.kv_cache);
  const int64_t seq_len = largest(needs.max_seq_len, needs.page_size, room,
                                  [&](int64_t n) { return cache_bytes(needs, needs.max_requests, n); });
  const int64_t batch =
      largest(needs.max_requests, 1, room, [&](int64_t n) { return cache_bytes(needs, n, needs.max_seq_len); });
  std::vector<std::string> advice;
  if (seq_len > 0) advice.push_back(fmt::format("--max-seq-len {}", seq_len));
  if (batch > 0) advice.push_back(fmt::format("--max-batch {}", batch));
  if (!advice.empty()) return text + fmt::format("; {} would fit", fmt::join(advice, " or "));
  return text +
         (needs.weights > usable ? "; the weights alone are too large: use a smaller model"
                                 : "; no shorter context fits either: try fewer rows at a time (-b)") +
         ", or close what else uses the GPU (nvidia-smi lists it)";
}

}  // namespace megalith::engine
