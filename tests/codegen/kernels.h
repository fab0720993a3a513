// The kernels that the tests of the generator run: one for each thing it must get right. The size that a tiled iname
// runs over has the iname's letter, in upper case.
#pragma once

#include <vector>

#include "codegen/program.h"

namespace megalith::codegen::testing {

inline std::vector<Spec> all_specs() {
  return {
      {"matmul_nt",
       R"(
         parameter T dynamic
         input x: f32[T, K]
         input weight: bf16[N, K]
         output y: f32[T, N]
         { [t, n, k] : 0 <= t < T and 0 <= n < N and 0 <= k < K }
         y[t, n] = sum(k, f32(x[t, k]) * f32(weight[n, k])))",
       {{"T", 7}, {"N", 37}, {"K", 129}},
       {"n", "t"},
       {}},
      {"matmul_nn",
       R"(
         parameter T dynamic
         input x: f32[T, K]
         input weight: f32[K, N]
         output y: f32[T, N]
         { [t, k, n] : 0 <= t < T and 0 <= n < N and 0 <= k < K }
         y[t, n] = sum(k, x[t, k] * weight[k, n]))",
       {{"T", 5}, {"N", 151}, {"K", 67}},
       {"n", "t"},
       {}},
      {"rmsnorm",
       R"(
         parameter T dynamic
         attribute eps = 1e-6
         input x: f32[T, H]
         input weight: bf16[H]
         output y: f32[T, H]
         { [t, h, k] : 0 <= t < T and 0 <= h < H and 0 <= k < H }
         ss[t] = sum(k, x[t, k] * x[t, k])
         y[t, h] = x[t, h] * rsqrt(ss[t] / H + eps) * f32(weight[h]))",
       {{"T", 5}, {"H", 77}},
       {"t"},
       {}},
      {"rmsnorm_linear",
       R"(
         parameter T dynamic
         attribute eps = 1e-5
         input x: f32[T, K]
         input norm: bf16[K]
         input weight: bf16[N, K]
         output y: f32[T, N]
         { [t, n, j, k] : 0 <= t < T and 0 <= n < N and 0 <= j < K and 0 <= k < K }
         ss[t] = sum(j, x[t, j] * x[t, j])
         y[t, n] = sum(k, x[t, k] * rsqrt(ss[t] / K + eps) * f32(norm[k]) * f32(weight[n, k])))",
       {{"T", 6}, {"N", 21}, {"K", 83}},
       {"n", "t"},
       {}},
      {"embedding",
       R"(
         parameter T dynamic
         input ids: i32[T]
         input weight: bf16[V, H]
         output y: bf16[T, H]
         { [t, h] : 0 <= t < T and 0 <= h < H }
         y[t, h] = weight[ids[t], h])",
       {{"T", 6}, {"H", 33}, {"V", 11}},
       {"h", "t"},
       {{"ids", {0, 10}}}},
      {"rope",
       R"(
         parameter T dynamic
         input x: f32[T, A * M * 2]
         input cosine: f32[S, M]
         input sine: f32[S, M]
         input position: i32[T]
         output y: f32[T, A * M * 2]
         { [t, a, m] : 0 <= t < T and 0 <= a < A and 0 <= m < M }
         y[t, a * 2 * M + m] = x[t, a * 2 * M + m] * cosine[position[t], m] - x[t, a * 2 * M + M + m] * sine[position[t], m]
         y[t, a * 2 * M + M + m] = x[t, a * 2 * M + M + m] * cosine[position[t], m] + x[t, a * 2 * M + m] * sine[position[t], m])",
       {{"T", 4}, {"A", 3}, {"M", 20}, {"S", 50}},
       {"a", "t"},
       {{"position", {0, 49}}}},
      {"attention",
       R"(
         parameter T dynamic
         attribute scale = 0.25
         input q: f32[T, G * M * D]
         input k_cache: bf16[P, B, G, D]
         input v_cache: bf16[P, B, G, D]
         input page_table: i32[R, Q]
         input request: i32[T]
         input position: i32[T]
         output part: f32[T, C, G * M, D]
         output top: f32[T, C, G * M]
         output total: f32[T, C, G * M]
         { [t, g, m, c, s, d, e] : 0 <= t < T and 0 <= g < G and 0 <= m < M and 0 <= c < C and 0 <= s < L and 0 <= d < D and 0 <= e < D }
         score[t, g, m, c, s] = scale * sum(d, q[t, (g * M + m) * D + d] * f32(k_cache[page_table[request[t], (c * L + s) // B], (c * L + s) mod B, g, d]))  {if=c * L + s <= position[t]}
         top[t, c, g * M + m] = max(s, score[t, g, m, c, s], c * L + s <= position[t])
         p[t, g, m, c, s] = exp(score[t, g, m, c, s] - top[t, c, g * M + m])  {if=c * L + s <= position[t]}
         total[t, c, g * M + m] = sum(s, p[t, g, m, c, s], c * L + s <= position[t])
         part[t, c, g * M + m, e] = sum(s, p[t, g, m, c, s] * f32(v_cache[page_table[request[t], (c * L + s) // B], (c * L + s) mod B, g, e]), c * L + s <= position[t]))",
       {{"T", 5}, {"G", 2}, {"M", 3}, {"C", 3}, {"L", 22}, {"D", 80}, {"P", 12}, {"B", 8}, {"R", 3}, {"Q", 9}},
       {"g", "c", "t"},
       {{"page_table", {0, 11}}, {"request", {0, 2}}, {"position", {0, 65}}}},
      {"softmax_triangle",
       R"(
         input x: f32[I, I]
         output y: f32[I, I]
         { [i, j, k] : 0 <= i < I and 0 <= j <= i and 0 <= k <= i }
         big[i] = max(k, x[i, k])
         all[i] = sum(k, exp(x[i, k] - big[i]))
         y[i, j] = exp(x[i, j] - big[i]) / all[i])",
       {{"I", 41}},
       {"i"},
       {}},
      {"triangle_tiled_inner",
       R"(
         input x: f32[I, J]
         output y: f32[I, J]
         { [i, j] : 0 <= i < I and i <= j < J and j <= 2 * i + 5 }
         y[i, j] = 2 * x[i, j])",
       {{"I", 19}, {"J", 31}},
       {"i", "j"},
       {}},
      {"argmax_chunks",
       R"(
         input x: f32[R, V]
         output value: f32[R, C]
         output index: i32[R, C]
         { [r, c, v] : 0 <= r < R and 0 <= c < C and 0 <= v < 40 }
         value[r, c] = max(v, x[r, c * 40 + v], c * 40 + v < V)
         index[r, c] = c * 40 + argmax(v, x[r, c * 40 + v], c * 40 + v < V))",
       {{"R", 3}, {"V", 141}, {"C", 4}},
       {"r", "c"},
       {}},
      {"argmax_ties",
       R"(
         input x: i32[R, V]
         input mask: i32[V]
         output first: i32[R]
         output allowed: i32[R]
         { [r, v] : 0 <= r < R and 0 <= v < V }
         first[r] = argmax(v, x[r, v])
         allowed[r] = argmax(v, x[r, v], mask[v] > 0))",
       {{"R", 9}, {"V", 50}},
       {"r"},
       {{"x", {-3, 2}}, {"mask", {0, 1}}}},
      {"silu_mul",
       R"(
         parameter T dynamic
         input gate: f32[T, I]
         input up: f16[T, I]
         output y: f16[T, I]
         { [t, i] : 0 <= t < T and 0 <= i < I }
         y[t, i] = gate[t, i] / (1 + exp(-gate[t, i])) * f32(up[t, i]))",
       {{"T", 3}, {"I", 77}},
       {"i", "t"},
       {}},
      {"whole_numbers",
       R"(
         input a: i32[I]
         input b: i64[I]
         output small: i32[I]
         output large: i64[I]
         output ratio: f32[I]
         { [i, j] : 0 <= i < I and 0 <= j < 9 }
         small[i] = (a[i] * 3 + i) mod 7 + a[i] // 4 - max(a[i], 2) + abs(a[i])
         large[i] = b[i] * 1000000007 + sum(j, a[i] * j) + if(a[i] < 0 and not b[i] == 3, 5, i // 3)
         ratio[i] = a[i] / 7 + min(f32(b[i]), 2.5))",
       {{"I", 45}},
       {"i"},
       {{"a", {-50, 50}}, {"b", {-9, 9}}}},
      {"narrow_sum",
       R"(
         input a: bf16[I]
         input b: f16[I]
         output y: bf16[I]
         output z: f16[I]
         output w: bf16[I]
         { [i] : 0 <= i < I }
         y[i] = a[i] + b[i]
         z[i] = a[i] * b[i] - 1
         w[i] = bf16(a[i] * b[i]))",
       {{"I", 53}},
       {"i"},
       {}},
      {"functions",
       R"(
         input x: f32[I]
         output y: f32[I, 11]
         { [i] : 0 <= i < I }
         y[i, 0] = exp(3 * x[i])
         y[i, 1] = log(x[i] * x[i] + 0.5)
         y[i, 2] = sqrt(x[i] + 1)
         y[i, 3] = rsqrt(x[i] + 1.5)
         y[i, 4] = sin(10 * x[i])
         y[i, 5] = cos(8 * x[i])
         y[i, 6] = tanh(2 * x[i])
         y[i, 7] = abs(x[i]) + floor(8 * x[i])
         y[i, 8] = pow(x[i] + 1, 2.5)
         y[i, 9] = min(x[i], 0.25) - max(x[i], -0.25)
         y[i, 10] = if(x[i] > 0, x[i], exp(x[i]) - 1))",
       {{"I", 61}},
       {"i"},
       {}},
      {"masked",
       R"(
         input x: f32[I, J]
         input mask: i32[J]
         output kept: f32[I]
         output lowest: f32[I]
         { [i, j] : 0 <= i < I and 0 <= j < J }
         kept[i] = sum(j, x[i, j] * x[i, j], mask[j] > 0 and j != 4)
         lowest[i] = min(j, x[i, j], j >= 3 and mask[j] == 0))",
       {{"I", 6}, {"J", 70}},
       {"i"},
       {{"mask", {0, 1}}}},
      {"many_inames",
       R"(
         input x: f32[I, J, K]
         input w: f32[J, K]
         output y: f32[I]
         output z: f32[I]
         output n: i32[I]
         { [k, i, j] : 0 <= i < I and 0 <= j < J and 0 <= k < K }
         y[i] = sum((j, k), x[i, j, k] * w[j, k])
         z[i] = max((k, j), x[i, j, k], j <= k + i)
         n[i] = sum((k, j), 1, j <= k + i and k < 3))",
       {{"I", 5}, {"J", 7}, {"K", 37}},
       {"i"},
       {}},
      {"nested",
       R"(
         input x: f32[I, J]
         output y: f32[I]
         { [i, j, k] : 0 <= i < I and 0 <= j < J and 0 <= k <= j }
         y[i] = sum(j, x[i, j] * sum(k, x[i, k] * x[i, k])))",
       {{"I", 3}, {"J", 21}},
       {"i"},
       {}},
      {"guarded_reads",
       R"(
         input x: f32[I]
         input step: i32[I]
         output y: f32[I]
         output z: f32[I]
         { [i] : 0 <= i < I }
         y[i] = if(i > 0, x[i - 1], 0) + if(step[i] >= 0, x[step[i]], -1)
         z[i] = x[i]  {if=step[i] >= 4})",
       {{"I", 29}},
       {"i"},
       {{"step", {-28, 28}}}},
      {"large_temporary",
       R"(
         input x: f32[I, J]
         output y: f32[I, J]
         { [i, j, k] : 0 <= i < I and 0 <= j < J and 0 <= k < J }
         square[i, k] = x[i, k] * x[i, k]
         wide[i, j] = square[i, J - 1 - j] + 1
         back[j] = sum(i, wide[i, j])  {inames=j}
         y[i, j] = wide[i, j] / back[j])",
       {{"I", 90}, {"J", 75}},
       {},
       {}},
      {"in_place",
       R"(
         input x: f32[I, J]
         inout y: bf16[I, J]
         inout count: i64[I]
         { [i, j] : 0 <= i < I and 0 <= j < J }
         y[i, j] = y[i, j] + x[i, j]
         count[i] = count[i] + 1)",
       {{"I", 7}, {"J", 35}},
       {"i"},
       {{"count", {0, 1000}}}},
      {"scan",
       R"(
         inout x: f32[I, J]
         { [i, j] : 0 <= i < I and 1 <= j < J }
         x[i, j] = x[i, j] + 0.5 * x[i, j - 1])",
       {{"I", 4}, {"J", 50}},
       {"i"},
       {}},
      {"append",
       R"(
         input k: f32[G * D]
         input page_table: i32[Q]
         input position: i32[1]
         inout cache: bf16[P, B, G, D]
         { [g, d] : 0 <= g < G and 0 <= d < D }
         cache[page_table[position[0] // B], position[0] mod B, g, d] = k[g * D + d])",
       {{"G", 3}, {"D", 17}, {"Q", 4}, {"P", 9}, {"B", 4}},
       {"g"},
       {{"page_table", {0, 8}}, {"position", {0, 15}}}},
      {"strided",
       R"(
         input x: f32[I, J]
         output y: f32[I, J]
         { [i, j] : 0 <= i < I and 0 <= j < J and (i + j) mod 3 = 0 }
         y[i, j] = x[i, j] + 1)",
       {{"I", 11}, {"J", 26}},
       {"i"},
       {}},
      {"words",
       R"(
         input double: f32[I]
         input exp_: f32[I]
         output this: f32[I]
         { [i] : 0 <= i < I }
         this[i] = double[i] + exp(exp_[i]))",
       {{"I", 20}},
       {"i"},
       {}},
  };
}

}  // namespace megalith::codegen::testing
