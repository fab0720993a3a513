"""What needs no GPU of the CUDA target: every layer's kernel compiles for one, wherever NVRTC is."""

import numpy as np
import pytest
from conftest import Bench
from test_attention import paged_case
from test_token_loop import Decoder, tables

import megalith


def compiled(graph):
    try:
        kernel = megalith.compile(graph, target="cuda:sm_90a", num_workers=8)
    except megalith.SystemError as error:
        if "cannot open" in str(error):
            pytest.skip(str(error).splitlines()[0])
        raise
    assert kernel.is_cuda
    return kernel


def test_dense_layers():
    b = Bench()
    k = b.kernel
    x, _ = b.input("x", 4, 512)
    n, _ = b.input("n", 512)
    w, _ = b.input("w", 512, 512)
    g, _ = b.input("g", 512, 512)
    u, _ = b.input("u", 512, 512)
    gu = k.shuffle_tensors([g, u], 0, 8, name="gu")
    ids = b.attach("ids", np.zeros((4, 1), np.int64))
    e, _ = b.input("e", 64, 512)
    h = [k.new_tensor(dims=(4, 512), name=f"h{i}") for i in range(9)]
    wide = k.new_tensor(dims=(4, 1024), name="wide")
    k.embed_layer(input=ids, weight=e, output=h[0], input_source=1)
    k.rmsnorm_layer(input=h[0], weight=n, output=h[1], grid_dim=(4, 1, 1))
    k.linear_layer(input=h[1], weight=w, output=h[2], grid_dim=(32, 1, 1))
    k.linear_with_residual_layer(input=h[2], weight=w, residual=x, output=h[3])
    k.rmsnorm_linear_layer(input=h[3], weight_norm=n, weight_linear=gu, output=wide, grid_dim=(64, 1, 1))
    k.silu_mul_layer(input=wide, output=h[4], grid_dim=(8, 1, 1))
    k.silu_mul_linear_with_residual_layer(input=wide, weight=w, residual=h[4], output=h[5])
    k.tensor_init_layer(input=h[6])
    k.splitk_linear_layer(input=h[5], weight=w, output=h[6], grid_dim=(32, 4, 1))
    k.elementwise_add_layer(input_a=h[6], input_b=x, output=h[7])
    k.identity_layer(input=h[7], output=h[8])
    k.argmax_layer(input=h[8], output=b.attach("best", np.zeros((4, 1), np.int64)), grid_dim=(8, 1, 1))
    k.sampling_layer(logits=h[8], output=b.attach("drawn", np.zeros((4, 1), np.int64)))
    source = compiled(k.graph).source
    assert "gemv_rmsnorm_linear" in source or "linear_run" in source  # weights stream where there is a body for it


@pytest.mark.parametrize("splits", [1, 2, 8])
def test_splitk_with_a_fine_grid(splits):
    b = Bench()
    x, _ = b.input("x", 16, 1024)
    w, _ = b.input("w", 128, 1024)
    y = b.output("y", 16, 128)
    b.kernel.tensor_init_layer(input=y, dummy_input=x, dummy_output=x, grid_dim=(16, 1, 1))
    b.kernel.splitk_linear_layer(input=x, weight=w, output=y, grid_dim=(8, splits, 1))
    compiled(b.kernel.graph)


@pytest.mark.parametrize("size", [64, 128])
def test_attention_layers(size):
    def make(**params):
        return Bench(**params)

    b, tensors, _, _, heads = paged_case(
        make, 16, [1, 2], [20, 33], 4, 64, 8, with_norm=True, with_rope=True, heads=(2, 2, size)
    )
    y = b.output("y", 4, 4 * size)
    b.kernel.paged_attention_layer(**tensors, output=y)
    lse = b.output("lse", 4, 2 * 2, 2, dtype=np.float32)
    part = b.output("part", 4, 2 * 2 * size, 2, dtype=np.float32)
    z = b.output("z", 4, 4 * size)
    b.kernel.paged_attention_split_kv_layer(**tensors, lse=lse, output=part, attention_params=(4, 2))
    b.kernel.paged_attention_split_kv_merge_layer(lse=lse, output_tmp=part, output=z, attention_params=(4, size))
    compiled(b.kernel.graph)


def test_grids_of_any_size():
    """Streams of weights do not come apart wherever a grid says so."""
    b = Bench()
    x, _ = b.input("x", 8, 512)
    n, _ = b.input("n", 512)
    mid, y = (b.kernel.new_tensor(dims=(8, 1152), name=name) for name in ("mid", "y"))
    w, _ = b.input("w", 1152, 512)
    b.kernel.linear_layer(input=x, weight=w, output=mid, grid_dim=(128, 2, 1), block_dim=(128, 1, 1))
    b.kernel.rmsnorm_linear_layer(input=x, weight_norm=n, weight_linear=w, output=y, grid_dim=(96, 1, 1))
    b.kernel.splitk_linear_layer(input=x, weight=w, output=mid, grid_dim=(64, 8, 1))
    b.kernel.elementwise_add_layer(input_a=mid, input_b=y, output=b.output("z", 8, 1152), grid_dim=(8, 1, 1))
    best = b.output("value", 8, 64), b.output("index", 8, 64, dtype=np.int64)
    b.kernel.argmax_partial_layer(input=mid, output=best, grid_dim=(64, 1, 1), vocab_size=1000)
    compiled(b.kernel.graph)


@pytest.mark.parametrize("mode,lookup", [("offline", None), ("offline", (3, 3)), ("online_pinned", (3, 3))])
def test_the_token_loop(mode, lookup):
    decoder = Decoder(tables(3, 2, 5), 2, 5, lambda array: array, mode=mode, lookup=lookup)
    node = "serve_batch" if mode == "online_pinned" else "next_batch"
    assert f"{node}_by_block" in compiled(decoder.kernel.graph).source
