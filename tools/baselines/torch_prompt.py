#!/usr/bin/env python3
"""What PyTorch needs for a prompt: eager kernels, random weights of true shapes in bf16, keys and values kept, the logits
of the last token.

    torch_prompt.py --out prompt.json --case models/shapes/Qwen3-8B:512

A case is FOLDER:TOKENS. The median of several runs behind a few to warm up.
"""

import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F
from torch_decode import Shape, random_weights, rms_norm, rope_table, rotate

WARM, RUNS = 3, 10


def forward(shape, weights, tokens, cos, sin, cache):
    """tokens [T] -> logits [V] of the last one; keys and values go to `cache`, per layer [2, Hk, T, D]."""
    layers, table, head, last_norm = weights
    x = F.embedding(tokens, table)
    count = len(tokens)
    for i, (qkv, out, gate_up, down, norm_in, norm_mlp, q_norm, k_norm) in enumerate(layers):
        heads = F.linear(rms_norm(x, norm_in, shape.eps), qkv).view(count, -1, shape.head_dim)
        q, k, v = (part.transpose(0, 1) for part in heads.split([shape.heads, shape.kv_heads, shape.kv_heads], dim=1))
        if q_norm is not None:
            q, k = rms_norm(q, q_norm, shape.eps), rms_norm(k, k_norm, shape.eps)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        cache[i][0].copy_(k)
        cache[i][1].copy_(v)
        y = F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True, enable_gqa=True)[0]
        x = x + F.linear(y.transpose(0, 1).reshape(count, -1), out)
        gate, up = F.linear(rms_norm(x, norm_mlp, shape.eps), gate_up).chunk(2, dim=-1)
        x = x + F.linear(F.silu(gate) * up, down)
    return F.linear(rms_norm(x[-1], last_norm, shape.eps), head)


def measure(folder, count):
    shape, device = Shape.read(folder), "cuda"
    weights = random_weights(shape, device)
    tokens = torch.randint(shape.vocab, (count,), device=device)
    cos, sin = rope_table(shape, count, device)
    size = (shape.layers, 2, shape.kv_heads, count, shape.head_dim)
    cache = torch.empty(size, device=device, dtype=torch.bfloat16)
    times = []
    for run in range(WARM + RUNS):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        forward(shape, weights, tokens, cos, sin, cache)
        torch.cuda.synchronize()
        if run >= WARM:
            times.append(1e3 * (time.perf_counter() - begin))
    return {"model": folder, "tokens": count, "ms": statistics.median(times), "least_ms": min(times)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="results, as JSON")
    parser.add_argument("--case", action="append", required=True, metavar="FOLDER:TOKENS")
    arguments = parser.parse_args()
    results = []
    with torch.inference_mode():
        for case in arguments.case:
            folder, count = case.rsplit(":", 1)
            results.append(measure(folder, int(count)))
            print(f"{folder}, prompt of {count}: {results[-1]['ms']:.2f} ms, at best {results[-1]['least_ms']:.2f}")
    with open(arguments.out, "w", encoding="utf-8") as file:
        json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
