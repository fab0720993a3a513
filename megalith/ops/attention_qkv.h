// Attention from the fused projection `qkv`, with and without the q/k norm of Qwen3: the texts that the operators
// share. `qkv` has for each of G groups M query heads, their key and their value, of 2 H values each: E = M + 2 heads.
//
// A row's positions lie in two places: those before its request's `start` in the cache, those of this iteration's rows
// in `qkv`. So attention need not wait for the cache to be written, and the cache is written behind it.
//
// Positions are dealt to C chunks in blocks of L, in turn, so that chunks are alike however long the text is. How a
// position's chunk is found is part of the meaning, so the sums
// have one order on any number of workers.
#pragma once

#include <cstdint>
#include <string>

#include "megalith/kernels/attention_layout.h"
#include "megalith/kernels/stream_limits.h"
#include "megalith/ops/streamed.h"

namespace megalith::ops {

/// A head normalised (unless `norm` is empty) and rotated by its row's position: temporary `to`_r[`index`, 2 H].
inline std::string rotated_head(const std::string& to, const std::string& row, const std::string& index,
                                const std::string& place, const std::string& norm) {
  const auto value = [&](const std::string& d) {
    return "f32(qkv[" + row + ", (g * E + " + place + ") * 2 * H + " + d + "])";
  };
  std::string text, factor;
  if (!norm.empty()) {
    text += to + "_s[" + index + "] = sum(q, " + value("q") + " * " + value("q") + ")\n";
    factor = " * rsqrt(" + to + "_s[" + index + "] / (2 * H) + eps) * f32(" + norm + "[j])";
  }
  const std::string n = to + "_n[" + index + ", ", r = to + "_r[" + index + ", ";
  const std::string cosine = "cosine[position[" + row + "], h]", sine = "sine[position[" + row + "], h]";
  text += n + "j] = " + value("j") + factor + "\n";
  text += r + "h] = " + n + "h] * " + cosine + " - " + n + "H + h] * " + sine + "\n";
  text += r + "H + h] = " + n + "H + h] * " + cosine + " + " + n + "h] * " + sine + "\n";
  return text;
}

/// What each of them takes first; the weights of the norms, if there are some, of queries and of the keys in `qkv`.
inline void add_inputs(graph::operator_& op, bool q_norm, bool k_norm) {
  op.input("qkv", {"T", "G * E * 2 * H"}, DType::bf16);
  if (q_norm) op.input("q_norm", {"2 * H"}, DType::bf16);
  if (k_norm) op.input("k_norm", {"2 * H"}, DType::bf16);
  op.input("cosine", {"S", "H"})
      .input("sine", {"S", "H"})
      .input("k_cache", {"P", "B", "G", "2 * H"})
      .input("v_cache", {"P", "B", "G", "2 * H"})
      .index("page_table", {"R", "Q"}, "P")
      .index("request", {"T"}, "R")
      .index("position", {"T"}, "S");
}

/// Attention with or without q/k norm, of all positions or one chunk of them (attention_partial_qkv.cpp).
graph::Operator attention_of(const std::string& name, bool norm, bool whole);

/// What the tuned bodies of them all ask for, of `most` rows.
inline bool heads_suit_of(const graph::BodyQuery& query, int64_t most) {
  const int64_t d = 2 * query.sizes.at("H"), heads = query.sizes.at("E") - 2;
  return all_are(query, {"qkv", "k_cache", "v_cache"}, DType::bf16) && query.sizes.at("T") <= most &&
         d % attention::kRunValues == 0 && attention::runs(d) <= attention::kWarps && heads <= attention::kMaxHeads &&
         all_are(query, {"cosine", "sine"}, DType::f32) && is_if_there(query, "q_norm", DType::bf16) &&
         is_if_there(query, "k_norm", DType::bf16);
}
inline bool heads_suit(const graph::BodyQuery& query) { return heads_suit_of(query, stream::kMaxWideRows); }

}  // namespace megalith::ops
