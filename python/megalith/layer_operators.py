"""Operators that only the layers of a PersistentKernel need: their tensors have MPK's shapes and dtypes.

Models and rules of the optimizer do without them, so they are declared here and not in ``megalith/ops``. They are
Megalith's own all the same: ``Registry.builtin()`` has them once the package is imported, every graph and every
PersistentKernel knows them, and no script can put another in their place. None has a body: the code is generated.
"""

from __future__ import annotations

import functools

from megalith._megalith import Registry
from megalith.operators import operator

_operator = functools.partial(operator, registry=Registry.builtin())

# ---- tokens -------------------------------------------------------------------------------------------------------


@_operator(one_task=True, exact=[], tests=[{"T": 1}, {"T": 5}])
def copy_tokens() -> str:
    """y = x, token ids, into another integer dtype."""
    return """
      input x: i32[T]
      output y: i32[T]
      { [t] : 0 <= t < T }
      y[t] = x[t]
    """


@_operator(
    one_task=True,
    index={"begin": "B"},
    exact=[],
    tests=[{"S": 1, "R": 1, "B": 1, "T": 1}, {"S": 40, "R": 3, "B": 36, "T": 5}],
    any_sizes=False,  # S is B + T - 1 or more
)
def tokens_at() -> str:
    """The next T tokens of a sequence: ids[t] = tokens[begin[0] + t]. They are of the prompt, or were sampled last."""
    return """
      parameter B
      input tokens: i32[S]
      input begin: i32[R]
      output ids: i32[T]
      { [t] : 0 <= t < T }
      ids[t] = tokens[begin[0] + t]
    """


@_operator(one_task=True, exact=[], tests=[{"W": 1}, {"W": 3}])
def count_up() -> str:
    """n = n + 1: the number of the iteration, for random numbers that differ from one to the next."""
    return """
      inout n: i32[W]
      { [w] : 0 <= w < W }
      n[w] = n[w] + 1
    """


@_operator(
    tasks=["c", "r"],
    exact=[],
    tests=[{"R": 1, "V": 64, "C": 4, "L": 16, "W": 50}, {"R": 3, "V": 501, "C": 6, "L": 96, "W": 470}],
)
def argmax_partial_padded() -> str:
    """argmax_partial over a padded vocabulary: the largest of the first W logits and its column, chunk by chunk of L
    columns. A chunk that is padding altogether has -inf."""
    return """
      parameter C
      parameter L
      parameter W
      input x: f32[R, V]
      output value: f32[R, C]
      output index: i32[R, C]
      { [r, c, v] : 0 <= r < R and 0 <= c < C and 0 <= v < L }
      value[r, c] = max(v, f32(x[r, c * L + v]), c * L + v < V and c * L + v < W)
      index[r, c] = c * L + argmax(v, f32(x[r, c * L + v]), c * L + v < V and c * L + v < W)
    """


# ---- activations --------------------------------------------------------------------------------------------------


@_operator(tasks=[("h", 16), "t"], tests=[{"T": 1, "H": 64}, {"T": 3, "H": 77}])
def fill() -> str:
    """y = value everywhere: what split-K partial sums are added to."""
    return """
      attribute value = 0
      output y: f32[T, H]
      { [t, h] : 0 <= t < T and 0 <= h < H }
      y[t, h] = value
    """


@_operator(
    tasks=["g", ("l", 16), "t"],
    tests=[{"T": 1, "G": 1, "L": 64}, {"T": 3, "G": 4, "L": 19}],
)
def silu_mul_groups() -> str:
    """y = silu(gate) * up of one tensor that holds both, interleaved: G groups of L gate columns and then their L up
    columns, as one projection with stacked weights makes them."""
    return """
      parameter G
      parameter L
      input x: f32[T, G * 2 * L]
      output y: f32[T, G * L]
      { [t, g, l] : 0 <= t < T and 0 <= g < G and 0 <= l < L }
      y[t, g * L + l] = f32(x[t, g * 2 * L + l]) / (1 + exp(-f32(x[t, g * 2 * L + l]))) * f32(x[t, g * 2 * L + L + l])
    """
