// What the copy engine wants to know of a model's KV caches to bring tiles of keys and values of prompts
// (kernels/cuda/pipeline/key_ring.cuh).
#pragma once

#include <optional>
#include <span>

#include "megalith/graph/graph.h"
#include "megalith/graph/schedule.h"
#include "megalith/jit/cuda/driver.h"
#include "megalith/runtime/protocol.h"

namespace megalith::runtime {

/// A map of all caches that attention of prompts reads, in `layouts` and at `addresses` (of each tensor): of the first node's kind,
/// whose heads have 128 values of 16 bits. nullopt if there are none, or the GPU or its driver has no such maps.
std::optional<CacheMap> map_of_caches(const graph::Graph& graph, std::span<const graph::Layout> layouts,
                                      std::span<void* const> addresses, const jit::CudaDeviceInfo& device);

}  // namespace megalith::runtime
