#include "megalith/runtime/cuda/cache_map.h"

#include <algorithm>

#include "megalith/base/log.h"
#include "megalith/machine/machine.h"

namespace megalith::runtime {

using graph::Tensor;
using jit::CudaAddress;

namespace {

constexpr int64_t kHeadValues = 128;
constexpr u64 kHeadBytes = 2 * kHeadValues;

bool is_attention_of_prompts(const graph::Node& node) { return node.op->name.ends_with("rope_attention_cached"); }

}  // namespace

std::optional<CacheMap> map_of_caches(const graph::Graph& graph, std::span<const graph::Layout> layouts,
                                      std::span<void* const> addresses, const jit::CudaDeviceInfo& device) {
  if (!machine::gpu(device.architecture).copies_by_map) return std::nullopt;
  u64 begin = ~u64{0}, end = 0;
  int64_t row_bytes = 0;
  for (const graph::Node& node : graph.nodes()) {
    if (!is_attention_of_prompts(node)) continue;
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const std::string& name = node.op->operands[i].name;
      if (name != "k_cache" && name != "v_cache") continue;
      const Tensor& cache = graph.tensor(node.operands[i]);
      const bool is_paired = layouts[static_cast<size_t>(node.operands[i])] == graph::Layout::head_pairs;
      const int64_t bytes = (is_paired ? 1 : cache.shape[2].size) * cache.shape[3].size * dtype_bytes(cache.dtype);
      if (cache.shape[3].size != kHeadValues || dtype_bytes(cache.dtype) != 2) continue;
      if (row_bytes == 0) row_bytes = bytes;
      if (bytes != row_bytes) continue;  // of a draft model
      const auto at = reinterpret_cast<u64>(addresses[static_cast<size_t>(node.operands[i])]);
      if (at % kHeadBytes != 0) return std::nullopt;  // both halves of a head are lines of one row
      begin = std::min(begin, at);
      end = std::max(end, at + static_cast<u64>(cache.bytes()));
    }
  }
  if (row_bytes == 0) return std::nullopt;
  // Columns are a line of 128 bytes, lines those of a row, rows wherever they are from the first cache on.
  constexpr int kBf16 = 9, kDimensions = 3, kSwizzle128 = 3, kPromotion256 = 3;
  constexpr u64 kLine = 128;
  const auto of_row = static_cast<u64>(row_bytes);
  CacheMap result = {.map = {}, .begin = reinterpret_cast<const u8*>(begin), .row_bytes = static_cast<u32>(of_row)};
  const u64 sizes[] = {kLine / 2, of_row / kLine, (end - begin + of_row - 1) / of_row}, strides[] = {kLine, of_row};
  const unsigned box[] = {kLine / 2, 1, CacheMap::kBoxRows}, steps[] = {1, 1, 1};
  if (sizes[2] >> 32 != 0 ||
      jit::CudaDriver::get().tensor_map(result.map, kBf16, kDimensions, CudaAddress{begin}, sizes, strides, box, steps,
                                        0, kSwizzle128, kPromotion256, 0) != 0) {
    log_debug("[cuda] the driver does not take a description of the KV caches");
    return std::nullopt;
  }
  return result;
}

}  // namespace megalith::runtime
