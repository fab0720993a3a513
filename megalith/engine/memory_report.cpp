#include "megalith/engine/memory_report.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <ranges>
#include <vector>

#include "megalith/base/error.h"
#include "megalith/base/format.h"
#include "megalith/engine/memory_map.h"

namespace megalith::engine {

namespace {

/// What the driver takes for itself while a kernel is loaded and runs: code, stacks, and allocations rounded up to 2
/// MiB.
constexpr int64_t kDriverBytes = int64_t{256} << 20;

// The largest value of an option, from `least` to less than it has, with which the cache has no more than `pages`
// pages; or 0. DecoderOptions says how many it has: it rounds in more than one place, but never falls.
int64_t largest(const DecoderOptions& options, int64_t DecoderOptions::*option, int64_t least, int64_t pages) {
  auto fits = [&](int64_t value) {
    DecoderOptions candidate = options;
    candidate.*option = value;
    return candidate.num_pages() <= pages;
  };
  const auto values = std::views::iota(least, std::max<int64_t>(least, options.*option));
  const auto end = std::ranges::partition_point(values, fits);
  return end == values.begin() ? 0 : *std::ranges::prev(end);
}

std::vector<std::string> advice_for(const DecoderOptions& options, int64_t pages) {
  if (options.max_pages > 0)
    return pages > 0 ? std::vector{fmt::format("--num-pages {}", pages)} : std::vector<std::string>{};
  std::vector<std::string> advice;
  if (const int64_t length = largest(options, &DecoderOptions::max_seq_len, 2, pages); length > 0)
    advice.push_back(fmt::format("--max-seq-len {}", length));
  if (const int64_t batch = largest(options, &DecoderOptions::max_requests, 1, pages); batch > 0)
    advice.push_back(fmt::format("--max-batch {}", batch));
  return advice;
}

}  // namespace

MemoryNeeds memory_needs(const graph::Graph& graph, const DecoderOptions& options, const task::TaskGraph& tasks,
                         const runtime::StreamPlan& streams) {
  MemoryNeeds needs{.weights = streams.bytes(),
                    .activations = tasks.arena_bytes,
                    .other = streams.largest_packed(graph) + streams.largest_table(),
                    .options = options};
  for (const task::Buffer& buffer : tasks.buffers)
    if (buffer.memory == task::Memory::exchange) needs.activations += buffer.bytes;
  for (size_t i = 0; i < graph.tensors().size(); ++i) {
    const graph::Tensor& tensor = graph.tensors()[i];
    if (tensor.kind == graph::TensorKind::constant) {
      if (streams.in_place(static_cast<graph::TensorId>(i))) needs.weights += tensor.bytes();
    } else if (tensor.kind == graph::TensorKind::state) {
      (is_kv_cache(tensor) ? needs.kv_cache : needs.other) += tensor.bytes();
    }
  }
  return needs;
}

std::string memory_report(const MemoryNeeds& needs, int64_t free_bytes) {
  const int64_t usable = free_bytes - kDriverBytes;
  if (needs.total() <= usable) return "";
  std::string text = fmt::format(
      "the model does not fit on the GPU: it needs {} (weights {}, KV cache {} for {}, activations {}, other {}) and "
      "{} "
      "for the driver, but {} are free",
      format_bytes(needs.total()), format_bytes(needs.weights), format_bytes(needs.kv_cache),
      needs.options.max_pages > 0
          ? fmt::format("{} pages of {} positions", needs.options.max_pages, needs.options.page_size)
          : fmt::format("{} x {} positions", needs.options.max_requests, needs.options.max_seq_len),
      format_bytes(needs.activations), format_bytes(needs.other), format_bytes(kDriverBytes),
      format_bytes(std::max<int64_t>(free_bytes, 0)));
  const int64_t room = usable - (needs.total() - needs.kv_cache);
  const int64_t page_bytes = needs.kv_cache / std::max<int64_t>(needs.options.num_pages(), 1);
  const std::vector<std::string> advice =
      page_bytes > 0 && room > 0 ? advice_for(needs.options, room / page_bytes) : std::vector<std::string>{};
  if (!advice.empty()) return text + fmt::format("; {} would fit", fmt::join(advice, " or "));
  return text +
         (needs.weights > usable ? "; the weights alone are too large: use a smaller model"
                                 : "; no shorter context fits either: try fewer tokens at a time (-b)") +
         ", or close what else uses the GPU (nvidia-smi lists it)";
}

}  // namespace megalith::engine
