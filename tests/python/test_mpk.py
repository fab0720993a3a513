"""What scripts for MPK may write, line by line: grids, blocks, strides, layers and names."""

import importlib
import json

import numpy as np
import pytest
import reference
from conftest import BF16, Bench, assert_right
from test_attention import paged_case

import megalith
import megalith.persistent_kernel
from megalith.mirage.mpk.persistent_kernel import PersistentKernel

# ---- grids and blocks -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "block,y,z", [((128, 1, 1), 1, 1), ((256, 1, 1), 2, 1), ((64, 2, 1), 7, 3), ((1024, 1, 1), 1, 4), ((7, 1, 1), 5, 1)]
)
def test_a_block_and_a_direction_that_cuts_nothing_change_nothing(bench, block, y, z):
    b = bench()
    x, xv = b.input("x", 3, 64)
    n, nv = b.input("n", 64)
    w, wv = b.input("w", 96, 64, scale=1 / 8)
    g, gv = b.input("g", 96, 48, scale=1 / 8)
    r, rv = b.input("r", 3, 96)
    outputs = {name: b.output(name, 3, 96) for name in ("linear", "residual", "norm_linear", "silu_linear", "sum")}
    grid = {"grid_dim": (6, y, z), "block_dim": block}
    rows = {"grid_dim": (3, y, z), "block_dim": block}
    b.kernel.rmsnorm_layer(input=x, weight=n, output=b.output("norm", 3, 64), **rows)
    b.kernel.linear_layer(input=x, weight=w, output=outputs["linear"], **grid)
    b.kernel.linear_with_residual_layer(input=x, weight=w, residual=r, output=outputs["residual"], **grid)
    b.kernel.rmsnorm_linear_layer(input=x, weight_norm=n, weight_linear=w, output=outputs["norm_linear"], **grid)
    b.kernel.silu_mul_layer(input=r, output=b.output("silu", 3, 48), **grid)
    b.kernel.silu_mul_linear_with_residual_layer(input=r, weight=g, residual=r, output=outputs["silu_linear"], **grid)
    b.kernel.elementwise_add_layer(input_a=r, input_b=r, output=outputs["sum"], **rows)
    b.kernel.identity_layer(input=r, output=b.output("same", 3, 96), **grid)
    b.kernel.tensor_init_layer(input=b.output("zero", 3, 96), **rows)
    b.kernel.argmax_layer(input=r, output=b.output("best", 3, 1, dtype=np.int64), **grid)
    b.run()
    linear, silu = reference.linear(xv, wv), reference.silu_mul(rv, 6)
    roundings = 4 if b.target == "cuda" else 1
    assert_right(b.value("norm"), reference.rmsnorm(xv, nv))
    assert_right(b.value("linear"), linear, slack=256)
    assert_right(b.value("residual"), reference.f64(rv) + linear, slack=256)
    assert_right(
        b.value("norm_linear"), reference.linear(reference.rmsnorm(xv, nv), wv), slack=256, roundings=roundings
    )
    assert_right(b.value("silu"), silu)
    expected = reference.f64(rv) + reference.linear(reference.silu_mul(rv), gv)
    assert_right(b.value("silu_linear"), expected, slack=256)
    assert_right(b.value("sum"), 2 * reference.f64(rv))
    assert np.array_equal(b.value("same"), rv) and not b.value("zero").astype(np.float32).any()
    assert np.array_equal(b.value("best")[:, 0], np.argmax(rv.astype(np.float32), -1))


@pytest.mark.parametrize("block", [(128,), (0, 1, 1), "256", (256.5, 1, 1)])
def test_a_block_is_three_numbers(block):
    b = Bench()
    x, _ = b.input("x", 2, 16)
    with pytest.raises(megalith.UserError, match="three whole numbers"):
        b.kernel.tensor_init_layer(input=x, block_dim=block)


