"""The dimensions of tensors, as callers give them."""

from __future__ import annotations

import itertools
import math
from typing import Any, List, Sequence, Tuple

from megalith._megalith import UserError
from megalith.arguments import as_whole, shown

_MOST_DIMS = 64
_MOST_ELEMENTS = 2**56


def check_dims(what: str, dims: Sequence[int]) -> Tuple[int, ...]:
    """``dims`` as whole numbers of at least 1; UserError naming ``what``."""
    items: List[Any] = [None]
    try:
        if not isinstance(dims, (str, bytes, dict, set)):
            items = list(itertools.islice(iter(dims), _MOST_DIMS + 1))
    except Exception:
        pass
    sizes = tuple(size for size in map(as_whole, items) if size is not None)
    if len(sizes) != len(items) or len(sizes) > _MOST_DIMS:
        raise UserError(f"{what} has the dims {shown(dims)}, want whole numbers like (8, 4096)")
    if not sizes or any(size < 1 for size in sizes):
        raise UserError(f"{what} has the dims {shown(sizes)}, want at least one, and none smaller than 1")
    if math.prod(sizes) > _MOST_ELEMENTS:
        raise UserError(f"{what} has the dims {shown(sizes)}, which are more elements than memory can hold")
    return sizes
