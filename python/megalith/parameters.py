"""What the constructor of a PersistentKernel takes, and what is checked of it."""

from __future__ import annotations

from typing import Any, Dict, Optional

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


def whole(name: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__") or int(value) < least:
        raise UserError(f"[PersistentKernel] {name} is {value!r}, want a whole number of at least {least}")
    return int(value)


def check_meta(meta_tensors: Optional[Dict[str, Any]]) -> Dict[str, Any]:
    if meta_tensors is None:
        return {}
    if not isinstance(meta_tensors, dict):
        raise UserError(
            f"[PersistentKernel] meta_tensors is a {type(meta_tensors).__name__}, want a dict of tensors by name"
        )
    for name in meta_tensors:
        if name not in META:
            raise UserError(f'[PersistentKernel] there is no meta tensor "{name}"; there are {", ".join(META)}')
    return dict(meta_tensors)
