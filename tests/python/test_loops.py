"""Loop kernels of one's own: steps as methods, calls with arrays of any library, what is compiled when, tuning."""

import json
import os
import subprocess
import sys
import timeit

import ml_dtypes
import numpy as np
import pytest

import megalith
from megalith import loop
from megalith.loop import steps

MATMUL = "{ [i, j, k] : 0 <= i < n and 0 <= j < m and 0 <= k < l } c[i, j] = sum(k, a[i, k] * b[k, j])"
TILES = dict(outer=["g.1", "g.0"], inner=["l.1", "l.0"])


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MEGALITH_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def place(target):
    return megalith.to_device if target == "cuda" else lambda array: array


def host(array):
    return array.numpy() if isinstance(array, megalith.DeviceTensor) else array


def normal(*shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def tiled(kernel, size=16):
    kernel = kernel.tile(["i", "j"], [size, size], **TILES).split("k", size)
    kernel = kernel.order("i_outer", "j_outer", "k_outer", "i_inner", "j_inner", "k_inner").accumulate("k_outer", "acc")
    kernel = kernel.prefetch("a", ["i_inner", "k_inner"], inames=["l.1", "l.0"])
    return kernel.prefetch("b", ["k_inner", "j_inner"], inames=["l.1", "l.0"]).unroll("k_inner")


class Foreign:
    """An array of a library that nobody has heard of."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


# ---- steps ----------------------------------------------------------------------------------------------------------


def test_every_step_is_a_method_that_gives_another_kernel():
    kernel = loop.kernel(MATMUL)
    steps = [usage.split()[0] for usage in loop.step_usages()]
    assert len(steps) > 30 and all(callable(getattr(kernel, step)) and getattr(kernel, step).__doc__ for step in steps)
    after = kernel.split("i", 16, outer="g.0", inner="l.1")
    assert kernel.schedule == "" and after.schedule == "split i 16 -> i_outer:g.0 i_inner:l.1\n"
    assert after.hash != kernel.hash and "tag i_inner = l.1" in str(after)


@pytest.mark.parametrize(
    "step, line",
    [
        (lambda k: k.split("i", 8), "split i 8 -> i_outer i_inner"),
        (lambda k: k.split("i", 8, outer="io", inner="ii:l.0"), "split i 8 -> io ii:l.0"),
        (lambda k: k.split("i 8 -> a2 b2"), "split i 8 -> a2 b2"),
        (lambda k: k.chunk("j", 4), "chunk j 4 -> j_outer j_inner"),
        (lambda k: k.tile(["i", "j"], [4, 8], **TILES), "tile i j 4 8 -> i_outer:g.1 j_outer:g.0 i_inner:l.1 j_inner:l.0"),
        (lambda k: k.order("j", "i", "k"), "order j i k"),
        (lambda k: k.order(["j", "i", "k"]), "order j i k"),
        (lambda k: k.tag("i", "g.0", "j", "g.1"), "tag i g.0 j g.1"),
        (lambda k: k.tag(i="g.0", j="g.1"), "tag i g.0 j g.1"),
        (lambda k: k.map(["i", "j"], u="i + j", v="j"), "map [i, j] -> u = i + j, v = j"),
        (lambda k: k.map(["i", "j"], {"u": "i + j", "v": "j"}), "map [i, j] -> u = i + j, v = j"),
        (lambda k: k.assume("n mod 16 = 0"), "assume n mod 16 = 0"),
        (lambda k: k.fix("n", 64), "fix n 64"),
        (lambda k: k.peel("i", where="i >= n - 1"), "peel i -> i_peeled where i >= n - 1"),
        (lambda k: k.duplicate("i", in_="insn0"), "duplicate i -> i_copy in insn0"),
        (lambda k: k.accumulate("k"), "accumulate k -> k_sum"),
        (lambda k: k.prefetch("a", ["j", "k"]), "prefetch a[j, k] -> a_buffer"),
        (lambda k: k.prefetch("a", ["j", "k"], buffer="s", inames=["p"]), "prefetch a[j, k] -> s p"),
        (lambda k: k.permute_axes("a", 1, 0), "permute_axes a 1 0"),
        (lambda k: k.rename("k", "kk"), "rename k kk"),
        (lambda k: k.buffer("c", ["j"], inames=["p"]), "buffer c[j] -> c_buffer p"),
        (lambda k: k.batch("r", 4), "batch r 4"),
        (lambda k: k.batch("r", "B", shared=["a", "b"]), "batch r B shared a b"),
        (lambda k: k.common_subexpressions(), "common_subexpressions"),
        (lambda k: k.common_subexpressions("insn0"), "common_subexpressions insn0"),
        (lambda k: k.stream("c"), "stream c"),
    ],
)
def test_a_method_writes_its_line(step, line):
    kernel = loop.kernel("{ [i, j, k] : 0 <= i < n and 0 <= j, k < 64 } c[i, j] = sum(k, a[i, k] * b[k, j])")
    assert step(kernel).schedule == line + "\n"


@pytest.mark.parametrize(
    "usage, args, kwargs, line",
    [
        ("tree INAME [LANES] -> PART LANE[:TAG]", ("k", 128), {"lane": "l.0"}, "tree k 128 -> k_part k_lane:l.0"),
        ("tree INAME [LANES] -> PART LANE[:TAG]", ("k",), {"part": "p"}, "tree k -> p k_lane"),
        ("split INAME FACTOR -> OUTER[:TAG] INNER[:TAG], ...", ("i", 4), {}, "split i 4 -> i_outer i_inner"),
        ("split INAME FACTOR -> OUTER[:TAG] INNER[:TAG], ...", ("i 4 -> a b, j 4 -> c d",), {}, "split i 4 -> a b, j 4 -> c d"),
        ("barrier before INSTRUCTION", (), {"before": "insn1"}, "barrier before insn1"),
        ("alias TEMPORARY... -> STORAGE", (["a", "b"], "pool"), {}, "alias a b -> pool"),
        ("tag INAME TAG... [in INSTRUCTION...]", (), {"s": "lane", "in_": ["insn2", "insn3"]}, "tag s lane in insn2 insn3"),
        ("tag INAME TAG... [in INSTRUCTION...]", ("s", "lane", "p", "w"), {"in_": "insn2"}, "tag s lane p w in insn2"),
        ("no_sync INSTRUCTION INSTRUCTION", ("insn0", "insn1"), {}, "no_sync insn0 insn1"),
        ("extract RULE(ARGUMENT, ...) = EXPRESSION", ("sq(a) = a * a",), {}, "extract sq(a) = a * a"),
    ],
)
def test_usages_of_other_forms(usage, args, kwargs, line):
    assert steps.line_of(usage, args, kwargs) == line


def test_a_schedule_is_a_text():
    kernel = tiled(loop.kernel(MATMUL))
    assert loop.kernel(MATMUL).apply(kernel.schedule).hash == kernel.hash
    with pytest.raises(megalith.UserError, match='line 2: .*there is no iname "zz"'):
        loop.kernel(MATMUL).apply("split i 4 -> p q\nsplit zz 4 -> r s")


def test_kernels_are_fused_by_name():
    first = loop.kernel("kernel first\ninput x: f32[n]\n{ [i] : 0 <= i < n } y[i] = 2 * x[i]")
    second = loop.kernel("kernel second\ninput y: f32[n]\n{ [j] : 0 <= j < n } z[j] = y[j] + 1")
    x = normal(20)
    both = first.fuse(second, y="y")
    assert both.steps == ["fuse second y=y"] and np.array_equal(both(x), 2 * x + 1)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda k: k.split("zz", 4), 'there is no iname "zz"'),
        (lambda k: k.split("i"), r"\[split\] factor is missing: \"split INAME FACTOR"),
        (lambda k: k.split("i", 4, 5, 6, 7), r"\[split\] 7 is too much"),
        (lambda k: k.split("i", 4, middle="x"), r"\[split\] middle= is too much"),
        (lambda k: k.split("i", object()), r"is no name, no whole number"),
        (lambda k: k.split("i", 2**40), "is too large"),
        (lambda k: k.rename("i", "j\nfix n 3"), "has a line end"),
        (lambda k: k.map(["i"], 3), "want a dict"),
        (lambda k: k.apply(3), "want a string"),
        (lambda k: k.source("metal"), 'want "cpu" or "cuda"'),
        (lambda k: k.specialized(never=["q"]), 'there is no tensor and no size "q"'),
        (lambda k: k.counts(n=3), "the size m is not given"),
        (lambda k: k.warmup("f32[2, 3]"), "b is not given"),
        (lambda k: k.warmup("f32[2, x]", "f32[3, 2]"), "want a text such as"),
        (lambda k: k.warmup("f32[2, 3]", "f32[3, 2]", target="tpu"), 'the target is "tpu"'),
        (lambda k: k.asm, "nothing was compiled yet"),
        (lambda k: k(normal(2, 3)), r"b is not given: want \(a, b, c=..., n=..., m=..., l=..., stream=...\)"),
        (lambda k: k(normal(2, 3), normal(4, 2)), r"b has the shape \[4, 2\], want \[l, m\] = \[3, 2\]"),
        (lambda k: k(normal(2, 3), normal(3)), "b has 1 dimensions"),
        (lambda k: k(normal(2, 3), normal(2, 3).T), "is not row-major"),
        (lambda k: k(normal(2, 3), normal(3, 2, dtype=np.float64)), "float64 is not known"),
        (lambda k: k(normal(2, 3), "b"), '"b" is a str, which is no tensor'),
        (lambda k: k(normal(2, 3), normal(3, 2), n=-1), "n is -1, want a whole number of 0 or more"),
        (lambda k: k(normal(2, 3), normal(3, 2), q=1), "there is no argument 'q'"),
        (lambda k: k(normal(2, 3), normal(3, 2), a=normal(2, 3)), "a is given twice"),
        (lambda k: k(normal(2, 2), normal(2, 2), stream="x"), "want a stream of torch or cupy"),
        (lambda k: k(*[normal(2, 2)] * 4), "it is called with 4 tensors, want 3"),
    ],
)
def test_what_is_wrong_is_said(call, message):
    with pytest.raises(megalith.UserError, match=message):
        call(loop.kernel(MATMUL))


def test_an_unknown_step_is_an_attribute_error_that_lists_them():
    with pytest.raises(AttributeError, match="no 'spilt'; its steps are accumulate, alias"):
        loop.kernel(MATMUL).spilt("i", 16)
    with pytest.raises(megalith.UserError, match="wanted an instruction such as"):
        loop.kernel("{ [i] : 0 <= i < n }")


# ---- calls ----------------------------------------------------------------------------------------------------------


def test_a_matmul(target, place):
    a, b = normal(50, 33), normal(33, 70, seed=1)
    kernel = tiled(loop.kernel(MATMUL))
    found = kernel(place(a), place(b))
    assert np.allclose(host(found), a @ b, atol=1e-4)
    out = place(np.zeros((50, 70), np.float32))
    assert kernel(place(a), place(b), out) is out and np.allclose(host(out), a @ b, atol=1e-4)
    assert kernel.num_compiled == 1
    assert ("ptx" in kernel.asm) == (target == "cuda")


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.int8, np.int32, np.int64])
def test_dtypes_come_with_the_arrays(place, dtype):
    a = np.arange(40).astype(dtype)
    kernel = loop.kernel("{ [i] : 0 <= i < n } b[i] = a[i] + a[i]").split("i", 16, outer="g.0", inner="l.0")
    out = place(np.zeros(40, dtype))
    assert np.array_equal(host(kernel(place(a), b=out)), a + a)


def test_any_library_through_dlpack():
    a = normal(8, 8)
    kernel = loop.kernel("{ [i, j] : 0 <= i, j < n } b[i, j] = 2 * a[i, j]")
    assert np.array_equal(kernel(Foreign(a)), 2 * a)
    out = np.zeros((8, 8), np.float32)
    kernel(a, Foreign(out))
    assert np.array_equal(out, 2 * a)
    a.flags.writeable = False
    assert np.array_equal(kernel(a), 2 * a)
    with pytest.raises(megalith.UserError, match="b is written, and may only be read"):
        kernel(out, a)
    with pytest.raises(megalith.UserError, match="b is written, and shares memory with a"):
        kernel(out, out)


class TorchTensor:
    """What is asked of one of torch, which need not be there: here in the host's memory."""

    __module__ = "torch"
    is_cuda, is_cpu = False, True

    class Dtype:
        def __init__(self, name):
            self.name = name

        def __str__(self):
            return f"torch.{self.name}"

    float32 = Dtype("float32")
    float64 = Dtype("float64")

    def __init__(self, array, dtype=float32):
        self.array, self.shape, self.dtype = array, array.shape, dtype

    def data_ptr(self):
        return self.array.ctypes.data

    def is_contiguous(self):
        return self.array.flags.c_contiguous


def test_what_is_asked_of_torch():
    kernel = loop.kernel("{ [i, j] : 0 <= i < n and 0 <= j < m } b[i, j] = 2 * a[i, j]")
    a, b = normal(8, 6), TorchTensor(np.zeros((8, 6), np.float32))
    assert kernel(TorchTensor(a), b) is b and np.array_equal(b.array, 2 * a)
    with pytest.raises(megalith.UserError, match="a of shape .* is not row-major: pass .contiguous"):
        kernel(TorchTensor(a.T), b)


def test_torch(target):
    torch = pytest.importorskip("torch")
    if target == "cuda" and not torch.cuda.is_available():
        pytest.skip("torch has no GPU")
    a = torch.randn(64, 48, device=target)
    b = torch.randn(48, 32, device=target)
    kernel = tiled(loop.kernel(MATMUL))
    found = kernel(a, b)
    assert isinstance(found, torch.Tensor) and found.device == a.device
    assert torch.allclose(found, a @ b, atol=1e-3)
    half = torch.ones(100, dtype=torch.bfloat16, device=target)
    twice = loop.kernel("{ [i] : 0 <= i < n } y[i] = x[i] + x[i]").tag("i", "g.0")
    assert torch.equal(twice(half, torch.empty_like(half)), half + half)
    with pytest.raises(megalith.UserError, match="not row-major"):
        kernel(a.T, b)
    if target == "cuda":
        with pytest.raises(megalith.UserError, match="they must lie together"):
            kernel(a, b.cpu())
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            other = kernel(a, b)
        side.synchronize()
        assert torch.equal(other, found)


def test_sizes_attributes_inouts_and_several_outputs():
    kernel = loop.kernel(
        "parameter m\nattribute s = 2\ninout x: f32[n]\noutput y: f32[n]\noutput z: f32[m]\n"
        "{ [i] : 0 <= i < n }\n{ [j] : 0 <= j < m }\nx[i] = s * x[i]\ny[i] = x[i] + m\nz[j] = j"
    )
    x = np.ones(4, np.float32)
    y, z = kernel(x, m=3, s=5)
    assert np.array_equal(x, [5] * 4) and np.array_equal(y, [8] * 4) and np.array_equal(z, [0, 1, 2])
    with pytest.raises(megalith.UserError, match="no shape tells the size m: pass m="):
        kernel(x)


def test_a_temporary_of_everyones_is_made_for_each_call(place):
    kernel = loop.kernel("{ [i] : 0 <= i < n }\n{ [j] : 0 <= j < n }\nt[i] = 2 * x[i]\ny[j] = t[n - 1 - j]")
    x = normal(100_000)
    assert np.array_equal(host(kernel(place(x))), 2 * x[::-1])


def test_a_barrier_over_everything_makes_several_launches(target, place):
    # Each block sums a part, then one thread the parts: what one launch hands the next is a temporary of everyone's.
    k = loop.kernel("{ [i] : 0 <= i < n } y[0] = sum(i, x[i])")
    k = k.split("i", 64, outer="b", inner="p").split_reduction("b part").duplicate("b", copy="s", in_=["insn0"])
    k = k.barrier(before="insn0").tag(b="g.0")
    for n in (300, 1, 64, 1000):  # the temporary is as large as the call needs
        x = normal(n)
        assert np.allclose(host(k(place(x))), [x.sum()], atol=1e-4)
    text = k.asm["cu" if target == "cuda" else "cpp"]
    text = text.decode() if isinstance(text, bytes) else text
    assert "_0(" in text and "_1(" in text
    assert "_0(" in k.source() and "_1(" in k.source("cuda")


def test_stages_hand_on_temporaries_and_take_what_they_need(target, place):
    text = """
      attribute s = 2
      input x: f32[n]
      inout y: f32[n]
      output z: f32[n]
      { [i, j, e] : 0 <= i < n and 0 <= j < n and 0 <= e < n }
      t[i] = s * x[i]
      y[j] = y[j] + t[n - 1 - j]
      z[e] = y[n - 1 - e] + t[e]
    """
    k = loop.kernel(text).barrier(before="insn1").barrier(before="insn2").tag(i="g.0", j="g.0", e="g.0")
    x, y = normal(70), normal(70, seed=1)
    t, want = 3 * x, y + (3 * x)[::-1]
    given = place(y.copy())
    z = k(place(x), given, s=3)
    assert np.allclose(host(given), want, atol=1e-6) and np.allclose(host(z), want[::-1] + t, atol=1e-6)


def test_passes_can_be_looked_at():
    passes = loop.kernel("{ [i, j, k] : 0 <= i, j, k < n } t[i] = x[i] * (1 + 1)\ny[j] = sum(k, t[k]) + exp(t[j]) * exp(t[j])").passes()
    assert list(passes) == ["types", "common_subexpressions", "dependences", "domains"]
    assert "output y: f32[n]" in passes["types"] and "t[i] = x[i] * 2" in passes["common_subexpressions"]
    assert "common[0] * common[0]" in passes["common_subexpressions"] and "insn0[i] -> " in passes["dependences"]
    assert "sum(k" not in passes["domains"]


def test_a_kernel_is_repeated_and_expressions_are_steps():
    k = loop.kernel("input x: f32[n]\ninput w: f32[n]\noutput y: f32[n]\n{ [i] : 0 <= i < n }\ny[i] = (x[i] * w[i] + 1 * x[i]) / (x[i] * w[i])")
    k = k.fold_constants().common_subexpressions().batch("r", "B", shared="w").tag(r="g.0")
    assert k.schedule == "fold_constants\ncommon_subexpressions\nbatch r B shared w\ntag r g.0\n"
    x, w = normal(3, 20), normal(20, seed=1)
    assert np.allclose(k(x, w), (x * w + x) / (x * w), rtol=1e-4)
    assert k.check(n=7, B=3).outputs["y"].shape == (3, 7)


def test_names_of_other_systems_are_methods():
    names = loop.aliases()
    assert names["add_prefetch"] == "prefetch" and names["privatize_array"] == "privatise" and names["buffer_array"] == "buffer"
    k = loop.kernel(MATMUL)
    for alias, name in names.items():
        assert callable(getattr(k, alias)), alias
        assert alias not in [usage.split()[0] for usage in loop.step_usages()]
        assert name == "fuse" or name in [usage.split()[0] for usage in loop.step_usages()]
    assert k.prioritize_loops("j", "i").schedule == k.order("j", "i").schedule
    k = k.fix("n", 64)
    assert k.chunk_iname("i", 4).schedule == k.chunk("i", 4).schedule


def test_axes_of_arguments_are_the_callers(target, place):
    kernel = loop.kernel("input xy: [n, 2]\noutput c: [n]\n{ [i] : 0 <= i < n }\nc[i] = xy[i, 0] - 2 * xy[i, 1]")
    kernel = kernel.split("i", 16, outer="g.0", inner="l.0")
    x, y = normal(37), normal(37, seed=1)
    separate = kernel.separate_axis("xy", 1)
    np.testing.assert_array_equal(host(separate(place(x), place(y))), x - 2 * y)
    turned = kernel.axes("xy", "N0", "N1")
    np.testing.assert_array_equal(host(turned(place(np.stack([x, y])))), x - 2 * y)
    for changed in (separate, turned, kernel.vector_axis("xy", 1)):
        assert "right" in str(changed.check(n=37, target=target))
    rows = loop.kernel("input a: [2, 2]\noutput c: [2]\n{ [i, k] : 0 <= i < 2 and 0 <= k < 2 }\nc[i] = sum(k, a[i, k])")
    rows = rows.apply("peel i -> i_last where i >= 1").separate_axis("a", 0)
    assert "right" in str(rows.check(target=target))
    with pytest.raises(megalith.UserError, match='takes .* of axis 0 of "xy", which has several values'):
        kernel.fix("n", 4).separate_axis("xy", 0)


def test_large_outputs_begin_where_a_line_of_a_cache_does():
    k = loop.kernel("{ [i, j] : 0 <= i < n and 0 <= j < m } b[j, i] = a[i, j]")
    a = normal(333, 260)
    b = k(a)
    assert b.ctypes.data % 64 == 0 and b.flags["C_CONTIGUOUS"] and np.array_equal(b, a.T)


def test_the_interpreter(monkeypatch):
    monkeypatch.setenv("MEGALITH_INTERPRET", "1")
    kernel = tiled(loop.kernel(MATMUL))
    a, b = normal(5, 6), normal(6, 7)
    assert np.allclose(kernel(a, b), a.astype(np.float64) @ b, atol=1e-6) and kernel.num_compiled == 0


def test_a_check_names_the_element_that_is_wrong(target):
    kernel = tiled(loop.kernel(MATMUL))
    assert kernel.check(n=17, m=5, l=19, target=target).max_error < 0.1
    assert "right for n = 17" in str(kernel.check(n=17, m=5, l=19, target=target, against=lambda a, b: a @ b))
    with pytest.raises(megalith.UserError, match=r"\[check\] c\[0, 0\] is .*, want .*; 85 of 85 elements are wrong"):
        kernel.check(n=17, m=5, l=19, target=target, against=lambda a, b: a @ b + 1)


def test_counts():
    counts = loop.kernel(MATMUL).counts(n=512, m=256, l=128)
    assert counts["ops"] == {("f32", "add"): 512 * 256 * 128, ("f32", "mul"): 512 * 256 * 128}
    assert counts["tensors"]["c"]["store_bytes"] == 4 * 512 * 256
    assert counts["moved_bytes"] == 4 * (512 * 128 + 128 * 256 + 512 * 256)


# ---- what is compiled when ------------------------------------------------------------------------------------------


SCALED = "parameter m\n{ [i] : 0 <= i < n and m >= 0 } b[i] = m * a[i]"


@pytest.mark.parametrize(
    "options, compilations", [({}, 3), ({"never": ["m"]}, 1), ({"divisibility": False}, 2), ({"ones": False}, 2)]
)
def test_t1_specialization(options, compilations):
    kernel = loop.kernel(SCALED, **options)
    a = np.ones(20, np.float32)
    heard = []
    listener = loop.add_listener(lambda report, target: heard.append(report))
    try:
        for m in (1, 2, 4, 8, 16, 32):
            assert np.array_equal(kernel(a, m=m), m * a)
    finally:
        loop.remove_listener(listener)
    assert kernel.num_compiled == compilations == len(heard)
    assert kernel.specialized().num_compiled == 0


def test_alignment_is_told_from_other():
    buffer = np.zeros(101 + 4, np.float32)
    start = -buffer.ctypes.data % 16 // 4
    kernel = loop.kernel("{ [i] : 0 <= i < n } b[i] = a[i]")
    for kernel, compilations in ((kernel, 2), (kernel.specialized(alignment=False), 1)):
        kernel(buffer[start : start + 100])
        kernel(buffer[start + 1 : start + 101])
        assert kernel.num_compiled == compilations


def test_t3_warmup_needs_no_data():
    kernel = tiled(loop.kernel(MATMUL))
    assert kernel.warmup("f32[32, 16]", "f32[16, 48]") and not kernel.warmup("f32[32, 16]", "f32[16, 48]")
    a, b = normal(64, 32), normal(32, 16)
    assert np.allclose(kernel(a, b), a @ b, atol=1e-4) and kernel.num_compiled == 1
    assert set(kernel.asm) == {"loops", "cpp", "so"} and kernel.asm["so"].startswith(b"\x7fELF")


def test_t6_t9_listeners_see_stages_and_the_cache_is_shared_with_other_processes(tmp_path):
    script = f"""
import numpy as np
from megalith import loop
reports = []
loop.add_listener(lambda report, target: reports.append((report.cache_hit, target, report.times)))
kernel = loop.kernel({MATMUL!r}).tile(["i", "j"], [8, 8])
a = np.ones((16, 16), np.float32)
assert np.array_equal(kernel(a, a), a @ a)
kernel(a, a)
import json; print(json.dumps(reports))
"""
    heard = []
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=dict(os.environ))
        assert done.returncode == 0, done.stderr
        heard.append(json.loads(done.stdout))
    assert [len(one) for one in heard] == [1, 1] and [one[0][0] for one in heard] == [False, True]
    for (hit, target, times), last in zip((heard[0][0], heard[1][0]), ("computed", "cache")):
        assert target == "cpu" and [name for name, *_ in times] == ["loops", "emit", "assemble"]
        assert all(ms >= 0 for _, ms, _ in times) and times[-1][2] == last


