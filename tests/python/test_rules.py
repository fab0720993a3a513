"""What rules make of layers outside of test mode: the nodes that a model has, and right results."""

import collections
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
import reference
from conftest import BF16, Bench, assert_right

import megalith
from megalith import _megalith

ROOT = pathlib.Path(__file__).parents[2]
COMMAND = pathlib.Path(megalith.__file__).parents[2] / "tools/megalith"
sys.path.insert(0, str(ROOT / "tools"))

import layer_graphs  # noqa: E402

needs_command = pytest.mark.skipif(not COMMAND.exists(), reason=f"{COMMAND} was not built")


def operators(graph):
    """How often each operator is in a graph, or in what was printed of one."""
    return collections.Counter(re.findall(r" = (\w+)\([^\n]*  # ", str(graph)))


def run(*words, text=""):
    return subprocess.run([COMMAND, *words], input=text, capture_output=True, text=True, check=True, cwd=ROOT).stdout


class Mlp:
    """gate and up stacked, x and y attached; with a norm in front of them, and more layers, if asked for."""

    def __init__(self, norm=True, attached=False, watched=False, layers=1):
        self.b = b = Bench(test_mode=False, mode="onepass")
        k, rows, hidden, inner = b.kernel, 3, 64, 96
        _, x_values = b.input("x", rows, hidden)
        self.expected, x = x_values.astype(np.float64), b.attached["x"]
        mid = b.output("mid", rows, 2 * inner) if attached else k.new_tensor(dims=(rows, 2 * inner), name="mid")
        gated, normed = (k.new_tensor(dims=(rows, n), name=name) for name, n in (("gated", inner), ("normed", hidden)))
        for n in range(layers):
            gate, up = (b.input(f"{n}.{name}", inner, hidden, scale=hidden**-0.5) for name in ("gate", "up"))
            down, scale = b.input(f"{n}.down", hidden, inner, scale=inner**-0.5), b.input(f"{n}.norm", hidden)
            both = k.shuffle_tensors([gate[0], up[0]], 0, 4, name=f"{n}.both")
            y = b.output("y", rows, hidden) if n == layers - 1 else k.new_tensor(dims=(rows, hidden), name=f"{n}.y")
            if norm:
                k.rmsnorm_layer(input=x, weight=scale[0], output=normed)
            k.linear_layer(input=normed if norm else x, weight=both, output=mid, grid_dim=(8, 1, 1))
            k.silu_mul_layer(input=mid, output=gated, grid_dim=(4, 1, 1))
            if watched:
                k.identity_layer(input=mid, output=b.output(f"{n}.seen", rows, 2 * inner))
            k.linear_with_residual_layer(input=gated, weight=down[0], residual=x, output=y)
            h = reference.rmsnorm(self.expected, scale[1]) if norm else self.expected
            g, u, d = (values.astype(np.float64) for _, values in (gate, up, down))
            inside = h @ g.T
            self.expected = self.expected + (inside / (1 + np.exp(-inside)) * (h @ u.T)) @ d.T
            x = y

    def check(self):
        self.b.kernel.compile()
        self.b.kernel()
        assert_right(self.b.value("y"), self.expected, roundings=8)
        return str(self.b.kernel.graph)


def test_a_gate_that_was_stacked_is_a_models():
    graph = Mlp().check()
    assert operators(graph) == {"rmsnorm_gate_up": 1, "linear_add": 1}
    assert "stacked" not in graph and "mid" not in graph  # nor are weights in memory twice


def test_without_a_norm_the_gate_is_there_all_the_same():
    graph = Mlp(norm=False).check()
    assert "silu_mul_groups" not in graph and "stacked" not in graph


@pytest.mark.parametrize("seen", ["attached", "watched"])
def test_what_others_see_is_made(seen):
    mlp = Mlp(**{seen: True})
    graph = mlp.check()
    assert operators(graph)["silu_mul_groups"] == 1
    assert "gate: bf16" not in graph and graph.count("stacked") == 1
    if seen == "attached":
        assert not np.any(mlp.b.value("mid") == 77)


def test_one_tensor_does_for_all_layers():
    assert operators(Mlp(layers=3).check()) == {"rmsnorm_gate_up": 3, "linear_add": 3, "copy": 1}


def test_a_tensor_that_is_written_again_in_part_stays_one():
    """Rows that attention leaves alone keep what a layer wrote before."""
    from test_attention import paged_case

    outputs = []
    for test_mode in (True, False):

        def make(**params):
            return Bench(test_mode=test_mode, mode="onepass", **params)

        b, tensors, *_ = paged_case(
            make, 16, [1, 1], [20, 33], 4, 64, 8, with_norm=True, with_rope=True, heads=(2, 2, 64)
        )
        out = b.kernel.new_tensor(dims=(4, 256), name="out")
        y = b.output("y", 4, 256)
        b.kernel.tensor_init_layer(input=out)
        b.kernel.identity_layer(input=out, output=b.output("before", 4, 256))
        b.kernel.paged_attention_layer(**tensors, output=out)
        b.kernel.identity_layer(input=out, output=y)
        b.kernel.compile()
        b.kernel()
        outputs.append(b.value("y").astype(np.float32))
        b.kernel.finalize()
    assert np.any(outputs[0][:2]) and not np.any(outputs[1][2:])
    assert_right(outputs[1].astype(BF16), outputs[0], roundings=2)


@needs_command
@pytest.mark.parametrize("requests", [1, 4])
@pytest.mark.parametrize("size", layer_graphs.SIZES)
@pytest.mark.parametrize("what, parts", [("layer", r"\S+"), ("mlp", "gate_up|down")])
def test_layers_are_the_engines(what, parts, size, requests):
    """What one more layer adds to a kernel of layers is what each layer of the model has."""

    def optimized(layers):
        with layer_graphs.build(what, size, requests, layers, positions=256) as kernel:
            return operators(_megalith.optimize(kernel._graph_of_layers("test"), target="cuda:sm_90a"))

    where = ["--target", "cuda:sm_90a", "-b", str(requests), "--stage", "graph"]
    listing = run("inspect", f"models/shapes/{size}", *where)
    engine = collections.Counter(re.findall(rf"^ *\d+ +layer\.1\.(?:{parts}) +(\w+) ", listing, re.MULTILINE))
    assert engine and optimized(4) - optimized(3) == engine, listing


@needs_command
@pytest.mark.parametrize("what", ["layer", "mlp"])
def test_a_file_needs_no_python(what, monkeypatch):
    monkeypatch.setitem(layer_graphs.SIZES, "small", (256, 512, 4, 2))
    with layer_graphs.build(what, "small", 2, 2, positions=40) as kernel:
        text = kernel.to_file()
    assert ("operator paged_rows\n" in text) == (what == "layer")
    report = run("bench", "graph", "-", "-r", "2", "-t", "2", "-o", "json", text=text)
    assert '"nodes": ' in report and '"median_us": ' in report


def test_a_file_has_what_tables_hold():
    b = Bench(meta_tensors={"step": np.array([3, 5], np.int32), "tokens": np.zeros((2, 64), np.int64)})
    w, _ = b.input("w", 32, 64)
    b.kernel.embed_layer(input=b.attach("ids", np.array([[7], [9]], np.int64)), weight=w,
                         output=b.output("y", 2, 64), input_source=1)  # fmt: skip
    text = b.kernel.to_file()
    assert "values ids = 7, 9\n" in text and "operator copy_tokens\n" in text
    b.run()
    with pytest.raises(megalith.UserError, match=r"\[to_file\] the kernel is compiled"):
        b.kernel.to_file()
