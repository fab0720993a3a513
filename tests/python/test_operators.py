"""Operators that a script declares: their check, graphs and layers of them, bodies of their own, and what goes wrong."""

import pathlib

import numpy as np
import pytest
from conftest import BF16, NO_GPU, Bench, assert_right

import megalith

LOOPS = """
  attribute bend = 0.044715
  input x: f32[T, N]
  output y: f32[T, N]
  { [t, n] : 0 <= t < T and 0 <= n < N }
  cube[t, n] = f32(x[t, n]) * f32(x[t, n]) * f32(x[t, n])
  y[t, n] = 0.5 * f32(x[t, n]) * (1 + tanh(0.7978845608 * (f32(x[t, n]) + bend * cube[t, n])))
"""
CPU = """
// The value of one element. This comment may say blockIdx.
f32 one(f32 x, f32 bend) { return 0.5f * x * (1.0f + tanh(0.7978845608f * (x + bend * x * x * x))); }

void gelu(const auto& task) {
  for (i64 t = task.y.begin[0]; t < task.y.end[0]; ++t)
    for (i64 n = task.n_begin; n < task.n_end; ++n) task.y(t, n) = one(task.x(t, n), task.bend);
}
"""
CUDA = CPU.replace("n = task.n_begin", "n = task.n_begin + thread()").replace("++n", "n += kThreads")


def declare(name="gelu", text=LOOPS, **options):
    def function():
        return text

    function.__name__ = name
    function.__doc__ = "y = gelu(x)"
    options = {"tasks": [("n", 16), "t"], "tests": [{"T": 3, "N": 100}], **options}
    return megalith.operator(**options)(function)


def gelu(x, bend=0.044715):
    x = np.asarray(x, np.float64)
    return 0.5 * x * (1 + np.tanh(0.7978845608 * (x + bend * x**3)))


def run_layer(bench, name="gelu", **options):
    b = bench()
    x, values = b.input("x", 5, 96)
    getattr(b.kernel, f"{name}_layer")(x=x, y=b.output("y", 5, 96), **options)
    b.run()
    return b, values


def test_it_is_checked_by_its_declaration(target):
    operator = declare()
    (check,) = operator.check(target)
    assert (check.op, check.target, check.has_body, check.ran) == ("gelu", target, False, True)
    # Its own sizes and odd ones, in every float dtype; some of them with fewer rows than there is room for.
    assert len(check.cases) == 3 * 3 + 2 and "gelu.0.f32.dynamic" in check.cases
    assert repr(check) == f"<gelu on {target}: 11 cases are right, generated code>"


def test_it_is_a_layer_at_once(bench):
    declare()
    b, x = run_layer(bench, grid_dim=(3, 5, 1))
    assert_right(b.value("y"), gelu(x))
    if b.target == "cpu":
        assert len(b.kernel.compiled.tasks) == 15


def test_its_attributes_and_sizes_are_arguments(bench):
    declare(
        "fold",  # of the columns, L at a time; R times that
        """
        attribute scale = 1
        input x: f32[T, G * L]
        output y: f32[T, L]
        { [t, l, g, r] : 0 <= t < T and 0 <= l < L and 0 <= g < G and 0 <= r < R }
        y[t, l] = scale * sum((g, r), f32(x[t, g * L + l]))
        """,
        tasks=["l"],
        tests=[{"T": 2, "G": 3, "L": 8, "R": 2}],
    ).check("cpu")
    b = bench()
    x, values = b.input("x", 4, 60)
    b.kernel.fold_layer(x=x, y=b.output("y", 4, 20), R=3, scale=0.5, grid_dim=(5, 1, 1))
    b.run()
    assert_right(b.value("y"), 1.5 * values.astype(np.float64).reshape(4, 3, 20).sum(1))


def test_an_input_may_point_into_another(bench):
    pick = declare(
        "pick_rows",
        """
        input ids: i32[T]
        input table: f32[V, H]
        output y: f32[T, H]
        { [t, h] : 0 <= t < T and 0 <= h < H }
        y[t, h] = table[ids[t], h]
        """,
        tasks=(),  # along t, then
        index={"ids": "V"},
        tests=[{"T": 4, "V": 7, "H": 16}],
    )
    assert pick.axes == ["t"] and pick.operands[0].exact_dtype
    pick.check("cpu")
    b = bench()
    table, values = b.input("table", 9, 32)
    ids = np.array([8, 0, 3], np.int32)
    b.kernel.pick_rows_layer(ids=b.attach("ids", ids), table=table, y=b.output("y", 3, 32))
    b.run()
    assert np.array_equal(b.value("y"), values[ids])


