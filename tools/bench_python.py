#!/usr/bin/env python3
"""What Python costs beside the kernels: attaching tensors, calling a compiled kernel, what is left after many rounds; and
what it costs to record a profile.

PYTHONPATH=build/release/python build/python/bin/python tools/bench_python.py [cuda]
"""

import gc
import resource
import statistics
import sys
import time

import ml_dtypes
import numpy as np

import megalith
from megalith import PersistentKernel

BF16 = ml_dtypes.bfloat16


def median_of(function, rounds):
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def attach(arrays):
    kernel = PersistentKernel(test_mode=True)
    for i, array in enumerate(arrays):
        kernel.attach_input(array, name=f"t{i}")


def small_kernel():
    kernel = PersistentKernel(test_mode=True)
    x, w, y = (kernel.attach_input(np.ones(s, BF16), name=n) for s, n in (((4, 64), "x"), (64, "w"), ((4, 64), "y")))
    kernel.rmsnorm_layer(input=x, weight=w, output=y)
    kernel.compile()
    return kernel


def layers_kernel(place, profile, layers=24, hidden=1024, inner=3072):
    """A decode step's matrices, without attention: 24 layers of norm, gate and up, and down."""
    kernel = PersistentKernel(test_mode=True, profile=profile)
    random = np.random.default_rng(0)

    def attach(name, *shape):
        values = random.standard_normal(shape).astype(BF16) * BF16(shape[-1] ** -0.5)
        return kernel.attach_input(place(values), name=name)

    x, norm = attach("x", 1, hidden), attach("norm", hidden)
    up, down = attach("up", 2 * inner, hidden), attach("down", hidden, inner)
    for layer in range(layers):
        both = kernel.new_tensor(dims=(1, 2 * inner), name=f"both{layer}")
        gated = kernel.new_tensor(dims=(1, inner), name=f"gated{layer}")
        y = attach("y", 1, hidden) if layer + 1 == layers else kernel.new_tensor(dims=(1, hidden), name=f"x{layer}")
        kernel.rmsnorm_linear_layer(input=x, weight_norm=norm, weight_linear=up, output=both)
        kernel.silu_mul_layer(input=both, output=gated)
        kernel.linear_with_residual_layer(input=gated, weight=down, residual=x, output=y)
        x = y
    kernel.compile()
    return kernel


def cost_of_recording(place):
    """Steps with and without a profile, in turns, since machines drift, and two kernels of each, since it matters where
    their weights lie. What is written afterwards is left out."""
    kernels = [layers_kernel(place, profile) for profile in (False, True, True, False)]
    times = {False: [], True: []}
    for turn in range(220):
        for kernel in kernels:
            begin = time.perf_counter()
            kernel._runner.run(1)
            if turn >= 20:
                times[kernel.profile].append(time.perf_counter() - begin)
    return statistics.median(times[False]), statistics.median(times[True])


def resident_kib():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() // 1024


def main():
    place = megalith.to_device if sys.argv[1:] == ["cuda"] else lambda array: array
    plain, recorded = cost_of_recording(place)
    print(f"a step of 24 layers     {plain * 1e6:8.2f} us, {100 * (recorded / plain - 1):+.2f} % while it is recorded")

    arrays = [np.zeros((16, 64), BF16) for _ in range(500)]
    print(f"attaching 500 tensors   {median_of(lambda: attach(arrays), 20) * 1e3:8.2f} ms")

    kernel = small_kernel()
    launch = median_of(lambda: kernel._runner.run(1), 500)
    whole = median_of(kernel.run_test_mode, 500)
    kernel._runner.run = lambda iterations: None
    alone = median_of(lambda: [kernel.run_test_mode() for _ in range(100)], 100) / 100
    print(f"calling a kernel        {whole * 1e6:8.2f} us, of which the launch {launch * 1e6:.2f} us")
    print(f"  Python alone          {alone * 1e6:8.2f} us")

    for _ in range(50):
        small_kernel().finalize()
    before = resident_kib()
    begin = time.perf_counter()
    for _ in range(1000):
        kernel = small_kernel()
        kernel.run_test_mode()
        kernel.finalize()
    seconds = time.perf_counter() - begin
    print(f"1000 rounds             {seconds:8.2f} s, {resident_kib() - before} KiB more afterwards")


if __name__ == "__main__":
    main()
