// Sampling: from a row of logits to a token. Temperature, then top-k, then top-p, as everyone orders them; the random
// number depends on the request's seed and on how long its text is, so a text is the same however it is batched and on
// however many workers it is made. Temperature 0 takes the largest logit.
//
// Candidates are popped from a heap in descending order (of equals the lower token first), so a row costs O(V) plus
// O(log V) per candidate that top-k and top-p let through, not a full sort.
#pragma once

#include "megalith/kernels/batch.h"
#include "megalith/kernels/cpu/prelude.h"

namespace megalith::kernels {

/// Uniform in [0, 1) from a seed and a counter: two rounds of the SplitMix64 finaliser
/// (https://doi.org/10.1145/2714064.2660195).
inline double uniform_from(u32 seed_low, u32 seed_high, u32 counter) {
  u64 z = (static_cast<u64>(seed_high) << 32 | seed_low) + 0x9e3779b97f4a7c15ull * (static_cast<u64>(counter) + 1);
  for (int round = 0; round < 2; ++round) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    z ^= z >> 31;
  }
  return static_cast<double>(z >> 11) * (1.0 / 9007199254740992.0);
}

struct Candidates {
  const float* logits;
  i32* heap;
  i32 size;

  bool before(i32 a, i32 b) const { return logits[a] > logits[b] || (logits[a] == logits[b] && a < b); }

  void sift_down(i32 at) {
    const i32 moving = heap[at];
    for (;;) {
      i32 child = 2 * at + 1;
      if (child >= size) break;
      if (child + 1 < size && before(heap[child + 1], heap[child])) ++child;
      if (!before(heap[child], moving)) break;
      heap[at] = heap[child];
      at = child;
    }
    heap[at] = moving;
  }

  void make(i32 vocabulary) {
    size = vocabulary;
    for (i32 v = 0; v < vocabulary; ++v) heap[v] = v;
    for (i32 at = vocabulary / 2 - 1; at >= 0; --at) sift_down(at);
  }

  // The best one left; it moves to the end of the array, so the popped ones stand there in reverse order.
  i32 pop() {
    const i32 best = heap[0];
    heap[0] = heap[--size];
    heap[size] = best;
    if (size > 0) sift_down(0);
    return best;
  }
};

inline i32 sample_row(const float* logits, i32* heap, i32 vocabulary, i32 best, float temperature, float top_p,
                      i32 top_k, double uniform) {
  const float largest = logits[best];
  const float scale = 1.0f / temperature;
  auto weight = [&](i32 v) { return static_cast<double>(exp((logits[v] - largest) * scale)); };
  const i32 limit = top_k > 0 && top_k < vocabulary ? top_k : vocabulary;

  if (limit == vocabulary && top_p >= 1.0f) {
    double total = 0;
    for (i32 v = 0; v < vocabulary; ++v) total += weight(v);
    double left = uniform * total;
    for (i32 v = 0; v < vocabulary; ++v)
      if ((left -= weight(v)) < 0) return v;
    return best;
  }

  Candidates candidates{logits, heap, 0};
  candidates.make(vocabulary);
  double total = 0;  // over what top-k lets through: top-p is a share of that
  if (limit == vocabulary) {
    for (i32 v = 0; v < vocabulary; ++v) total += weight(v);
  } else {
    for (i32 i = 0; i < limit; ++i) total += weight(candidates.pop());
  }
  const double wanted = top_p < 1.0f ? top_p * total : total;
  double kept = 0;
  i32 num_kept = 0;
  while (num_kept < limit && (num_kept == 0 || kept < wanted)) {
    const i32 v = limit == vocabulary ? candidates.pop() : heap[vocabulary - 1 - num_kept];
    kept += weight(v);
    ++num_kept;
  }
  double left = uniform * kept;
  for (i32 i = 0; i < num_kept; ++i)
    if ((left -= weight(heap[vocabulary - 1 - i])) < 0) return heap[vocabulary - 1 - i];
  return best;
}

/// The body of the operator `sampling`: one token per sample row.
template <class Args>
inline void sample_rows(const Args& a) {
  for (i64 r = a.r_begin; r < a.r_end && r < a.R; ++r) {
    const i64 request = a.sample_request[r];
    const float* f32s = a.sampling_f32 + request * batch::kSamplingFloats;
    const i32* i32s = a.sampling_i32 + request * batch::kSamplingInts;
    if (f32s[batch::kTemperature] <= 0.0f) {
      a.token[r] = a.best[r];
      continue;
    }
    const u32 length = static_cast<u32>(a.requests[request * batch::kRequestFields + batch::kLength]);
    const double uniform =
        uniform_from(static_cast<u32>(i32s[batch::kSeedLow]), static_cast<u32>(i32s[batch::kSeedHigh]), length);
    a.token[r] = sample_row(a.logits + r * a.V, a.heap + r * a.V, static_cast<i32>(a.V), a.best[r],
                            f32s[batch::kTemperature], f32s[batch::kTopP], i32s[batch::kTopK], uniform);
  }
}

}  // namespace megalith::kernels
