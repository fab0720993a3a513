"""Strides that a script asks for: whether two elements of such a tensor would share a place."""

from __future__ import annotations

import logging
import math
from typing import Iterator, List, Optional, Sequence, Tuple

from megalith._megalith import UserError
from megalith.arguments import as_whole, many, shown

_log = logging.getLogger("megalith")
_MOST_STEPS = 50_000  # of the search; strides that scripts have take a few


class _TooInvolved(Exception):
    """The search did not come to an end."""


def row_major(dims: Sequence[int]) -> Tuple[int, ...]:
    strides = [1] * len(dims)
    for d in range(len(dims) - 2, -1, -1):
        strides[d] = strides[d + 1] * dims[d + 1]
    return tuple(strides)


def check_strides(what: str, dims: Sequence[int], strides: object) -> None:
    """Strides may be in any order and with any padding. UserError naming ``what`` if they are no whole numbers, one a
    dimension, or if two elements would share a place."""
    try:
        given = [as_whole(stride) for stride in many(what, "strides", strides, len(dims), "")]
    except UserError:
        given = []
    result = tuple(stride for stride in given if stride is not None and stride >= 0)
    if len(result) != len(dims) or len(given) != len(dims):
        raise UserError(
            f"{what} has the strides {shown(strides)}, want {len(dims)} whole numbers, one for each of the dims "
            f"{shown(tuple(dims))}"
        )
    try:
        shared = _shared_place(dims, result)
    except _TooInvolved:
        raise UserError(
            f"{what} has the strides {shown(result)}, and whether elements overlap takes too long to find out, as its "
            f"dims are {shown(tuple(dims))}: try {shown(row_major(dims))}, or leave strides out"
        ) from None
    if shared is not None and _are_parts(dims, result):
        _log.warning("%s has the row stride %d, taken as %d: whole rows", what, result[0], dims[1] * dims[2])
    elif shared is not None:
        raise UserError(
            f"{what} has the strides {shown(result)}, with which its elements {list(shared[0])} and {list(shared[1])} "
            f"overlap, as its dims are {shown(tuple(dims))}: try {shown(row_major(dims))}, or leave strides out"
        )


def _are_parts(dims: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether these are the parts of split-KV attention as scripts for MPK describe them: (rows, chunks * heads *
    head_dim, key heads), columns first, with a row stride in which head_dim is forgotten. MPK's kernels do not read it,
    so such scripts run, and must run here."""
    if len(dims) != 3 or tuple(strides[1:]) != (1, dims[1]) or strides[0] == 0 or strides[0] % dims[2] != 0:
        return False
    heads = strides[0] // dims[2]  # chunks * query heads of a key head
    return dims[1] % heads == 0 and dims[1] // heads % 8 == 0


def _shared_place(dims: Sequence[int], strides: Sequence[int]) -> Optional[Tuple[Tuple[int, ...], Tuple[int, ...]]]:
    """Two elements at one place, if there are any."""
    for d, stride in enumerate(strides):
        if stride == 0 and dims[d] > 1:
            return (0,) * len(dims), tuple(int(i == d) for i in range(len(dims)))
    order = sorted((d for d in range(len(dims)) if dims[d] > 1), key=lambda d: -strides[d])
    steps = _way_back([(strides[d], dims[d] - 1) for d in order], 0, False, iter(range(_MOST_STEPS)))
    if steps is None:
        return None
    first, second = [0] * len(dims), [0] * len(dims)
    for d, step in zip(order, steps):
        first[d], second[d] = max(step, 0), max(-step, 0)
    return tuple(first), tuple(second)


def _way_back(
    axes: List[Tuple[int, int]], place: int, moved: bool, attempts: Iterator[int]
) -> Optional[List[int]]:
    """Steps along (stride, most steps), longest strides first, that lead from ``place`` to 0 and are not all 0 unless
    ``moved``. The last two axes are solved at once, so what is tried is few even where strides interleave.
    _TooInvolved when there are no ``attempts`` left."""
    if not axes:
        return [] if place == 0 and moved else None
    if len(axes) == 2:
        return _two_steps(axes[0], axes[1], place, moved)
    stride, most = axes[0]
    reach = sum(other * steps for other, steps in axes[1:])
    low = max(-most, -((place + reach) // stride))
    high = min(most, (reach - place) // stride)
    # The first step is not negative: the way back of a way back is one as well.
    for step in range(low if moved else max(low, 0), high + 1):
        if next(attempts, None) is None:
            raise _TooInvolved
        rest = _way_back(axes[1:], place + step * stride, moved or step != 0, attempts)
        if rest is not None:
            return [step, *rest]
    return None


def _two_steps(first: Tuple[int, int], second: Tuple[int, int], place: int, moved: bool) -> Optional[List[int]]:
    """x and y within bounds with place + x stride + y other = 0."""
    (stride, most), (other, most_other) = first, second
    common = math.gcd(stride, other)
    if place % common != 0:
        return None
    # All solutions: x = start + k * period, and y falls by `fall` with each.
    period, fall = other // common, stride // common
    start = -place // common * pow(fall, -1, period) % period if period > 1 else 0
    y_start = -(place + start * stride) // other
    low = max(-((most + start) // period), -((most_other - y_start) // fall))
    high = min((most - start) // period, (y_start + most_other) // fall)
    for k in (low, low + 1):
        x, y = start + k * period, y_start - k * fall
        if k <= high and (moved or (x, y) != (0, 0)):
            return [x, y]
    return None
