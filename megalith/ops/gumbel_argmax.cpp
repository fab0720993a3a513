#include <cmath>
#include <limits>

#include "megalith/graph/operator.h"
#include "megalith/kernels/sampling_layout.h"

namespace megalith::ops {

using graph::operator_;

namespace {

// The same numbers as kernels/cpu/gumbel.h.
double uniform_from(uint32_t low, uint32_t high, uint32_t counter) {
  uint64_t z = (static_cast<uint64_t>(high) << 32 | low) + 0x9e3779b97f4a7c15ull * (uint64_t{counter} + 1);
  for (int round = 0; round < 2; ++round) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    z ^= z >> 31;
  }
  return std::ldexp(static_cast<double>(z >> 11), -53);
}

void reference(const loop::Binding& binding, loop::Arrays& arrays) {
  const int64_t rows = binding.sizes.at("R"), vocabulary = binding.sizes.at("V");
  const auto seed = static_cast<uint32_t>(static_cast<int64_t>(arrays.at("seed").values[0]));
  const auto draw = static_cast<uint32_t>(static_cast<int64_t>(arrays.at("draw").values[0]));
  for (int64_t r = 0; r < rows; ++r) {
    double best = -std::numeric_limits<double>::infinity();
    double& token = arrays.at("token").values[static_cast<size_t>(r)];
    token = 0;
    for (int64_t v = 0; v < vocabulary; ++v) {
      const double uniform =
          uniform_from(seed, draw * 0x9e3779b9u + static_cast<uint32_t>(r), static_cast<uint32_t>(v));
      const double value =
          arrays.at("logits").values[static_cast<size_t>(r * vocabulary + v)] - std::log(-std::log(uniform));
      if (value <= best) continue;
      best = value;
      token = static_cast<double>(v);
    }
  }
}

}  // namespace

/// A token per row, drawn with the probabilities of softmax(logits). The noise comes from bits that a loop kernel
/// cannot mix, so this one only says what it touches; `draw` makes each iteration's noise another.
graph::Operator gumbel_argmax() {
  return operator_("gumbel_argmax", "token[r] drawn from softmax(logits[r])")
      .input("logits", {"R", "V"})
      .input("seed", {"1"}, DType::i32)
      .input("draw", {"1"}, DType::i32)
      .output("token", {"R"}, DType::i32)
      .exactly()
      .loops(R"(
        { [r, v] : 0 <= r < R and 0 <= v < V }
        token[r] = seed[0] + draw[0] + sum(v, logits[r, v])
      )")
      .reference(reference)
      .tasks({"r"})
      .body("cpu", "gumbel.h", "gumbel_argmax")
      .body({.target = "cuda",
             .file = "sampling/sampling.cuh",
             .name = "gumbel_argmax_by_block",
             .applies = {},
             .area_bytes = [](const graph::BodyQuery&) { return int64_t{sampling::area_bytes()}; }});
}

}  // namespace megalith::ops
