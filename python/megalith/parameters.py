"""What the constructor of a PersistentKernel takes, and what is checked of it."""

from __future__ import annotations

import operator
from typing import Any, Dict

from megalith._megalith import UserError

MODES = ("offline", "online", "online_notoken", "onepass", "online_multi_turn")
SINGLE_PASS = ("online_notoken", "onepass")
META = (
    "step", "tokens", "input_tokens", "output_tokens", "num_new_tokens", "prompt_lengths", "qo_indptr_buffer",
    "paged_kv_indptr_buffer", "paged_kv_indices_buffer", "paged_kv_last_page_len_buffer", "paged_kv_indices_snapshot",
)  # fmt: skip
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
}

# Attributes of a kernel: those that are settled when it is made, and those that compile() takes up. eos_token_id and
# trace_name count in the next run.
SETTLED = (
    "mode", "world_size", "mpi_rank", "max_seq_length", "max_num_batched_requests", "max_num_batched_tokens",
    "max_num_pages", "page_size", "meta_tensors", "spec_decode_config", "test_mode",
)  # fmt: skip
UNTIL_COMPILE = (
    "num_workers", "num_local_schedulers", "num_remote_schedulers", "profiler_tensor", "use_cutlass_kernel", "profile",
)  # fmt: skip
LEAST = {
    "num_workers": 1, "num_local_schedulers": 0, "num_remote_schedulers": 0, "max_seq_length": 1,
    "max_num_batched_requests": 1, "max_num_batched_tokens": 1, "max_num_pages": 1, "page_size": 1,
    "eos_token_id": -(2**31),
}  # fmt: skip


def whole(name: str, value: Any, least: int) -> int:
    number = None
    if not isinstance(value, bool):
        try:
            number = operator.index(value)
        except TypeError:  # arrays have __index__, too, and refuse
            pass
    if number is None or not least <= number < 2**31:
        at_least = f" of at least {least}" if least >= 0 else ""
        raise UserError(f"[PersistentKernel] {name} is {value!r}, want a whole number{at_least}")
    return number
