"""Graphs without layers: the API that PersistentKernel stands on."""

import numpy as np
import pytest
import reference
from conftest import BF16, assert_right

import megalith


def mlp(rows=8, hidden=256, inner=512):
    graph = megalith.Graph("mlp")
    x = graph.state("x", "f32", [rows, hidden])
    gate = graph.add("linear", "gate", [x, graph.constant("w_gate", "bf16", [inner, hidden])])
    up = graph.add("linear", "up", [x, graph.constant("w_up", "bf16", [inner, hidden])])
    graph.add("silu_mul", "out", [*gate, *up], outputs={"y": graph.state("y", "f32", [rows, inner])})
    return graph


def test_a_graph_is_compiled_and_run():
    random = np.random.default_rng(0)
    graph = mlp()
    kernel = megalith.compile(graph, num_workers=2)
    x = random.standard_normal((8, 256)).astype(np.float32)
    weights = [(random.standard_normal((512, 256)) / 16).astype(BF16) for _ in range(2)]
    y = np.zeros((8, 512), np.float32)
    arrays = {"x": x, "w_gate": weights[0], "w_up": weights[1], "y": y}
    memory = {name: (array.ctypes.data, False, array.shape[0], -1) for name, array in arrays.items()}
    runner = megalith.GraphRunner(graph, kernel, memory)
    runner.run()
    assert_right(y, reference.silu(reference.linear(x, weights[0])) * reference.linear(x, weights[1]), slack=512)
    assert runner.bytes_held > 0


def test_a_graph_prints():
    graph = mlp()
    assert "gate: f32[8, 512] = linear(x, w_gate)" in str(graph)
    assert repr(graph) == "<graph mlp: 6 tensors, 3 nodes>"
    assert graph.node_names == ["gate", "up", "out"]
    assert [t.kind for t in graph.tensors if t.name in ("x", "w_up", "gate")] == ["state", "activation", "constant"]


def test_a_plan_needs_no_compiler():
    kernel = megalith.compile(mlp(), num_workers=3, plan_only=True)
    assert len(kernel.tasks.workers) == 3 and sum(len(worker) for worker in kernel.tasks.workers) == len(kernel.tasks)
    assert "megalith_worker" in kernel.source and kernel.directory == ""
    assert {task.worker for task in kernel.tasks.tasks} == {0, 1, 2}


def test_operators_describe_themselves():
    registry = megalith.Registry.builtin()
    linear = registry.get("linear")
    assert linear.inputs == ["x", "weight"] and linear.outputs == ["y"] and linear.axes == ["n", "t"]
    assert linear.shapes["weight"] == ["N", "K"] and "sum(k" in linear.loops
    assert "linear" in registry and len(registry) == len(registry.names()) > 30
    extended = megalith.Registry.extended()
    assert megalith.Graph("g", registry=extended).add.__doc__ and extended.names() == registry.names()


def test_missing_memory_is_named():
    graph = mlp()
    kernel = megalith.compile(graph)
    with pytest.raises(megalith.UserError, match='the tensor "x" has no memory: attach it'):
        megalith.GraphRunner(graph, kernel, {})


def test_memory_between_elements_is_refused():
    graph = mlp()
    kernel = megalith.compile(graph)
    array = np.zeros(8 * 512 * 4 + 64, np.int8)
    memory = {name: (array.ctypes.data, False, 0, -1) for name in ("x", "y", "w_gate", "w_up")}
    memory["x"] = (array.ctypes.data + 1, False, 0, -1)
    with pytest.raises(megalith.UserError, match='the tensor "x" begins at 0x.*, between two elements of f32'):
        megalith.GraphRunner(graph, kernel, memory)


def test_a_state_that_is_written_is_no_constant():
    graph = mlp()
    with pytest.raises(megalith.UserError, match=r'\[silu_mul\] writes "y", which is to be a constant \(node "out"\)'):
        graph.make_constant(graph.find("y"))
    graph.make_constant(graph.find("x"))
    assert graph.tensor(graph.find("x")).kind == "constant"


def test_sizes_that_no_shape_tells_tell_graphs_apart():
    """The second of two graphs with the same shapes must not find the plan of the first."""
    sources = set()
    for groups in (1, 2, 8):
        graph = megalith.Graph("groups")
        x = graph.state("x", "f32", [3, 128])
        graph.add("silu_mul_groups", "y", [x], sizes={"G": groups, "L": 64 // groups})
        assert f" G={groups} " in str(graph)
        for _ in range(2):
            sources.add(megalith.compile(graph, plan_only=True).source)
    assert len(sources) == 3


def test_a_copy_of_a_graph_goes_its_own_way():
    graph = mlp()
    copy = graph.copy()
    copy.add("copy", "again", [copy.find("y")])
    assert (graph.num_nodes, copy.num_nodes) == (3, 4) and str(copy).startswith(str(graph))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e39])
def test_an_attribute_is_a_finite_number(value):
    """It becomes a constant of the generated source, where nan is no number."""
    graph = megalith.Graph("g")
    x, w = graph.state("x", "f32", [8, 64]), graph.constant("w", "bf16", [64])
    with pytest.raises(megalith.UserError, match=r'\[rmsnorm\] the attribute "eps" is .*, want a finite number'):
        graph.add("rmsnorm", "n", [x, w], attributes={"eps": value})
    kernel = megalith.PersistentKernel(test_mode=True)
    tensors = {name: kernel.attach_input(np.zeros((4, 64), np.float32), name=name) for name in ("input", "output")}
    with pytest.raises(megalith.UserError, match=r"\[rmsnorm_layer\] eps is .*, (want a finite number|which is too large)"):
        kernel.rmsnorm_layer(**tensors, weight=kernel.attach_input(np.ones(64, np.float32), name="weight"), eps=value)
