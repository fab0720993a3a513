#include <fmt/format.h>

#include "megalith/graph/operator.h"
#include "megalith/kernels/attention_layout.h"

namespace megalith::ops {

using graph::operator_;

/// attention over all positions, not yet divided by its weights' total, of which a row's are in two places: those before its
/// request's `start` in the cache, those of this iteration's rows in `k` and `v`. So it need not wait for the cache to be
/// written, and the cache is written beside it. `softmax` has of each head the largest score and the total of
/// exp(score - largest); attention_divide divides by that.
graph::Operator attention_fresh() {
  return operator_("attention_fresh", "softmax(q k^T) v over all positions, not normalised")
      .input("q", {"T", "G * M * D"})
      .input("k", {"T", "G * D"})
      .input("v", {"T", "G * D"})
      .input("k_cache", {"P", "B", "G", "D"})
      .input("v_cache", {"P", "B", "G", "D"})
      .index("page_table", {"R", "Q"}, "P")
      .index("request", {"T"}, "R")
      .index("position", {"T"}, "S")
      .index("start", {"T"}, "S")
      .output("part", {"T", "G * M", "D"})
      .exactly()
      .output("softmax", {"T", "G * M", "2"})
      .exactly()
      .attribute("scale", 0.125)
      .size("S")
      .loops(R"(
        { [t, g, m, p, u, d, e, f] : 0 <= t < T and 0 <= g < G and 0 <= m < M and 0 <= p < S and 0 <= u < T and 0 <= d < D and 0 <= e < D and 0 <= f < D }
        a[t, g, m, p] = scale * sum(d, f32(q[t, (g * M + m) * D + d]) * f32(k_cache[page_table[request[t], p // B], p mod B, g, d]))  {if=p < start[t]}
        b[t, g, m, u] = scale * sum(f, f32(q[t, (g * M + m) * D + f]) * f32(k[u, g * D + f]))  {if=request[u] == request[t] and position[u] <= position[t]}
        softmax[t, g * M + m, 0] = max(max(p, a[t, g, m, p], p < start[t]), max(u, b[t, g, m, u], request[u] == request[t] and position[u] <= position[t]))
        wa[t, g, m, p] = exp(a[t, g, m, p] - softmax[t, g * M + m, 0])  {if=p < start[t]}
        wb[t, g, m, u] = exp(b[t, g, m, u] - softmax[t, g * M + m, 0])  {if=request[u] == request[t] and position[u] <= position[t]}
        softmax[t, g * M + m, 1] = sum(p, wa[t, g, m, p], p < start[t]) + sum(u, wb[t, g, m, u], request[u] == request[t] and position[u] <= position[t])
        part[t, g * M + m, e] = sum(p, wa[t, g, m, p] * f32(v_cache[page_table[request[t], p // B], p mod B, g, e]), p < start[t]) + sum(u, wb[t, g, m, u] * f32(v[u, g * D + e]), request[u] == request[t] and position[u] <= position[t])
      )")
      .tasks({"g", "t"})
      .test({{"T", 1}, {"G", 2}, {"M", 2}, {"D", 64}, {"S", 64}, {"P", 4}, {"B", 16}, {"R", 1}, {"Q", 4}})
      .test({{"T", 3}, {"G", 2}, {"M", 3}, {"D", 24}, {"S", 20}, {"P", 60}, {"B", 1}, {"R", 3}, {"Q", 20}});
}

/// What attention_fresh has summed over the total of its weights: A heads of D values.
///
/// Rows are F apart in a task, up to one for each part of a block, so that of few rows a task has no more than one.
graph::Operator attention_divide() {
  std::string loops = "{ [r, a, d] : 0 <= r < F and 0 <= a < A and 0 <= d < D }\n";
  for (int i = 0; i < attention::kParts; ++i)
    loops += fmt::format("y[{0}, a * D + d] = part[{0}, a, d] / softmax[{0}, a, 1]  {{if={0} < T}}\n",
                         fmt::format("r + {} * F", i));
  return operator_("attention_divide", "y = part over the total of its weights")
      .input("part", {"T", "A", "D"})
      .exactly()
      .input("softmax", {"T", "A", "2"})
      .exactly()
      .output("y", {"T", "A * D"}, DType::bf16)
      .size("F")
      .loops(loops)
      .tasks({"a", "r"})
      .test({{"T", 1}, {"A", 2}, {"D", 64}, {"F", 1}})
      .test({{"T", 5}, {"A", 3}, {"D", 80}, {"F", 2}});
}

}  // namespace megalith::ops
