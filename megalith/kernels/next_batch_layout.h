// How much of shared memory a GPU's body of `next_batch` works in (scheduler/next_batch.cuh).
#pragma once

namespace megalith::kernels {

/// A word, and one for each of up to 32 warps.
constexpr long long kNextBatchAreaBytes = 4 * (1 + 32);

}  // namespace megalith::kernels
