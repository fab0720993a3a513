// What a GPU's body of `sampling` works in (kernels/cuda/sampling.cuh): bins and a short list in shared memory.
#pragma once

namespace megalith::sampling {

constexpr int kBins = 256, kMostListed = 512;
/// Tokens are counted in 24 bits.
[[maybe_unused]] constexpr long long kMostTokens = 1 << 24;

/// A sum and a count for each bin; sum, logit and token of whatever is listed; a few words.
constexpr long long area_bytes() { return 12 * kBins + 16 * kMostListed + 512; }

}  // namespace megalith::sampling
