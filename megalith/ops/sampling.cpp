#include <algorithm>
#include <cmath>
#include <numeric>

#include "megalith/graph/operator.h"
#include "megalith/kernels/batch.h"

namespace megalith::ops {

using graph::operator_;

namespace {

double uniform_from(uint32_t low, uint32_t high, uint32_t counter) {
  uint64_t z = (static_cast<uint64_t>(high) << 32 | low) + 0x9e3779b97f4a7c15ull * (uint64_t{counter} + 1);
  for (int round = 0; round < 2; ++round) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    z ^= z >> 31;
  }
  return std::ldexp(static_cast<double>(z >> 11), -53);
}

// The meaning, plainly: sort, keep top-k, keep top-p, draw. Works on one row.
int64_t sample(const double* logits, int64_t vocabulary, double temperature, double top_p, int64_t top_k,
               double uniform) {
  std::vector<int64_t> order(static_cast<size_t>(vocabulary));
  std::iota(order.begin(), order.end(), 0);
  const bool cut = (top_k > 0 && top_k < vocabulary) || top_p < 1;
  if (cut) std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return logits[a] > logits[b]; });
  const double largest = *std::max_element(logits, logits + vocabulary);
  auto weight = [&](int64_t v) { return std::exp((logits[v] - largest) / temperature); };
  if (top_k > 0 && top_k < vocabulary) order.resize(static_cast<size_t>(top_k));
  double total = 0;
  for (int64_t v : order) total += weight(v);
  if (top_p < 1) {
    double kept = 0;
    size_t n = 0;
    while (n < order.size() && (n == 0 || kept < top_p * total)) kept += weight(order[n++]);
    order.resize(n);
    total = kept;
  }
  double left = uniform * total;
  for (int64_t v : order)
    if ((left -= weight(v)) < 0) return v;
  return order.front();
}

void reference(const loop::Binding& binding, loop::Arrays& arrays) {
  const int64_t num_samples = binding.sizes.at("R"), vocabulary = binding.sizes.at("V");
  for (int64_t r = 0; r < num_samples; ++r) {
    const auto request = static_cast<size_t>(arrays.at("sample_request").values[static_cast<size_t>(r)]);
    const double* f32s = arrays.at("sampling_f32").values.data() + request * batch::kSamplingFloats;
    const double* i32s = arrays.at("sampling_i32").values.data() + request * batch::kSamplingInts;
    double& token = arrays.at("token").values[static_cast<size_t>(r)];
    if (f32s[batch::kTemperature] <= 0) {
      token = arrays.at("best").values[static_cast<size_t>(r)];
      continue;
    }
    auto word = [](double value) { return static_cast<uint32_t>(static_cast<int32_t>(value)); };
    const double uniform =
        uniform_from(word(i32s[batch::kSeedLow]), word(i32s[batch::kSeedHigh]),
                     word(arrays.at("requests").values[request * batch::kRequestFields + batch::kLength]));
    token = static_cast<double>(sample(arrays.at("logits").values.data() + r * vocabulary, vocabulary,
                                       f32s[batch::kTemperature], f32s[batch::kTopP],
                                       static_cast<int64_t>(i32s[batch::kTopK]), uniform));
  }
}

}  // namespace

/// A token per sample row: greedy, or by temperature, top-k, top-p and the request's seed. Sorting is beyond a loop
/// kernel, so this one only says what it touches; `heap` is room to work in.
graph::Operator sampling() {
  return operator_("sampling", "token[r] drawn from logits[r] as the request of row r asks")
      .input("logits", {"R", "V"})
      .index("best", {"R"}, "V")
      .index("sample_request", {"R"}, "N")
      .input("requests", {"N", "8"}, DType::i32)
      .input("sampling_f32", {"N", "4"})
      .input("sampling_i32", {"N", "4"}, DType::i32)
      .output("token", {"R"}, DType::i32)
      .output("heap", {"R", "V"}, DType::i32)
      .loops(R"(
        { [r, v, f, p] : 0 <= r < R and 0 <= v < V and 0 <= f < 8 and 0 <= p < 4 }
        token[r]   = best[r] + sum(v, logits[r, v]) + sum(f, requests[sample_request[r], f]) + sum(p, sampling_f32[sample_request[r], p] + sampling_i32[sample_request[r], p])
        heap[r, v] = v
      )")
      .reference(reference)
      .tasks({"r"})
      .body("cpu", "sampling.h", "sample_rows",
            [](const graph::BodyQuery& q) { return q.dtypes.at("logits") == DType::f32; })
      .body("cuda", "opaque.cuh", "sample_rows_by_one",
            [](const graph::BodyQuery& q) { return q.dtypes.at("logits") == DType::f32; });
}

}  // namespace megalith::ops
