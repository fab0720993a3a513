// Kernels that read like those of real operators, shared by the tests of this folder.
#pragma once

namespace megalith::loop {

inline constexpr const char* kRmsNorm = R"(
kernel rmsnorm
parameter T dynamic
attribute eps = 1e-06
input x: bf16[T, H]
input weight: bf16[H]
output y: bf16[T, H]
assume T >= 1 and H >= 1
{ [t, h, k] : 0 <= t < T and 0 <= h < H and 0 <= k < H }
ss[t]   = sum(k, f32(x[t, k]) * f32(x[t, k]))
y[t, h] = f32(x[t, h]) * rsqrt(ss[t] / H + eps) * f32(weight[h])
)";

inline constexpr const char* kMatmul = R"(
kernel matmul
input a: f32[n, l]
input b: f32[l, m]
output c: f32[n, m]
assume n >= 1 and m >= 1 and l >= 1
{ [i, j, k] : 0 <= i < n and 0 <= j < m and 0 <= k < l }
c[i, j] = sum(k, a[i, k] * b[k, j])
)";

inline constexpr const char* kLinear = R"(
kernel linear
parameter T dynamic
input x: f32[T, K]
input w: bf16[N, K]
output y: f32[T, N]
assume T >= 1 and K >= 1
{ [t, n, k] : 0 <= t < T and 0 <= n < N and 0 <= k < K }
y[t, n] = sum(k, x[t, k] * w[n, k])
)";

inline constexpr const char* kEmbedding = R"(
kernel embedding
parameter T dynamic
parameter V
input ids: i32[T]
input table: bf16[V, H]
output y: f32[T, H]
{ [t, h] : 0 <= t < T and 0 <= h < H }
y[t, h] = table[ids[t], h]
)";

inline constexpr const char* kRope = R"(
kernel rope
parameter T dynamic
parameter S
input x: f32[T, N, 2 * D]
input position: i32[T]
input cosine: f32[S, D]
input sine: f32[S, D]
output y: f32[T, N, 2 * D]
{ [t, h, d, e] : 0 <= t < T and 0 <= h < N and 0 <= d < D and 0 <= e < D }
y[t, h, d]     = x[t, h, d] * cosine[position[t], d] - x[t, h, d + D] * sine[position[t], d]
y[t, h, e + D] = x[t, h, e + D] * cosine[position[t], e] + x[t, h, e] * sine[position[t], e]
)";

// Q query heads share a key head in groups of G; P positions to a page.
inline constexpr const char* kPagedAttention = R"(
kernel attention
parameter T dynamic
parameter Q
parameter G
parameter P
parameter R
parameter pages
parameter table
attribute scale = 0.5
input q: f32[T, Q, D]
input k: bf16[pages, P, Q // G, D]
input v: bf16[pages, P, Q // G, D]
input request: i32[T]
input position: i32[T]
input page_table: i32[R, table]
output y: f32[T, Q, D]
{ [t, h, d] : 0 <= t < T and 0 <= h < Q and 0 <= d < D }
{ [s, e] : 0 <= s < S and 0 <= e < D }
score[t, h, s] = scale * sum(e, q[t, h, e] * k[page_table[request[t], s // P], s mod P, h // G, e]) {if=s <= position[t]}
largest[t, h]  = max(s, score[t, h, s], s <= position[t])
total[t, h]    = sum(s, exp(score[t, h, s] - largest[t, h]), s <= position[t])
y[t, h, d]     = sum(s, exp(score[t, h, s] - largest[t, h]) * v[page_table[request[t], s // P], s mod P, h // G, d], s <= position[t]) / total[t, h]
)";

inline constexpr const char* kArgmax = R"(
kernel argmax
input x: f32[T, V]
output y: i32[T]
{ [t] : 0 <= t < T }
{ [v] : 0 <= v < V }
y[t] = argmax(v, x[t, v])
)";

// Loopy's example: doubles while it transposes, in one nest.
inline constexpr const char* kTransposeAndDouble = R"(
kernel transpose_and_dbl
input a: f32[n, n]
output out: f32[n, n]
{ [i, j] : 0 <= i < n and 0 <= j < n }
out[j, i] = a[i, j]  {id=transpose}
out[i, j] = 2 * out[i, j]  {dep=transpose}
)";

inline constexpr const char* kTransposeThenDouble = R"(
kernel transpose_and_dbl
input a: f32[n, n]
output out: f32[n, n]
{ [i, j, ii, jj] : 0 <= i < n and 0 <= j < n and 0 <= ii < n and 0 <= jj < n }
out[j, i] = a[i, j]  {id=transpose}
out[ii, jj] = 2 * out[ii, jj]  {dep=transpose}
)";

}  // namespace megalith::loop
