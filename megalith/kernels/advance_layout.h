// How large a batch block a GPU's body of `advance` takes (kernels/cuda/advance.cuh): it works on a copy in shared
// memory.
#pragma once

namespace megalith::advance {

constexpr int kMostRequests = 128, kMostRows = 512, kMostStopTokens = 64;

/// Requests of 8 fields and a token, samples, rows, stop tokens, and two records a sample for the host.
constexpr long long area_bytes() {
  return 4 * (9 * kMostRequests + 5 * kMostRequests + 3 * kMostRows + kMostStopTokens) + 32 * 2 * kMostRequests;
}

}  // namespace megalith::advance
