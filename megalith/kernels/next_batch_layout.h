// How much of shared memory a GPU's bodies of `next_batch` and `serve_batch` work in (scheduler/next_batch.cuh).
#pragma once

namespace megalith::kernels {

/// Two words, and one for each of up to 32 warps.
constexpr long long kNextBatchAreaBytes = 4 * (2 + 32);

}  // namespace megalith::kernels
