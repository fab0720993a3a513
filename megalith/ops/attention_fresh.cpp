#include "megalith/graph/operator.h"

namespace megalith::ops {

using graph::operator_;

/// attention over one of C chunks of the positions, not normalised, of which a row's are in two places: those before its
/// request's `start` in the cache, those of this iteration's rows in `k` and `v`. So it need not wait for the cache to be
/// written, and the cache is written beside it. `softmax` has of each head the largest score of a chunk and the total of
/// exp(score - largest); attention_merge_chunks puts the chunks together.
///
/// Positions are dealt to chunks in blocks of L, in turn, so that chunks are alike however long the sequence is. How a
/// position's chunk is found is part of the meaning, so the sums have one order on any number of workers.
graph::Operator attention_fresh() {
  return operator_("attention_fresh", "softmax(q k^T) v over one chunk of the positions, not normalised")
      .input("q", {"T", "G * M * D"})
      .input("k", {"T", "G * D"})
      .input("v", {"T", "G * D"})
      .input("k_cache", {"P", "B", "G", "D"})
      .input("v_cache", {"P", "B", "G", "D"})
      .index("page_table", {"R", "Q"}, "P")
      .index("request", {"T"}, "R")
      .index("position", {"T"}, "S")
      .index("start", {"T"}, "S")
      .output("part", {"T", "C", "G * M", "D"})
      .exactly()
      .output("softmax", {"T", "C", "G * M", "2"})
      .exactly()
      .attribute("scale", 0.125)
      .size("S")
      .size("C")
      .size("L")
      .loops(R"(
        { [t, g, m, c, p, u, d, e, f] : 0 <= t < T and 0 <= g < G and 0 <= m < M and 0 <= c < C and 0 <= p < S and 0 <= u < T and 0 <= d < D and 0 <= e < D and 0 <= f < D }
        a[t, g, m, c, p] = scale * sum(d, f32(q[t, (g * M + m) * D + d]) * f32(k_cache[page_table[request[t], p // B], p mod B, g, d]))  {if=(p // L) mod C == c and p < start[t]}
        b[t, g, m, c, u] = scale * sum(f, f32(q[t, (g * M + m) * D + f]) * f32(k[u, g * D + f]))  {if=(position[u] // L) mod C == c and request[u] == request[t] and position[u] <= position[t]}
        softmax[t, c, g * M + m, 0] = max(max(p, a[t, g, m, c, p], (p // L) mod C == c and p < start[t]), max(u, b[t, g, m, c, u], (position[u] // L) mod C == c and request[u] == request[t] and position[u] <= position[t]))
        wa[t, g, m, c, p] = exp(a[t, g, m, c, p] - softmax[t, c, g * M + m, 0])  {if=(p // L) mod C == c and p < start[t]}
        wb[t, g, m, c, u] = exp(b[t, g, m, c, u] - softmax[t, c, g * M + m, 0])  {if=(position[u] // L) mod C == c and request[u] == request[t] and position[u] <= position[t]}
        softmax[t, c, g * M + m, 1] = sum(p, wa[t, g, m, c, p], (p // L) mod C == c and p < start[t]) + sum(u, wb[t, g, m, c, u], (position[u] // L) mod C == c and request[u] == request[t] and position[u] <= position[t])
        part[t, c, g * M + m, e] = sum(p, wa[t, g, m, c, p] * f32(v_cache[page_table[request[t], p // B], p mod B, g, e]), (p // L) mod C == c and p < start[t]) + sum(u, wb[t, g, m, c, u] * f32(v[u, g * D + e]), (position[u] // L) mod C == c and request[u] == request[t] and position[u] <= position[t])
      )")
      .tasks({"g", "c", "t"})
      .test({{"T", 1},
             {"G", 2},
             {"M", 2},
             {"D", 64},
             {"S", 64},
             {"P", 4},
             {"B", 16},
             {"R", 1},
             {"Q", 4},
             {"C", 3},
             {"L", 4}})
      .test({{"T", 3},
             {"G", 2},
             {"M", 3},
             {"D", 24},
             {"S", 20},
             {"P", 60},
             {"B", 1},
             {"R", 3},
             {"Q", 20},
             {"C", 2},
             {"L", 6}});
}

}  // namespace megalith::ops
