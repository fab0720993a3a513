// What a GPU's body of `sampling` works in (sampling/row_sampler.cuh): bins and a short list in shared memory.
#pragma once

namespace megalith::sampling {

constexpr int kBins = 2048, kMaxListed = 512;
/// A bin holds at most as many tokens in a row as there are bins, and the sum of all weights, of 2^44 at most each, has
/// room in 64 bits.
[[maybe_unused]] constexpr long long kMaxTokens = (1LL << 20) - 1;
static_assert(kMaxTokens <= 1LL * kBins * kBins);

/// A sum for each bin; sum, logit and token of whatever is listed; a few words. A ring of 12 slots leaves it 27 KB.
constexpr long long area_bytes() { return 8 * kBins + 16 * kMaxListed + 1024; }

}  // namespace megalith::sampling
