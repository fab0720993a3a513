#include "megalith/kernels/gemm_layout.h"
#include "megalith/kernels/stream_limits.h"
#include "megalith/ops/streamed.h"

namespace megalith::ops {

using graph::operator_;

namespace {

graph::StreamedWeights weights() {
  return {.operands = {"weight"}, .axis = "n", .columns = "L", .slice_axis = "s", .slice_count = "S"};
}

// A slice is whole chunks. Of fewer rows activations come from the L2 as fast as weights from memory, and tasks may be
// cut as anybody likes.
bool is_wide(const graph::BodyQuery& q) {
  const int64_t rows = q.sizes.at("T");
  return rows > stream::kWideRows && rows <= stream::kMaxWideRows && are_halves(q, {"x", "weight"}) &&
         q.sizes.at("N") % 2 == 0 && q.sizes.at("L") % stream::wide_columns(stream_order(weights(), q).group) == 0;
}

}  // namespace

/// The sums of a linear over S slices of L columns, each by itself: where there are fewer tiles of rows than
/// workers. sum_slices puts them together. How many slices there are is part of the meaning, so the sums have one
/// order on any number of workers.
graph::Operator linear_slices() {
  return operator_("linear_slices", "part[s] = x weight^T over the columns of split-K slice s")
      .input("x", {"T", "S * L"})
      .input("weight", {"N", "S * L"}, DType::bf16)
      .output("part", {"S", "T", "N"})
      .exactly()
      .size("S")
      .loops(R"(
        { [s, t, n, k] : 0 <= s < S and 0 <= t < T and 0 <= n < N and 0 <= k < L }
        part[s, t, n] = sum(k, f32(x[t, s * L + k]) * f32(weight[n, s * L + k]))
      )")
      .tasks({{"n", 16}, {"s", 1}, {"t", 1}})
      .body({.target = "cuda",
             .file = "mainloop/gemm_wgmma.cuh",
             .name = "gemm_linear_splitk",
             .applies = is_wide,
             .blocked = {"x"},
             .area_bytes = [](const graph::BodyQuery& q) { return wide_area_bytes(weights(), q); },
             .streamed = weights()})
      .test({{"T", 1}, {"N", 64}, {"S", 2}, {"L", 32}})
      .test({{"T", 3}, {"N", 37}, {"S", 3}, {"L", 43}})
      .test({{"T", 33}, {"N", 70}, {"S", 3}, {"L", 256}})
      .test({{"T", 70}, {"N", 40}, {"S", 2}, {"L", 256}});
}

/// Adds up what linear_slices made, in the order of the slices.
graph::Operator sum_slices() {
  return operator_("sum_slices", "y = sum of the slices")
      .input("part", {"S", "T", "N"})
      .exactly()
      .output("y", {"T", "N"})
      .loops(R"(
        { [t, n, s] : 0 <= t < T and 0 <= n < N and 0 <= s < S }
        y[t, n] = sum(s, part[s, t, n])
      )")
      .tasks({{"n", 16}, {"t", 1}})
      .test({{"S", 2}, {"T", 1}, {"N", 64}})
      .test({{"S", 3}, {"T", 3}, {"N", 37}});
}

}  // namespace megalith::ops