SQUARE = f"""
import numpy as np
from megalith import loop
a = np.ones((16, 16), np.float32)
assert np.array_equal(loop.kernel({MATMUL!r})(a, a), a @ a)
"""


def run_script(script):
    return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def files_of(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_t4_what_is_damaged_in_the_cache_is_compiled_again(tmp_path):
    kernel = loop.kernel("{ [i] : 0 <= i < n } b[i] = 3 * a[i]")
    a = normal(50)
    kernel(a)
    objects = [path for path in files_of(tmp_path / "cache") if path.suffix == ".so"]
    assert len(objects) == 1
    objects[0].unlink()
    heard = []
    listener = loop.add_listener(lambda report, target: heard.append(report.cache_hit))
    try:
        again = loop.kernel("{ [i] : 0 <= i < n } b[i] = 3 * a[i]")
        assert np.array_equal(again(a), 3 * a)
    finally:
        loop.remove_listener(listener)
    assert heard == [False] and objects[0].is_file()


def test_t10_eight_processes_and_one_that_dies_while_it_writes(tmp_path):
    folder = tmp_path / "cache"
    # It dies as soon as something of it lies in the cache.
    dying = f"""
import os, pathlib, signal, threading
def watch():
    while not any(pathlib.Path({str(folder)!r}).rglob("kernel.cpp")):
        pass
    os.kill(os.getpid(), signal.SIGKILL)
threading.Thread(target=watch, daemon=True).start()
""" + SQUARE
    dead = run_script(dying)
    assert dead.wait(120) == -9, dead.stderr.read()
    left = files_of(folder)
    assert left and not any(path.suffix == ".so" and path.with_name("info.json").is_file() for path in left)
    living = [run_script(SQUARE) for _ in range(7)]
    for one in living:
        assert one.wait(300) == 0, one.stderr.read()
    assert len([path for path in files_of(folder) if path.suffix == ".so"]) == 1  # all run the same bytes
    assert not any(str(dead.pid) in path.name for path in folder.rglob("*")), files_of(folder)


def test_a_gpu_that_is_not_there_is_compiled_for():
    kernel = tiled(loop.kernel(MATMUL))
    try:
        kernel.warmup("f32[32, 16]", "f32[16, 48]", target="cuda:sm_90a")
    except megalith.SystemError as error:
        pytest.skip(str(error).splitlines()[0])
    assert ".target sm_90a" in kernel.asm["ptx"] and kernel.asm["cubin"].startswith(b"\x7fELF")
    assert "__shared__ f32 a_buffer[256];" in kernel.asm["cu"]


def test_what_a_block_cannot_hold_is_a_capacity_error():
    with pytest.raises(loop.CapacityError, match="a block would have 4096 threads: at most 1024"):
        loop.kernel("{ [i, j] : 0 <= i, j < 64 } b[i, j] = a[i, j]").tag("i", "l.0", "j", "l.1")
    assert issubclass(loop.CapacityError, megalith.UserError)


# ---- Triton's tutorials ---------------------------------------------------------------------------------------------


def test_t12_vector_add(place):
    x, y = normal(98432), normal(98432, seed=1)
    kernel = loop.kernel("{ [i] : 0 <= i < n } z[i] = x[i] + y[i]").split("i", 1024, outer="g.0").split("i_inner", 256)
    assert np.array_equal(host(kernel.tag("i_inner_inner", "l.0")(place(x), place(y))), x + y)


SOFTMAX = """
{ [t, k] : 0 <= t < n and 0 <= k < m }
{ [u, h] : 0 <= u < n and 0 <= h < m }
most[t] = max(k, x[t, k])
total[t] = sum(k, exp(x[t, k] - most[t]))
y[u, h] = exp(x[u, h] - most[u]) / total[u]
"""


def test_t12_softmax(place):
    x = normal(1823, 781)
    kernel = loop.kernel(SOFTMAX).unify_inames("u", "t").tag("t", "g.0")
    e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    assert np.allclose(host(kernel(place(x))), e / e.sum(axis=1, keepdims=True), rtol=1e-5, atol=1e-8)


def test_t12_matmul_of_halves(place):
    size = 512
    a, b = normal(size, size, dtype=np.float16), normal(size, size, dtype=np.float16, seed=1)
    found = host(tiled(loop.kernel(MATMUL))(place(a), place(b)))
    assert np.allclose(found, a.astype(np.float64) @ b.astype(np.float64), atol=1e-2)


def test_t12_layer_norm(place):
    x, w, b = normal(115, 819), normal(819, seed=1), normal(819, seed=2)
    kernel = loop.kernel(
        "attribute eps = 1e-5\n{ [t, k, h] : 0 <= t < n and 0 <= k < m and 0 <= h < m }\n"
        "mean[t] = sum(k, x[t, k]) / m\nvar[t] = sum(k, (x[t, k] - mean[t]) * (x[t, k] - mean[t])) / m\n"
        "y[t, h] = (x[t, h] - mean[t]) * rsqrt(var[t] + eps) * w[h] + b[h]"
    ).tag("t", "g.0")
    wide = x.astype(np.float64)
    wanted = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5) * w + b
    assert np.allclose(host(kernel(place(x), place(w), place(b))), wanted, rtol=1e-3, atol=1e-5)


