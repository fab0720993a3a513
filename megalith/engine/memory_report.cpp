#include "megalith/engine/memory_report.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <ranges>
#include <vector>

#include "megalith/base/error.h"
#include "megalith/base/format.h"
#include "megalith/engine/memory_map.h"
#include "megalith/optimize/schedule.h"
#include "megalith/task/stream_chunks.h"

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

// Sizes come from a configuration that nobody vouches for.
void add(int64_t& sum, int64_t bytes) {
  if (__builtin_add_overflow(sum, bytes, &sum)) sum = std::numeric_limits<int64_t>::max();
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

int64_t MemoryNeeds::total() const {
  int64_t sum = 0;
  for (const int64_t bytes : {weights, kv_cache, activations, other}) add(sum, bytes);
  return sum;
}

void MemoryNeeds::add_kernel(const task::TaskGraph& tasks, int64_t scratch_bytes) {
  const task::StreamTotals streams = task::stream_totals(tasks);
  weights += streams.bytes();
  activations += tasks.arena_bytes + scratch_bytes * static_cast<int64_t>(tasks.workers.size());
  for (const task::Buffer& buffer : tasks.buffers)
    if (buffer.memory == task::Memory::exchange) activations += buffer.bytes;
  other += streams.largest_packed + streams.table_bytes();
}

MemoryNeeds host_memory_needs(const graph::Graph& graph, const DecoderOptions& options, bool made_up) {
  MemoryNeeds needs{.options = options, .on_gpu = false};
  const graph::Schedule schedule = optimize::make_schedule(graph, "cpu");
  for (size_t i = 0; i < graph.tensors().size(); ++i) {
    const graph::Tensor& tensor = graph.tensors()[i];
    if (tensor.kind == graph::TensorKind::state)
      add(is_kv_cache(tensor) ? needs.kv_cache : needs.other, tensor.bytes());
    else if (is_rope_table(tensor))
      add(needs.other, tensor.bytes());
    else if (tensor.kind == graph::TensorKind::constant &&
             (made_up || schedule.layouts[i] == graph::Layout::panels || tensor.quant_columns > 0))
      add(needs.weights, tensor.bytes());  // others stay in their file
  }
  return needs;
}

MemoryNeeds memory_needs(const graph::Graph& graph, const DecoderOptions& options, const task::TaskGraph& tasks,
                         int64_t scratch_bytes) {
  const task::StreamTotals streams = task::stream_totals(tasks);
  MemoryNeeds needs{.options = options};
  needs.add_kernel(tasks, scratch_bytes);
  for (size_t i = 0; i < graph.tensors().size(); ++i) {
    const graph::Tensor& tensor = graph.tensors()[i];
    if (tensor.kind == graph::TensorKind::constant) {
      if (streams.in_place[i]) needs.weights += tensor.bytes();
    } else if (tensor.kind == graph::TensorKind::state) {
      (is_kv_cache(tensor) ? needs.kv_cache : needs.other) += tensor.bytes();
    }
  }
  return needs;
}

std::string memory_report(const MemoryNeeds& needs, int64_t free_bytes) {
  const int64_t usable = needs.on_gpu ? free_bytes - kDriverBytes : free_bytes;
  if (needs.total() <= usable) return "";
  std::string text = fmt::format(
      "the model does not fit {}: it needs {} (weights {}, KV cache {} for {}, {}other {}){}, but {} are {}",
      needs.on_gpu ? "on the GPU" : "into memory", format_bytes(needs.total()), format_bytes(needs.weights),
      format_bytes(needs.kv_cache),
      needs.options.max_pages > 0
          ? fmt::format("{} pages of {} positions", needs.options.max_pages, needs.options.page_size)
          : fmt::format("{} x {} positions", needs.options.max_requests, needs.options.max_seq_len),
      needs.on_gpu ? fmt::format("activations {}, ", format_bytes(needs.activations)) : "", format_bytes(needs.other),
      needs.on_gpu ? fmt::format(" and {} for the driver", format_bytes(kDriverBytes)) : "",
      format_bytes(std::max<int64_t>(free_bytes, 0)), needs.on_gpu ? "free" : "available");
  const int64_t room = usable - (needs.total() - needs.kv_cache);
  const int64_t page_bytes = needs.kv_cache / std::max<int64_t>(needs.options.num_pages(), 1);
  const std::vector<std::string> advice =
      page_bytes > 0 && room > 0 ? advice_for(needs.options, room / page_bytes) : std::vector<std::string>{};
  if (!advice.empty()) return text + fmt::format("; {} would fit", fmt::join(advice, " or "));
  return text +
         (needs.weights > usable ? "; the weights alone are too large: use a smaller model"
                                 : "; no shorter context fits either: try fewer tokens at a time (-b)") +
         (needs.on_gpu ? ", close what else uses the GPU (nvidia-smi lists it), or let the CPU run it (--target cpu)"
                       : ", or close what else uses memory");
}

}  // namespace megalith::engine
