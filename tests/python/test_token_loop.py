"""The token loop inside the kernel, against the same layers run step by step from outside."""

import numpy as np
import pytest
from conftest import BF16

import megalith
from megalith.mirage.mpk.persistent_kernel import PersistentKernel
from megalith.mirage.mpk.speculative import spec_decode_class

HIDDEN, VOCABULARY, HEADS, SIZE, PAGE, LONGEST = 128, 256, 2, 64, 8, 40


def weights(seed=1):
    random = np.random.default_rng(seed)

    def normal(*shape, scale):
        return (random.standard_normal(shape) * scale).astype(BF16)

    return {
        "embed": normal(VOCABULARY, HIDDEN, scale=1.0),
        "norm": normal(HIDDEN, scale=1.0),
        "qkv": normal((HEADS + 2) * SIZE, HIDDEN, scale=HIDDEN**-0.5),
        "o": normal(HIDDEN, HEADS * SIZE, scale=HIDDEN**-0.5),
        "head": normal(VOCABULARY, HIDDEN, scale=HIDDEN**-0.5),
    }


def tables(requests, slots, rows):
    pages = slots * -(-LONGEST // PAGE)
    return dict(
        step=np.zeros(requests, np.int32),
        tokens=np.zeros((requests, LONGEST), np.int64),
        input_tokens=np.zeros((rows, 1), np.int64),
        output_tokens=np.zeros((rows, 1), np.int64),
        num_new_tokens=np.zeros(slots, np.int32),
        prompt_lengths=np.zeros(requests, np.int32),
        qo_indptr_buffer=np.zeros(slots + 1, np.int32),
        paged_kv_indptr_buffer=np.zeros(slots + 1, np.int32),
        paged_kv_indices_buffer=np.zeros(pages, np.int32),
        paged_kv_last_page_len_buffer=np.zeros(slots, np.int32),
    )


class Decoder:
    """One layer and a head; ``place`` puts arrays where it runs. ``lookup``: (ngram_size, spec_length) of drafts."""

    def __init__(self, meta, slots, rows, place, is_compiled=True, weights=weights, lookup=None, **params):
        pages = slots * -(-LONGEST // PAGE)
        self.meta = {name: place(table) for name, table in meta.items()}
        spec = lookup and spec_decode_class("promptlookup", *lookup)
        self.kernel = k = PersistentKernel(
            spec_decode_config=spec, meta_tensors=self.meta, num_workers=2, max_seq_length=LONGEST, max_num_batched_requests=slots,
            max_num_batched_tokens=rows, max_num_pages=pages, page_size=PAGE, **params,
        )  # fmt: skip
        w = {name: k.attach_input(place(array), name=name) for name, array in weights().items()}
        cache = [k.attach_input(place(np.zeros((pages, PAGE, 1, SIZE), BF16)), name=n) for n in ("k", "v")]
        x, normed, out, y = (k.new_tensor(dims=(rows, HIDDEN), name=n) for n in ("x", "normed", "out", "y"))
        qkv = k.new_tensor(dims=(rows, (HEADS + 2) * SIZE), name="qkv_out")
        logits = k.new_tensor(dims=(rows, VOCABULARY), name="logits")
        ids = k.attach_input(self.meta["input_tokens"], name="ids")
        best = k.attach_input(self.meta["output_tokens"], name="best")
        if spec:
            ids = k.draft_forward_layer_dispatcher(spec, k.attach_input(self.meta["tokens"], name="all"), (96, 1, 1))
        k.embed_layer(input=ids, weight=w["embed"], output=x, input_source=1)
        k.rmsnorm_layer(input=x, weight=w["norm"], output=normed)
        k.linear_layer(input=normed, weight=w["qkv"], output=qkv)
        attend = k.single_batch_extend_attention_layer if spec else k.paged_attention_layer
        attend(qkv, *cache, None, None, None, None, out)
        k.linear_with_residual_layer(input=out, weight=w["o"], residual=x, output=y)
        k.rmsnorm_linear_layer(input=y, weight_norm=w["norm"], weight_linear=w["head"], output=logits)
        k.argmax_layer(input=logits, output=best, grid_dim=(4, 1, 1))
        if spec:
            k.verify_layer_dispatcher(spec, ids, best)
        if is_compiled:
            k.compile()


def step_by_step(prompt, eos):
    """The text of one prompt, one token a step, every table written from outside."""
    meta = tables(1, 1, 1)
    decoder = Decoder(meta, 1, 1, lambda array: array, mode="onepass")
    text, made = list(prompt), []
    meta["qo_indptr_buffer"][:] = [0, 1]
    for position in range(LONGEST - 1):
        pages = position // PAGE + 1
        meta["input_tokens"][0] = text[position]
        meta["paged_kv_indptr_buffer"][:] = [0, pages]
        meta["paged_kv_indices_buffer"][:] = np.arange(len(meta["paged_kv_indices_buffer"]))
        meta["paged_kv_last_page_len_buffer"][0] = position % PAGE + 1
        decoder.kernel()
        if position + 1 >= len(prompt):
            text.append(int(meta["output_tokens"][0, 0]))
            made.append(text[-1])
            if text[-1] == eos:
                break
    return text


PROMPTS = [[5, 9, 200, 31, 7], [1], list(range(40, 61)), [77, 3]]


@pytest.fixture(scope="module")
def texts():
    """Without and with a token that ends them, which some text has."""
    whole = [step_by_step(prompt, -1) for prompt in PROMPTS]
    eos = whole[0][12]
    return {-1: whole, eos: [step_by_step(prompt, eos) for prompt in PROMPTS]}


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("slots,rows", [(1, 1), (2, 2), (2, 5), (4, 16)])
def test_the_loop_makes_the_same_texts(target, texts, slots, rows, ends):
    eos = max(texts) if ends else -1
    meta = tables(len(PROMPTS), slots, rows)
    for r, prompt in enumerate(PROMPTS):
        meta["tokens"][r, : len(prompt)] = prompt
        meta["prompt_lengths"][r] = len(prompt)
    place = megalith.to_device if target == "cuda" else lambda array: array
    decoder = Decoder(meta, slots, rows, place, eos_token_id=eos)
    decoder.kernel()
    found = {n: decoder.meta[n].numpy() if target == "cuda" else meta[n] for n in ("tokens", "step")}
    for r, text in enumerate(texts[eos]):
        assert list(found["tokens"][r, : found["step"][r] + 1]) == text
    assert not ends or any(len(text) < LONGEST for text in texts[eos])


@pytest.mark.parametrize("make", [list, tuple, np.array, lambda ids: (i for i in ids), lambda ids: [*ids, -1] * 5])
def test_any_of_several_tokens_ends_a_text(texts, make):
    """As generation_config.json has them: models of many makers end with one of two or three."""
    whole = texts[-1][0]
    first, second = whole[14], whole[9]
    ends = next(i for i in range(len(PROMPTS[0]), LONGEST) if whole[i] in (first, second))
    meta = tables(1, 1, 4)
    meta["tokens"][0, :5], meta["prompt_lengths"][0] = PROMPTS[0], 5
    decoder = Decoder(meta, 1, 4, lambda array: array, eos_token_id=make([first, second]))
    decoder.kernel()
    step = int(meta["step"][0])
    assert (step, list(meta["tokens"][0, : step + 1])) == (ends, whole[: ends + 1]) and ends < LONGEST - 1


@pytest.mark.parametrize("none", [None, -1, [], [-1], np.int64(-1)])
def test_no_token_ends_a_text(texts, none):
    meta = tables(1, 1, 4)
    meta["tokens"][0, :5], meta["prompt_lengths"][0] = PROMPTS[0], 5
    decoder = Decoder(meta, 1, 4, lambda array: array, eos_token_id=VOCABULARY - 1)
    decoder.kernel.eos_token_id = none
    decoder.kernel()
    assert list(meta["tokens"][0]) == texts[-1][0]


@pytest.mark.parametrize(
    "value,message",
    [
        ("two", "is 'two', want a token id, or a list of them"),
        (1.5, "is 1.5, want a token id, or a list of them"),
        (True, "is True, want a whole number"),
        ([1, "two"], "is 'two', want a whole number"),
        ([[1]], r"is \[1\], want a whole number"),
        (2**40, "is 1099511627776, want at most 2147483647"),
        (list(range(17)), "has 17 tokens, want at most 16"),
        ({1: 2}, "is {1: 2}, want a token id, or a list of them"),
    ],
)
def test_what_ends_no_text_is_refused(value, message):
    kernel = PersistentKernel(test_mode=True)
    for change in (lambda: setattr(kernel, "eos_token_id", value), lambda: PersistentKernel(eos_token_id=value)):
        with pytest.raises(megalith.UserError, match=rf"\[PersistentKernel\] eos_token_id {message}"):
            change()
    assert kernel.eos_token_id == -1


def test_a_loop_compiles_again_after_a_compile_that_failed(texts, tmp_path, monkeypatch):
    meta = tables(1, 1, 4)
    meta["tokens"][0, :5], meta["prompt_lengths"][0] = PROMPTS[0], 5
    monkeypatch.setenv("MEGALITH_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("MEGALITH_CXX", str(tmp_path / "none"))
    decoder = Decoder(meta, 1, 4, lambda array: array, is_compiled=False)
    for _ in range(2):
        with pytest.raises(megalith.UserError, match="MEGALITH_CXX is .*which is no program"):
            decoder.kernel.compile()
    with pytest.raises(megalith.UserError, match="is not compiled"):
        decoder.kernel()
    monkeypatch.undo()
    with pytest.raises(megalith.UserError, match="cannot be written to"):
        decoder.kernel.compile(output_dir="/dev/null/x")
    decoder.kernel.compile()
    decoder.kernel()
    assert list(meta["tokens"][0]) == texts[-1][0]


def test_a_huge_max_seq_length_costs_nothing():
    """No request is longer than what the pages hold."""
    meta = {name: table for name, table in tables(1, 1, 4).items() if name.startswith(("qo", "paged"))}
    kernel = PersistentKernel(
        test_mode=True, meta_tensors=meta, max_seq_length=2**31 - 1, max_num_batched_tokens=4, max_num_pages=5,
        page_size=PAGE,
    )  # fmt: skip
    x, y = np.zeros((4, 4 * SIZE), BF16), np.ones((4, 2 * SIZE), BF16)
    k, v = (np.zeros((5, PAGE, 1, SIZE), BF16) for _ in range(2))
    attached = [kernel.attach_input(a, name=n) for a, n in ((x, "x"), (k, "k"), (v, "v"), (y, "y"))]
    kernel.paged_attention_layer(*attached[:3], None, None, None, None, attached[3])
    kernel.compile()
    meta["qo_indptr_buffer"][:], meta["paged_kv_indptr_buffer"][:] = [0, 4], [0, 1]
    meta["paged_kv_last_page_len_buffer"][0] = 4
    kernel.run_test_mode()
    assert not np.any(y)
    with pytest.raises(megalith.UserError, match="want a whole number of at least 1"):
        PersistentKernel(max_seq_length=2**31)


def test_a_conversation_goes_on():
    """A second launch begins where the first one ended, with more of a prompt; the cache is kept."""
    meta = tables(1, 1, 4)
    meta["tokens"][0, :5] = PROMPTS[0]
    meta["prompt_lengths"][0] = 5
    decoder = Decoder(meta, 1, 4, lambda array: array, mode="online_multi_turn", eos_token_id=-1)
    whole = step_by_step(PROMPTS[0], -1)
    decoder.kernel.eos_token_id = whole[12]
    decoder.kernel()
    step = int(meta["step"][0])
    assert list(meta["tokens"][0, : step + 1]) == whole[: step + 1] and whole[step] == whole[12]
    more = [9, 11]
    meta["tokens"][0, step + 1 : step + 3] = more
    meta["prompt_lengths"][0] = step + 3
    decoder.kernel.eos_token_id = -1
    decoder.kernel()
    assert list(meta["tokens"][0]) == step_by_step(whole[: step + 1] + more, -1)


def test_conversations_go_on_side_by_side():
    """Each of three requests has its turns, and one has none in the second: its pages are kept for the third."""
    meta = tables(3, 3, 6)
    for r, prompt in enumerate(PROMPTS[:3]):
        meta["tokens"][r, : len(prompt)], meta["prompt_lengths"][r] = prompt, len(prompt)
    decoder = Decoder(meta, 3, 6, lambda array: array, mode="online_multi_turn")
    wanted = [list(prompt) for prompt in PROMPTS[:3]]
    turns = [{0: [], 1: [], 2: []}, {0: [9, 11], 2: [3]}, {1: [8, 7, 6]}]
    for turn in turns:
        for r, more in turn.items():
            wanted[r] += more
            meta["tokens"][r, len(wanted[r]) - len(more) : len(wanted[r])] = more
            meta["prompt_lengths"][r] = len(wanted[r])
        # Where each is to end: the token that it makes a few steps on.
        whole = {r: step_by_step(wanted[r], -1) for r in turn}
        ends = {whole[r][min(len(wanted[r]) + 4, LONGEST - 1)] for r in turn}
        for r in turn:
            begin = len(wanted[r])
            wanted[r] = whole[r][: next(i for i in range(begin, LONGEST) if whole[r][i] in ends or i == LONGEST - 1) + 1]
        decoder.kernel.eos_token_id = sorted(ends)
        decoder.kernel()
        for r, text in enumerate(wanted):
            assert (r, list(meta["tokens"][r, : meta["step"][r] + 1])) == (r, text)
    before = meta["tokens"].copy()
    decoder.kernel()  # nobody has a turn
    assert np.array_equal(before, meta["tokens"])


def test_conversations_need_a_slot_each():
    meta = tables(3, 2, 4)
    meta["prompt_lengths"][:], meta["step"][1] = 5, 2
    decoder = Decoder(meta, 2, 4, lambda array: array, mode="online_multi_turn")
    with pytest.raises(megalith.UserError, match=r'"step" has 2 at \[1\], want 0: the keys of earlier turns'):
        decoder.kernel()
