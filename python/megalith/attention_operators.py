"""Operators that only the attention layers need: from MPK's paged tables to one entry a token, and from and to MPK's
layout of split-KV partials. They are declared as those of ``layer_operators`` are, and for the same reason."""

from __future__ import annotations

import functools

from megalith._megalith import Registry
from megalith.operators import operator

_operator = functools.partial(operator, registry=Registry.builtin())


@_operator(
    one_task=True,
    index={"first_page": "P"},
    exact=[],
    tests=[
        {"T": 1, "I": 2, "R": 1, "P": 1, "Q": 1, "B": 1},
        {"T": 1, "I": 2, "R": 1, "P": 9, "Q": 4, "B": 16},
        {"T": 5, "I": 4, "R": 3, "P": 40, "Q": 7, "B": 3},
    ],
    any_sizes=False,  # I is R + 1
)
def paged_rows() -> str:
    """Request and position of each token of the batch, the position at which its request begins in this iteration, and
    the page table of each request, from the tables of a paged KV cache. They are compressed like the rows of a CSR
    matrix, I = R + 1 entries for R requests: request r has the tokens first_row[r] to first_row[r + 1] and the pages
    pages[first_page[r]] to pages[first_page[r + 1]], of B positions each. The last page holds last_length[r] of them,
    and the last token is at the last position. Entries of page_table behind a request's last page are left as they
    were."""
    return """
      parameter B
      input first_row: i32[I]
      input first_page: i32[I]
      input pages: i32[P]
      input last_length: i32[R]
      output request: i32[T]
      output position: i32[T]
      output start: i32[T]
      output page_table: i32[R, Q]
      { [t, r, a, q] : 0 <= t < T and 0 <= r < R and 0 <= a < R and 0 <= q < Q }
      request[t] = sum(r, 1, first_row[r + 1] <= t)
      position[t] = sum(r, (first_page[r + 1] - first_page[r] - 1) * B + last_length[r] - first_row[r + 1] + t,
                        first_row[r] <= t and t < first_row[r + 1])
      start[t] = sum(r, (first_page[r + 1] - first_page[r] - 1) * B + last_length[r] - first_row[r + 1] + first_row[r],
                     first_row[r] <= t and t < first_row[r + 1])
      page_table[a, q] = pages[first_page[a] + q]  {if=first_page[a] + q < first_page[a + 1]}
    """


@_operator(
    tasks=["g", "c"],
    index={"position": "C * L"},
    exact=["part", "top", "total"],
    tests=[
        {"T": 1, "U": 1, "C": 1, "G": 1, "M": 1, "D": 1, "L": 1},
        {"T": 1, "U": 1, "C": 2, "G": 2, "M": 2, "D": 64, "L": 8},
        {"T": 3, "U": 5, "C": 4, "G": 3, "M": 1, "D": 80, "L": 5},
    ],
    any_sizes=False,  # U is T or more
)
def attention_chunks_out() -> str:
    """The split-KV partials of attention_partial in MPK's layout: each chunk of L positions normalized by itself, with
    its log-sum-exp; chunks before heads, key heads (groups) last. A chunk behind the token's position has 0 and -inf.
    So has each of the U rows that has no token in this iteration. C chunks, G groups of M query heads."""
    return """
      parameter L
      parameter M
      input part: f32[T, C, G * M, D]
      input top: f32[T, C, G * M]
      input total: f32[T, C, G * M]
      input position: i32[T]
      output lse: f32[U, C * M, G]
      output y: f32[U, C * M * D, G]
      { [t, u, c, g, m, d] : 0 <= t < T and 0 <= u < U and 0 <= c < C and 0 <= g < G and 0 <= m < M and 0 <= d < D }
      lse[u, c * M + m, g] = -inf
      y[u, (c * M + m) * D + d, g] = 0
      lse[t, c * M + m, g] = top[t, c, g * M + m] + log(total[t, c, g * M + m])  {if=c * L <= position[t]}
      y[t, (c * M + m) * D + d, g] = part[t, c, g * M + m, d] / total[t, c, g * M + m]  {if=c * L <= position[t]}
    """


@_operator(
    tasks=["g", "t"],
    tests=[{"T": 1, "C": 1, "G": 1, "M": 2, "D": 64}, {"T": 3, "C": 4, "G": 3, "M": 2, "D": 33}],
)
def attention_chunks_in() -> str:
    """Combines the split-KV partials of attention_chunks_out, weighted by exp(lse). A row of which every chunk has -inf
    has no token in this iteration: it becomes 0."""
    return """
      parameter C
      parameter M
      input lse: f32[T, C * M, G]
      input part: f32[T, C * M * D, G]
      output y: f32[T, G * M * D]
      { [t, g, m, c, d] : 0 <= t < T and 0 <= g < G and 0 <= m < M and 0 <= c < C and 0 <= d < D }
      big[t, g, m] = max(max(c, f32(lse[t, c * M + m, g])), -1e30)
      weight[t, g, m] = sum(c, exp(f32(lse[t, c * M + m, g]) - big[t, g, m]))
      y[t, (g * M + m) * D + d] =
        sum(c, exp(f32(lse[t, c * M + m, g]) - big[t, g, m]) * f32(part[t, (c * M + m) * D + d, g])) /
        max(weight[t, g, m], 1e-30)
    """
