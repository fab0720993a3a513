"""Every dense layer against float64, over the sizes of decoders: batches, K, N, and partitions."""

import numpy as np
import pytest
import reference
from conftest import BF16, assert_right

import megalith
import megalith.mirage

BATCHES = [1, 2, 3, 8, 16]
COLUMNS = [64, 200, 4096, 12288]
OUTPUTS = [16, 2048]


def test_rmsnorm(bench):
    b = bench()
    cases = []
    for rows in BATCHES:
        for columns in COLUMNS:
            x, xv = b.input(f"x_{rows}_{columns}", rows, columns)
            w, wv = b.input(f"w_{rows}_{columns}", columns)
            y = b.output(f"y_{rows}_{columns}", rows, columns)
            b.kernel.rmsnorm_layer(input=x, weight=w, output=y, grid_dim=(rows, 1, 1), block_dim=b.kernel.block_dim)
            cases.append((y.name, xv, wv))
    b.run()
    for name, xv, wv in cases:
        assert_right(b.value(name), reference.rmsnorm(xv, wv))


# (rows, K, N): each batch, each K and each N, and the corners that fit.
LINEAR_SIZES = [(1, 64, 16), (2, 200, 2048), (3, 4096, 16), (8, 12288, 48), (16, 1024, 2048), (1, 12288, 512)]
FEW_LINEAR_SIZES = [(1, 64, 16), (3, 200, 48), (16, 4096, 512)]


