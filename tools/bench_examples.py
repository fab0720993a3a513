#!/usr/bin/env python3
"""The loop kernels of examples/loops on a GPU, beside a copy, torch and Triton: five kernels, one card, one run.

python3 tools/bench_examples.py [--megalith build/release/tools/megalith] [NAME ...]

Needs a GPU, and a Python with torch and Triton for what it compares with; what of that is missing it says, and measures the
rest. Times are medians, by events of the GPU, with the caches filled with something else before each run; a product's runs
are the same. Products are in f32 throughout: no tf32.
"""

import argparse
import math
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples" / "loops"
FLUSH_BYTES, RUNS = 256 << 20, 60

# name: (file, schedule, lines before it, sizes, sizes for the check, what it has to reach of a copy's rate or of torch's)
CASES = {
    "axpy": ("axpy", "axpy", "assume n mod 1024 = 0", "n=268435456", "n=4096", 0.9),
    "transpose": ("transpose", "transpose", "assume n mod 32 = 0 and m mod 32 = 0", "n=8192,m=8192", "n=96,m=64", 0.85),
    "softmax": ("softmax", "softmax_registers", "", "n=4096,m=4096", "n=33,m=1100", 0.9),
    "layernorm": ("layernorm", "layernorm", "", "n=4096,m=4096", "n=33,m=1100", None),
    "matmul": ("matmul", "matmul_registers", "", "n=2048,m=2048,l=2048", "n=256,m=128,l=96", None),
}


def run_ours(megalith, name):
    """(ms, share of a copy's rate, whether it is right)"""
    file, schedule, before, sizes, small, _ = CASES[name]
    with tempfile.NamedTemporaryFile("w", suffix=".schedule") as steps:
        steps.write(before + "\n" + (EXAMPLES / f"{schedule}.schedule").read_text())
        steps.flush()
        command = [megalith, "loops", str(EXAMPLES / f"{file}.loops"), "--apply", steps.name, "--target", "cuda"]
        check = subprocess.run([*command, "--check", "--sizes", small], capture_output=True, text=True, timeout=300)
        bench = subprocess.run([*command, "--bench", "--sizes", sizes], capture_output=True, text=True, timeout=300)
    for result in (check, bench):
        if result.returncode != 0:
            raise RuntimeError(f"{name}: {result.stderr.strip() or result.stdout.strip()[-400:]}")
    found = re.search(r"# ([0-9.]+) (us|ms|s) median.* ([0-9.]+) % of a copy", bench.stdout)
    if not found:
        raise RuntimeError(f"{name}: no time in {bench.stdout[-400:]}")
    ms = float(found.group(1)) * {"us": 1e-3, "ms": 1, "s": 1e3}[found.group(2)]
    return ms, float(found.group(3)) / 100, "# right" in check.stdout


def bench(torch, run):
    """The median of the times that `run` takes, in milliseconds."""
    for _ in range(3):
        run()
    flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")
    pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(RUNS)]
    for begin, end in pairs:
        flush.zero_()
        begin.record()
        run()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(begin.elapsed_time(end) for begin, end in pairs)


def torch_runs(torch):
    """What torch calls these kernels, on the same sizes."""
    torch.backends.cuda.matmul.allow_tf32 = False

    def axpy():
        x, y = torch.randn(268435456, device="cuda"), torch.randn(268435456, device="cuda")
        z = torch.empty_like(x)
        return lambda: torch.add(y, x, alpha=2.5, out=z)

    def transpose():
        x, y = torch.randn(8192, 8192, device="cuda"), torch.empty(8192, 8192, device="cuda")
        return lambda: y.copy_(x.T)

    def softmax():
        x = torch.randn(4096, 4096, device="cuda")
        return lambda: torch.softmax(x, 1)

    def layernorm():
        x, w, b = torch.randn(4096, 4096, device="cuda"), torch.randn(4096, device="cuda"), torch.randn(4096, device="cuda")
        return lambda: torch.nn.functional.layer_norm(x, (4096,), w, b)

    def matmul():
        a, b = torch.randn(2048, 2048, device="cuda"), torch.randn(2048, 2048, device="cuda")
        return lambda: torch.matmul(a, b)

    return {"axpy": axpy, "transpose": transpose, "softmax": softmax, "layernorm": layernorm, "matmul": matmul}


def report(name, ours, torch_ms, triton_ms):
    ms, of_copy, right = ours
    _, _, _, _, _, wanted = CASES[name]
    parts = [f"{name}: {'right' if right else 'WRONG'}, {ms:.4f} ms, {100 * of_copy:.1f} % of a copy"]
    if wanted:
        parts[0] += f" (bar {100 * wanted:.0f} %)"
    if torch_ms:
        parts.append(f"torch {torch_ms:.4f} ms, {100 * torch_ms / ms:.0f} %")
    if triton_ms:
        parts.append(f"Triton {triton_ms:.4f} ms, {100 * triton_ms / ms:.0f} %")
    print("; ".join(parts), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megalith", default=str(ROOT / "build/release/tools/megalith"), help="the program that is timed")
    parser.add_argument("names", nargs="*", choices=[*CASES, []], help="some of the kernels; all if none is named")
    options = parser.parse_args()
    if not pathlib.Path(options.megalith).is_file():
        sys.exit(f"{options.megalith} is not there: build it (ninja -C build/release megalith), or name it by --megalith")
    torch = triton_runs = None
    try:
        import torch

        if not torch.cuda.is_available():
            print("torch finds no GPU: nothing is compared with torch and Triton")
            torch = None
    except ImportError:
        print("torch is not there (pip install torch): nothing is compared with torch and Triton")
    if torch:
        try:
            import bench_triton

            triton_runs = bench_triton.runs(torch)
        except ImportError as error:
            print(f"Triton is not there ({error}): nothing is compared with it")
        print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
        x, y = torch.empty(8192, 8192, device="cuda"), torch.empty(8192, 8192, device="cuda")
        ms = bench(torch, lambda: y.copy_(x))
        print(f"copy of 8192 x 8192 in torch: {ms:.4f} ms, {2 * x.nbytes / ms / 1e6:.0f} GB/s")

    shares, is_good = [], True
    for name in options.names or CASES:
        try:
            ours = run_ours(options.megalith, name)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            print(f"{name}: FAILED: {error}", flush=True)
            is_good = False
            continue
        torch_ms = bench(torch, torch_runs(torch)[name]()) if torch else None
        triton_ms = None
        if triton_runs:
            triton_ms = min(bench(torch, run) for run in triton_runs[name]())
            shares.append(triton_ms / ours[0])
        report(name, ours, torch_ms, triton_ms)
        is_good &= ours[2]
        if torch:
            torch.cuda.empty_cache()
    if shares:
        print(f"geometric mean of Triton's time over ours: {math.exp(statistics.fmean(math.log(s) for s in shares)):.3f}")
    sys.exit(0 if is_good else 1)


if __name__ == "__main__":
    main()
