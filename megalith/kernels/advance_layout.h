// How large a batch block a GPU's body of `advance` takes (scheduler/advance.cuh): it works on a copy in shared
// memory.
#pragma once

#include "megalith/kernels/stream_limits.h"

namespace megalith::advance {

constexpr int kMaxRequests = 128, kMaxRows = stream::kMaxWideRows + 16, kMaxStopTokens = 64;

/// Requests of 8 fields, samples, whose rows the next ones are, stop tokens, and two records a sample for the host, with what
/// stands in front of them.
constexpr long long area_bytes() {
  return 4 * (8 * kMaxRequests + 4 * kMaxRequests + 5 * kMaxRequests + kMaxStopTokens + 64) +
         (32 + 8) * 2 * kMaxRequests;
}

}  // namespace megalith::advance