def test_an_operand_may_be_read_and_written(bench):
    declare(
        "scale_rows",
        """
        input by: f32[T]
        inout x: f32[T, N]
        { [t, n] : 0 <= t < T and 0 <= n < N }
        x[t, n] = f32(x[t, n]) * f32(by[t])
        """,
        cpu="void scale_rows(const auto& task) { for (i64 t = task.t_begin; t < task.t_end; ++t) "
        "for (i64 n = 0; n < task.N; ++n) task.x(t, n) = task.x(t, n) * task.by(t); }",
        tasks=["t"],
    ).check("cpu")
    b = bench()
    x, values = b.input("x", 6, 40)
    before = values.astype(np.float64)
    by, factors = b.input("by", 6, dtype=np.float32)
    b.kernel.scale_rows_layer(x=x, by=by, grid_dim=(3, 1, 1))
    b.run()
    assert_right(b.value("x"), before * factors[:, None])


def test_it_may_be_one_task_of_any_integers():
    text = "input x: i32[T]\noutput y: i32[T]\n{ [t] : 0 <= t < T }\ny[t] = x[t] + 1"
    options = dict(text=text, tasks=(), tests=[{"T": 5}])
    exact = declare("add_one_exactly", **options)
    free = declare("add_one", one_task=True, exact=[], **options)
    assert (exact.axes, free.axes) == (["t"], [])
    assert exact.operands[0].exact_dtype and not free.operands[0].exact_dtype
    graph = megalith.Graph("g")
    x, y = graph.state("x", "i64", [8]), graph.state("y", "i32", [8])
    with pytest.raises(megalith.UserError, match=r'\[add_one_exactly\] operand "x" is x of i64, want i32'):
        graph.add("add_one_exactly", "exact", [x], outputs={"y": y})
    graph.add("add_one", "free", [x], outputs={"y": y})
    kernel = megalith.compile(graph, num_workers=2)
    assert len(kernel.tasks) == 1
    arrays = {"x": np.arange(8, dtype=np.int64), "y": np.zeros(8, np.int32)}
    megalith.GraphRunner(graph, kernel, {n: (a.ctypes.data, False, 0, -1) for n, a in arrays.items()}).run()
    assert np.array_equal(arrays["y"], arrays["x"] + 1)


def test_operators_of_megaliths_own_are_layers_too(bench):
    b = bench()
    x, values = b.input("x", 4, 64)
    ones = b.attach("ones", np.ones(64, BF16))
    zeros = b.attach("zeros", np.zeros(64, BF16))
    b.kernel.layernorm_layer(x=x, weight=ones, bias=zeros, y=b.output("y", 4, 64), eps=1e-6)
    b.run()
    rows = values.astype(np.float64)
    wanted = (rows - rows.mean(1, keepdims=True)) / np.sqrt(rows.var(1, keepdims=True) + 1e-6)
    assert_right(b.value("y"), wanted)


def test_a_body_takes_the_place_of_generated_code(bench, tmp_path):
    file = tmp_path / "gelu.cuh"
    file.write_text(CUDA)
    operator = declare(cpu=CPU, cuda=pathlib.Path(file), test_mode=NO_GPU is not None)
    b, x = run_layer(bench, bend=0.05)
    assert_right(b.value("y"), gelu(x, 0.05))
    source = b.kernel.compiled.source
    assert "task.bend" in source and "the body of gelu for " + b.target in source
    assert operator.check(b.target)[0].has_body


def test_a_body_compiles_for_a_gpu():
    shared = CUDA.replace("const auto& task) {", "const auto& task) {\n  task.shared[thread()] = 0;\n  block_sync();")
    operator = declare(cuda=shared, shared_bytes=512)
    try:
        (check,) = operator.check("cuda:sm_90a")
    except megalith.SystemError as error:
        if "cannot open" in str(error):
            pytest.skip(str(error).splitlines()[0])
        raise
    assert check.has_body and len(check.cases) == 11
    pasted = "#define PASTE(a, b) a##b\n" + CUDA.replace("thread()", "PASTE(block, Idx).x", 1)
    with pytest.raises(megalith.UserError) as caught:
        declare(cuda=pasted).check("cuda:sm_90a")
    assert str(caught.value).startswith("[gelu] the body for cuda does not compile: ")
    assert 'identifier "a_task_cannot_know_which_worker_runs_it" is undefined' in str(caught.value)


