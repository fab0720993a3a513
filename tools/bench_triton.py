"""The kernels of tools/bench_examples.py as one would write them in Triton; each with a few configurations, all of them timed."""

import triton
import triton.language as tl


@triton.jit
def axpy_kernel(x, y, z, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(z + at, 2.5 * tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


@triton.jit
def transpose_kernel(a, b, n, m, TILE: tl.constexpr):
    i = tl.program_id(0) * TILE + tl.arange(0, TILE)
    j = tl.program_id(1) * TILE + tl.arange(0, TILE)
    tile = tl.load(a + i[:, None] * m + j[None, :], mask=(i[:, None] < n) & (j[None, :] < m))
    tl.store(b + j[:, None] * n + i[None, :], tl.trans(tile), mask=(j[:, None] < m) & (i[None, :] < n))


@triton.jit
def softmax_kernel(x, y, m, WIDTH: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, WIDTH)
    inside = at < m
    values = tl.load(x + row * m + at, mask=inside, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, axis=0))
    tl.store(y + row * m + at, powers / tl.sum(powers, axis=0), mask=inside)


@triton.jit
def layernorm_kernel(x, weight, bias, y, m, eps, BLOCK: tl.constexpr):
    """A row a program, in three passes over blocks of columns."""
    row = tl.program_id(0)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, m, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x + row * m + at, mask=at < m, other=0.0)
    mean = tl.sum(total, axis=0) / m
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, m, BLOCK):
        at = start + tl.arange(0, BLOCK)
        apart = tl.where(at < m, tl.load(x + row * m + at, mask=at < m, other=0.0) - mean, 0.0)
        squares += apart * apart
    scale = 1 / tl.sqrt(tl.sum(squares, axis=0) / m + eps)
    for start in range(0, m, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < m
        values = tl.load(x + row * m + at, mask=inside, other=0.0)
        scaled = (values - mean) * scale * tl.load(weight + at, mask=inside) + tl.load(bias + at, mask=inside)
        tl.store(y + row * m + at, scaled, mask=inside)


@triton.jit
def matmul_kernel(a, b, c, n, m, l, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr):
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    j = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    k = tl.arange(0, DEPTH)
    total = tl.zeros([ROWS, COLUMNS], dtype=tl.float32)
    for start in range(0, l, DEPTH):
        left = tl.load(a + i[:, None] * l + (start + k)[None, :])
        right = tl.load(b + (start + k)[:, None] * m + j[None, :])
        total = tl.dot(left, right, total, input_precision="ieee")
    tl.store(c + i[:, None] * m + j[None, :], total)


def runs(torch):
    """By name, a function that makes arrays, checks each configuration against torch, and gives what is to be timed."""

    def right(found, wanted, tolerance):
        torch.cuda.synchronize()
        error = (found - wanted).abs().max().item()
        assert error <= tolerance, f"off by {error}"

    def axpy():
        n = 268435456
        x, y = torch.randn(n, device="cuda"), torch.randn(n, device="cuda")
        z = torch.empty_like(x)
        for block in (1024, 2048, 4096):
            yield lambda: axpy_kernel[(triton.cdiv(n, block),)](x, y, z, n, BLOCK=block)

    def transpose():
        n = 8192
        a, b = torch.randn(n, n, device="cuda"), torch.empty(n, n, device="cuda")
        for tile, warps in ((32, 4), (64, 4), (64, 8), (128, 8)):
            run = lambda: transpose_kernel[(n // tile, n // tile)](a, b, n, n, TILE=tile, num_warps=warps)
            run()
            right(b, a.T, 0)
            yield run

    def softmax():
        x = torch.randn(4096, 4096, device="cuda")
        y = torch.empty_like(x)
        for warps in (4, 8, 16):
            run = lambda: softmax_kernel[(4096,)](x, y, 4096, WIDTH=4096, num_warps=warps)
            run()
            right(y, torch.softmax(x, 1), 1e-5)
            yield run

    def layernorm():
        x, w, b = torch.randn(4096, 4096, device="cuda"), torch.randn(4096, device="cuda"), torch.randn(4096, device="cuda")
        y = torch.empty_like(x)
        for block, warps in ((4096, 8), (4096, 16), (2048, 8), (1024, 4)):
            run = lambda: layernorm_kernel[(4096,)](x, w, b, y, 4096, 1e-5, BLOCK=block, num_warps=warps)
            run()
            right(y, torch.nn.functional.layer_norm(x, (4096,), w, b), 1e-4)
            yield run

    def matmul():
        n = 2048
        a, b = torch.randn(n, n, device="cuda"), torch.randn(n, n, device="cuda")
        c = torch.empty_like(a)
        for rows, columns, depth, warps, stages in (
            (64, 64, 16, 4, 3),
            (64, 128, 16, 4, 3),
            (128, 64, 32, 8, 3),
            (128, 128, 16, 8, 3),
            (128, 128, 16, 4, 2),
        ):
            grid = (n // rows, n // columns)
            tiles = {"ROWS": rows, "COLUMNS": columns, "DEPTH": depth, "num_warps": warps, "num_stages": stages}
            run = lambda: matmul_kernel[grid](a, b, c, n, n, n, **tiles)
            run()
            right(c, torch.matmul(a, b), 2e-2)
            yield run

    return {"axpy": axpy, "transpose": transpose, "softmax": softmax, "layernorm": layernorm, "matmul": matmul}
