"""Drafts by prompt lookup, as MPK's layers ask for them: the same tokens in fewer iterations, for one request and for many."""

import functools

import numpy as np
import pytest
from conftest import BF16
from test_token_loop import HIDDEN, LONGEST, PROMPTS, VOCABULARY, Decoder, tables, weights

import megalith
import megalith.mirage as mi
from megalith.mirage.mpk.persistent_kernel import PersistentKernel

PERIOD = 5


def repeating_weights():
    """Of a model whose next token hangs on the last one: with them it goes round in circles of PERIOD tokens."""
    w = weights()
    w["norm"] = np.ones(HIDDEN, BF16)
    w["o"] = (w["o"].astype(np.float32) * 0.05).astype(BF16)
    after = np.arange(VOCABULARY)
    whole = VOCABULARY // PERIOD * PERIOD
    after[:whole] = after[:whole] // PERIOD * PERIOD + (after[:whole] + 1) % PERIOD
    w["head"][after] = w["embed"]
    return w


class Runs:
    """A decoder that begins the same prompts again and again."""

    def __init__(self, prompts, slots, rows, place=lambda array: array, **params):
        self.prompts = prompts
        self.meta = tables(len(prompts), slots, rows)
        self.set_prompts(self.meta)
        self.decoder = Decoder(self.meta, slots, rows, place, **params)
        self.kernel = self.decoder.kernel

    def set_prompts(self, meta):
        meta["tokens"][:] = meta["step"][:] = 0
        for r, prompt in enumerate(self.prompts):
            meta["tokens"][r, : len(prompt)] = prompt
            meta["prompt_lengths"][r] = len(prompt)

    def run(self, eos=-1):
        """(sequences, what the run counted)."""
        self.kernel.eos_token_id = eos
        self.kernel()
        found = {name: self.decoder.meta[name] for name in ("step", "tokens")}
        step, tokens = (table if isinstance(table, np.ndarray) else table.numpy() for table in found.values())
        assert all(not np.any(tokens[r, s + 1 :]) for r, s in enumerate(step)), "what is behind a sequence is not ours"
        sequences = [[int(t) for t in tokens[r, : s + 1]] for r, s in enumerate(step)]
        if found["step"] is self.meta["step"]:
            self.set_prompts(self.meta)
        return sequences, self.kernel.counts


def run(*args, **params):
    return Runs(*args, **params).run()


@functools.lru_cache(maxsize=None)
def without_drafts(made):
    """Without and with a token that ends some of them."""
    runs = Runs(PROMPTS, 2, 2, weights=made)
    whole, _ = runs.run()
    eos = whole[0][17]
    return {-1: whole, eos: runs.run(eos)[0]}


@pytest.mark.parametrize("made", [repeating_weights, weights])
@pytest.mark.parametrize("slots,rows,lookup", [(1, 8, (1, 7)), (2, 5, (1, 4)), (2, 8, (3, 3)), (4, 64, (2, 15))])
def test_tokens_are_those_without_drafts(target, made, slots, rows, lookup):
    place = megalith.to_device if target == "cuda" else lambda array: array
    runs = None
    for eos, expected in without_drafts(made).items():
        if runs is None or target == "cuda":
            runs = Runs(PROMPTS, slots, rows, place, weights=made, lookup=lookup)
        found, counts = runs.run(eos)
        assert found == expected
        assert counts.accepted_tokens <= counts.drafted_tokens <= counts.drafts * lookup[1]
        assert counts.accepted_tokens > 0 or made is weights


def test_text_that_repeats_takes_fewer_iterations():
    """A token and three drafts an iteration, as soon as the circle has been gone through once."""
    prompt = [[1]]
    expected, plain = run(prompt, 1, 4, weights=repeating_weights)
    assert expected[0][:12] == [1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1, 2] and len(expected[0]) == LONGEST
    assert plain == (LONGEST - 1, 0, 0, 0)
    found, counts = run(prompt, 1, 4, weights=repeating_weights, lookup=(3, 3))
    assert found == expected
    first = PERIOD + 2  # iterations until three tokens stand there twice
    full, rest = divmod(LONGEST - 1 - first, 4)
    assert counts.iterations == first + full + (rest > 0)
    assert counts.accepted_tokens == counts.drafted_tokens == LONGEST - 1 - counts.iterations
    assert counts.drafts == counts.iterations - first


def test_requests_at_work_together_all_gain():
    expected, plain = run(PROMPTS, 4, 16, weights=repeating_weights)
    found, counts = run(PROMPTS, 4, 16, weights=repeating_weights, lookup=(2, 3))
    assert found == expected
    assert counts.iterations < plain.iterations / 2
    assert counts.accepted_tokens == counts.drafted_tokens > 60  # all are right, once circles have closed


