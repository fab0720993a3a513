#!/usr/bin/env python3
"""What PyTorch needs for a decode step: random weights of true shapes in bf16, a static KV cache, one CUDA graph a step.

    torch_decode.py --out torch.json --case models/shapes/Qwen3-0.6B:1:512 --case models/shapes/Qwen3-8B:8:512

A case is FOLDER:BATCH:CONTEXT; steps are timed at the last positions of the context. Each is measured in these variants:
  graph     PyTorch's own kernels, captured in a CUDA graph
  compiled  torch.compile of a layer and of the head (all layers share the code), attention by flex_attention with the
            cache split over blocks, then the same graph; at batch 1 with coordinate descent, as gpt-fast has it
  tuned     the same with max-autotune
Frequencies of the rotary embedding are not rescaled as Llama 3 does it, which changes values and no cost. Before a variant
is timed, its logits are compared with those of plain kernels. Results are written after each variant, so
that a time limit costs only what has not been measured yet.
"""

import argparse
import dataclasses
import json
import math
import os
import statistics
import sys
import time

import torch
import torch.nn.functional as F

STEPS, WARM, ROUNDS = 48, 8, 3


@dataclasses.dataclass
class Shape:
    """Sizes of a model, from its config.json."""

    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    tied: bool
    head_norm: bool  # Qwen3 normalises each head of q and k
    eps: float
    rope_theta: float

    @staticmethod
    def read(folder):
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        heads = config["num_attention_heads"]
        return Shape(
            hidden=config["hidden_size"],
            inner=config["intermediate_size"],
            layers=config["num_hidden_layers"],
            heads=heads,
            kv_heads=config["num_key_value_heads"],
            head_dim=config.get("head_dim") or config["hidden_size"] // heads,
            vocab=config["vocab_size"],
            tied=config["tie_word_embeddings"],
            head_norm=config["model_type"] == "qwen3",
            eps=config["rms_norm_eps"],
            rope_theta=config["rope_theta"],
        )

    def weight_bytes(self):
        """Read once a step whatever the batch; the embedding table counts only where it is the head too."""
        qkv = (self.heads + 2 * self.kv_heads) * self.head_dim
        layer = self.hidden * (qkv + self.heads * self.head_dim + 3 * self.inner + 2)
        layer += 2 * self.head_dim if self.head_norm else 0
        return 2 * (self.layers * layer + self.hidden + self.vocab * self.hidden)

    def cache_bytes(self, batch, length):
        return 2 * 2 * self.layers * batch * length * self.kv_heads * self.head_dim


def random_weights(shape, device):
    """Per layer: qkv, out, gate and up, down, two norms, two head norms (or None); then table, head, last norm."""

    def matrix(rows, columns):
        return torch.randn(rows, columns, device=device, dtype=torch.bfloat16).mul_(columns**-0.5)

    def norm(size):
        return 1 + 0.1 * torch.randn(size, device=device, dtype=torch.bfloat16)

    q, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    layers = []
    for _ in range(shape.layers):
        head_norms = (norm(shape.head_dim), norm(shape.head_dim)) if shape.head_norm else (None, None)
        layers.append(
            (
                matrix(q + 2 * kv, shape.hidden),
                matrix(shape.hidden, q),
                matrix(2 * shape.inner, shape.hidden),
                matrix(shape.hidden, shape.inner),
                norm(shape.hidden),
                norm(shape.hidden),
                *head_norms,
            )
        )
    table = matrix(shape.vocab, shape.hidden)
    return layers, table, table if shape.tied else matrix(shape.vocab, shape.hidden), norm(shape.hidden)


def rope_table(shape, length, device):
    frequency = shape.rope_theta ** (-torch.arange(0, shape.head_dim, 2, dtype=torch.float64) / shape.head_dim)
    angle = torch.outer(torch.arange(length, dtype=torch.float64), frequency)
    angle = torch.cat([angle, angle], dim=-1)
    return angle.cos().to(device, torch.bfloat16), angle.sin().to(device, torch.bfloat16)


def rms_norm(x, weight, eps):
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(dim=-1, keepdim=True) + eps)).to(x.dtype) * weight


