"""What a layer's ``grid_dim`` and ``block_dim`` mean, and what is checked of them."""

from __future__ import annotations

from typing import Dict, NamedTuple, Optional, Tuple

from megalith._megalith import UserError
from megalith.arguments import as_whole, shown
from megalith.dtensor import DTensor

Grid = Tuple[int, int, int]


class Axis(NamedTuple):
    """What one direction of a grid cuts: a loop variable of the layer's operator, over ``extent`` values."""

    iname: str
    extent: int
    what: str  # in words, for messages: "the 4096 columns of \"out\""


def rows_of(iname: str, tensor: DTensor) -> Axis:
    return Axis(iname, tensor.dims[0], f'the {tensor.dims[0]} rows of "{tensor.name}"')


def columns_of(iname: str, tensor: DTensor) -> Axis:
    return Axis(iname, tensor.dims[1], f'the {tensor.dims[1]} columns of "{tensor.name}"')


def check_triple(layer: str, what: str, value: object) -> Grid:
    """``value`` as three whole numbers of at least 1."""
    if not isinstance(value, (tuple, list)) or len(value) != 3:
        raise UserError(f"[{layer}] {what} is {shown(value)}, want three whole numbers like (8, 1, 1)")
    x, y, z = (as_whole(size) or 0 for size in value)
    if min(x, y, z) < 1:
        raise UserError(f"[{layer}] {what} is {shown(tuple(value))}, want three whole numbers of at least 1")
    return x, y, z


def near_divisors(extent: int, wanted: int) -> str:
    """The divisors of ``extent`` next to ``wanted``, in words."""
    below = next(d for d in range(min(wanted, extent), 0, -1) if extent % d == 0)
    above = next((d for d in range(wanted, extent + 1) if extent % d == 0), below)
    return str(below) if below == above else f"{below} or {above}"


def pieces(layer: str, grid_dim: object, axes: Dict[str, Optional[Axis]]) -> Dict[str, int]:
    """Into how many pieces a grid cuts each loop variable; none where it is left out. UserError where the grid does not
    divide. A direction that cuts nothing repeats tasks in MPK: here each is done once, whatever its number is."""
    if grid_dim is None:
        return {}
    grid = check_triple(layer, "grid_dim", grid_dim)
    result: Dict[str, int] = {}
    for direction, count in zip("xyz", grid):
        axis = axes.get(direction)
        if axis is None:
            continue
        if axis.extent % count != 0:
            raise UserError(
                f"[{layer}] grid_dim is {grid}, but {direction} cuts {axis.what}, and {count} does not divide "
                f"{axis.extent}: try {near_divisors(axis.extent, count)}, or leave grid_dim out"
            )
        if axis.iname:
            result[axis.iname] = count
    return result