def test_its_speed_is_told(target):
    timings = declare().bench([{"T": 4, "N": 512}, {"T": 2, "N": 64}], target=target, runs=3, num_workers=1)
    assert [t.sizes for t in timings] == [{"T": 4, "N": 512}, {"T": 2, "N": 64}]
    for timing in timings:
        assert sorted(timing.samples)[1] == timing.seconds and 1e-9 < timing.seconds < 1e-3
        bytes = 2 * 2 * timing.sizes["T"] * timing.sizes["N"]
        assert timing.gbs == pytest.approx(bytes / timing.seconds / 1e9)
        assert 0 < timing.multiply_share < 1 and timing.read_share > 0 and "% of reading" in repr(timing)
    with pytest.raises(megalith.UserError, match=r"\[gelu\] the size N is missing"):
        declare().bench([{"T": 4}], target=target)


def test_an_operator_may_be_declared_anew(bench):
    declare("twice", LOOPS.replace("0.5 *", "1.0 *"))
    graph = megalith.Graph("both")
    x = graph.state("x", "f32", [2, 64])
    graph.add("twice", "before", [x], outputs={"y": graph.state("before_y", "f32", [2, 64])})
    declare("twice", LOOPS.replace("0.5 *", "2.0 *"))
    graph.add("twice", "after", [x], outputs={"y": graph.state("after_y", "f32", [2, 64])})
    values = np.linspace(-2, 2, 128, dtype=np.float32).reshape(2, 64)
    arrays = {"x": values, "before_y": np.zeros_like(values), "after_y": np.zeros_like(values)}
    kernel = megalith.compile(graph)
    megalith.GraphRunner(graph, kernel, {n: (a.ctypes.data, False, 0, -1) for n, a in arrays.items()}).run()
    assert_right(arrays["before_y"], 2 * gelu(values))
    assert_right(arrays["after_y"], 4 * gelu(values))


def test_a_registry_of_ones_own():
    registry = megalith.Registry.extended()
    operator = declare("mine_alone", registry=registry)
    assert "mine_alone" in registry and "mine_alone" not in megalith.Registry.shared()
    graph = megalith.Graph("g", registry=registry)
    graph.add("mine_alone", "n", [graph.state("x", "bf16", [2, 8])])
    assert operator.loops in str(operator) and "mine_alone(x)" in str(graph)
    with pytest.raises(AttributeError, match="no mine_alone_layer yet"):
        Bench().kernel.mine_alone_layer()


# ---- what goes wrong ----------------------------------------------------------------------------------------------

WRONG = {
    "a body that does not compile": (
        dict(cpu=CPU.replace("task.y(t, n)", "task.z(t, n)")),
        r"^\[gelu\] the body for cpu does not compile: (.|\n)*the body of gelu for cpu:7:.*has no member named .z",
    ),
    "a body that is wrong": (
        dict(cpu=CPU.replace("1.0f + tanh", "1.5f + tanh")),
        r"^\[gelu\] the body for cpu is wrong: gelu\.0\.f32\.y\[\d, \d+\] is -?[0-9.e-]+, want -?[0-9.e-]+: off by "
        r"[0-9.e+]+ times what rounding explains \(N = 100, T = 3\)$",
    ),
    "a body that leaves its slice": (
        dict(cpu=CPU.replace("task.y(t, n)", "task.y(t, n + 1)")),
        r"^\[gelu\] the body for cpu touches y at \d+ along dimension 1, but its task may touch \[\d+, \d+\) there: what "
        "the loop kernel does not say, nobody orders$",
    ),
    "a body that pastes a word together": (
        dict(cpu="#define PASTE(a, b) a##b\n" + CPU.replace("i64 t = ", "PASTE(thread_, local) i64 t = ")),
        "a_task_cannot_know_which_worker_runs_it",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_body(name):
    options, message = WRONG[name]
    with pytest.raises(megalith.UserError, match=message):
        declare(**options, test_mode=True)


def test_a_wrong_operator_is_not_there():
    with pytest.raises(megalith.UserError):
        declare("never", LOOPS.replace("x[t, n]", "x[t, n + 1]"))
    assert "never" not in megalith.Registry.shared()
