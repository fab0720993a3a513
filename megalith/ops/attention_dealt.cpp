#include <fmt/format.h>

#include "megalith/graph/operator.h"
#include "megalith/kernels/attention_layout.h"
#include "megalith/kernels/stream_layout.h"

namespace megalith::ops {

using graph::operator_;

namespace {

// V chunks are dealt in turn to as many rows as there are in this iteration, or to U if those are more. What chunk s is: whose,
// number how much of those that its row has, and of how many. Written out, since what is made of operators has no rules.
const std::string kDealt = "max(1 * U, T)", kRow = fmt::format("min(s mod {}, T - 1)", kDealt),
                  kChunk = fmt::format("(s // {})", kDealt),
                  kChunks = fmt::format("min((V - s mod {0} + {0} - 1) // {0}, {1})", kDealt, attention::kMaxChunks);

}  // namespace

/// attention over one of several chunks of a row's positions, not normalised, of which a row's are in two places: those
/// before its request's `start` in the cache, those of this iteration's rows in `k` and `v`. So it need not wait for the
/// cache to be written, and the cache is written beside it. `softmax` has of each head the largest score of a chunk and the
/// total of exp(score - largest); attention_merge_dealt puts the chunks together.
///
/// There are V chunks for all rows of the iteration, however few they are: of few each has many, so that all workers have
/// something to do behind a long text. With U as many rows as there may be, a row has as many whoever stands beside it.
///
/// Positions are dealt to chunks in blocks of L, in turn, so that chunks are alike however long the sequence is; a chunk has
/// up to C of them. How a position's chunk is found is part of the meaning, so the sums have one order on any number of
/// workers.
graph::Operator attention_dealt() {
  const std::string at = fmt::format("(i // L * {} + {}) * L + i mod L", kChunks, kChunk),
                    cached = fmt::format("{} < {} and {} < start[{}]", kChunk, kChunks, at, kRow),
                    fresh = fmt::format(
                        "(position[u] // L) mod {} == {} and request[u] == request[{}] and "
                        "position[u] <= position[{}]",
                        kChunks, kChunk, kRow, kRow),
                    page = fmt::format("page_table[request[{}], ({}) // B], ({}) mod B", kRow, at, at);
  const auto size_of = [](int64_t rows, int64_t chunks, int64_t dealt, int64_t length, int64_t most) {
    return std::map<std::string, int64_t>{{"T", rows}, {"V", chunks}, {"U", dealt}, {"L", length}, {"C", most}};
  };
  const auto with = [](std::map<std::string, int64_t> sizes, const std::map<std::string, int64_t>& more) {
    sizes.insert(more.begin(), more.end());
    return sizes;
  };
  const std::map<std::string, int64_t> one = {{"G", 2}, {"M", 2},  {"D", 64}, {"S", 64},
                                              {"P", 4}, {"B", 16}, {"R", 1},  {"Q", 4}},
                                       three = {{"G", 2},  {"M", 3}, {"D", 24}, {"S", 20},
                                                {"P", 60}, {"B", 1}, {"R", 3},  {"Q", 20}};
  return operator_("attention_dealt", "softmax(q k^T) v over one chunk of a row's positions, not normalised")
      .input("q", {"T", "G * M * D"})
      .input("k", {"T", "G * D"})
      .input("v", {"T", "G * D"})
      .input("k_cache", {"P", "B", "G", "D"})
      .input("v_cache", {"P", "B", "G", "D"})
      .index("page_table", {"R", "Q"}, "P")
      .index("request", {"T"}, "R")
      .index("position", {"T"}, "S")
      .index("start", {"T"}, "S")
      .output("part", {"V", "G * M", "D"})
      .exactly()
      .output("softmax", {"V", "G * M", "2"})
      .exactly()
      .attribute("scale", 0.125)
      .size("S")
      .size("V")
      .size("U")
      .size("L")
      .size("C")
      .loops(fmt::format(R"(
        {{ [s, g, m, i, u, w, h, d, e, f] : 0 <= s < V and 0 <= g < G and 0 <= m < M and 0 <= i < C and 0 <= u < T and 0 <= w < T and 0 <= h < D and 0 <= d < D and 0 <= e < D and 0 <= f < D }}
        asked[s, g, m, h] = sum(w, f32(q[w, (g * M + m) * D + h]), w == {row})
        a[s, g, m, i] = scale * sum(d, asked[s, g, m, d] * f32(k_cache[{page}, g, d]))  {{if={cached}}}
        b[s, g, m, u] = scale * sum(f, asked[s, g, m, f] * f32(k[u, g * D + f]))  {{if={fresh}}}
        softmax[s, g * M + m, 0] = max(max(i, a[s, g, m, i], {cached}), max(u, b[s, g, m, u], {fresh}))
        wa[s, g, m, i] = exp(a[s, g, m, i] - softmax[s, g * M + m, 0])  {{if={cached}}}
        wb[s, g, m, u] = exp(b[s, g, m, u] - softmax[s, g * M + m, 0])  {{if={fresh}}}
        softmax[s, g * M + m, 1] = sum(i, wa[s, g, m, i], {cached}) + sum(u, wb[s, g, m, u], {fresh})
        part[s, g * M + m, e] = sum(i, wa[s, g, m, i] * f32(v_cache[{page}, g, e]), {cached}) + sum(u, wb[s, g, m, u] * f32(v[u, g * D + e]), {fresh})
      )",
                         fmt::arg("row", kRow), fmt::arg("page", page), fmt::arg("cached", cached),
                         fmt::arg("fresh", fresh)))
      .tasks({"g", "s"})
      .test(with(size_of(1, 3, 0, 4, 24), one))
      .test(with(size_of(3, 8, 0, 6, 12), three))
      .test(with(size_of(3, 8, 4, 6, 12), three));
}

