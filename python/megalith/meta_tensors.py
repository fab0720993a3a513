"""The meta tensors of a PersistentKernel, by name: what ``kernel.meta_tensors`` is."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any, Dict, Iterator, Optional

from megalith._megalith import UserError
from megalith.arguments import shown
from megalith.parameters import META, OTHER_META

if TYPE_CHECKING:
    from megalith.kernel_tensors import KernelTensors


def check_name(name: object) -> None:
    if not isinstance(name, str) or (name not in META and not name.startswith(OTHER_META)):
        called = shown(name).strip("'")
        raise UserError(f'[PersistentKernel] there is no meta tensor "{called}"; there are {", ".join(META)}')


class MetaTensors(MutableMapping):
    """A change takes effect, here as well as in the dict that the constructor was given; where it comes too late for
    that, it is a UserError."""

    def __init__(self, kernel: "KernelTensors", given: Optional[Dict[str, Any]]):
        if given is not None and not isinstance(given, dict):
            raise UserError(
                f"[PersistentKernel] meta_tensors is a {type(given).__name__}, want a dict of tensors by name"
            )
        for name in given or ():
            check_name(name)
        self._kernel = kernel
        self._given = given
        self._seen: Dict[str, Any] = dict(given or {})  # of the caller's dict
        self._tensors: Dict[str, Any] = dict(given or {})

    def follow(self) -> None:
        """Takes over what the caller's dict says by now."""
        given, seen = self._given, self._seen
        if given is None:
            return
        for name in [*seen, *(name for name in list(given) if name not in seen)]:
            if given.get(name) is not seen.get(name):
                self[name] = given.get(name)
                seen[name] = given.get(name)

    def __getitem__(self, name: str) -> Any:
        return self._tensors[name]

    def __setitem__(self, name: str, tensor: Any) -> None:
        check_name(name)
        if self._tensors.get(name) is not tensor:
            self._kernel._replace_meta(name, tensor)
            self._tensors[name] = tensor
            self._kernel._meta_changed()

    def __delitem__(self, name: str) -> None:
        if self._tensors[name] is not None:
            self._kernel._replace_meta(name, None)
        del self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __repr__(self) -> str:
        return f"<meta tensors: {', '.join(self._tensors) or 'none'}>"

    def let_go(self) -> None:
        """Forgets them all, as finalize() does."""
        self._given = None
        self._seen.clear()
        self._tensors.clear()
