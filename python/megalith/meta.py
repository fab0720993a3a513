"""What meta tensors may hold, looked at before each run: a wrong index would be a read or a write of foreign memory."""

from __future__ import annotations

import ctypes
import math
from typing import TYPE_CHECKING, List

from megalith import _megalith
from megalith._megalith import UserError
from megalith.attention_layers import PAGED_META
from megalith.dtensor import DTensor, Storage

if TYPE_CHECKING:
    from megalith.persistent_kernel import PersistentKernel


def held(storage: Storage) -> List[int]:
    """The numbers that an integer tensor holds now."""
    memory = storage.memory
    assert memory is not None
    kind = ctypes.c_int32 if memory.dtype == "i32" else ctypes.c_int64
    array = kind * math.prod(memory.shape)
    if memory.device == "cpu":
        return list(array.from_address(memory.address))
    copy = array()
    _megalith.copy_from_device(memory.address, ctypes.addressof(copy), ctypes.sizeof(copy))
    return list(copy)


def _check_ascending(name: str, values: List[int], largest: int, what: str) -> None:
    for i, value in enumerate(values):
        low = values[i - 1] if i > 0 else 0
        if not low <= value <= largest or (i == 0 and value != 0):
            want = "0" if i == 0 else f"{low} to {largest}"
            raise UserError(f'the meta tensor "{name}" has {value} at [{i}], want {want}: {what}')


def _check_paged(kernel: "PersistentKernel", rows: int, pages: int, positions: int) -> None:
    tensors = [kernel._tensors[f"meta.{name}"] for name in PAGED_META]
    first_row, first_page, indices, last_length = (held(tensor._storage) for tensor in tensors)
    page_size = kernel.page_size
    _check_ascending(PAGED_META[0], first_row, rows, f"rows of requests, of which there are at most {rows}")
    _check_ascending(PAGED_META[1], first_page, len(indices), f"places in {PAGED_META[2]}, which has {len(indices)}")
    for r, last in enumerate(last_length):
        num_rows, num_pages = first_row[r + 1] - first_row[r], first_page[r + 1] - first_page[r]
        if num_rows == 0:
            continue
        if not 1 <= last <= page_size:
            raise UserError(
                f'the meta tensor "{PAGED_META[3]}" has {last} at [{r}], want 1 to {page_size}: a page has that many '
                "positions"
            )
        length = (num_pages - 1) * page_size + last
        if num_pages < 1 or length < num_rows:
            raise UserError(
                f"request {r} has {num_rows} new rows, but its {num_pages} pages hold {max(length, 0)} positions: "
                "keys and values of the new rows need places"
            )
        if length > positions:
            raise UserError(
                f"request {r} is {length} positions long, but max_seq_length, the cache and the tables of positions "
                f"allow {positions}"
            )
    for i in range(first_page[0], first_page[-1]):
        if not 0 <= indices[i] < pages:
            raise UserError(
                f'the meta tensor "{PAGED_META[2]}" has {indices[i]} at [{i}], want 0 to {pages - 1}: the cache has '
                f"{pages} pages"
            )


def _check_loop(kernel: "PersistentKernel") -> None:
    """In a token loop the tables are the kernel's own; what comes from outside are the texts."""
    assert kernel._loop is not None
    for rows, _, positions in kernel._paged_limits:
        if positions < kernel.max_seq_length:
            raise UserError(
                f"the tables of positions are for {positions} positions, but max_seq_length is {kernel.max_seq_length}"
            )
    for step, limit in kernel._step_limits:
        if limit < kernel.max_seq_length:
            raise UserError(
                f'"{step.name}" may reach {kernel.max_seq_length - 1}, but there is room for {limit} positions'
            )
    tensors = kernel._loop.tensors
    kernel._loop.begin({name: held(tensors[name]._storage) for name in ("step", "prompt_lengths", "tokens")})


def check(kernel: "PersistentKernel") -> None:
    """UserError naming the tensor, the place, what is there and what may be."""
    if kernel._loop is not None:
        _check_loop(kernel)
        return
    for rows, pages, positions in set(kernel._paged_limits):
        _check_paged(kernel, rows, pages, positions)
    for step, limit in kernel._step_limits:
        for i, value in enumerate(held(step._storage)):
            if not 0 <= value < limit:
                raise UserError(f'the meta tensor "{step.name}" has {value} at [{i}], want 0 to {limit - 1}')
    for tokens, vocabulary, begin, num_rows in kernel._token_limits:
        first = held(begin._storage)[0] if begin is not None else 0
        values = held(tokens._storage)
        for i in range(first, first + num_rows if num_rows is not None else len(values)):
            if not 0 <= values[i] < vocabulary:
                raise UserError(
                    f'"{tokens.name}" has the token {values[i]} at [{i}], but the vocabulary has {vocabulary}'
                )
