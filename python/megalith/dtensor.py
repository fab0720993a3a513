"""Tensors of a PersistentKernel, as its layers see them."""

from __future__ import annotations

import math
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from megalith._megalith import UserError
from megalith.arguments import whole
from megalith.tensors import TensorMemory


class Storage:
    """What all tensors that share one piece of memory have in common: their place in the graph, and who touches it."""

    __slots__ = ("name", "dtype", "memory", "graph_id", "graph_shape", "versions", "writer", "covered", "is_read",
                 "weight_of", "parts", "groups")  # fmt: skip

    def __init__(self, name: str, dtype: str, memory: Optional[TensorMemory]):
        self.name = name
        self.dtype = dtype
        self.memory = memory  # None: an activation, or stacked
        self.graph_id: Optional[int] = None
        self.graph_shape: Tuple[int, ...] = ()
        self.versions = 1  # tensors of the graph that it was so far
        self.writer: Optional[str] = None  # the layer that wrote it last
        self.covered: object = None  # what part of it layers wrote (Layer.writes)
        self.is_read = False  # since it was written
        self.weight_of: Optional[str] = None  # the layer that takes it as a weight
        self.parts: List[DTensor] = []  # of a stacked tensor
        self.groups = 1


class Product(NamedTuple):
    """A node of the graph that multiplies with stacked weights."""

    op: str
    node: str
    inputs: List[int]  # but the weight, which is the last one
    attributes: Dict[str, float]
    weight: "Storage"


class DTensor:
    """A tensor of a PersistentKernel: ``name``, ``dims``, ``dtype``, which do not change. Made by attach_input(),
    new_tensor(), fuse_tensors() and shuffle_tensors(); given to layers."""

    __slots__ = ("_name", "_dims", "_kernel", "_storage", "_dealt", "_product")

    def __init__(self, kernel: object, name: str, dims: Sequence[int], storage: Storage):
        self._name = name
        self._dims: Tuple[int, ...] = tuple(dims)
        self._kernel = kernel
        self._storage = storage
        # Of how many stacked weights its columns come, and in how many groups; None if nobody knows.
        self._dealt: Optional[Tuple[int, int]] = None
        self._product: Optional[Product] = None  # that made it from stacked weights, if it was one

    def __setattr__(self, attribute: str, value: object) -> None:
        if not attribute.startswith("_"):
            raise UserError(
                f'[DTensor] {attribute} of "{self.name}" cannot be changed: a tensor stays what attach_input(), '
                "new_tensor(), fuse_tensors() or shuffle_tensors() made it"
            )
        object.__setattr__(self, attribute, value)

    @property
    def name(self) -> str:
        return self._name

    @property
    def dims(self) -> Tuple[int, ...]:
        return self._dims

    @property
    def dtype(self) -> str:
        return self._storage.dtype

    @property
    def num_dims(self) -> int:
        return len(self.dims)

    @property
    def shape(self) -> Tuple[int, ...]:
        return self.dims

    def dim(self, index: int) -> int:
        """The size of dimension ``index``."""
        return self.dims[whole("dim", "index", index, -self.num_dims, self.num_dims - 1)]

    @property
    def num_elements(self) -> int:
        return math.prod(self.dims)

    def __repr__(self) -> str:
        return f"<DTensor {self.name}: {self.dtype}{list(self.dims)}>"
