"""What tensors are views of. A kernel keeps the addresses that it was compiled with, and holds on to tensors; still an array
may be resized, a storage replaced, a mapped file closed. So each is looked at again before each run."""

from __future__ import annotations

import contextlib
import math
from typing import Any, Dict, Iterable, Iterator, Optional, Tuple

from megalith import _megalith
from megalith._megalith import UserError

Place = Tuple[int, int]  # address, bytes
Sources = Tuple[Tuple[str, "Source"], ...]  # each with the name of a tensor that it has


class Source:
    """What owns memory, and where that was when it was attached."""

    __slots__ = ("owner", "place")

    def __init__(self, owner: Any):
        self.owner = owner
        self.place = self.look()

    def look(self) -> Place:
        """Where it is now."""
        raise NotImplementedError

    def hold(self) -> Any:
        """Keeps it from moving, where its library knows how: until the result is released."""
        return None


class ArraySource(Source):
    """An array of numpy that has memory of its own: resize() may move it."""

    __slots__ = ()

    def look(self) -> Place:
        return _megalith.array_place(self.owner)


class BufferSource(Source):
    """A bytearray, a mapped file, or what else has a buffer. Those move or close unless somebody has a view of them."""

    __slots__ = ()

    def look(self) -> Place:
        with memoryview(self.owner) as view:
            return _megalith.buffer_place(view)

    def hold(self) -> Any:
        return memoryview(self.owner)


class TorchSource(Source):
    """A tensor of torch, whose storage may be resized or replaced."""

    __slots__ = ("item_bytes",)

    def __init__(self, owner: Any, item_bytes: int):
        self.item_bytes = item_bytes
        super().__init__(owner)

    def look(self) -> Place:
        return self.owner.data_ptr(), math.prod(self.owner.shape) * self.item_bytes


def source_of_array(array: Any) -> Optional[Source]:
    """Of an array of numpy: that which owns the memory, behind all views; None if nobody knows who does."""
    owner = array
    while hasattr(owner, "__array_interface__") and getattr(owner, "base", None) is not None:
        owner = owner.base
    if hasattr(owner, "__array_struct__"):
        return ArraySource(owner)
    try:
        return BufferSource(owner)
    except (TypeError, ValueError, BufferError):
        return None


@contextlib.contextmanager
def in_place(where: str, sources: Sources) -> Iterator[None]:
    """Within it the sources are where they were. UserError naming the tensor of one that is not."""
    held = []
    try:
        for name, source in sources:
            try:
                hold = source.hold()
                if hold is not None:
                    held.append(hold)
                now = source.look()
            except ValueError as error:  # of what was closed
                raise UserError(f'[{where}] the memory of the tensor "{name}" is gone: {error}') from None
            if now != source.place:
                raise UserError(
                    f'[{where}] the memory of the tensor "{name}" has changed since it was attached: it was '
                    f"{source.place[1]} bytes at {source.place[0]:#x} and is {now[1]} bytes at {now[0]:#x}; a tensor "
                    "must be neither resized nor given another storage while a kernel holds it"
                )
        yield
    finally:
        for hold in held:
            hold.release()


def distinct(sources: Iterable[Tuple[str, Source]]) -> Sources:
    """One name for each owner."""
    found: Dict[int, Tuple[str, Source]] = {}
    for name, source in sources:
        found.setdefault(id(source.owner), (name, source))
    return tuple(found.values())
