#!/usr/bin/env python3
"""What Python costs beside the kernels: attaching tensors, calling a compiled kernel, and what is left after many rounds.

PYTHONPATH=build/release/python build/python/bin/python tools/bench_python.py
"""

import gc
import resource
import statistics
import time

import ml_dtypes
import numpy as np

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


def resident_kib():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() // 1024


def main():
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
