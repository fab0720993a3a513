#!/usr/bin/env python3
"""What PyTorch needs for a prompt: random weights of true shapes in bf16, keys and values kept, the logits of the last token.

    torch_prompt.py --out prompt.json --case models/shapes/Qwen3-8B:512 --case models/shapes/Qwen3-8B:2048

A case is FOLDER:TOKENS. Each is measured in these variants:
  eager     PyTorch's own kernels, each launched by the host
  graph     the same in a CUDA graph
  compiled  torch.compile of a layer (all layers share the code), on a GPU then the same graph
A variant's logits are compared with those of eager kernels before it is timed. Medians of ten runs behind three to warm up, of
CPUs of five behind two. Results are written after each case, so that a time limit costs only what was not measured yet.
"""

import argparse
import json
import math
import os
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch_decode import Shape, random_weights, rms_norm, rope_table, rotate, synchronize


def make_layer(shape):
    def layer(x, weights, keys, values, cos, sin):
        """x [T, hidden] -> the same behind a layer; keys and values go to caches [Hk, T, D]."""
        qkv, out, gate_up, down, norm_in, norm_mlp, q_norm, k_norm = weights
        heads = F.linear(rms_norm(x, norm_in, shape.eps), qkv).view(x.shape[0], -1, shape.head_dim)
        q, k, v = (part.transpose(0, 1) for part in heads.split([shape.heads, shape.kv_heads, shape.kv_heads], dim=1))
        if q_norm is not None:
            q, k = rms_norm(q, q_norm, shape.eps), rms_norm(k, k_norm, shape.eps)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        keys.copy_(k)
        values.copy_(v)
        y = F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True, enable_gqa=True)[0]
        x = x + F.linear(y.transpose(0, 1).reshape(x.shape[0], -1), out)
        gate, up = F.linear(rms_norm(x, norm_mlp, shape.eps), gate_up).chunk(2, dim=-1)
        return x + F.linear(F.silu(gate) * up, down)

    return layer


class Prompt:
    """A prompt of `count` tokens of a model, and what it is worked out with."""

    def __init__(self, shape, weights, count, device):
        self.shape, self.weights, self.device = shape, weights, device
        self.tokens = torch.randint(shape.vocab, (count,), device=device)
        self.cos, self.sin = rope_table(shape, count, device)
        size = (shape.layers, 2, shape.kv_heads, count, shape.head_dim)
        self.cache = torch.empty(size, device=device, dtype=torch.bfloat16)

    def forward(self, layer):
        """The logits [V] of the last token."""
        layers, table, head, last_norm = self.weights
        x = F.embedding(self.tokens, table)
        for weights, (keys, values) in zip(layers, self.cache):
            x = layer(x, weights, keys, values, self.cos, self.sin)
        return F.linear(rms_norm(x[-1], last_norm, self.shape.eps), head)


def capture(prompt, layer):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            prompt.forward(layer)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        prompt.forward(layer)
    return graph.replay


def measure(prompt, variant):
    layer = make_layer(prompt.shape)
    expected = prompt.forward(layer).float()
    if variant == "compiled":
        torch._dynamo.reset()
        layer = torch.compile(layer, dynamic=False, fullgraph=True)
    error = float((prompt.forward(layer).float() - expected).norm() / expected.norm())
    if not math.isfinite(error) or error > 0.1:  # a wrong kernel is off by about 1
        raise RuntimeError(f"logits differ by {error:.3g} of their size from those of eager kernels")
    on_gpu = prompt.device == "cuda"
    run = capture(prompt, layer) if on_gpu and variant != "eager" else lambda: prompt.forward(layer)
    warm, runs = (3, 10) if on_gpu else (2, 5)
    times = []
    for i in range(warm + runs):
        synchronize(prompt.device)
        begin = time.perf_counter()
        run()
        synchronize(prompt.device)
        if i >= warm:
            times.append(1e3 * (time.perf_counter() - begin))
    return {"variant": variant, "ms": statistics.median(times), "least_ms": min(times), "logits_error": error}


def measure_or_explain(prompt, variant):
    try:
        return measure(prompt, variant)
    except Exception as error:  # a version that cannot compile or capture this
        return {"variant": variant, "error": f"{type(error).__name__}: {str(error).strip().splitlines()[:1]}"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="results, as JSON")
    parser.add_argument("--case", action="append", required=True, metavar="FOLDER:TOKENS")
    parser.add_argument("--variants", default="eager,graph,compiled", help="of eager, graph and compiled (all)")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"], help="cuda or cpu (cuda)")
    parser.add_argument("--threads", type=int, help="how many threads a CPU may use (all cores)")
    arguments = parser.parse_args()
    torch.set_grad_enabled(False)
    torch.manual_seed(1)
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    loaded, results = (None, None), []
    for case in arguments.case:
        folder, count = case.rsplit(":", 1)
        shape = Shape.read(folder)
        if loaded[0] != folder:
            loaded = None, None  # the old one goes before the new one comes
            loaded = folder, random_weights(shape, arguments.device)
        prompt = Prompt(shape, loaded[1], int(count), arguments.device)
        result = {"model": os.path.basename(folder.rstrip("/")), "tokens": int(count), "variants": []}
        results.append(result)
        for variant in arguments.variants.split(","):
            if variant == "graph" and arguments.device != "cuda":
                continue
            found = measure_or_explain(prompt, variant)
            result["variants"].append(found)
            what = f"{found['ms']:.2f} ms, at best {found['least_ms']:.2f}" if "ms" in found else found["error"]
            print(f"{result['model']}, prompt of {count}, {variant}: {what}", file=sys.stderr, flush=True)
        timed = [found for found in result["variants"] if "ms" in found]
        if timed:
            best = min(timed, key=lambda found: found["ms"])
            result.update(ms=best["ms"], variant=best["variant"])
        with open(arguments.out, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
