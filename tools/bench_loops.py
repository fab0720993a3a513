#!/usr/bin/env python3
"""What a call of a loop kernel of one's own costs beyond its launch; and whether kernels are right and how fast they are.

PYTHONPATH=build/release/python build/python/bin/python tools/bench_loops.py [cuda]

With cuda and torch it calls with torch's tensors, too, and measures a copy, a transposition, a softmax and a product beside
torch's.
"""

import statistics
import sys
import time

import numpy as np

import megalith
from megalith import loop

ROUNDS, CALLS = 9, 2000


def call_ns(call):
    """The median of rounds, of the mean of many calls."""
    times = []
    for _ in range(ROUNDS):
        begin = time.perf_counter_ns()
        for _ in range(CALLS):
            call()
        times.append((time.perf_counter_ns() - begin) / CALLS)
    return statistics.median(times)


def launch_ns(kernel, *arrays):
    return statistics.median(kernel.launch_ns(CALLS, *arrays) for _ in range(ROUNDS))


def report_call(what, kernel, arrays, settle=lambda: None):
    kernel(*arrays)
    settle()
    alone = launch_ns(kernel, *arrays)
    settle()
    whole = call_ns(lambda: kernel(*arrays))
    settle()
    print(f"{what}: a call {whole / 1e3:.2f} us, its launch alone {alone / 1e3:.2f} us, beyond it {(whole - alone) / 1e3:.2f} us")


def calls(target):
    add = loop.kernel("{ [i] : 0 <= i < n } z[i] = x[i] + y[i]").split("i", 64, outer="g.0", inner="l.0")
    arrays = [np.ones(64, np.float32) for _ in range(3)]
    if target == "cpu":
        report_call("z = x + y of 64 floats in numpy", add, arrays)
        made = call_ns(lambda: add(*arrays[:2]))
        print(f"the same, which makes z: {made / 1e3:.2f} us")
        return
    # The queue of a stream is finite: a launch must not wait for those before it.
    report_call("z = x + y of 64 floats in tensors of to_device()", add, [megalith.to_device(one) for one in arrays])
    try:
        import torch
    except ImportError:
        print("torch is not there")
        return
    tensors = [torch.ones(64, device="cuda") for _ in range(3)]
    report_call("z = x + y of 64 floats in torch's tensors", add, tensors, torch.cuda.synchronize)
    begin = call_ns(lambda: torch.add(tensors[0], tensors[1], out=tensors[2]))
    print(f"torch.add of them: {begin / 1e3:.2f} us")


def by_tiles(kernel):
    kernel = kernel.tile(["i", "j"], [16, 16], outer=["g.1", "g.0"], inner=["l.1", "l.0"]).split("k", 16)
    kernel = kernel.order("i_outer", "j_outer", "k_outer", "i_inner", "j_inner", "k_inner").accumulate("k_outer", "acc")
    kernel = kernel.prefetch("a", ["i_inner", "k_inner"], inames=["l.1", "l.0"])
    return kernel.prefetch("b", ["k_inner", "j_inner"], inames=["l.1", "l.0"]).unroll("k_inner")


def through_shared(kernel):
    """Tiles of 32 x 32 by 8 x 32 threads, through shared memory of which each row has one element more."""
    kernel = kernel.tile(["i", "j"], [32, 32], outer=["g.1", "g.0"], inner=["i_i", "j_i"])
    kernel = kernel.split("i_i", 8, outer="i_r", inner="i_t:l.1").tag(j_i="l.0")
    kernel = kernel.prefetch("a", ["j_i", "i_r", "i_t"], buffer="s", inames=["p", "q:l.0"])
    return kernel.split("p", 8, outer="p_r", inner="p_t:l.1").pad("s", 1, 1)


COPY = loop.kernel("{ [i] : 0 <= i < n } y[i] = x[i]").split("i", 256, outer="g.0", inner="l.0")
TRANSPOSE = through_shared(loop.kernel("{ [i, j] : 0 <= i < n and 0 <= j < m } b[i, j] = a[j, i]"))
PRODUCT = by_tiles(
    loop.kernel("{ [i, j, k] : 0 <= i < n and 0 <= j < m and 0 <= k < l } c[i, j] = sum(k, a[i, k] * b[k, j])")
)
REVERSE = loop.kernel("{ [i] : 0 <= i < n }\n{ [j] : 0 <= j < n }\nt[i] = 2 * x[i]\ny[j] = t[n - 1 - j]")
SOFTMAX = loop.kernel(
    "{ [t, k] : 0 <= t < n and 0 <= k < m }\n{ [u, h] : 0 <= u < n and 0 <= h < m }\nmost[t] = max(k, x[t, k])\n"
    "total[t] = sum(k, exp(x[t, k] - most[t]))\ny[u, h] = exp(x[u, h] - most[u]) / total[u]"
)
SOFTMAX = SOFTMAX.unify_inames("u", "t").split("t", 32, outer="g.0", inner="l.0")


def right(target):
    """Against the interpreter, in sizes that fit tiles and in others."""
    for name, kernel, cases in (
        ("copy", COPY, [{"n": 1}, {"n": 256}, {"n": 1000}]),
        ("transposition", TRANSPOSE, [{"n": 64, "m": 32}, {"n": 70, "m": 45}, {"n": 1, "m": 16}]),
        ("product", PRODUCT, [{"n": 32, "m": 48, "l": 16}, {"n": 33, "m": 17, "l": 65}, {"n": 1, "m": 1, "l": 1}]),
        ("reversal by a temporary", REVERSE, [{"n": 1000}]),
        ("softmax", SOFTMAX, [{"n": 70, "m": 45}, {"n": 1, "m": 16}]),
    ):
        for sizes in cases:
            print(f"{name}: {kernel.check(target=target, **sizes)}")


def kernels():
    import torch

    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False

    def beside(what, kernel, arrays, reference, tolerance):
        found, wanted = kernel(*arrays), reference(*arrays)
        torch.cuda.synchronize()
        error = (found - wanted).abs().max().item()
        state = "right" if error <= tolerance else f"WRONG by {error:.3g}"
        out = torch.empty_like(found)
        ours = loop.do_bench(lambda: kernel(*arrays, out), gpu=0)
        theirs = loop.do_bench(lambda: reference(*arrays), gpu=0)
        print(f"{what}: {state}, {ours:.3f} ms, torch {theirs:.3f} ms, {100 * theirs / ours:.0f} %")

    x = torch.randn(8192, 8192, device="cuda")
    beside("copy of 8192 x 8192", COPY, [x.view(-1)], torch.clone, 0)
    beside("transposition of 8192 x 8192", TRANSPOSE, [x], lambda a: a.T.contiguous(), 0)
    beside("softmax of 4096 x 4096, a thread a row", SOFTMAX, [x[:4096, :4096].contiguous()], lambda a: a.softmax(1), 1e-6)
    a, b = torch.randn(2048, 2048, device="cuda"), torch.randn(2048, 2048, device="cuda")
    beside("product of 2048 x 2048, by tiles of 16", PRODUCT, [a, b], torch.matmul, 1e-2)


if __name__ == "__main__":
    where = sys.argv[1] if len(sys.argv) > 1 else "cpu"
    if where not in ("cpu", "cuda"):
        sys.exit(f"the target is {where}, want cpu or cuda")
    right(where)
    calls(where)
    if where == "cuda":
        kernels()