def test_tiles_of_any_size(bench):
    """Panels of weights lie together, so there may be fewer tasks; never another result."""
    b = bench()
    cases = []
    roundings = 4 if b.target == "cuda" else 1
    x, xv = b.input("x", 3, 200)
    n, nv = b.input("n", 200)
    for outputs, tasks in ((72, 9), (72, 24), (72, 72), (100, 20), (150, 50), (200, 8), (37, 37), (37, 1)):
        i = f"{outputs}_{tasks}"
        w, wv = b.input(f"w{i}", outputs, 200, scale=200**-0.5)
        r, rv = b.input(f"r{i}", 3, outputs)
        init = b.normal(3, outputs, dtype=np.float32)
        y, z, m = (b.output(f"{name}{i}", 3, outputs) for name in "yzm")
        s = b.attach(f"s{i}", init.copy())
        grid = (tasks, 1, 1)
        b.kernel.linear_layer(input=x, weight=w, output=y, grid_dim=grid)
        b.kernel.linear_with_residual_layer(input=x, weight=w, residual=r, output=z, grid_dim=grid)
        b.kernel.splitk_linear_layer(input=x, weight=w, output=s, grid_dim=(tasks, 8, 1))  # 25 columns each
        b.kernel.rmsnorm_linear_layer(input=x, weight_norm=n, weight_linear=w, output=m, grid_dim=grid)
        linear = reference.linear(xv, wv)
        cases.append((y.name, linear, 1))
        cases.append((z.name, reference.f64(rv) + linear, 1))
        cases.append((s.name, reference.f64(init) + linear, 1))
        cases.append((m.name, reference.linear(reference.rmsnorm(xv, nv), wv), roundings))
    b.run()
    for name, expected, rounded in cases:
        assert_right(b.value(name), expected, slack=256, roundings=rounded)


def test_a_grid_of_whole_panels_is_followed():
    for outputs, tasks, found in ((128, 8, 8), (128, 16, 8), (72, 9, 5), (72, 3, 3), (100, 2, 2)):
        b = Bench()
        x, _ = b.input("x", 2, 64)
        w, _ = b.input("w", outputs, 64)
        b.kernel.linear_layer(input=x, weight=w, output=b.output("y", 2, outputs), grid_dim=(tasks, 1, 1))
        b.kernel.compile()
        names = [task["name"] for task in json.loads(b.kernel.compiled.tasks.to_json())["tasks"]]
        assert len({name.partition("n=")[2].partition(",")[0] for name in names}) == found, names


def test_gates_and_ups_whatever_the_grid(bench):
    """The weights say how they take turns; a grid need not fit that."""
    b = bench()
    cases = []
    x, xv = b.input("x", 3, 64)
    for groups, tasks in ((6, 4), (6, 12), (4, 6), (48, 36), (5, 2), (3, 9)):
        i, inner = f"{groups}_{tasks}", groups * tasks * 2
        gate, gv = b.input(f"gate{i}", inner, 64, scale=1 / 8)
        up, uv = b.input(f"up{i}", inner, 64, scale=1 / 8)
        w = b.kernel.shuffle_tensors([gate, up], 0, groups, name=f"w{i}")
        mid, y = b.output(f"mid{i}", 3, 2 * inner, dtype=np.float32), b.output(f"y{i}", 3, inner)
        b.kernel.linear_layer(input=x, weight=w, output=mid)
        b.kernel.silu_mul_layer(input=mid, output=y, grid_dim=(tasks, 1, 1))
        cases.append((y.name, reference.silu(reference.linear(xv, gv)) * reference.linear(xv, uv)))
    b.run()
    for name, expected in cases:
        assert_right(b.value(name), expected, slack=256)


def test_argmax_of_chunks_that_do_not_come_out(bench):
    b = bench()
    cases = []
    for vocabulary, tasks in ((100, 7), (10, 8), (9, 6), (64, 64), (7, 100)):
        x, xv = b.input(f"x{vocabulary}", 5, vocabulary)
        y = b.output(f"y{vocabulary}", 5, 1, dtype=np.int32)
        b.kernel.argmax_layer(input=x, output=y, grid_dim=(tasks, 1, 1))
        cases.append((y.name, xv))
    b.run()
    for name, xv in cases:
        assert np.array_equal(b.value(name)[:, 0], np.argmax(xv.astype(np.float32), -1))


def test_argmax_does_not_look_at_padding(bench):
    b = bench()
    cases = []
    for vocabulary, chunks in ((100, 4), (75, 4), (50, 4), (1, 4), (100, 1), (51, 20)):
        i = f"{vocabulary}_{chunks}"
        logits = -1 - np.abs(b.normal(5, 100))
        logits[:, vocabulary:] = 1  # what would win
        x, y = b.attach(f"x{i}", logits.astype(BF16)), b.output(f"y{i}", 5, 1, dtype=np.int64)
        value, index = b.output(f"value{i}", 5, chunks), b.output(f"index{i}", 5, chunks, dtype=np.int64)
        b.kernel.argmax_partial_layer(
            input=x, output=(value, index), grid_dim=(chunks, 1, 1), block_dim=(128, 1, 1), vocab_size=vocabulary
        )
        b.kernel.argmax_reduce_layer(input=(value, index), output=y, grid_dim=(1, 1, 1))
        cases.append((y.name, logits[:, :vocabulary].astype(np.float32)))
    b.run()
    for name, logits in cases:
        assert np.array_equal(b.value(name)[:, 0], np.argmax(logits, -1))