def rotate(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


def attention_plain(q, k_cache, v_cache, position, scale):
    """q [B, H, D], caches [B, Hk, S, D]; the query heads of a group are the rows of one product."""
    batch, heads, dim = q.shape
    kv_heads, length = k_cache.shape[1], k_cache.shape[2]
    seen = (torch.arange(length, device=q.device) <= position).expand(batch, kv_heads, heads // kv_heads, length)
    grouped = q.view(batch, kv_heads, heads // kv_heads, dim)
    return F.scaled_dot_product_attention(grouped, k_cache, v_cache, attn_mask=seen, scale=scale).reshape(batch, -1)


def attention_flex(q, k_cache, v_cache, position, scale):
    from torch.nn.attention.flex_attention import flex_attention

    last = position[0]

    def hide_future(score, _batch, _head, _query, key):
        return torch.where(key <= last, score, -float("inf"))

    batch, heads, dim = q.shape
    found = flex_attention(q.view(batch, heads, 1, dim), k_cache, v_cache, score_mod=hide_future, scale=scale,
                           enable_gqa=True)
    return found.reshape(batch, -1)


def make_layer(shape, attention):
    scale = shape.head_dim**-0.5

    def layer(x, weights, k_cache, v_cache, position, cos, sin):
        qkv_weight, out_weight, gate_up_weight, down_weight, norm_in, norm_mlp, q_norm, k_norm = weights
        qkv = F.linear(rms_norm(x, norm_in, shape.eps), qkv_weight).view(x.shape[0], -1, shape.head_dim)
        q, k, v = qkv.split([shape.heads, shape.kv_heads, shape.kv_heads], dim=1)
        if q_norm is not None:
            q, k = rms_norm(q, q_norm, shape.eps), rms_norm(k, k_norm, shape.eps)
        here_cos, here_sin = cos[position], sin[position]
        q, k = rotate(q, here_cos, here_sin), rotate(k, here_cos, here_sin)
        k_cache.index_copy_(2, position, k.unsqueeze(2))
        v_cache.index_copy_(2, position, v.unsqueeze(2))
        x = x + F.linear(attention(q.contiguous(), k_cache, v_cache, position, scale), out_weight)
        gate, up = F.linear(rms_norm(x, norm_mlp, shape.eps), gate_up_weight).chunk(2, dim=-1)
        return x + F.linear(F.silu(gate) * up, down_weight)

    return layer


def make_head(shape):
    def head(x, norm, weight):
        logits = F.linear(rms_norm(x, norm, shape.eps), weight)
        return logits, logits.argmax(dim=-1)

    return head


class Decoder:
    """The state of a batch at the end of its context. step() makes a token: embed, layers, head, the likeliest."""

    def __init__(self, shape, weights, batch, context, device):
        self.layers, self.table, self.head_weight, self.norm = weights
        self.start = context - STEPS - WARM - 1
        size = (shape.layers, batch, shape.kv_heads, context, shape.head_dim)
        self.k_cache = torch.randn(size, device=device, dtype=torch.bfloat16)
        self.v_cache = torch.randn(size, device=device, dtype=torch.bfloat16)
        self.cos, self.sin = rope_table(shape, context, device)
        self.first_tokens = torch.randint(shape.vocab, (batch,), device=device)
        self.tokens = self.first_tokens.clone()
        self.position = torch.full((1,), self.start, dtype=torch.int64, device=device)

    def rewind(self):
        self.tokens.copy_(self.first_tokens)
        self.position.fill_(self.start)

    def step(self, layer, head):
        x = F.embedding(self.tokens, self.table)
        for i, weights in enumerate(self.layers):
            x = layer(x, weights, self.k_cache[i], self.v_cache[i], self.position, self.cos, self.sin)
        logits, tokens = head(x, self.norm, self.head_weight)
        self.tokens.copy_(tokens)
        self.position.add_(1)
        return logits


def synchronize(device):
    if device == "cuda":
        torch.cuda.synchronize()


def capture(decoder, layer, head, device):
    """A CUDA graph of one step; on a CPU, where there is only the check of this script, the step itself."""
    if device != "cuda":
        return lambda: decoder.step(layer, head)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            decoder.step(layer, head)
    torch.cuda.current_stream().wait_stream(side)
    synchronize(device)
    decoder.rewind()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        decoder.step(layer, head)
    return graph.replay


def time_steps(decoder, run, device):
    """Milliseconds of each step, after clocks have risen."""
    end = time.monotonic() + (0.3 if device == "cuda" else 0)
    while True:
        decoder.rewind()
        for _ in range(WARM):
            run()
        synchronize(device)
        if time.monotonic() >= end:
            break
    samples = []
    for _ in range(ROUNDS):
        decoder.rewind()
        for _ in range(WARM):
            run()
        synchronize(device)
        if device == "cuda":
            marks = [torch.cuda.Event(enable_timing=True) for _ in range(STEPS + 1)]
            marks[0].record()
            for mark in marks[1:]:
                run()
                mark.record()
            synchronize(device)
            samples += [a.elapsed_time(b) for a, b in zip(marks, marks[1:])]
        else:
            for _ in range(STEPS):
                before = time.perf_counter()
                run()
                samples.append(1e3 * (time.perf_counter() - before))
    return samples


def compiled_parts(shape, batch, variant, attention):
    import torch._inductor.config as inductor

    torch._dynamo.reset()
    inductor.coordinate_descent_tuning = batch == 1
    mode = "max-autotune-no-cudagraphs" if variant == "tuned" else None

    def compile_one(function):
        return torch.compile(function, dynamic=False, fullgraph=True, mode=mode)

    return compile_one(make_layer(shape, attention)), compile_one(make_head(shape))


def measure(shape, weights, batch, context, variant, attention, device):
    decoder = Decoder(shape, weights, batch, context, device)
    plain = make_layer(shape, attention_plain), make_head(shape)
    expected = decoder.step(*plain).float()
    decoder.rewind()
    parts = plain if variant == "graph" else compiled_parts(shape, batch, variant, attention)
    found = decoder.step(*parts).float()
    error = float((found - expected).norm() / expected.norm())
    if not math.isfinite(error) or error > 0.1:  # a wrong kernel is off by about 1
        raise RuntimeError(f"logits differ by {error:.3g} of their size from those of plain kernels")
    del expected, found
    samples = sorted(time_steps(decoder, capture(decoder, *parts, device), device))
    return {
        "variant": variant,
        "attention": attention.__name__.removeprefix("attention_"),
        "median_ms": statistics.median(samples),
        "p90_ms": samples[int(len(samples) * 0.9)],
        "logits_error": error,
        "bytes_per_step": shape.weight_bytes() + shape.cache_bytes(batch, context - STEPS // 2),
    }


def measure_or_explain(shape, weights, batch, context, variant, device):
    ways = [attention_plain] if variant == "graph" else [attention_flex, attention_plain]
    reasons = []
    for attention in ways:
        try:
            return measure(shape, weights, batch, context, variant, attention, device)
        except Exception as error:  # a version that cannot compile this; the next way may
            reasons.append(f"{attention.__name__}: {type(error).__name__}: {str(error).strip().splitlines()[:1]}")
            print(f"  {reasons[-1]}", file=sys.stderr, flush=True)
    return {"variant": variant, "error": "; ".join(reasons)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", required=True, metavar="FOLDER:BATCH:CONTEXT")
    parser.add_argument("--variants", default="graph,compiled", help="of graph, compiled and tuned (graph,compiled)")
    parser.add_argument("--out", required=True, help="file for the results, in JSON")
    parser.add_argument("--budget", type=float, default=1e9, help="seconds after which no further variant is begun")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"], help="cpu: to check this script")
    arguments = parser.parse_args()

    torch.set_grad_enabled(False)
    torch.manual_seed(1)
    end = time.monotonic() + arguments.budget
    device_name = torch.cuda.get_device_name() if arguments.device == "cuda" else "cpu"
    results = {"torch": torch.__version__, "device": device_name, "cases": []}
    cases = [case.rsplit(":", 2) for case in arguments.case]
    loaded = None, None
    # Variants first, cases second: if time runs out, each case has something.
    for variant in arguments.variants.split(","):
        for folder, batch, context in cases:
            if time.monotonic() > end:
                print("  out of time", file=sys.stderr, flush=True)
                return
            shape = Shape.read(folder)
            if loaded[0] != folder:
                loaded = None, None  # the old one goes before the new one comes
                loaded = folder, random_weights(shape, arguments.device)
            begin = time.monotonic()
            found = measure_or_explain(shape, loaded[1], int(batch), int(context), variant, arguments.device)
            case = {"model": os.path.basename(os.path.normpath(folder)), "batch": int(batch), "context": int(context)}
            results["cases"].append({**case, **found, "seconds": time.monotonic() - begin})
            print(f"  {case} {found}", file=sys.stderr, flush=True)
            with open(arguments.out + ".part", "w", encoding="utf-8") as file:
                json.dump(results, file, indent=1)
            os.replace(arguments.out + ".part", arguments.out)


if __name__ == "__main__":
    main()
