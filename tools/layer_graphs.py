#!/usr/bin/env python3
"""Writes decoder layers and MLPs of Qwen3, as a script for MPK calls their layers, to files for `megalith bench graph`.

    PYTHONPATH=build/release/python tools/layer_graphs.py OUT_DIR
    megalith bench graph OUT_DIR/*.graph --target cuda

The files need no Python where they are read. Each has as many layers, one behind the other, as it takes that their
weights are several times a GPU's L2; the name says how many, and so many times a layer is what an iteration takes. The
last layer writes what the first one reads, so iterations wait for each other as tokens do.
"""

import argparse
import pathlib

import ml_dtypes
import numpy as np

import megalith.mirage as mirage
from megalith.mirage.mpk.persistent_kernel import PersistentKernel

BF16 = ml_dtypes.bfloat16
SIZES = {  # hidden, inner, query heads, key heads
    "Qwen3-0.6B": (1024, 3072, 16, 8),
    "Qwen3-8B": (4096, 12288, 32, 8),
}
HEAD, PAGE = 128, 16
# Bytes of weights, and layers: the first and the last one differ from those between, since others see their tensors.
ENOUGH, FEWEST = 384 << 20, 4


class Layers:
    """A kernel of layers that all have the same shapes; only the weights differ. Contents do not matter: all are 0."""

    def __init__(self, hidden, inner, q_heads, kv_heads, requests, positions):
        self.hidden, self.inner, self.q_heads, self.kv_heads = hidden, inner, q_heads, kv_heads
        self.requests, self.positions = requests, positions
        self.pages = -(-positions // PAGE)
        table = np.arange(requests * self.pages, dtype=np.int32)
        params = PersistentKernel.get_default_init_parameters()
        params.update(
            mode="onepass",
            target="cpu",  # tensors lie here; the graph is for either
            max_seq_length=positions,
            max_num_batched_requests=requests,
            max_num_batched_tokens=requests,
            max_num_pages=requests * self.pages,
            page_size=PAGE,
            meta_tensors={
                "qo_indptr_buffer": np.arange(requests + 1, dtype=np.int32),
                "paged_kv_indptr_buffer": np.arange(0, len(table) + 1, self.pages, dtype=np.int32),
                "paged_kv_indices_buffer": table,
                "paged_kv_last_page_len_buffer": np.full(requests, positions - (self.pages - 1) * PAGE, np.int32),
            },
        )
        self.kernel = PersistentKernel(**params)
        self.x = self.tensor("x", requests, hidden)
        self.cos, self.sin = (self.tensor(name, positions, HEAD) for name in ("cos", "sin"))
        self.new = {}

    def tensor(self, name, *shape):
        return self.kernel.attach_input(np.zeros(shape, BF16), name=name)

    def fresh(self, name, columns):
        """One for all layers, as scripts have them."""
        if name not in self.new:
            self.new[name] = self.kernel.new_tensor(dims=(self.requests, columns), dtype=mirage.bfloat16, name=name)
        return self.new[name]

    def attention(self, n, x, output):
        k, h, q, kv = self.kernel, self.hidden, self.q_heads * HEAD, self.kv_heads * HEAD
        normed, qkv, out = self.fresh("normed", h), self.fresh("qkv", q + 2 * kv), self.fresh("attn_out", q)
        parts = [self.tensor(f"{n}.{name}_proj", rows, h) for name, rows in (("q", q), ("k", kv), ("v", kv))]
        weight = k.shuffle_tensors(inputs=parts, shuffled_dim=0, num_groups=self.kv_heads, name=f"{n}.qkv_proj")
        cache = [
            self.tensor(f"{n}.{name}_cache", self.requests * self.pages, PAGE, self.kv_heads, HEAD) for name in "kv"
        ]
        k.rmsnorm_layer(input=x, weight=self.tensor(f"{n}.attn_norm", h), output=normed, grid_dim=(self.requests, 1, 1))
        k.linear_layer(input=normed, weight=weight, output=qkv, grid_dim=((q + 2 * kv) // 64, 1, 1))
        k.paged_attention_layer(
            input=qkv,
            k_cache=cache[0],
            v_cache=cache[1],
            q_norm=self.tensor(f"{n}.q_norm", HEAD),
            k_norm=self.tensor(f"{n}.k_norm", HEAD),
            cos_pos_embed=self.cos,
            sin_pos_embed=self.sin,
            output=out,
            grid_dim=(self.requests, self.kv_heads, 1),
        )
        k.linear_with_residual_layer(
            input=out, weight=self.tensor(f"{n}.o_proj", h, q), residual=x, output=output, grid_dim=(h // 64, 1, 1)
        )

    def mlp(self, n, x, output):
        k, h, i = self.kernel, self.hidden, self.inner
        normed, mid, gated = self.fresh("normed", h), self.fresh("mlp_mid", 2 * i), self.fresh("silu_out", i)
        parts = [self.tensor(f"{n}.{name}_proj", i, h) for name in ("gate", "up")]
        weight = k.shuffle_tensors(inputs=parts, shuffled_dim=0, num_groups=i // 64, name=f"{n}.gatedup_proj")
        k.rmsnorm_layer(input=x, weight=self.tensor(f"{n}.mlp_norm", h), output=normed, grid_dim=(self.requests, 1, 1))
        k.linear_layer(input=normed, weight=weight, output=mid, grid_dim=(i // 32, 1, 1))
        k.silu_mul_layer(input=mid, output=gated, grid_dim=(i // 64, 1, 1))
        k.linear_with_residual_layer(
            input=gated, weight=self.tensor(f"{n}.down_proj", h, i), residual=x, output=output, grid_dim=(h // 64, 1, 1)
        )


def layer_bytes(what, hidden, inner, q_heads, kv_heads):
    attention = (2 * q_heads + 2 * kv_heads) * HEAD * hidden
    return 2 * (3 * inner * hidden + (attention if what == "layer" else 0))


def build(what, size, requests, count, positions=1024):
    """A PersistentKernel of ``count`` layers ("layer") or MLPs ("mlp"), not compiled."""
    layers = Layers(*SIZES[size], requests, positions)
    x = layers.x
    for n in range(count):
        last = layers.x if n == count - 1 else layers.fresh("layer_out", layers.hidden)
        if what == "layer":
            layers.attention(n, x, layers.fresh("attn_proj_out", layers.hidden))
            layers.mlp(n, layers.fresh("attn_proj_out", layers.hidden), last)
        else:
            # Two tensors in turn: a product's input must not be what it writes.
            last = last if n == count - 1 or n % 2 == 0 else layers.fresh("mlp_out", layers.hidden)
            layers.mlp(n, x, last)
        x = last
    return layers.kernel


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--positions", type=int, default=1024, help="of each request, all in use (1024)")
    parser.add_argument("--layers", type=int, default=0, help="in a file (0: 4, and 384 MiB of weights)")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for size, shape in SIZES.items():
        for what in ("layer", "mlp"):
            count = arguments.layers or max(-(-ENOUGH // layer_bytes(what, *shape)), FEWEST)
            for requests in (1, 4):
                with build(what, size, requests, count, arguments.positions) as kernel:
                    path = arguments.folder / f"{size}.{what}s{count}.b{requests}.graph"
                    path.write_text(kernel.to_file())
                    print(path)


if __name__ == "__main__":
    main()