@pytest.mark.parametrize("size", [0, 101, "all"])
def test_a_vocabulary_is_no_wider_than_its_columns(size):
    b = Bench()
    outputs = b.output("v", 2, 4), b.output("i", 2, 4, dtype=np.int32)
    with pytest.raises(megalith.UserError, match=r"\[argmax_partial_layer\] vocab_size is"):
        b.kernel.argmax_partial_layer(input=b.input("x", 2, 100)[0], output=outputs, vocab_size=size)


def test_workers_divide_the_padded_vocabulary(monkeypatch):
    class Device:
        def __init__(self, count):
            self.num_multiprocessors = count

    def no_gpu():
        raise megalith.SystemError("none")

    found = {}
    for count in range(1, 200):
        monkeypatch.setattr(megalith._megalith, "cuda_devices", lambda count=count: [Device(count)])
        found[count], schedulers = megalith.get_configurations_from_gpu(0)
        assert 153600 % found[count] == 0 and count / 2 < found[count] <= count and schedulers == 0
    assert found[132] == 128 and found[108] == 100 and found[148] == 128
    monkeypatch.setattr(megalith._megalith, "cuda_devices", no_gpu)
    monkeypatch.setattr(megalith._megalith, "default_num_workers", lambda target: 7)
    assert megalith.get_configurations_from_gpu() == (6, 0)


# ---- new tensors ----------------------------------------------------------------------------------------------------


def test_strides_of_a_new_tensor_change_nothing():
    b = Bench()
    cases = []
    for dims, strides in (
        ((3, 64), (64, 1)),
        ((3, 64), (1, 3)),
        ((3, 64), (80, 1)),
        ((3, 64), (2, 7)),
        ((1, 64), (5, 1)),
        ((2, 3, 16), (48, 1, 3)),
        ((2, 3, 16), (1, 32, 2)),
        ((2, 3, 16), (100, 17, 1)),
        ((2, 1, 3, 16), (1, 7, 2, 6)),
        ((2, 3), (3, 2)),
        ([2, 3], [np.int64(1), 2]),
    ):
        for dtype in ("bf16", "f32"):
            i = len(cases)
            x, xv = b.input(f"x{i}", *dims)
            mid = b.kernel.new_tensor(dims=dims, strides=strides, dtype=dtype, name=f"mid{i}")
            y = b.output(f"y{i}", *dims)
            b.kernel.identity_layer(input=x, output=mid)
            b.kernel.identity_layer(input=mid, output=y)
            cases.append((y.name, mid, xv))
    b.run()
    for name, mid, xv in cases:
        assert np.array_equal(b.value(name), xv)
        assert np.array_equal(b.kernel.read(mid).astype(np.float32), xv.astype(np.float32))


@pytest.mark.parametrize(
    "dims,strides",
    [
        ((4, 8), (1, 1)),
        ((4, 8), (4, 1)),
        ((4, 8), (0, 1)),
        ((4, 8), (8, 0)),
        ((4, 8), (3, 2)),
        ((2, 3, 4), (12, 2, 1)),
        ((2, 3, 4), (1, 1, 6)),
        ((2, 4, 3), (4, 1, 4)),
        ((8, 8, 8, 8), (512, 64, 8, 4)),
    ],
)
def test_strides_that_overlap_are_refused_by_name(dims, strides):
    b = Bench()
    with pytest.raises(megalith.UserError, match=r'"mid" has the strides .* overlap'):
        b.kernel.new_tensor(dims=dims, strides=strides, name="mid")
    b.kernel.new_tensor(dims=dims, name="mid")  # the name is free


@pytest.mark.parametrize("strides", [(8,), (8, 1, 1), (8, -1), (8.5, 1), "81", 8])
def test_strides_are_a_number_a_dimension(strides):
    with pytest.raises(megalith.UserError, match=r'"mid" has the strides .* want 2 whole numbers'):
        Bench().kernel.new_tensor(dims=(4, 8), strides=strides, name="mid")


