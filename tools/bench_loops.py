#!/usr/bin/env python3
"""What a call of a loop kernel of one's own costs beyond its launch; and whether kernels are right and how fast they are.

PYTHONPATH=build/release/python build/python/bin/python tools/bench_loops.py [cuda]

With cuda and torch it calls with torch's tensors, too, and measures a copy, a transposition, a product and a softmax beside
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
    flat = x.view(-1)
    copy = loop.kernel("{ [i] : 0 <= i < n } y[i] = x[i]").split("i", 256, outer="g.0", inner="l.0")
    beside("copy of 8192 x 8192", copy, [flat], torch.clone, 0)
    plain = loop.kernel("{ [i, j] : 0 <= i < n and 0 <= j < m } b[i, j] = a[j, i]")
    transpose = plain.tile(["i", "j"], [32, 32], outer=["g.1", "g.0"], inner=["i_i", "j_i"]).split("i_i", 8, outer="i_r", inner="i_t:l.1")
    transpose = transpose.tag(j_i="l.0").prefetch("a", ["j_i", "i_r", "i_t"], buffer="s", inames=["p", "q:l.0"])
    transpose = transpose.split("p", 8, outer="p_r", inner="p_t:l.1").pad("s", 1, 1)
    beside("transposition of 8192 x 8192", transpose, [x], lambda a: a.T.contiguous(), 0)
    a, b = torch.randn(2048, 2048, device="cuda"), torch.randn(2048, 2048, device="cuda")
    product = loop.kernel("{ [i, j, k] : 0 <= i < n and 0 <= j < m and 0 <= k < l } c[i, j] = sum(k, a[i, k] * b[k, j])")
    product = product.tile(["i", "j"], [16, 16], outer=["g.1", "g.0"], inner=["l.1", "l.0"]).split("k", 16)
    product = product.order("i_outer", "j_outer", "k_outer", "i_inner", "j_inner", "k_inner").accumulate("k_outer", "acc")
    product = product.prefetch("a", ["i_inner", "k_inner"], inames=["l.1", "l.0"])
    product = product.prefetch("b", ["k_inner", "j_inner"], inames=["l.1", "l.0"]).unroll("k_inner")
    beside("product of 2048 x 2048, by tiles of 16", product, [a, b], torch.matmul, 1e-2)


if __name__ == "__main__":
    where = sys.argv[1] if len(sys.argv) > 1 else "cpu"
    if where not in ("cpu", "cuda"):
        sys.exit(f"the target is {where}, want cpu or cuda")
    calls(where)
    if where == "cuda":
        kernels()
