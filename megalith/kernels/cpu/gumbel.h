// Drawing a token by the largest of logit plus Gumbel noise, which draws with the probabilities of the softmax and
// needs neither it nor a sort (https://arxiv.org/abs/1611.01144). The noise depends on the seed, on how often was
// drawn, on the row and on the token, and on nothing else: the same text on any number of workers.
#pragma once

#include "megalith/kernels/cpu/sampling.h"

namespace megalith::kernels {

/// -log(-log(u)) for a uniform u in [0, 1). Near 1, where the largest values come from, a float u has too few bits:
/// there -log(u) is 1 - u + (1 - u)^2 / 2.
inline float gumbel_from(double u) {
  const double left = 1.0 - u;
  const float minus_log = left < 0.001 ? static_cast<float>(left + 0.5 * left * left) : -log(static_cast<float>(u));
  return -log(minus_log);
}

/// Of the tokens of row r, in this draw.
struct GumbelNoise {
  u32 seed, row_seed;

  template <class Args>
  GumbelNoise(const Args& a, i64 r)
      : seed(static_cast<u32>(a.seed[0])), row_seed(static_cast<u32>(a.draw[0]) * 0x9e3779b9u + static_cast<u32>(r)) {}
  float operator()(i64 v) const { return gumbel_from(uniform_from(seed, row_seed, static_cast<u32>(v))); }
};

/// The body of the operator `gumbel_argmax`: of equals the lowest token.
template <class Args>
inline void gumbel_argmax(const Args& a) {
  for (i64 r = a.r_begin; r < a.r_end && r < a.R; ++r) {
    const GumbelNoise noise(a, r);
    float best = -kInfinity;
    i64 token = 0;
    for (i64 v = 0; v < a.V; ++v) {
      const float value = to_f32(a.logits[r * a.V + v]) + noise(v);
      if (value > best) {
        best = value;
        token = v;
      }
    }
    a.token[r] = static_cast<i32>(token);
  }
}

}  // namespace megalith::kernels
