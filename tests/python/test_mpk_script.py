"""A decoder as scripts for MPK write it, from the imports to the tokens: the grids, blocks, strides and names that such
scripts use, on a model small enough for a reference in float64."""

import dataclasses
import json

import numpy as np
import pytest
import reference
from conftest import BF16

import megalith.mirage as mi
from megalith.mirage.mpk.base_dynamic_shard_loader import BaseDynamicShardLoader, ShardType

PADDED_VOCABULARY = 153600
SHARDS = {"q_proj": [(ShardType.COL_PARALLEL,)], "o_proj": [(ShardType.ROW_PARALLEL,)], "norm": [(ShardType.NONE,)]}


class Loader(BaseDynamicShardLoader):
    """As scripts for several GPUs declare it, and those for one do not make it."""


@dataclasses.dataclass
class Model:
    """Random weights by name, in bf16."""

    layers: int = 2
    hidden: int = 128
    inner: int = 288
    heads: int = 4
    kv_heads: int = 2
    size: int = 32
    vocabulary: int = 300
    positions: int = 512

    def __post_init__(self):
        random = np.random.default_rng(22)
        self.weights = {}

        def matrix(name, rows, columns, scale=1.2):
            self.weights[name] = (random.standard_normal((rows, columns)) * scale * columns**-0.5).astype(BF16)

        def norm(name, columns):
            self.weights[name] = (1 + 0.2 * random.standard_normal(columns)).astype(BF16)

        matrix("embed", self.vocabulary, self.hidden, scale=self.hidden**0.5)
        for i in range(self.layers):
            norm(f"{i}.norm", self.hidden)
            matrix(f"{i}.q", self.heads * self.size, self.hidden)
            matrix(f"{i}.k", self.kv_heads * self.size, self.hidden)
            matrix(f"{i}.v", self.kv_heads * self.size, self.hidden)
            matrix(f"{i}.o", self.hidden, self.heads * self.size)
            norm(f"{i}.q_norm", self.size)
            norm(f"{i}.k_norm", self.size)
            norm(f"{i}.post_norm", self.hidden)
            matrix(f"{i}.gate", self.inner, self.hidden)
            matrix(f"{i}.up", self.inner, self.hidden)
            matrix(f"{i}.down", self.hidden, self.inner)
        norm("norm", self.hidden)
        matrix("head", self.vocabulary, self.hidden)
        # Tokens of different loudness: the largest logit stands out, and no token depends on a rounding.
        loud = np.exp(0.5 * random.standard_normal((self.vocabulary, 1)))
        self.weights["head"] = (self.weights["head"].astype(np.float32) * loud).astype(BF16)
        self.tables = tuple(table.astype(BF16) for table in reference.rope_tables(self.positions, self.size))

    def logits(self, tokens):
        """Of the token behind the last, in float64, rounded where tensors between layers are bf16."""

        def bf16(x):
            return reference.f64(np.asarray(x).astype(BF16))

        w = self.weights
        x = reference.f64(w["embed"][tokens])
        for i in range(self.layers):
            normed = bf16(reference.rmsnorm(x, w[f"{i}.norm"]))
            parts = [w[f"{i}.{name}"] for name in "qkv"]
            qkv = bf16(reference.linear(normed, reference.stack(parts, self.kv_heads)))
            norms = (w[f"{i}.q_norm"], w[f"{i}.k_norm"])
            judge = reference.Attention(self.kv_heads, self.size, norms, self.tables)
            cache = [np.zeros((len(tokens), self.kv_heads, self.size), BF16) for _ in range(2)]
            out = bf16(judge.request(qkv, *cache, 0))
            x = bf16(x + reference.linear(out, w[f"{i}.o"]))
            normed = bf16(reference.rmsnorm(x, w[f"{i}.post_norm"]))
            gate, up = (bf16(reference.linear(normed, w[f"{i}.{name}"])) for name in ("gate", "up"))
            x = bf16(x + reference.linear(bf16(reference.silu(gate) * up), w[f"{i}.down"]))
        return reference.linear(bf16(reference.rmsnorm(x[-1:], w["norm"])), w["head"])[0]

    def text(self, prompt, length, eos=-1):
        tokens = list(prompt)
        while len(tokens) < length and (tokens[-1] != eos or len(tokens) == len(prompt)):
            logits = self.logits(tokens)
            best, second = np.sort(logits)[[-1, -2]]
            assert best > 0 and best - second > 0.01 * best, "too near a tie for a test: take another seed"
            tokens.append(int(np.argmax(logits)))
        return tokens


