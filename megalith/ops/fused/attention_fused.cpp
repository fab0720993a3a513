// Attention from the stacked projection `qkv`, which has for each of G groups M query heads, their key and their value, of
// 2 H values each: E = M + 2 heads. With rotation, by tables of N rows and W columns as `rope` has them, and with the q/k
// norm of Qwen3 or without. A sequence has up to S positions.
#include <fmt/format.h>

#include "megalith/kernels/attention_layout.h"
#include "megalith/kernels/gemm_layout.h"
#include "megalith/kernels/stream_limits.h"
#include "megalith/ops/registry.h"
#include "megalith/ops/streamed.h"

namespace megalith::ops {

using graph::Operator;
using graph::operator_;

namespace {

// ---- what they have in common -------------------------------------------------------------------------------------------

// `q_norm`, `k_norm`: whether queries, and the keys in `qkv`, have one.
operator_ with_inputs(const std::string& name, const std::string& doc, bool q_norm, bool k_norm) {
  operator_ op(name, doc);
  op.input("qkv", {"T", "G * E * 2 * H"}, DType::bf16);
  if (q_norm) op.input("q_norm", {"2 * H"}, DType::bf16);
  if (k_norm) op.input("k_norm", {"2 * H"}, DType::bf16);
  return op.input("cosine", {"N", "W"}).input("sine", {"N", "W"});
}

std::string prefix(bool norm) { return norm ? "head_norm_rope_" : "rope_"; }

// Heads as a projection made them, then those of queries, and those of keys of the loop `row`.
constexpr const char* kSplit = "q, k, v = split_heads(qkv; D = 2 * H, T = T, G = G, E = E, M = M)\n";
std::string queries(bool norm) {
  const std::string rotated =
      fmt::format("queries = rope({}, cosine, sine, position; A = G * M, M = H, m as h)\n", norm ? "q_normed" : "q");
  return norm ? "q_normed = head_norm(q, q_norm; A = G * M, D = 2 * H)\n" + rotated : rotated;
}
std::string keys(bool norm, const std::string& row) {
  const std::string rotated = fmt::format(
      "keys = rope({}, cosine, sine, position; A = G, M = H, t as {}, a as g, m as h)\n", norm ? "k_normed" : "k", row);
  return norm ? fmt::format("k_normed = head_norm(k, k_norm; A = G, D = 2 * H, t as {}, a as g)\n", row) + rotated
              : rotated;
}

bool heads_suit_of(const graph::BodyQuery& query, int64_t most) {
  const int64_t h = query.sizes.at("H"), w = query.sizes.at("W"), d = 2 * h, heads = query.sizes.at("E") - 2;
  return all_are(query, {"qkv", "k_cache", "v_cache"}, DType::bf16) && query.sizes.at("T") <= most &&
         d % attention::kRunValues == 0 && attention::runs(d) <= attention::kWarps && heads <= attention::kMaxHeads &&
         (w == h || w == 2 * h) &&
         (all_are(query, {"cosine", "sine"}, DType::f32) || all_are(query, {"cosine", "sine"}, DType::bf16)) &&
         is_if_there(query, "q_norm", DType::bf16) && is_if_there(query, "k_norm", DType::bf16);
}
bool heads_suit(const graph::BodyQuery& query) { return heads_suit_of(query, stream::kMaxWideRows); }

// Of many rows whose keys are not in the cache several heads are under way at a time: their angles in f32, each value's and
// its partner's, are more than there are registers.
bool whole_suits(const graph::BodyQuery& query) {
  return heads_suit_of(query, attention::kMaxRowsOfParts) &&
         (query.sizes.at("W") == query.sizes.at("H") || query.dtypes.at("cosine") == DType::bf16);
}

operator_& add_cache(operator_& op) {
  return op.input("k_cache", {"P", "B", "G", "2 * H"})
      .input("v_cache", {"P", "B", "G", "2 * H"})
      .index("page_table", {"R", "Q"}, "P")
      .index("request", {"T"}, "R")
      .index("position", {"T"}, "S");
}

operator_& add_attributes(operator_& op, bool norm) {
  // Small, for tests: their tables of cosines and sines are no angles, and exp() makes errors of large scores larger.
  op.attribute("scale", 0.03125);
  if (norm) op.attribute("eps", 1e-6);
  return op.size("E").size("S");
}

std::map<std::string, int64_t> with(std::map<std::string, int64_t> sizes, const std::map<std::string, int64_t>& more) {
  sizes.insert(more.begin(), more.end());
  return sizes;
}

const std::map<std::string, int64_t> kOne = {{"T", 1},  {"G", 2},  {"M", 2}, {"E", 4},  {"H", 32}, {"W", 32},
                                             {"N", 64}, {"S", 64}, {"P", 4}, {"B", 16}, {"R", 1},  {"Q", 4}},
                                     kThree = {{"T", 3},  {"G", 2},  {"M", 3},  {"E", 5}, {"H", 12}, {"W", 12},
                                               {"N", 20}, {"S", 20}, {"P", 60}, {"B", 1}, {"R", 3},  {"Q", 20}},
                                     kMany = {{"T", 40}, {"G", 1},  {"M", 2},  {"E", 4}, {"H", 16}, {"W", 16},
                                              {"N", 48}, {"S", 48}, {"P", 12}, {"B", 8}, {"R", 2},  {"Q", 6}};

// ---- the operators ------------------------------------------------------------------------------------------------------

// attention_dealt: V chunks of all rows.
Operator chunk(bool norm) {
  operator_ op = with_inputs(prefix(norm) + "attention_chunk",
                             "softmax(q k^T) v over one chunk of a row's positions, not normalised", norm, norm);
  add_cache(op)
      .index("start", {"T"}, "S")
      .output("part", {"V", "G * M", "2 * H"})
      .exactly()
      // Of each head the largest score, then the total of exp(score - largest).
      .output("softmax", {"V", "G * M", "2"})
      .exactly();
  add_attributes(op.size("V").size("U").size("L").size("C"), norm)
      .composed(
          kSplit + queries(norm) + keys(norm, "u") +
              "part, softmax = attention_dealt(queries, keys, v, k_cache, v_cache, page_table, request, position, "
              "start)\n",
          single())
      .tasks({"g", "s"})
      .body({.target = "cuda",
             .file = "attention/attention.cuh",
             .name = norm ? "attention_partial_norm" : "attention_partial_plain",
             .applies =
                 [](const graph::BodyQuery& q) {
                   return heads_suit_of(q, stream::kWideRows) &&  // a bit for each
                          attention::each_has_a_chunk(q.sizes.at("V"), q.sizes.at("T"), q.sizes.at("U"));
                 },
             .exchanged = {"qkv", "part", "softmax"},
             .paired = {"k_cache", "v_cache"},
             .area_bytes =
                 [](const graph::BodyQuery& q) {
                   return attention::chunk_bytes(q.sizes.at("T"), q.sizes.at("E") - 2, 2 * q.sizes.at("H"));
                 },
             .rounds_operands = true,
             .shrinks_along = "s",
             .sides_along = "g",
             .prefetch = "attention_ahead",
             .prefetch_late = "attention_ahead_late"})
      .test(with(kOne, {{"V", 3}, {"U", 0}, {"L", 4}, {"C", 24}}))
      .test(with(kThree, {{"V", 8}, {"U", 0}, {"L", 6}, {"C", 12}}))
      .test(with(kThree, {{"V", 6}, {"U", 3}, {"L", 6}, {"C", 12}}))
      .test(with({{"W", 64}, {"V", 3}, {"U", 1}, {"L", 4}, {"C", 24}}, kOne))
      .test({{"T", 4},
             {"G", 1},
             {"M", 4},
             {"E", 6},
             {"H", 64},
             {"W", 64},
             {"N", 100},
             {"S", 96},
             {"P", 8},
             {"B", 16},
             {"R", 2},
             {"Q", 6},
             {"V", 8},
             {"U", 4},
             {"L", 40},
             {"C", 80}})
      // Heads longer than a block has registers for: several rows share it on a GPU.
      .test({{"T", 3},
             {"G", 1},
             {"M", 2},
             {"E", 4},
             {"H", 80},
             {"W", 80},
             {"N", 48},
             {"S", 48},
             {"P", 6},
             {"B", 8},
             {"R", 2},
             {"Q", 6},
             {"V", 7},
             {"U", 0},
             {"L", 12},
             {"C", 24}});
  return op;
}

// attention_fresh, of all positions at once, for many rows: there is nothing to put together behind it. A task has rows that are F
// apart, so that all tasks have some however few there are.
Operator whole(bool norm) {
  operator_ op = with_inputs(prefix(norm) + "attention", "softmax(q k^T) v over all positions", norm, norm);
  add_cache(op).index("start", {"T"}, "S").output("y", {"T", "G * M * 2 * H"}, DType::bf16);
  // 1: of few rows each may be added up in another order than of many, so that its bits depend on how many there are.
  op.attribute("by_load", 0);
  add_attributes(op.size("F"), norm)
      .composed(
          kSplit + queries(norm) + keys(norm, "u") +
              "part, softmax = attention_fresh(queries, keys, v, k_cache, v_cache, page_table, request, position, "
              "start)\n"
              "y = attention_divide(part, softmax; A = G * M, F = F)\n",
          single())
      .tasks({"g", "r"})
      .body({.target = "cuda",
             .file = "attention/attention.cuh",
             .name = norm ? "attention_whole_norm" : "attention_whole_plain",
             .applies = whole_suits,
             .blocked = {"y"},
             .paired = {"k_cache", "v_cache"},
             .area_bytes =
                 [](const graph::BodyQuery& q) {
                   return attention::whole_bytes(q.sizes.at("T"), q.sizes.at("E") - 2, 2 * q.sizes.at("H"), false);
                 },
             .rounds_operands = true,
             .alike_along = "r",
             .sides_along = "g",
             .prefetch = "attention_ahead",
             .prefetch_late = "attention_ahead_late"})
      .test(with(kOne, {{"F", 1}}))
      .test(with(kThree, {{"F", 1}}))
      .test(with(kMany, {{"F", 10}}))
      .test(with({{"W", 32}, {"F", 14}}, kMany))
      .test(with(kThree, {{"F", 2}}))
      .test(with(kMany, {{"F", 40}}));
  return op;
}

// Of many rows that are in the cache already, their own keys and values, too: of a prompt's chunk each of those counts for
// many rows, and is worked out once.
Operator cached(bool norm) {
  operator_ op =
      with_inputs(prefix(norm) + "attention_cached",
                  "softmax(q k^T) v over all positions up to a token's own, which are in the cache", norm, false);
  add_cache(op).output("y", {"T", "G * M * 2 * H"}, DType::bf16);
  // 1: among many rows those that are alone of their sequence may be added up in another order than the others are, so that
  // a row's bits depend on who stands beside it.
  op.attribute("alone", 0);
  add_attributes(op, norm)
      .composed(kSplit + queries(norm) + "y = attention(queries, k_cache, v_cache, page_table, request, position)\n",
                single())
      .tasks({"g", "t"})
      .body({.target = "cuda",
             .file = "attention/attention.cuh",
             .name = norm ? "attention_whole_norm" : "attention_whole_plain",
             .applies = heads_suit,
             .blocked = {"y"},
             .paired = {"k_cache", "v_cache"},
             .area_bytes =
                 [](const graph::BodyQuery& q) {
                   return attention::whole_bytes(q.sizes.at("T"), q.sizes.at("E") - 2, 2 * q.sizes.at("H"), true);
                 },
             .rounds_operands = true,
             .multiplies_wide =
                 [](const graph::BodyQuery& q) {
                   return attention::takes_query_tiles(q.sizes.at("T"), 2 * q.sizes.at("H"));
                 },
             .grows_along = "t",
             .sides_along = "g",
             .prefetch = "attention_ahead",
             .prefetch_late = "attention_ahead_late"})
      .test(kOne)
      .test(kThree)
      .test(kMany)
      .test(with({{"T", 200}}, kMany))
      .test(with({{"T", 300}}, kMany))
      .test(with({{"W", 32}}, kMany));
  return op;
}

Operator append(bool norm) {
  operator_ op =
      with_inputs(prefix(norm) + "kv_append",
                  "writes the keys, rotated, and values of this iteration's tokens into the cache", false, norm);
  op.index("page_table", {"R", "Q"}, "P")
      .index("request", {"T"}, "R")
      .index("position", {"T"}, "S")
      .inout("k_cache", {"P", "B", "G", "2 * H"})
      .inout("v_cache", {"P", "B", "G", "2 * H"});
  if (norm) op.attribute("eps", 1e-6);
  op.size("M")
      .size("E")
      .size("S")
      .composed(kSplit + keys(norm, "t") + "= kv_append(keys, v, page_table, request, position, k_cache, v_cache)\n",
                single())
      .tasks({"g", "t"})
      .scatters("t")
      .body({.target = "cuda",
             .file = "attention/kv_append.cuh",
             .name = norm ? "append_norm" : "append_plain",
             .applies = heads_suit,
             .exchanged = {"qkv"},
             .paired = {"k_cache", "v_cache"}})
      .test(kOne)
      .test(with({{"T", 1}, {"G", 3}}, kThree))
      .test(with({{"W", 64}}, kOne));
  return op;
}

}  // namespace

std::vector<Operator> attention_fused() {
  std::vector<Operator> all;
  for (const bool norm : {false, true})
    for (const auto make : {chunk, whole, cached, append}) all.push_back(make(norm));
  return all;
}

}  // namespace megalith::ops