@pytest.mark.parametrize("weight_type", ["bfloat16", "float16", "float32"])
def test_linear(bench, weight_type):
    b = bench()
    dtype = BF16 if weight_type == "bfloat16" else np.dtype(weight_type)
    cases = []
    sizes = LINEAR_SIZES if dtype == BF16 else FEW_LINEAR_SIZES
    for i, (rows, columns, outputs) in enumerate(sizes):
        x, xv = b.input(f"x{i}", rows, columns)
        w, wv = b.input(f"w{i}", outputs, columns, scale=columns**-0.5, dtype=dtype)
        y = b.output(f"y{i}", rows, outputs)
        grid = (outputs // 16, 1, 1) if i % 2 else None
        b.kernel.linear_layer(input=x, weight=w, output=y, grid_dim=grid, block_dim=b.kernel.block_dim)
        cases.append((y.name, reference.linear(xv, wv)))
    b.run()
    for name, expected in cases:
        assert_right(b.value(name), expected, slack=256)


def test_linear_with_residual_and_rmsnorm_linear(bench):
    b = bench()
    cases = []
    for i, (rows, columns, outputs) in enumerate(LINEAR_SIZES):
        x, xv = b.input(f"x{i}", rows, columns)
        w, wv = b.input(f"w{i}", outputs, columns, scale=columns**-0.5)
        r, rv = b.input(f"r{i}", rows, outputs)
        n, nv = b.input(f"n{i}", columns)
        y, z = b.output(f"y{i}", rows, outputs), b.output(f"z{i}", rows, outputs)
        grid = (outputs // 16, 1, 1)
        b.kernel.linear_with_residual_layer(input=x, weight=w, residual=r, output=y, grid_dim=grid)
        b.kernel.rmsnorm_linear_layer(input=x, weight_norm=n, weight_linear=w, output=z, grid_dim=grid)
        cases.append((y.name, reference.f64(rv) + reference.linear(xv, wv)))
        cases.append((z.name, reference.linear(reference.rmsnorm(xv, nv), wv)))
    b.run()
    for name, expected in cases:
        # A GPU's tensor cores take bf16, so that a norm that is multiplied at once is rounded before.
        rounds = b.target == "cuda" and name.startswith("z")
        assert_right(b.value(name), expected, slack=256, roundings=4 if rounds else 1)


def test_the_residual_may_be_the_output(bench):
    b = bench()
    x, xv = b.input("x", 3, 64)
    w, wv = b.input("w", 32, 64, scale=1 / 8)
    r, rv = b.input("r", 3, 32)
    before = rv.copy()
    b.kernel.linear_with_residual_layer(input=x, weight=w, residual=r, output=r)
    b.run()
    assert_right(b.value("r"), reference.f64(before) + reference.linear(xv, wv))


@pytest.mark.parametrize("splits", [1, 2, 8])
def test_splitk_linear(bench, splits):
    b = bench()
    cases = []
    for rows in (1, 3, 16):
        for columns, outputs in ((64, 16), (1024, 128), (12288, 32)):
            x, xv = b.input(f"x{len(cases)}", rows, columns)
            w, wv = b.input(f"w{len(cases)}", outputs, columns, scale=columns**-0.5)
            y = b.output(f"y{len(cases)}", rows, outputs)
            b.kernel.tensor_init_layer(input=y, dummy_input=x, dummy_output=x, grid_dim=(rows, 1, 1))
            b.kernel.splitk_linear_layer(input=x, weight=w, output=y, grid_dim=(outputs // 16, splits, 1))
            cases.append((y.name, reference.linear(xv, wv)))
    b.run()
    for name, expected in cases:
        assert_right(b.value(name), expected, slack=256)


def test_splitk_adds_to_what_is_there(bench):
    b = bench()
    a, av = b.input("a", 2, 32)
    x, xv = b.input("x", 2, 64)
    w, wv = b.input("w", 32, 64, scale=1 / 8)
    y = b.output("y", 2, 32, dtype=np.float32)
    b.kernel.identity_layer(input=a, output=y)
    b.kernel.splitk_linear_layer(input=x, weight=w, output=y)
    b.kernel.splitk_linear_layer(input=x, weight=w, output=y)
    b.run()
    assert_right(b.value("y"), reference.f64(av) + 2 * reference.linear(xv, wv))


@pytest.mark.parametrize("groups", [1, 4, 64])
def test_silu_mul(bench, groups):
    b = bench()
    cases = []
    for rows in BATCHES:
        x, xv = b.input(f"x{rows}", rows, 2 * 2048)
        y = b.output(f"y{rows}", rows, 2048)
        b.kernel.silu_mul_layer(input=x, output=y, grid_dim=(groups, 1, 1), block_dim=b.kernel.block_dim)
        cases.append((y.name, reference.silu_mul(xv, groups)))
    b.run()
    for name, expected in cases:
        assert_right(b.value(name), expected)


@pytest.mark.parametrize("grid", [None, (2, 1, 1), (8, 1, 1), (16, 1, 1)])
def test_silu_mul_knows_how_its_input_was_stacked(bench, grid):
    """The meaning follows from the weights, not from the grid."""
    b = bench()
    x, xv = b.input("x", 3, 64)
    g, gv = b.input("gate", 128, 64, scale=1 / 8)
    u, uv = b.input("up", 128, 64, scale=1 / 8)
    w = b.kernel.shuffle_tensors(inputs=[g, u], shuffled_dim=0, num_groups=8, name="gate_up")
    mid = b.output("mid", 3, 256, dtype=np.float32)
    y = b.output("y", 3, 128)
    b.kernel.linear_layer(input=x, weight=w, output=mid)
    b.kernel.silu_mul_layer(input=mid, output=y, grid_dim=grid)
    b.run()
    assert_right(b.value("mid"), reference.linear(xv, reference.stack([gv, uv], 8)))
    assert_right(b.value("y"), reference.silu(reference.linear(xv, gv)) * reference.linear(xv, uv), slack=256)


def test_silu_mul_linear_with_residual(bench):
    b = bench()
    cases = []
    for rows in BATCHES:
        x, xv = b.input(f"x{rows}", rows, 2 * 512)
        w, wv = b.input(f"w{rows}", 64, 512, scale=512**-0.5)
        r, rv = b.input(f"r{rows}", rows, 64)
        y = b.output(f"y{rows}", rows, 64)
        b.kernel.silu_mul_linear_with_residual_layer(input=x, weight=w, residual=r, output=y, grid_dim=(4, 1, 1))
        cases.append((y.name, reference.f64(rv) + reference.linear(reference.silu_mul(xv), wv)))
    b.run()
    for name, expected in cases:
        assert_right(b.value(name), expected, slack=256)


def test_elementwise_add_and_identity(bench):
    b = bench()
    x, xv = b.input("x", 3, 77)
    z, zv = b.input("z", 3, 77)
    c, cv = b.input("c", 2, 5, 12, dtype=np.float32)
    y, i, d = b.output("y", 3, 77), b.output("i", 3, 77), b.output("d", 2, 5, 12, dtype=np.float32)
    b.kernel.elementwise_add_layer(input_a=x, input_b=z, output=y, grid_dim=(3, 1, 1))
    b.kernel.identity_layer(input=x, output=i, grid_dim=(7, 1, 1), dependent_tensor=y)
    b.kernel.identity_layer(input=c, output=d)
    b.run()
    assert_right(b.value("y"), reference.f64(xv) + reference.f64(zv))
    assert np.array_equal(b.value("i"), xv) and np.array_equal(b.value("d"), cv)


def test_tensor_init(bench):
    b = bench()
    y = b.output("y", 5, 48)
    b.kernel.tensor_init_layer(input=y, grid_dim=(5, 2, 1))
    b.run()
    assert not np.asarray(b.value("y"), np.float32).any()


@pytest.mark.parametrize("token_type", [np.int32, np.int64])
def test_embed_takes_tokens_from_its_input(bench, token_type):
    b = bench()
    ids = b.random.integers(0, 501, (8, 1)).astype(token_type)
    i = b.attach("ids", ids)
    w, wv = b.input("w", 501, 96)
    y = b.output("y", 8, 96)
    b.kernel.embed_layer(input=i, weight=w, output=y, input_source=1, grid_dim=(3, 8, 1))
    b.run()
    assert np.array_equal(b.value("y"), wv[ids[:, 0]])


@pytest.mark.parametrize("step", [0, 3, 12])
def test_embed_takes_tokens_from_the_text(bench, step):
    tokens = np.arange(16, dtype=np.int64).reshape(1, 16) * 7 % 50
    b = bench(meta_tensors={"tokens": tokens, "step": np.array([step], np.int32)}, max_seq_length=16)
    i = b.attach("ids", np.zeros((4, 1), np.int64))
    w, wv = b.input("w", 50, 64)
    y = b.output("y", 4, 64)
    b.kernel.embed_layer(input=i, weight=w, output=y)
    b.run()
    assert np.array_equal(b.value("y"), wv[tokens[0, step : step + 4]])


@pytest.mark.parametrize("token_type", [np.int32, np.int64])
def test_argmax(bench, token_type):
    b = bench()
    cases = []
    for rows in BATCHES:
        x, xv = b.input(f"x{rows}", rows, 1536)
        y = b.output(f"y{rows}", rows, 1, dtype=token_type)
        value, index = b.output(f"v{rows}", rows, 12), b.output(f"i{rows}", rows, 12, dtype=token_type)
        z = b.output(f"z{rows}", rows, 1, dtype=token_type)
        b.kernel.argmax_layer(input=x, output=y, grid_dim=(1, 1, 1))
        b.kernel.argmax_partial_layer(input=x, output=(value, index), grid_dim=(12, rows, 1))
        b.kernel.argmax_reduce_layer(input=(value, index), output=z, grid_dim=(1, rows, 1))
        cases.append((rows, xv))
    b.run()
    for rows, xv in cases:
        best = np.argmax(xv.astype(np.float32), axis=-1)
        assert np.array_equal(b.value(f"y{rows}")[:, 0], best)
        assert np.array_equal(b.value(f"z{rows}")[:, 0], best)
        chunks = xv.astype(np.float32).reshape(rows, 12, 128)
        assert np.array_equal(b.value(f"i{rows}"), np.argmax(chunks, -1) + np.arange(12) * 128)
        assert np.array_equal(b.value(f"v{rows}").astype(np.float32), chunks.max(-1))


def test_sampling_draws_with_the_probabilities_of_the_softmax(bench):
    b = bench()
    rows = 4000
    logits = np.tile(np.array([0.0, 1.0, 2.0, -3.0], np.float32), (rows, 1))
    x = b.attach("x", logits)
    y = b.output("y", rows, 1, dtype=np.int32)
    b.kernel.sampling_layer(logits=x, output=y, grid_dim=(4, 1, 1), seed=7)
    b.run()
    first = b.value("y")[:, 0].copy()
    b.kernel.run_test_mode()
    second = b.value("y")[:, 0].copy()
    wanted = np.exp(logits[0]) / np.exp(logits[0]).sum()
    for drawn in (first, second):
        counts = np.bincount(drawn, minlength=4)
        # Six standard deviations of a binomial: a right sampler fails once in 10^8 runs, and the seed is fixed.
        assert np.all(np.abs(counts - rows * wanted) <= 6 * np.sqrt(rows * wanted * (1 - wanted)))
    assert np.mean(first != second) > 0.3  # each run draws anew


def test_sampling_is_the_same_for_the_same_seed(bench):
    results = {}
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        b = bench(seed=3)
        x, _ = b.input("x", 64, 100)
        y = b.output("y", 64, 1, dtype=np.int64)
        b.kernel.sampling_layer(logits=x, output=y, seed=seed)
        b.run()
        results[name] = b.value("y").copy()
    assert np.array_equal(results["a"], results["b"]) and not np.array_equal(results["a"], results["c"])


def test_a_grid_sets_the_number_of_tasks(bench):
    for grid, tasks in (((1, 1, 1), 1), ((4, 1, 1), 4), ((8, 1, 1), 8)):
        b = bench()
        x, _ = b.input("x", 2, 64)
        w, _ = b.input("w", 128, 64)
        b.kernel.linear_layer(input=x, weight=w, output=b.output("y", 2, 128), grid_dim=grid)
        b.kernel.compile()
        # Rows are cut besides only where a worker would have nothing to do.
        assert len(b.kernel.compiled.tasks) in (tasks, max(tasks, 2))


def test_new_tensors_are_read_back(bench):
    b = bench()
    x, xv = b.input("x", 2, 64)
    w, wv = b.input("w", 64)
    mid = b.kernel.new_tensor(dims=(2, 64), dtype=megalith.mirage.float32, name="mid")
    y = b.output("y", 2, 64)
    b.kernel.rmsnorm_layer(input=x, weight=w, output=mid)
    b.kernel.identity_layer(input=mid, output=y)
    b.run()
    assert_right(b.kernel.read(mid), reference.rmsnorm(xv, wv))