def run(model, prompts, block, rows, chunks, tmp_path, longest, page_size=512, spec_decode=None, **params):
    """The script. ``prompts``: one a request; the result is a text each, and what the loop counted. ``chunks`` 0: attention
    is not split. ``spec_decode``: drafts."""
    requests, split_kv, chunks = len(prompts), chunks > 0, max(1, chunks)
    slots = requests
    num_pages = 16
    w = model.weights
    tokens = np.zeros((requests, longest), np.int64)
    for r, prompt in enumerate(prompts):
        tokens[r, : len(prompt)] = prompt
    step = np.zeros(requests, np.int32)
    input_tokens, output_tokens = np.zeros((rows, 1), np.int64), np.zeros((rows, 1), np.int64)
    spec = mi.mpk.spec_decode_class(spec_decode, ngram_size=3, spec_length=3)
    assert (spec is None) == (spec_decode is None) and mi.speculative.spec_decode_class is mi.mpk.spec_decode_class
    num_workers, num_schedulers = mi.get_configurations_from_gpu(0)
    mpk = mi.PersistentKernel(
        mode="offline",
        world_size=1,
        mpi_rank=0,
        num_workers=num_workers,
        num_local_schedulers=num_schedulers,
        num_remote_schedulers=0,
        max_seq_length=longest,
        max_num_batched_requests=slots,
        max_num_batched_tokens=rows,
        max_num_pages=num_pages,
        page_size=page_size,
        meta_tensors={
            "step": step,
            "tokens": tokens,
            "input_tokens": input_tokens,
            "output_tokens": output_tokens,
            "num_new_tokens": np.ones(requests, np.int32),
            "prompt_lengths": np.array([len(prompt) for prompt in prompts], np.int32),
            "qo_indptr_buffer": np.zeros(slots + 1, np.int32),
            "paged_kv_indptr_buffer": np.zeros(slots + 1, np.int32),
            "paged_kv_indices_buffer": np.zeros(num_pages, np.int32),
            "paged_kv_last_page_len_buffer": np.zeros(slots, np.int32),
        },
        profiler_tensor=None,
        trace_name="",
        spec_decode_config=spec,
        use_cutlass_kernel=True,
        **params,
    )
    assert mpk.total_num_requests == requests and mpk.profiler_tensor is None and mpk.num_workers == num_workers

    def attach(name):
        return mpk.attach_input(torch_tensor=w[name], name=name)

    def new(name, *dims, dtype=mi.bfloat16, strides=None):
        return mpk.new_tensor(dims=dims, strides=strides, dtype=dtype, name=name, io_category="cuda_tensor")

    per_group = model.heads // model.kv_heads
    if spec and spec.method == "promptlookup":
        all_tokens = mpk.attach_input(torch_tensor=tokens, name="all_tokens")
    x = mpk.attach_input(torch_tensor=input_tokens, name="ids")
    cos, sin = (mpk.attach_input(torch_tensor=t, name=n) for t, n in zip(model.tables, ("cos", "sin")))
    y = new("embed_out", rows, model.hidden)
    normed = new("normed", rows, model.hidden)
    attn_in = new("attn_in", rows, (model.heads + 2 * model.kv_heads) * model.size)
    lse = new(
        "lse", rows, chunks * per_group, model.kv_heads, dtype=mi.float32,
        strides=(chunks * model.heads, 1, chunks * per_group),
    )  # fmt: skip
    width = chunks * per_group * model.size
    # The first stride as such scripts have it: that of rows of lse.
    part = new("part", rows, width, model.kv_heads, strides=(chunks * model.heads, 1, width))
    attn_out = new("attn_out", rows, model.heads * model.size)
    proj_out = new("proj_out", rows, model.hidden)
    mid, gated = new("mid", rows, 2 * model.inner), new("gated", rows, model.inner)
    mlp_out = new("mlp_out", rows, model.hidden)
    logits = new("logits", rows, PADDED_VOCABULARY)
    value = new("value", rows, mpk.num_workers)
    index = new("index", rows, mpk.num_workers, dtype=mi.int64)
    best = mpk.attach_input(torch_tensor=output_tokens, name="best")

    if spec:
        spec_tokens = mpk.draft_forward_layer_dispatcher(
            spec_decode_config=spec, tokens=all_tokens, grid_dim=(96, 1, 1), block_dim=(128, 1, 1)
        )
        x = spec_tokens
    mpk.embed_layer(input=x, weight=attach("embed"), output=y, grid_dim=(1, 1, 1), block_dim=block, input_source=1)
    x = y
    for i in range(model.layers):
        qkv = [attach(f"{i}.{name}") for name in "qkv"]
        w_qkv = mpk.shuffle_tensors(inputs=qkv, shuffled_dim=0, num_groups=model.kv_heads, name=f"{i}.qkv")
        mpk.rmsnorm_layer(
            input=x,
            weight=attach(f"{i}.norm"),
            output=normed,
            grid_dim=(mpk.max_num_batched_tokens, 1, 1),
            block_dim=block,
        )
        # 256 columns in 64 tasks: 4 each; and along y a task is named twice.
        mpk.linear_layer(input=normed, weight=w_qkv, output=attn_in, grid_dim=(64, 2, 1), block_dim=block)
        caches = {
            name: mpk.attach_input(
                torch_tensor=np.zeros((num_pages, page_size, model.kv_heads, model.size), BF16), name=f"{i}.{name}"
            )
            for name in ("k_cache", "v_cache")
        }
        operands = dict(
            caches, input=attn_in, q_norm=attach(f"{i}.q_norm"), k_norm=attach(f"{i}.k_norm"), cos_pos_embed=cos,
            sin_pos_embed=sin, block_dim=block,
        )  # fmt: skip
        if spec:
            mpk.single_batch_extend_attention_layer(**operands, output=attn_out, grid_dim=(1, model.kv_heads, 1))
        elif split_kv:
            mpk.paged_attention_split_kv_layer(
                **operands,
                lse=lse,
                output=part,
                attention_params=(model.heads, chunks),
                grid_dim=(mpk.max_num_batched_requests, model.kv_heads, chunks),
            )
            mpk.paged_attention_split_kv_merge_layer(
                lse=lse,
                output_tmp=part,
                output=attn_out,
                attention_params=(model.heads, model.size),
                grid_dim=(mpk.max_num_batched_requests, model.kv_heads, 1),
                block_dim=block,
            )
        else:
            mpk.paged_attention_layer(
                **operands, output=attn_out, grid_dim=(mpk.max_num_batched_requests, model.kv_heads, 1)
            )
        mpk.linear_with_residual_layer(
            input=attn_out, weight=attach(f"{i}.o"), residual=x, output=proj_out, grid_dim=(model.hidden // 64, 1, 1),
            block_dim=block,
        )  # fmt: skip
        x = proj_out
        tasks = 96  # of 6 columns
        gate_up = mpk.shuffle_tensors(
            inputs=[attach(f"{i}.gate"), attach(f"{i}.up")], shuffled_dim=0, num_groups=tasks // 2, name=f"{i}.gate_up"
        )
        mpk.rmsnorm_layer(
            input=x, weight=attach(f"{i}.post_norm"), output=normed, grid_dim=(mpk.max_num_batched_tokens, 1, 1),
            block_dim=block,
        )  # fmt: skip
        mpk.linear_layer(input=normed, weight=gate_up, output=mid, grid_dim=(tasks, 1, 1), block_dim=block)
        mpk.silu_mul_layer(input=mid, output=gated, grid_dim=(tasks // 2, 1, 1), block_dim=block)
        mpk.linear_with_residual_layer(
            input=gated, weight=attach(f"{i}.down"), residual=x, output=mlp_out, grid_dim=(model.hidden // 64, 1, 1),
            block_dim=block,
        )  # fmt: skip
        x = mlp_out
    mpk.rmsnorm_layer(
        input=x, weight=attach("norm"), output=normed, grid_dim=(mpk.max_num_batched_tokens, 1, 1), block_dim=block
    )
    padded = np.zeros((PADDED_VOCABULARY, model.hidden), BF16)
    padded[: model.vocabulary] = w["head"]
    head = mpk.attach_input(torch_tensor=padded, name="head")
    assert head.dim(0) == PADDED_VOCABULARY
    mpk.linear_layer(input=normed, weight=head, output=logits, grid_dim=(mpk.num_workers, 1, 1), block_dim=block)
    # With drafts y counts them, and x is less than the columns of the partial results.
    tokens_extend = spec.spec_length + 1 if spec else 1
    partial_grid = (24, tokens_extend, 1) if spec else (mpk.num_workers, 1, 1)
    mpk.argmax_partial_layer(input=logits, output=(value, index), grid_dim=partial_grid, block_dim=block)
    mpk.argmax_reduce_layer(input=(value, index), output=best, grid_dim=(1, tokens_extend, 1), block_dim=block)
    if spec:
        mpk.verify_layer_dispatcher(
            spec_decode_config=spec, spec_tokens=spec_tokens, target_output=best, grid_dim=(1, 1, 1),
            block_dim=(128, 1, 1),
        )  # fmt: skip

    results = mpk.kn_graph.generate_task_graph(num_gpus=1, my_gpu_id=0)
    assert json.loads(results["json_file"]) and "next_batch" in results["cuda_code"]
    mpk.compile(output_dir=str(tmp_path))
    assert (tmp_path / "task_graph_rank0.json").read_text() == results["json_file"]
    assert (tmp_path / "test_rank0.cpp").read_text() == results["cuda_code"]
    mpk()
    counts = mpk.counts
    mpk.finalize()
    return counts, [list(tokens[r, : step[r] + 1]) for r in range(requests)]


@pytest.fixture(scope="module")
def model():
    return Model()


PROMPTS = [[5, 9, 200, 31, 7, 77, 130, 1, 2], [1]]


@pytest.mark.parametrize(
    "prompts,block,rows,longest,chunks",
    [
        (PROMPTS[:1], (128, 1, 1), 8, 512, 0),
        (PROMPTS[:1], (128, 1, 1), 8, 512, 2),
        (PROMPTS, (256, 1, 1), 16, 40, 3),
    ],
)
def test_the_script_makes_the_tokens_of_the_reference(model, prompts, block, rows, longest, chunks, tmp_path):
    eos = model.text(prompts[0], 25)[-1]  # with which the first request ends; a further one may go on for longer
    expected = [model.text(prompt, len(prompt) + 16, eos) for prompt in prompts]
    assert len(set(expected[0])) > 15, "a text that goes round in circles says little"
    _, found = run(model, prompts, block, rows, chunks, tmp_path, longest, eos_token_id=eos)
    assert found[0] == expected[0] and len(found[0]) == 25
    for text, wanted in zip(found, expected):
        assert text[: len(wanted)] == wanted


# Behind the first the model goes round in a circle, and drafts are right; behind the second those of the prompt are not.
REPEATING = [[8, 80, 18] * 2, [5, 9, 200, 31] * 2]


@pytest.mark.parametrize("prompts,rows", [(REPEATING[:1], 8), (REPEATING, 16)])
def test_the_script_with_drafts_makes_the_same_tokens(model, prompts, rows, tmp_path):
    expected = [model.text(prompt, len(prompt) + 12) for prompt in prompts]
    longest = max(len(text) for text in expected)
    counts, found = run(model, prompts, (128, 1, 1), rows, 0, tmp_path, longest, spec_decode="promptlookup")
    for text, wanted in zip(found, expected):
        assert text[: len(wanted)] == wanted
    assert 0 < counts.accepted_tokens <= counts.drafted_tokens
    if len(prompts) == 1:  # the prompt is one iteration
        assert counts.iterations == longest - len(prompts[0]) - counts.accepted_tokens


def test_a_loader_for_several_gpus_says_that_it_is_not_built():
    with pytest.raises(ValueError, match=r"\[Loader\] .* not built yet"):
        Loader(None, "model", SHARDS, 0, 2, "cuda")