def test_drafts_take_what_rows_prompts_leave():
    """Two rows beside one for each request."""
    expected, plain = run(PROMPTS[:2], 2, 4, weights=repeating_weights)
    found, counts = run(PROMPTS[:2], 2, 4, weights=repeating_weights, lookup=(1, 3))
    assert found == expected and counts.drafted_tokens <= 2 * counts.iterations
    assert counts.iterations < plain.iterations


def test_a_second_run_counts_anew():
    runs = Runs([[1]], 1, 4, weights=repeating_weights, lookup=(3, 3))
    first, second = runs.run(), runs.run()
    assert first == second and first[1].accepted_tokens > 0


# ---- what layers may say ------------------------------------------------------------------------------------------


class Script:
    """The kernel of a script up to its layers."""

    def __init__(self, slots=1, rows=8, lookup=(3, 3), **params):
        self.meta = tables(2, slots, rows)
        self.spec = mi.mpk.configs.PromptLookupConfig(ngram_size=lookup[0], spec_length=lookup[1])
        params = {"spec_decode_config": self.spec, **params}
        pages = slots * -(-LONGEST // 8)
        self.kernel = PersistentKernel(
            meta_tensors=self.meta, max_seq_length=LONGEST, max_num_batched_requests=slots,
            max_num_batched_tokens=rows, max_num_pages=pages, page_size=8, **params,
        )  # fmt: skip
        attach = self.kernel.attach_input
        self.tokens = attach(self.meta["tokens"], name="all")
        self.best = attach(self.meta["output_tokens"], name="best")
        self.weight = attach(np.zeros((VOCABULARY, HIDDEN), BF16), name="w")
        self.x = self.kernel.new_tensor(dims=(rows, HIDDEN), name="x")
        self.logits = self.kernel.new_tensor(dims=(rows, VOCABULARY), name="logits")

    def draft(self):
        return self.kernel.draft_forward_layer_dispatcher(self.spec, self.tokens, (96, 1, 1), (128, 1, 1))

    def embed(self, ids):
        self.kernel.embed_layer(input=ids, weight=self.weight, output=self.x, input_source=1)
        self.kernel.linear_layer(input=self.x, weight=self.weight, output=self.logits)

    def argmax(self):
        self.kernel.argmax_layer(input=self.logits, output=self.best)


def test_the_layers_that_the_dispatchers_call():
    script = Script()
    k = script.kernel
    places = k.new_tensor(dims=(2, 96), dtype=mi.int64, name="places")
    drafts = k.new_tensor(dims=(2, 4), dtype=mi.int64, name="drafts")
    out = k.new_tensor(dims=(1, 1), dtype=mi.int64, name="out")
    k.find_ngram_partial_layer(script.tokens, places, (96, 1, 1), (128, 1, 1), ngram_size=3)
    k.find_ngram_global_layer((places, script.tokens), drafts, (1, 1, 1), (128, 1, 1), ngram_size=3, spec_length=3)
    script.embed(drafts)
    script.argmax()
    k.target_verify_greedy_layer((drafts, script.best), out, (1, 1, 1), (128, 1, 1))
    k.compile()
    node = next(line for line in str(k.graph).splitlines() if "next_batch" in line)
    assert "draft_tokens=3" in node.replace(" ", "") and "draft_match=3" in node.replace(" ", ""), node


def test_the_handlers_that_the_dispatchers_call():
    script = Script()
    ids = script.kernel.prompt_lookup_spec_handler(script.spec, script.tokens, (96, 1, 1), (128, 1, 1))
    assert ids.dims == (2, 4) and ids.dtype == "i64"
    script.embed(ids)
    script.argmax()
    out = script.kernel.prompt_lookup_verify_handler(script.spec, ids, script.best, (1, 1, 1), (128, 1, 1))
    assert out.dims == (1, 1)
    script.kernel.compile()


def lookahead(script):
    PersistentKernel(spec_decode_config=mi.speculative.LookaheadConfig())


def no_configuration(script):
    PersistentKernel(spec_decode_config="promptlookup")


def a_long_ngram(script):
    PersistentKernel(spec_decode_config=mi.speculative.PromptLookupConfig(ngram_size=65))


def another_configuration(script):
    other = mi.speculative.spec_decode_class("promptlookup", ngram_size=2, spec_length=3)
    script.kernel.draft_forward_layer_dispatcher(other, script.tokens)


def other_tokens(script):
    script.kernel.draft_forward_layer_dispatcher(script.spec, script.best)


def drafts_twice(script):
    script.embed(script.draft())
    script.kernel.find_ngram_partial_layer(
        script.tokens, script.kernel.new_tensor(dims=(2, 96), dtype="i64", name="p"), ngram_size=3
    )


def no_partial_results(script):
    new = functools.partial(script.kernel.new_tensor, dtype="i64")
    script.kernel.find_ngram_global_layer(
        (new(dims=(2, 96), name="p"), script.tokens), new(dims=(2, 4), name="d"), spec_length=3
    )


def an_attached_output(script):
    out = script.kernel.attach_input(np.zeros((2, 96), np.int64), name="p")
    script.kernel.find_ngram_partial_layer(script.tokens, out, ngram_size=3)


def drafts_that_are_not_read(script):
    script.kernel.embed_layer(input=script.draft(), weight=script.weight, output=script.x, input_source=0)


def verifies_nothing(script):
    script.kernel.verify_layer_dispatcher(script.spec, script.tokens, script.best)


def verifies_before_there_is_anything(script):
    script.kernel.verify_layer_dispatcher(script.spec, script.draft(), script.best)


def verifies_what_was_drawn(script):
    ids = script.draft()
    script.embed(ids)
    script.kernel.sampling_layer(script.logits, script.best)
    script.kernel.verify_layer_dispatcher(script.spec, ids, script.best)


def verifies_others(script):
    ids = script.draft()
    script.embed(ids)
    mine = script.kernel.attach_input(np.zeros((8, 1), np.int64), name="mine")
    script.kernel.argmax_layer(input=script.logits, output=mine)
    script.kernel.verify_layer_dispatcher(script.spec, ids, mine)


def compiles_without_drafts(script):
    script.embed(script.kernel.attach_input(script.meta["input_tokens"], name="ids"))
    script.argmax()
    script.kernel.compile()


def compiles_drafts_that_nobody_embeds(script):
    ids = script.draft()
    script.embed(script.kernel.attach_input(script.meta["input_tokens"], name="ids"))
    script.argmax()
    script.kernel.verify_layer_dispatcher(script.spec, ids, script.best)
    script.kernel.compile()


def compiles_without_verification(script):
    script.embed(script.draft())
    script.argmax()
    script.kernel.compile()


@pytest.mark.parametrize(
    "mistake,message",
    [
        (lookahead, r'\[PersistentKernel\] .* the method "lookahead", for which MPK has a name and no layers'),
        (no_configuration, r"\[PersistentKernel\] spec_decode_config is 'promptlookup', want None or what"),
        (a_long_ngram, r"\[PersistentKernel\] ngram_size is 65, want"),
        (another_configuration, r"ngram_size is 2, but the kernel's spec_decode_config has 3: want the same"),
        (other_tokens, r'tokens "best" is not the meta tensor "tokens"'),
        (drafts_twice, r"\[find_ngram_partial_layer\] the kernel has drafts already"),
        (no_partial_results, r'input\[0\] "p" is not what find_ngram_partial_layer makes'),
        (an_attached_output, r'output "p" would not be written'),
        (drafts_that_are_not_read, r'\[embed_layer\] input "spec_tokens" has drafts, .* want input_source=1'),
        (verifies_nothing, r'spec_tokens "all" has no drafts'),
        (verifies_before_there_is_anything, r'of "best" no layer writes it yet'),
        (verifies_what_was_drawn, r'of "best" sampling_layer_\d+ writes it'),
        (verifies_others, r'target_output "mine" is not the meta tensor "output_tokens"'),
        (compiles_without_drafts, r"\[compile\] .* call draft_forward_layer_dispatcher"),
        (compiles_drafts_that_nobody_embeds, r"\[compile\] .* call embed_layer with what it gives"),
        (compiles_without_verification, r"\[compile\] .* call verify_layer_dispatcher"),
    ],
)
def test_what_cannot_be_mapped_says_why(mistake, message):
    with pytest.raises(megalith.UserError, match=message):
        mistake(Script())


@pytest.mark.parametrize(
    "params,message",
    [
        ({"test_mode": True}, r"test_mode runs one"),
        ({"mode": "onepass"}, r'mode="onepass" runs one'),
        ({"spec_decode_config": None}, r"made without spec_decode_config"),
    ],
)
def test_drafts_need_a_token_loop(params, message):
    with pytest.raises(megalith.UserError, match=message):
        Script(**params).draft()


def test_a_token_and_its_drafts_need_rows():
    script = Script(rows=3)
    ids = script.draft()
    script.embed(ids)
    script.argmax()
    script.kernel.verify_layer_dispatcher(script.spec, ids, script.best)
    with pytest.raises(megalith.UserError, match="max_num_batched_tokens is 3, want at least 4: a token and its 3"):
        script.kernel.compile()


def test_counts_are_of_a_token_loop():
    with pytest.raises(megalith.UserError, match=r"\[counts\] the kernel is not compiled"):
        Script().kernel.counts
