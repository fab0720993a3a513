"""The operators that only layers need, which the package declares itself: the tests that operators in C++ get from
their declaration (tests/operators), data that leads outside, and that they are Megalith's own."""

import importlib
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from conftest import Bench

import megalith
from megalith import attention_operators, layer_operators

OPERATORS = {
    name: one
    for module in (layer_operators, attention_operators)
    for name, one in vars(module).items()
    if isinstance(one, megalith.Operator)
}
TYPES = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16, "i32": np.int32}
LINE = 64  # bytes of a cache line


def extent(product, sizes):
    return int(np.prod([sizes.get(factor) or int(factor) for factor in product.split(" * ")]))


class Node:
    """A graph of one node, for given sizes; its memory begins ``offset`` elements behind a cache line."""

    def __init__(self, op, sizes, dtype="f32", offset=0):
        self.graph = megalith.Graph("layers")
        self.arrays, self.memory, tensors = {}, {}, {}
        for operand in op.operands:
            exact = operand.exact_dtype or operand.dtype == "i32"
            kind = operand.dtype if exact else dtype
            shape = [extent(product, sizes) for product in operand.shape]
            tensors[operand.name] = self.graph.state(operand.name, kind, shape)
            itemsize = np.dtype(TYPES[kind]).itemsize
            nbytes = int(np.prod(shape)) * itemsize
            block = np.zeros(nbytes + 2 * LINE, np.uint8)
            begin = -block.ctypes.data % LINE + offset * itemsize
            array = block[begin : begin + nbytes].view(TYPES[kind])
            self.arrays[operand.name] = array.reshape(shape)
            self.memory[operand.name] = (array.ctypes.data, False, 0, -1)
        self.graph.add(
            op.name,
            "node",
            [tensors[name] for name in op.inputs],
            sizes={name: sizes[name] for name in op.sizes},
            outputs={name: tensors[name] for name in op.outputs},
        )
        self.kernel = megalith.compile(self.graph, num_workers=2)
        self.runner = megalith.GraphRunner(self.graph, self.kernel, self.memory)


def test_there_are_nine():
    assert len(OPERATORS) == 9 and all(one.name == name and one.doc for name, one in OPERATORS.items())


@pytest.mark.parametrize("name", OPERATORS)
def test_it_does_what_its_loop_kernel_says(name, target):
    """On each of its sizes, in every float dtype, with full and with partly filled rows, against the interpreter."""
    op = OPERATORS[name]
    (check,) = op.check(target)
    for test in range(len(op.tests)):
        assert {f"{name}.{test}.{dtype}" for dtype in ("f32", "bf16", "f16")} <= set(check.cases)
    assert check.ran and not check.has_body


@pytest.mark.parametrize("name", OPERATORS)
def test_it_compiles_for_a_gpu(name):
    try:
        (check,) = OPERATORS[name].check("cuda:sm_90a")
    except megalith.SystemError as error:
        if "cannot open" in str(error):
            pytest.skip(str(error).splitlines()[0])
        raise
    assert check.cases


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("name", OPERATORS)
def test_its_memory_may_begin_anywhere(name, dtype):
    """The same bits, one element behind a cache line: as slices lie that somebody else cut."""
    op = OPERATORS[name]
    sizes, random = op.tests[-1], np.random.default_rng(1)
    aligned, sliced = Node(op, sizes, dtype), Node(op, sizes, dtype, offset=1)
    for operand in op.operands:
        array = aligned.arrays[operand.name]
        if array.dtype == np.int32:  # points to places that are there, in order
            values = np.sort(random.integers(0, 6, array.shape).astype(np.int32), axis=None).reshape(array.shape)
        else:
            values = np.abs(random.standard_normal(array.shape)).astype(array.dtype)
        array[...] = sliced.arrays[operand.name][...] = values
    aligned.runner.run()
    sliced.runner.run()
    for operand in op.outputs:
        assert aligned.arrays[operand].tobytes() == sliced.arrays[operand].tobytes(), operand


@pytest.mark.parametrize("name", OPERATORS)
def test_it_has_shapes_to_be_measured_on(name):
    assert len(OPERATORS[name].bench_shapes) >= 4


# ---- data that leads outside --------------------------------------------------------------------------------------


TOKENS = dict(S=40, R=3, B=36, T=5)
PAGES = dict(T=5, I=4, R=3, P=10, Q=7, B=3)


@pytest.mark.parametrize(
    "name, sizes, operand, wrong, message",
    [
        ("tokens_at", TOKENS, "begin", [38, 38, 38], r"begin\[0\] \+ t is 40, allowed 0 <= index < 40"),
        ("tokens_at", TOKENS, "begin", [-1, 0, 0], "is -1, allowed 0 <= index < 40"),
        ("paged_rows", PAGES, "first_page", [99, 100, 101, 102], "allowed 0 <= index < 10"),
        ("paged_rows", PAGES, "first_page", [-2, 0, 1, 2], "is -2, allowed 0 <= index < 10"),
    ],
)
def test_data_that_leads_outside_is_an_error(name, sizes, operand, wrong, message):
    node = Node(OPERATORS[name], sizes)
    node.runner.run()  # zeros lead nowhere wrong
    node.arrays[operand][...] = wrong
    with pytest.raises(megalith.UserError, match=rf'task "node.*{name} of .*{message}'):
        node.runner.run()
    node.arrays[operand][...] = 0
    node.runner.run()


# ---- they are Megalith's own --------------------------------------------------------------------------------------


def test_every_registry_has_them():
    for registry in (megalith.Registry.builtin(), megalith.Registry.shared(), megalith.Registry.extended()):
        assert all(registry.get(name).loops == one.loops for name, one in OPERATORS.items())


def filled(kernel, name):
    x = np.full((4, 64), 7, np.float32)
    kernel.tensor_init_layer(input=kernel.attach_input(x, name=name))
    return x


def test_the_package_may_be_loaded_anew_while_kernels_are_made():
    first, second = Bench().kernel, Bench().kernel
    x = filled(first, "x")
    importlib.reload(layer_operators)
    importlib.reload(attention_operators)
    y = filled(second, "y")
    for kernel in (first, second):
        kernel.compile()
        kernel.run_test_mode()
        kernel.finalize()
    assert not x.any() and not y.any()


def test_another_process_finds_the_kernel_in_the_cache(tmp_path, monkeypatch):
    program = (
        "import sys; sys.path.insert(0, 'tests/python')\n"
        "from conftest import Bench; from test_layer_operators import filled\n"
        "b = Bench(); filled(b.kernel, 'x'); b.kernel.compile(); print(b.kernel.compiled.report.cache_hit)"
    )
    monkeypatch.setenv("MEGALITH_CACHE_DIR", str(tmp_path))
    for hit in (False, True):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert done.stdout.strip() == str(hit), done.stderr
