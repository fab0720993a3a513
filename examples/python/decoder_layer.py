"""A whole decoder layer over a cache in pages, for two requests, step after step: embedding, attention with q/k norm
and rotation, MLP, vocabulary, the likeliest token. python examples/python/decoder_layer.py [cuda]"""

import sys

import numpy as np
from tensors import BF16, Tensors, check

import megalith.mirage as mirage
from megalith.mirage.mpk.persistent_kernel import PersistentKernel

device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
make = Tensors(device)
requests, hidden, inner, vocabulary = 2, 256, 512, 512
q_heads, kv_heads, size = 4, 2, 64
page_size, num_pages, longest = 16, 8, 64
prompt = 19  # positions of each request that lie in the cache already


def tables():
    angles = np.outer(np.arange(longest), 10000.0 ** (-np.arange(0, size, 2) / size))
    both = np.concatenate([angles, angles], -1)
    return np.cos(both).astype(BF16), np.sin(both).astype(BF16)


def page_tables(length):
    """The meta tensors when every request has so many positions, the last of them new."""
    pages = -(-length // page_size)
    indices = [7, 2, 5, 0][:pages] + [1, 6, 3, 4][:pages]
    return {
        "qo_indptr_buffer": np.arange(requests + 1, dtype=np.int32),
        "paged_kv_indptr_buffer": np.arange(0, requests * pages + 1, pages, dtype=np.int32),
        "paged_kv_indices_buffer": np.array(indices + [0] * (num_pages - len(indices)), np.int32),
        "paged_kv_last_page_len_buffer": np.full(requests, length - (pages - 1) * page_size, np.int32),
    }


meta = {name: make.place(table) for name, table in page_tables(prompt + 1).items()}
params = PersistentKernel.get_default_init_parameters()
params.update(
    mode="onepass",
    num_workers=mirage.get_configurations_from_gpu(0)[0],
    meta_tensors=meta,
    max_seq_length=longest,
    max_num_batched_requests=requests,
    max_num_batched_tokens=requests,
    max_num_pages=num_pages,
    page_size=page_size,
)
pk = PersistentKernel(**params)
values = {}


def weight(name, *shape, scale):
    placed, values[name] = make.normal(*shape, scale=scale)
    return pk.attach_input(torch_tensor=placed, name=name)


def fresh(name, *shape, dtype=mirage.bfloat16):
    return pk.new_tensor(dims=shape, dtype=dtype, name=name)


tokens = make.place(np.array([[3], [400]], np.int64))
caches = {}
for name in ("k_cache", "v_cache"):
    caches[name], values[name] = make.normal(num_pages, page_size, kv_heads, size)
logits = make.zeros(requests, vocabulary)

token = pk.attach_input(torch_tensor=tokens, name="input_token")
block_dim = (256, 1, 1) if pk.target_cc >= 90 else (128, 1, 1)
embedding = weight("embed_tokens", vocabulary, hidden, scale=1.0)
x = fresh("embed_out", requests, hidden)
pk.embed_layer(input=token, weight=embedding, output=x, grid_dim=(1, 1, 1), block_dim=block_dim, input_source=1)

norm = weight("attn_norm", hidden, scale=1.0)
parts = [
    weight("q_proj", q_heads * size, hidden, scale=hidden**-0.5),
    weight("k_proj", kv_heads * size, hidden, scale=hidden**-0.5),
    weight("v_proj", kv_heads * size, hidden, scale=hidden**-0.5),
]
qkv = pk.shuffle_tensors(inputs=parts, shuffled_dim=0, num_groups=kv_heads, name="qkv_proj")
normed, attn_in, attn_out = (
    fresh("norm_out", requests, hidden),
    fresh("attn_in", requests, 512),
    fresh("attn_out", requests, 256),
)
pk.rmsnorm_layer(input=x, weight=norm, output=normed, grid_dim=(requests, 1, 1), block_dim=block_dim)
pk.linear_layer(input=normed, weight=qkv, output=attn_in, grid_dim=(8, 1, 1), block_dim=block_dim)
cosine, sine = tables()
pk.paged_attention_layer(
    input=attn_in,
    k_cache=pk.attach_input(torch_tensor=caches["k_cache"], name="k_cache"),
    v_cache=pk.attach_input(torch_tensor=caches["v_cache"], name="v_cache"),
    q_norm=weight("q_norm", size, scale=1.0),
    k_norm=weight("k_norm", size, scale=1.0),
    cos_pos_embed=pk.attach_input(torch_tensor=make.place(cosine), name="cos"),
    sin_pos_embed=pk.attach_input(torch_tensor=make.place(sine), name="sin"),
    output=attn_out,
    grid_dim=(requests, kv_heads, 1),
    block_dim=block_dim,
)
o_out = fresh("attn_proj_out", requests, hidden)
pk.linear_with_residual_layer(
    input=attn_out,
    weight=weight("o_proj", hidden, q_heads * size, scale=hidden**-0.5),
    residual=x,
    output=o_out,
    grid_dim=(hidden // 64, 1, 1),
    block_dim=block_dim,
)

gate_up = pk.shuffle_tensors(
    inputs=[
        weight("gate_proj", inner, hidden, scale=hidden**-0.5),
        weight("up_proj", inner, hidden, scale=hidden**-0.5),
    ],
    shuffled_dim=0,
    num_groups=16,
    name="gatedup_proj",
)
mid, gated, mlp_out = (
    fresh("mlp_mid", requests, 2 * inner),
    fresh("silu_out", requests, inner),
    fresh("mlp_out", requests, hidden),
)
pk.rmsnorm_layer(
    input=o_out,
    weight=weight("mlp_norm", hidden, scale=1.0),
    output=normed,
    grid_dim=(requests, 1, 1),
    block_dim=block_dim,
)
pk.linear_layer(input=normed, weight=gate_up, output=mid, grid_dim=(32, 1, 1), block_dim=block_dim)
pk.silu_mul_layer(input=mid, output=gated, grid_dim=(16, 1, 1), block_dim=block_dim)
pk.linear_with_residual_layer(
    input=gated,
    weight=weight("down_proj", hidden, inner, scale=inner**-0.5),
    residual=o_out,
    output=mlp_out,
    grid_dim=(hidden // 64, 1, 1),
    block_dim=block_dim,
)
logits_dt = pk.attach_input(torch_tensor=logits, name="logits")
pk.rmsnorm_linear_layer(
    input=mlp_out,
    weight_norm=weight("final_norm", hidden, scale=1.0),
    weight_linear=weight("lm_head", vocabulary, hidden, scale=hidden**-0.5),
    output=logits_dt,
    grid_dim=(16, 1, 1),
    block_dim=block_dim,
)
value, index = fresh("argmax_value", requests, 8), fresh("argmax_index", requests, 8, dtype=mirage.int64)
pk.argmax_partial_layer(input=logits_dt, output=(value, index), grid_dim=(8, 1, 1), block_dim=block_dim)
pk.argmax_reduce_layer(input=(value, index), output=token, grid_dim=(1, 1, 1), block_dim=block_dim)
pk.compile()


# ---- the same in float64 ----------------------------------------------------------------------------------------
def rms(x, w):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * w


def rotate(x, position):
    half = size // 2
    turned = np.concatenate([-x[..., half:], x[..., :half]], -1)
    return x * cosine[position].astype(np.float64) + turned * sine[position].astype(np.float64)


def step(ids, length):
    v, position = values, length - 1
    table = page_tables(length)
    x = v["embed_tokens"][ids]
    h = rms(x, v["attn_norm"])
    q = rotate(rms((h @ v["q_proj"].T).reshape(requests, q_heads, size), v["q_norm"]), position)
    k = rotate(rms((h @ v["k_proj"].T).reshape(requests, kv_heads, size), v["k_norm"]), position)
    new_v = (h @ v["v_proj"].T).reshape(requests, kv_heads, size)
    out = np.zeros((requests, q_heads, size))
    for r in range(requests):
        begin, end = table["paged_kv_indptr_buffer"][r : r + 2]
        pages = table["paged_kv_indices_buffer"][begin:end]
        v["k_cache"][pages[position // page_size], position % page_size] = k[r]
        v["v_cache"][pages[position // page_size], position % page_size] = new_v[r]
        keys = v["k_cache"][pages].reshape(-1, kv_heads, size)[:length]
        held = v["v_cache"][pages].reshape(-1, kv_heads, size)[:length]
        for a in range(q_heads):
            group = a // (q_heads // kv_heads)
            scores = np.exp(keys[:, group] @ q[r, a] / np.sqrt(size))
            out[r, a] = scores @ held[:, group] / scores.sum()
    x = x + out.reshape(requests, -1) @ v["o_proj"].T
    h = rms(x, v["mlp_norm"])
    g = h @ v["gate_proj"].T
    x = x + (g / (1 + np.exp(-g)) * (h @ v["up_proj"].T)) @ v["down_proj"].T
    return rms(x, v["final_norm"]) @ v["lm_head"].T


ids = [3, 400]
for new in range(5):
    length = prompt + 1 + new
    for name, table in page_tables(length).items():
        if device == "cuda":
            meta[name].copy_from(table)
        else:
            meta[name][:] = table
    pk()
    expected = step(ids, length)
    check(f"step {new}: logits", make.values(logits), expected, tolerance=0.05)
    ids = [int(i) for i in make.values(tokens)[:, 0]]
    chosen = expected[np.arange(requests), ids]
    if not np.all(chosen >= expected.max(-1) - 0.1):
        raise SystemExit(f"step {new}: the tokens {ids} are not the likeliest")
    print("  tokens", ids)
pk.finalize()
