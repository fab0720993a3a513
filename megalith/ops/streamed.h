// What the operators whose weights a GPU streams have in common: when their tuned bodies apply, and what they need.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <map>
#include <string>

#include "megalith/graph/operator.h"
#include "megalith/kernels/gemm_layout.h"
#include "megalith/kernels/stream_layout.h"
#include "megalith/kernels/stream_limits.h"
#include "megalith/ops/stream_choices.h"

namespace megalith::ops {

inline bool all_are(const graph::BodyQuery& query, std::initializer_list<const char*> operands, DType dtype) {
  return std::all_of(operands.begin(), operands.end(), [&](const char* o) { return query.dtypes.at(o) == dtype; });
}

/// The same for one that not every operator has.
inline bool is_if_there(const graph::BodyQuery& query, const char* operand, DType dtype) {
  const auto found = query.dtypes.find(operand);
  return found == query.dtypes.end() || found->second == dtype;
}

/// Few rows of activations, columns in whole 16-byte pieces, and room beside them for a ring of some use in the shared
/// memory of a large GPU. `splits`: as StreamedWeights has it.
inline bool streams(const graph::BodyQuery& query, const char* rows = "T", bool splits = false) {
  constexpr int64_t kMaxScratch = 160 * 1024;
  const int64_t t = query.sizes.at(rows), columns = query.sizes.at("K");
  return t <= stream::kMaxRows && columns % 8 == 0 && few_bytes(t, few_choices(t, columns, splits)) <= kMaxScratch;
}

/// Shared memory for the sums of many rows of activations.
inline int64_t wide_area_bytes(const graph::StreamedWeights& streamed, const graph::BodyQuery& q) {
  const int64_t rows = q.sizes.at(streamed.activations);
  if (stream::wide_parts(rows) == 1) return stream::wide_own_bytes(rows, q.int8);
  return stream::wide_bytes(stream_order(streamed, q).group * static_cast<int64_t>(streamed.operands.size()), q.int8);
}

/// One that multiplies few tokens (kernels/cuda/mainloop/gemv_mainloop.cuh), with the shared memory that it takes.
inline graph::TunedBody streaming(graph::TunedBody body) {
  body.area_bytes = [streamed = *body.streamed](const graph::BodyQuery& q) { return few_area_bytes(streamed, q); };
  return body;
}

/// What tensor cores multiply: all of one kind, bf16 or f16.
inline bool are_halves(const graph::BodyQuery& query, std::initializer_list<const char*> operands) {
  const DType first = query.dtypes.at(*operands.begin());
  return dtype_is_half(first) && all_are(query, operands, first);
}

/// Whether activations `x`, the streamed weights and a norm's weight are all bf16, or all f16.
inline auto multiplies_halves(const graph::StreamedWeights& streamed) {
  return [operands = streamed.operands](const graph::BodyQuery& query) {
    const DType x = query.dtypes.at("x");
    return dtype_is_half(x) && is_if_there(query, "norm", x) &&
           std::all_of(operands.begin(), operands.end(), [&](const std::string& o) { return query.dtypes.at(o) == x; });
  };
}

/// One that writes its output by put_pair(), which an epilogue may stand in front of (epilogue/finished.cuh).
inline graph::TunedBody with_epilogue(graph::TunedBody body) {
  body.has_epilogue = true;
  return body;
}

/// The body `name` of mainloop/gemv.cuh for more rows of activations `x` than travel as words, which it holds in
/// registers, with norms in parts: `streamed` says which weights, N rows of which there are, or C times L where L is
/// a group of them.
inline graph::TunedBody few_body(const std::string& name, graph::StreamedWeights streamed) {
  streamed.holds = true;
  return streaming({.target = "cuda",
                    .file = "mainloop/gemv.cuh",
                    .name = name,
                    .applies =
                        [suits = multiplies_halves(streamed), splits = streamed.splits](const graph::BodyQuery& q) {
                          const int64_t rows = q.sizes.at("T");
                          if (!suits(q) || !streams(q, "T", splits) ||
                              !few_choices(rows, q.sizes.at("K"), splits).registers)
                            return false;
                          const auto n = q.sizes.find("N"), l = q.sizes.find("L");
                          if (l == q.sizes.end()) return n->second % 2 == 0 && dtype_is_half(q.dtypes.at("y"));
                          return l->second == stream::group_rows(stream::slices(rows)) &&
                                 all_are(q, {"residual", "y"}, DType::f32) && dtype_is_half(q.dtypes.at("copy"));
                        },
                    .exchanged = {"y", "residual"},
                    .blocked = {"x", "y", "copy"},
                    .streamed = std::move(streamed)});
}

/// The body `name` of gemm_wgmma.cuh, for many rows of activations `x`: `streamed` says which weights, N rows of
/// which there are, or C times 32.
inline graph::TunedBody wide_body(const std::string& name, graph::StreamedWeights streamed) {
  return {.target = "cuda",
          .file = "mainloop/gemm_wgmma.cuh",
          .name = name,
          .applies =
              [suits = multiplies_halves(streamed)](const graph::BodyQuery& q) {
                const int64_t rows = q.sizes.at("T");
                const auto n = q.sizes.find("N");
                return suits(q) && rows > stream::kMaxRows && rows <= stream::kMaxWideRows &&
                       q.sizes.at("K") % 8 == 0 && (n == q.sizes.end() ? q.sizes.at("L") == 32 : n->second % 2 == 0);
              },
          .blocked = {"x", "y", "copy"},
          .area_bytes =
              [streamed](const graph::BodyQuery& q) {
                const int64_t rows = q.sizes.at("T");
                if (q.sizes.contains("L") && stream::wide_parts(rows) != 1)
                  return int64_t{stream::wide_residual_bytes(rows, q.int8)};
                return wide_area_bytes(streamed, q);
              },
          .streamed = std::move(streamed)};
}

}  // namespace megalith::ops
