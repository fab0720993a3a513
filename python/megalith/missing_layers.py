"""The layers of MPK that are not built yet: each has its method, which says so by name."""

from __future__ import annotations

from typing import Any, Callable, Dict, Tuple

from megalith._megalith import UserError

_MISSING: Dict[str, Tuple[str, ...]] = {
    "experts": (
        "moe_topk_softmax_routing_layer", "moe_topk_sigmoid_routing_layer", "moe_w13_linear_layer",
        "moe_w2_linear_layer", "moe_w13_fp8_layer", "moe_w2_fp8_layer", "moe_silu_mul_layer", "moe_mul_sum_add_layer",
    ),
    "latent attention": (
        "mla_kv_gather_layer", "mla_kv_gather_split_layer", "mla_decode_layer", "mla_reduce_layer", "mla_prefill_layer",
        "mla_prefill_tp8_layer", "mla_mtp_decode_layer", "mla_mtp_decode_reduce_layer", "mla_mtp_reduce_layer",
        "mla_mtp_decode_tp2_layer", "mla_mtp_decode_tp2_reduce_layer", "mla_mtp_decode_tp4_layer",
        "mla_mtp_decode_tp4_reduce_layer", "mla_mtp_decode_tp8_layer", "mla_mtp_decode_tp8_reduce_layer",
    ),
    "drafts by heads of the model's own": (
        "mtp_token_scatter_layer", "mtp_prepare_verify_layer", "mtp_build_embed_input_layer", "softmax_gather_layer", "mtp_float_scatter_layer",
        "prob_scatter_layer", "prob_extract_layer", "mtp_verify_probabilistic_layer", "mtp_verify_strict_layer",
        "mtp_accept_commit_layer",
    ),
    "several GPUs": ("allreduce_layer", "nvshmem_global_argmax_layer"),
    "fp8": ("linear_fp8_layer", "linear_fp8_with_residual_layer", "quantize_fp8_layer"),
}  # fmt: skip


def _refusal(name: str, what: str) -> Callable[..., Any]:
    def method(self: Any, *_: Any, **__: Any) -> Any:
        raise UserError(f"[{name}] this layer of MPK is not built yet: {what}")

    method.__name__ = name
    method.__qualname__ = f"PersistentKernel.{name}"
    method.__doc__ = f"A layer of MPK that is not built yet ({what}): a call, with grid_dim or without, says so."
    return method


class MissingLayers:
    """A part of PersistentKernel."""


for _what, _names in _MISSING.items():
    for _name in _names:
        setattr(MissingLayers, _name, _refusal(_name, _what))