# ---- layers ---------------------------------------------------------------------------------------------------------


def test_splitk_adds_to_what_a_tensor_holds(bench):
    b = bench()
    cases = []
    x, xv = b.input("x", 2, 64)
    w, wv = b.input("w", 48, 64, scale=1 / 8)
    for dtype in (BF16, np.float16, np.float32):
        for grid in (None, (2, 4, 1), (8, 1, 1), (3, 16, 2)):
            before = b.normal(2, 48, dtype=dtype)
            y = b.attach(f"y{len(cases)}", before.copy())
            b.kernel.splitk_linear_layer(input=x, weight=w, output=y, grid_dim=grid)
            cases.append((y.name, before))
    b.run()
    once = {name: b.value(name).copy() for name, _ in cases}
    b.kernel.run_test_mode()
    for name, before in cases:
        assert_right(once[name], reference.f64(before) + reference.linear(xv, wv), slack=256)
        assert_right(b.value(name), reference.f64(once[name]) + reference.linear(xv, wv), slack=256)


def test_splitk_adds_to_the_residual(bench):
    """What a layer made, and what others still read."""
    b = bench()
    x, xv = b.input("x", 3, 64)
    w, wv = b.input("w", 64, 64, scale=1 / 8)
    h = b.kernel.new_tensor(dims=(3, 64), dtype="f32", name="h")
    b.kernel.elementwise_add_layer(input_a=x, input_b=x, output=h)
    b.kernel.identity_layer(input=h, output=b.output("before", 3, 64, dtype=np.float32))
    b.kernel.splitk_linear_layer(input=x, weight=w, output=h, grid_dim=(4, 2, 1))
    b.kernel.identity_layer(input=h, output=b.output("after", 3, 64, dtype=np.float32))
    b.run()
    assert_right(b.value("before"), 2 * reference.f64(xv))
    assert_right(b.value("after"), 2 * reference.f64(xv) + reference.linear(xv, wv), slack=256)


@pytest.mark.parametrize("attached", [True, False])
def test_splitk_may_begin_at_zero(bench, attached):
    b = bench()
    x, xv = b.input("x", 3, 64)
    h, hv = b.input("h", 3, 64)
    before = hv.copy()
    w, wv = b.input("w", 64, 64, scale=1 / 8)
    y = b.output("y", 3, 64) if attached else b.kernel.new_tensor(dims=(3, 64), name="y")
    b.kernel.splitk_linear_layer(input=x, weight=w, output=y, grid_dim=(4, 2, 1), accumulate=False)
    b.kernel.splitk_linear_layer(input=h, weight=w, output=h, grid_dim=(4, 2, 1), accumulate=False)  # in place
    b.run()
    found = b.value("y") if attached else b.kernel.read(y)
    assert_right(found, reference.linear(xv, wv), slack=256)
    assert_right(b.value("h"), reference.linear(before, wv), slack=256)


@pytest.mark.parametrize("chunks", [1, 2, 5, 8])
def test_split_kv_takes_its_chunks_from_attention_params(bench, chunks):
    b, tensors, expected, _, (groups, per_group, size) = paged_case(
        bench, 64, [1, 3, 0], [1, 200, 0], 6, 256, 16, with_norm=True, with_rope=True, heads=(2, 3, 32)
    )
    heads = groups * per_group
    lse = b.kernel.new_tensor(
        dims=(6, chunks * per_group, groups), strides=(chunks * heads, 1, chunks * per_group), dtype="f32", name="lse"
    )
    width = chunks * per_group * size
    part = b.kernel.new_tensor(dims=(6, width, groups), strides=(groups * width, 1, width), dtype="f32", name="part")
    y = b.output("y", 6, heads * size)
    b.kernel.paged_attention_split_kv_layer(
        **tensors, lse=lse, output=part, attention_params=(heads, chunks), grid_dim=(3, groups, chunks)
    )
    b.kernel.paged_attention_split_kv_merge_layer(
        lse=lse, output_tmp=part, output=y, attention_params=[heads, size], grid_dim=(3, groups, 1)
    )
    b.run()
    assert_right(b.value("y")[:4], expected, slack=512)