/// Puts the chunks of attention_dealt together, A heads of D values: V of all rows. `softmax` has of each head the largest
/// score of a chunk and the total of its weights; an empty chunk has -inf and 0.
graph::Operator attention_merge_dealt() {
  const std::string mine = fmt::format("s mod {} == t and {} * L <= position[t]", kDealt, kChunk);
  return operator_("attention_merge_dealt",
                   "y = sum of the chunks' parts, weighted by exp(largest score), over their total")
      .input("part", {"V", "A", "D"})
      .exactly()
      .input("softmax", {"V", "A", "2"})
      .exactly()
      .index("position", {"T"}, "S")
      .output("y", {"T", "A * D"}, DType::bf16)
      .size("S")
      .size("U")
      .size("L")
      .loops(fmt::format(R"(
        {{ [t, a, s, d] : 0 <= t < T and 0 <= a < A and 0 <= s < V and 0 <= d < D }}
        big[t, a]       = max(s, softmax[s, a, 0], {0})
        weight[t, a]    = sum(s, exp(softmax[s, a, 0] - big[t, a]) * softmax[s, a, 1], {0})
        y[t, a * D + d] = sum(s, exp(softmax[s, a, 0] - big[t, a]) * part[s, a, d], {0}) / weight[t, a]
      )",
                         mine))
      .tasks({"a", "t"})
      .body({.target = "cuda",
             .file = "attention/combine.cuh",
             .name = "combine_kv_splits",
             .applies =
                 [](const graph::BodyQuery& q) {
                   const int64_t d = q.sizes.at("D");
                   return dtype_is_half(q.dtypes.at("y")) && d % 2 == 0 && 1024 % d == 0 &&
                          attention::each_has_a_chunk(q.sizes.at("V"), q.sizes.at("T"), q.sizes.at("U"));
                 },
             .exchanged = {"part", "softmax", "y"},
             .blocked = {"y"},
             .area_bytes = [](const graph::BodyQuery&) { return int64_t{stream::kSumsBytes + 2 * 512 * 8}; }})
      .test({{"T", 1}, {"A", 2}, {"D", 64}, {"V", 1}, {"S", 9}, {"U", 0}, {"L", 8}})
      .test({{"T", 3}, {"A", 3}, {"D", 64}, {"V", 13}, {"S", 30}, {"U", 0}, {"L", 3}})
      .test({{"T", 3}, {"A", 3}, {"D", 80}, {"V", 13}, {"S", 30}, {"U", 4}, {"L", 3}});
}

}  // namespace megalith::ops
