"""What the constructor of a PersistentKernel takes, and what is checked of it."""

from __future__ import annotations

from typing import Any, Dict, List

from megalith import arguments
from megalith._megalith import UserError

MODES = ("offline", "online", "online_notoken", "onepass", "online_multi_turn", "online_pinned")
SINGLE_PASS = ("online_notoken", "onepass")
META = (
    "step", "tokens", "input_tokens", "output_tokens", "num_new_tokens", "prompt_lengths", "qo_indptr_buffer",
    "paged_kv_indptr_buffer", "paged_kv_indices_buffer", "paged_kv_last_page_len_buffer", "paged_kv_indices_snapshot",
)  # fmt: skip
# What MPK's host and kernel tell each other through, in mode="online_pinned": taken, and not looked at.
OTHER_META = ("generation_config", "pinned_")  # names, or how they begin
MAX_LAST_TOKENS = 16  # as kernels/cpu/next_batch.h has it
DEFAULTS: Dict[str, Any] = {
    "mode": "offline",
    "world_size": 1,
    "mpi_rank": 0,
    "num_workers": 1,
    "num_local_schedulers": 4,
    "num_remote_schedulers": 0,
    "max_seq_length": 1,
    "max_num_batched_requests": 1,
    "max_num_batched_tokens": 1,
    "max_num_pages": 1,
    "page_size": 1,
    "meta_tensors": None,
    "profiler_tensor": None,
    "trace_name": "",
    "spec_decode_config": None,
    "use_cutlass_kernel": False,
    "eos_token_id": -1,
    "pinned_ring_capacity": 8,
}

# Attributes of a kernel: those that are settled when it is made, and those that compile() takes up. eos_token_id and
# trace_name count in the next run.
SETTLED = (
    "mode", "world_size", "mpi_rank", "max_seq_length", "max_num_batched_requests", "max_num_batched_tokens",
    "max_num_pages", "page_size", "meta_tensors", "spec_decode_config", "test_mode",
)  # fmt: skip
UNTIL_COMPILE = (
    "num_workers", "num_local_schedulers", "num_remote_schedulers", "profiler_tensor", "use_cutlass_kernel", "profile",
    "pinned_ring_capacity",
)  # fmt: skip
LEAST = {
    "num_workers": 1, "num_local_schedulers": 0, "num_remote_schedulers": 0, "max_seq_length": 1,
    "max_num_batched_requests": 1, "max_num_batched_tokens": 1, "max_num_pages": 1, "page_size": 1,
    "pinned_ring_capacity": 1,
}  # fmt: skip
FLAGS = ("profile", "use_cutlass_kernel", "test_mode")


def whole(name: str, value: Any, least: int) -> int:
    number = arguments.as_whole(value)
    if number is None or not least <= number < 2**31:
        at_least = f" of at least {least}" if least >= 0 else ""
        raise UserError(f"[PersistentKernel] {name} is {arguments.shown(value)}, want a whole number{at_least}")
    return number


def checked(name: str, value: Any) -> Any:
    """The value of an attribute of a kernel, as it is kept."""
    if name in LEAST:
        return whole(name, value, LEAST[name])
    if name in FLAGS:
        return arguments.flag("PersistentKernel", name, value)
    if name == "trace_name":
        return arguments.text("PersistentKernel", name, value)
    return value


def last_tokens(where: str, value: Any) -> List[int]:
    """The tokens that end a sequence: of one, of a list of them, as configurations have them, or of None; -1 is none."""
    if value is None:
        return []
    items = [value]
    if arguments.as_whole(value) is None and not isinstance(value, bool):
        items = arguments.many(where, "eos_token_id", value, MAX_LAST_TOKENS, "a token id, or a list of them")
    if len(items) > MAX_LAST_TOKENS:
        raise UserError(f"[{where}] eos_token_id has {len(items)} tokens, want at most {MAX_LAST_TOKENS}")
    tokens = [arguments.whole(where, "eos_token_id", item) for item in items]
    return [token for token in tokens if token >= 0]