@pytest.mark.parametrize(
    "params,message",
    [
        ((6, 3), r'lse "lse" is \[6, 6, 2\], want \[6, 9, 2\]: 3 chunks of 3 heads'),
        ((6, 32), r'lse "lse" is .* want \[6, 96, 2\]'),  # not head_dim
        ((6, 300), "300 chunks, want 1 to 256"),
        ((5, 2), "5 query heads cannot be shared"),
        ((6,), r"want two whole numbers: \(query heads, chunks of the positions\)"),
        ((6, 0), "want two whole numbers"),
        (("6", 2), "want two whole numbers"),
        (None, "want two whole numbers"),
    ],
)
def test_wrong_attention_params_are_named(params, message):
    b, tensors, _, _, _ = paged_case(
        lambda **kind: Bench(**kind), 64, [1], [1], 6, 256, 16, with_norm=False, with_rope=False, heads=(2, 3, 32)
    )
    lse = b.kernel.new_tensor(dims=(6, 6, 2), dtype="f32", name="lse")
    part = b.kernel.new_tensor(dims=(6, 6 * 32, 2), name="part")
    with pytest.raises(megalith.UserError, match=message):
        b.kernel.paged_attention_split_kv_layer(**tensors, lse=lse, output=part, attention_params=params)


MISSING = """
    moe_topk_softmax_routing_layer moe_topk_sigmoid_routing_layer moe_w13_linear_layer moe_w2_linear_layer
    moe_w13_fp8_layer moe_w2_fp8_layer moe_silu_mul_layer moe_mul_sum_add_layer mla_kv_gather_layer
    mla_kv_gather_split_layer mla_decode_layer mla_reduce_layer mla_prefill_layer mla_prefill_tp8_layer
    mla_mtp_decode_layer mla_mtp_decode_tp2_layer mla_mtp_decode_tp4_layer mla_mtp_decode_tp8_layer
    mla_mtp_decode_tp2_reduce_layer mla_mtp_decode_tp4_reduce_layer mla_mtp_decode_tp8_reduce_layer
    mtp_token_scatter_layer mtp_prepare_verify_layer mtp_build_embed_input_layer softmax_gather_layer
    mtp_float_scatter_layer prob_scatter_layer prob_extract_layer mtp_verify_probabilistic_layer
    mtp_verify_strict_layer mtp_accept_commit_layer allreduce_layer linear_fp8_layer linear_fp8_with_residual_layer
    quantize_fp8_layer
""".split()


@pytest.mark.parametrize("name", MISSING)
def test_a_layer_that_is_not_built_says_so_by_name(name):
    kernel = Bench().kernel
    assert hasattr(kernel, name)
    with pytest.raises(megalith.UserError, match=rf"^\[{name}\] this layer of MPK is not built yet"):
        getattr(kernel, name)(1, grid_dim=(1, 1, 1), block_dim=(128, 1, 1), output=None)
    x = kernel.attach_input(np.ones((2, 16), BF16), name="x")
    kernel.tensor_init_layer(input=x)
    kernel.compile()  # the refused layer left nothing behind


def test_configurations_of_speculation_are_made():
    for method, length in (("promptlookup", 4), ("lookahead", 6)):
        config = megalith.mirage.mpk.spec_decode_class(method, ngram_size=2, spec_length=length)
        assert config.method == method and config.spec_length == length
    with pytest.raises(megalith.UserError, match="a name and no layers"):
        PersistentKernel(spec_decode_config=config)
    with pytest.raises(megalith.UserError, match="spec_decode is 'eagle', want"):
        megalith.mirage.speculative.spec_decode_class("eagle")


@pytest.mark.parametrize(
    "module,name",
    [
        ("mirage", "MPK"),
        ("mirage.mpk", "MPKMetadata"),
        ("mirage.mpk.mpk", "MPK"),
        ("mirage.mpk.mpk", "MirageModelConfig"),
        ("mirage.mpk.models.graph_builder", "MirageModelConfig"),
        ("mirage.mpk.models.deepseek_v3.builder", "DeepSeekV3Builder"),
        ("mirage.mpk.base_dynamic_shard_loader", "BaseDynamicShardLoader"),
        ("mirage", "new_kernel_graph"),
    ],
)
def test_what_scripts_import_says_that_it_is_not_built(module, name):
    found = getattr(importlib.import_module(f"megalith.{module}"), name)
    with pytest.raises(megalith.UserError, match=rf"^\[{name}\] .* not built"):
        found(mode="offline")