def test_t12_matmul_of_halves_tuned(place):
    @loop.autotune([{"size": size} for size in (8, 16)], key=["n", "m", "l"], cache=False)
    def product(size):
        return tiled(loop.kernel(MATMUL), size)

    a, b = normal(512, 512, dtype=np.float16), normal(512, 512, dtype=np.float16, seed=1)
    found = host(product(place(a), place(b)))
    assert np.allclose(found, a.astype(np.float64) @ b.astype(np.float64), atol=1e-2)
    assert len(product.tried) >= 1


def test_t12_a_persistent_matmul(place):
    # Four blocks, each with several rows of tiles one after the other.
    kernel = loop.kernel(MATMUL).fix("n", 512).fix("m", 512).fix("l", 512)
    kernel = kernel.tile(["i", "j"], [16, 16], outer=["i_outer", "g.1"], inner=["l.1", "l.0"])
    kernel = kernel.chunk("i_outer", 4, outer="worker:g.0", inner="turn").split("k", 16)
    kernel = kernel.order("worker", "j_outer", "turn", "k_outer", "i_inner", "j_inner", "k_inner").accumulate("k_outer", "acc")
    kernel = kernel.prefetch("a", ["i_inner", "k_inner"], inames=["l.1", "l.0"])
    a, b = normal(512, 512, dtype=np.float16), normal(512, 512, dtype=np.float16, seed=1)
    assert np.allclose(host(kernel(place(a), place(b))), a.astype(np.float64) @ b.astype(np.float64), atol=1e-2)


def test_t12_attention_in_one_pass(place):
    # The scores of a query never leave its block; a causal mask.
    kernel = loop.kernel("""
      attribute scale = 0.125
      { [h, q, k, d, k2, e, k3] : 0 <= h < heads and 0 <= q, k, k2, k3 < n and 0 <= d, e < 64 }
      score[h, q, k] = scale * sum(d, f32(queries[h, q, d]) * f32(keys[h, k, d]))
      most[h, q] = max(k2, score[h, q, k2], k2 <= q)
      total[h, q] = sum(k2, exp(score[h, q, k2] - most[h, q]), k2 <= q)
      out[h, q, e] = sum(k3, exp(score[h, q, k3] - most[h, q]) * f32(values[h, k3, e]), k3 <= q) / total[h, q]
    """).fix("n", 96).order("h", "q", "k", "d", "k2", "e", "k3").tag(h="g.1", q="g.0", k="l.0", e="l.0")
    queries, keys, values = (normal(3, 96, 64, dtype=np.float16, seed=seed) for seed in range(3))
    found = host(kernel(place(queries), place(keys), place(values)))
    scores = 0.125 * np.einsum("hqd,hkd->hqk", queries.astype(np.float64), keys.astype(np.float64))
    scores = np.where(np.tril(np.ones((96, 96), bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(2, keepdims=True))
    wanted = np.einsum("hqk,hkd->hqd", weights / weights.sum(2, keepdims=True), values.astype(np.float64))
    assert np.allclose(found, wanted, rtol=1e-3, atol=1e-3)


# ---- tuning ---------------------------------------------------------------------------------------------------------


COPY = "{ [i, j] : 0 <= i < n and 0 <= j < m } b[j, i] = a[i, j]"
SIZES = [{"t": t} for t in (2, 4, 8, 16, 64)]


class Measure:
    """In do_bench's place: a tile of 8 is the best, and the kernel is called."""

    def __init__(self):
        self.calls = 0

    def __call__(self, function, *, gpu, stream, before):
        self.calls += 1
        before()
        function()
        return {1: 5.0, 2: 3.0, 3: 1.0, 4: 2.0}[self.calls]


def tuned(measure, **options):
    plain = loop.kernel(COPY)

    @loop.autotune(SIZES, bench=measure, **options)
    def transposed(t):
        return plain.tile(["i", "j"], [t, t], **TILES)

    return transposed


def test_the_fastest_is_taken_and_kept_on_disk():
    measure, a = Measure(), normal(30, 40)
    transposed = tuned(measure, key=["n"])
    assert np.array_equal(transposed(a), a.T) and np.array_equal(transposed(a), a.T)
    assert measure.calls == 4 and transposed.best_config.values == {"t": 8} and not transposed.from_disk
    lines = transposed.table().splitlines()
    assert lines[0].split() == ["1.0000", "ms", "t", "=", "8"] and "at most 1024" in lines[-1] and "-  t = 64" in lines[-1]
    other = Measure()
    again = tuned(other, key=["n"])
    assert np.array_equal(again(a), a.T) and again.from_disk and other.calls == 0
    assert again.best_config.values == {"t": 8} and len(again.tried) == 5


def test_the_key_says_when_it_is_measured_anew():
    measure = Measure()
    transposed = tuned(measure, key=["n"])
    transposed(normal(30, 40))
    transposed(normal(30, 41))
    assert measure.calls == 4
    with pytest.raises(KeyError):  # a fifth measurement
        transposed(normal(31, 40))
    with pytest.raises(megalith.UserError, match="the key has 'q', which is no size: want n, m"):
        tuned(measure, key=["q"])(normal(3, 4))


def test_a_model_prunes():
    measure = Measure()
    transposed = tuned(measure, model=lambda kernel, sizes: abs(int(kernel.steps[0].split()[3]) - 16), top_k=2)
    transposed(normal(30, 40))
    assert measure.calls == 2 and transposed.best_config.values == {"t": 8}
    assert [one.ms is None for one in transposed.tried] == [False, False, True, True, True]
    fewer = tuned(Measure(), prune=lambda configs, sizes: [config for config in configs if config.values["t"] == 4])
    fewer(normal(30, 40))
    assert fewer.best_config.values == {"t": 4}


def test_values_are_put_back_between_runs():
    plain = loop.kernel("inout x: f32[n]\ninout y: f32[n]\n{ [i] : 0 <= i < n }\nx[i] = x[i] + 1\ny[i] = y[i] + 1")
    seen = []

    def bench(function, *, gpu, stream, before):
        for _ in range(3):
            before()
            function()
            seen.append((x[0], y[0]))
        return 1.0

    @loop.autotune([{"t": 4}, {"t": 8}], restore=["x"], reset=["y"], bench=bench, cache=False)
    def stepped(t):
        return plain.split("i", t)

    x, y = np.full(16, 5, np.float32), np.full(16, 5, np.float32)
    stepped(x, y)
    assert seen == [(6, 1)] * 6 and x[0] == 6


def test_where_nothing_fits_the_first_reason_is_said():
    plain = loop.kernel(COPY)
    with pytest.raises(loop.CapacityError, match="no configuration fits: .*would have 4096 threads"):
        loop.autotune([{"t": 64}])(lambda t: plain.tile(["i", "j"], [t, t], **TILES))(normal(4, 4))
    with pytest.raises(megalith.UserError, match="configs is empty"):
        loop.autotune([])
    with pytest.raises(megalith.UserError, match="want a loop kernel"):
        loop.autotune([{}])(lambda: 3)(normal(4, 4))


def test_do_bench_takes_the_median_and_flushes(target):
    calls = []
    median = loop.do_bench(lambda: calls.append(1), warmup_ms=0, rep_ms=0, flush=False)
    assert 0 <= median < 10 and len(calls) >= 11
    low, high = loop.do_bench(lambda: None, warmup_ms=0, rep_ms=0, quantiles=[0.1, 0.9], flush=False)
    assert low <= high
    if target == "cuda":
        kernel = loop.kernel("{ [i] : 0 <= i < n } b[i] = a[i]").split("i", 256, outer="g.0", inner="l.0")
        a = megalith.to_device(np.zeros(1 << 24, np.float32))
        b = megalith.to_device(np.zeros(1 << 24, np.float32))
        assert 0.01 < loop.do_bench(lambda: kernel(a, b), gpu=0) < 10
    with pytest.raises(megalith.UserError, match="want a function"):
        loop.do_bench(3)


def test_a_call_costs_microseconds(target):
    """Beyond the launch itself; the bar is wide, since other programs run beside the tests (tools/bench_loops.py)."""
    kernel = loop.kernel("{ [i] : 0 <= i < n } z[i] = x[i] + y[i]").split("i", 64, outer="g.0", inner="l.0")
    place = megalith.to_device if target == "cuda" else lambda array: array
    x, y, z = (place(np.ones(64, np.float32)) for _ in range(3))
    kernel(x, y, z)
    call = min(timeit.repeat(lambda: kernel(x, y, z), number=1000, repeat=5)) * 1e6  # ns
    alone = min(kernel.launch_ns(1000, x, y, z) for _ in range(5))
    assert call - alone < 50_000
