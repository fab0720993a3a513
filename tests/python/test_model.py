"""Whole models from Python, on the bundled one: texts, batches, streams, logits, and what there is to look at."""

import json
import pathlib
import shutil

import numpy as np
import pytest
from conftest import NO_GPU

import megalith

ROOT = pathlib.Path(__file__).resolve().parents[2]
STORYTELLER = ROOT / "models" / "storyteller"


@pytest.fixture(scope="module", params=["cpu", "cuda"])
def model(request):
    if request.param == "cuda" and NO_GPU is not None:
        pytest.skip(NO_GPU)
    return megalith.load(STORYTELLER, target=request.param, max_batch=3, max_seq_len=256)


def test_text_goes_on(model):
    one = model.generate("Once upon a time", max_new_tokens=12)
    assert len(one.tokens) == 12 and one.reason == "length"
    assert one.text == model.decode(one.tokens) and one.text.startswith(" there")


def test_tokens_for_text(model):
    ids = model.encode("Once upon a time")
    assert model.generate(ids, max_new_tokens=8) == model.generate("Once upon a time", max_new_tokens=8)


def test_a_batch_is_its_prompts_one_by_one(model):
    prompts = ["Once upon a time", model.encode("A fox"), "The king said"]
    together = model.generate(prompts, max_new_tokens=10)
    assert [model.generate(prompt, max_new_tokens=10).tokens for prompt in prompts] == [one.tokens for one in together]


def test_drafts_change_no_token():
    prompt = "The cat was big and the cat was red. The cat was big and"
    texts = [megalith.load(STORYTELLER, max_seq_len=256, draft_tokens=n).generate(prompt, max_new_tokens=40).text for n in (0, 7)]
    assert texts[0] == texts[1]
    with pytest.raises(megalith.UserError, match="--draft-tokens is 16, want 0 to 15"):
        megalith.load(STORYTELLER, draft_tokens=16)


def test_a_draft_model_changes_no_token():
    texts = [megalith.load(STORYTELLER, max_seq_len=128, draft_model=small, draft_tokens=2 * (small is not None))
             .generate("Once upon a time", max_new_tokens=20).text for small in (None, STORYTELLER)]  # fmt: skip
    assert texts[0] == texts[1]
    with pytest.raises(megalith.UserError, match=r"\[load\] draft_model is 3, want a path"):
        megalith.load(STORYTELLER, draft_model=3)


def test_a_stream_is_the_same_text(model):
    whole = model.generate("Once upon a time", max_new_tokens=15)
    pieces = list(model.generate("Once upon a time", max_new_tokens=15, stream=True))
    assert "".join(pieces) == whole.text
    assert [piece.token for piece in pieces] == whole.tokens
    assert {piece.request for piece in pieces} == {0}


def test_a_stream_may_be_left(model):
    for count, _ in enumerate(model.generate("Once upon a time", max_new_tokens=200, stream=True)):
        if count == 3:
            break
    assert model.generate("A fox", max_new_tokens=3).reason == "length"


def test_one_stream_at_a_time(model):
    stream = model.generate("Once upon a time", max_new_tokens=50, stream=True)
    next(stream)
    for call in (
        lambda: model.generate("A fox"),
        lambda: model.logits("A fox"),
        lambda: next(model.generate("A", stream=True)),
    ):
        with pytest.raises(megalith.UserError, match=r"not read to its end: read it, or close\(\) it"):
            call()
    stream.close()
    assert len(model.generate("A fox", max_new_tokens=2).tokens) == 2


def test_stop_strings_end_a_text(model):
    whole = model.generate("Once upon a time", max_new_tokens=24)
    stop = whole.text[len(whole.text) // 2 :][:4]
    cut = whole.text[: whole.text.index(stop)]
    one = model.generate("Once upon a time", max_new_tokens=24, stop=stop)
    assert (one.text, one.reason) == (cut, "stop") and one.tokens == whole.tokens[: len(one.tokens)]
    assert "".join(model.generate("Once upon a time", max_new_tokens=24, stop=["no such text", stop], stream=True)) == cut
    two = model.generate(["Once upon a time", "Once upon a time"], max_new_tokens=24, stop=[stop])
    assert [text for text, _, _ in two] == [cut, cut]
    with pytest.raises(megalith.UserError, match=r"\[generate\] stop is 5, want a string"):
        model.generate("Once", stop=5)
    with pytest.raises(megalith.UserError, match=r"\[generate\] a stop string is 5, want a string"):
        model.generate("Once", stop=["a", 5])


def test_stop_strings_of_the_model_count(tmp_path):
    for file in STORYTELLER.iterdir():
        (tmp_path / file.name).symlink_to(file)
    whole = megalith.load(STORYTELLER, max_seq_len=256).generate("Once upon a time", max_new_tokens=24).text
    stop = whole[len(whole) // 2 :][:4]
    (tmp_path / "generation_config.json").unlink()
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": 0, "stop_strings": stop}))
    model = megalith.load(tmp_path, max_seq_len=256)
    assert model.generate("Once upon a time", max_new_tokens=24).text == whole[: whole.index(stop)]
    for off in ({"stop": []}, {"ignore_stop_tokens": True}):
        assert model.generate("Once upon a time", max_new_tokens=24, **off).text == whole


def test_tokens_that_end_a_text(model):
    whole = model.generate("Once upon a time", max_new_tokens=20, ignore_stop_tokens=True)
    stop = whole.tokens[6]
    first = whole.tokens.index(stop)
    for ignores in (False, True):
        ended = model.generate(
            "Once upon a time", max_new_tokens=20, stop_token_ids=[stop], ignore_stop_tokens=ignores
        )
        assert (ended.tokens, ended.reason) == (whole.tokens[: first + 1], "stop")
        assert ended.text == model.decode(whole.tokens[:first])
    later = model.generate("Once upon a time", max_new_tokens=20, stop_token_ids=[stop], min_tokens=12)
    assert stop not in later.tokens[:12] and len(later.tokens) >= 12
    assert model.generate("Once upon a time", max_new_tokens=20, stop=[whole.text[5:9]], min_tokens=20).text == whole.text


def test_tokens_that_are_wanted_or_not(model):
    whole = model.generate("Once upon a time", max_new_tokens=8).tokens
    logits = model.logits("Once upon a time")
    logits[whole[0]] -= 100
    biased = model.generate("Once upon a time", max_new_tokens=8, logit_bias={whole[0]: -100, np.int64(7): 0.5}).tokens
    assert biased[0] == int(np.argmax(logits)) and whole[0] not in biased
    drawn = model.generate("Once", max_new_tokens=30, temperature=9.0, allowed_token_ids=np.array([9, 5, 12])).tokens
    assert set(drawn) == {5, 9, 12}
    bad = [model.decode(whole[1:3]), model.decode(whole[5:6])]
    made = model.generate("Once upon a time", max_new_tokens=30, bad_words=bad)
    assert made.tokens[:2] == whole[:2] and whole[5] not in made.tokens
    assert whole[2] not in [behind for first, behind in zip(made.tokens, made.tokens[1:]) if first == whole[1]]


def test_logprobs(model):
    whole = model.generate(["Once upon a time", "The"], max_new_tokens=8, logprobs=True, top_logprobs=3)
    for prompt, made in zip(("Once upon a time", "The"), whole):
        assert len(made.logprobs) == len(made.top_logprobs) == 8
        assert [top[0] for top in made.top_logprobs] == list(zip(made.tokens, made.logprobs))
        logits = model.logits(prompt).astype(float)
        order = np.argsort(-logits)[:3]
        assert [token for token, _ in made.top_logprobs[0]] == list(order)
        wanted = logits[order] - np.log(np.exp(logits).sum())
        assert [value for _, value in made.top_logprobs[0]] == pytest.approx(list(wanted), abs=1e-4)
        pieces = list(model.generate(prompt, max_new_tokens=8, logprobs=True, stream=True))
        assert [piece.logprob for piece in pieces] == made.logprobs
    plain = model.generate("The", max_new_tokens=8)
    text, tokens, reason = plain
    assert (text, tokens, reason) == (whole[1].text, whole[1].tokens, whole[1].reason)
    assert plain.logprobs == plain.top_logprobs == []


def test_minus_one_is_no_limit(model):
    made = model.generate("Once upon a time", max_new_tokens=-1, top_k=-1, ignore_stop_tokens=True)
    assert len(model.encode("Once upon a time")) + len(made.tokens) == model.max_seq_len


def test_the_seed_decides(model):
    def drawn(seed):
        return model.generate("Once", max_new_tokens=20, temperature=1.0, seed=seed).tokens

    assert drawn(1) == drawn(1) != drawn(2)


def test_logits_have_the_next_token(model):
    logits = model.logits("Once upon a time")
    assert logits.shape == (model.vocab_size,) and logits.dtype == np.float32
    assert int(np.argmax(logits)) == model.generate("Once upon a time", max_new_tokens=1).tokens[0]


def test_mistakes(model):
    for prompt, message in (
        ([], "empty"),
        ([10**6], "vocabulary"),
        (["a", "b", "c", "d"], "4 prompts in one batch"),
        (5, "want a string or a list of token ids"),
        ("x" * 5000, "tokens, but a sequence may have 256"),
    ):
        with pytest.raises(megalith.UserError, match=message):
            model.generate(prompt)
    for settings, message in (
        ({"temperature": "hot"}, r"\[generate\] temperature is 'hot', want a number"),
        ({"logit_bias": [1]}, r"\[generate\] logit_bias is \[1\], want a dict from token ids to biases"),
        ({"logit_bias": {"a": 1}}, r"\[generate\] a token of logit_bias is 'a', want a whole number"),
        ({"logit_bias": {5: "b"}}, r"\[generate\] a bias of logit_bias is 'b', want a number"),
        ({"logit_bias": {5: 101}}, "logit_bias of the token 5 is 101, want -100 to 100"),
        ({"logit_bias": {10**6: 1}}, "logit_bias names the token 1000000, but the vocabulary has 4096 tokens"),
        ({"stop_token_ids": 5}, r"\[generate\] stop_token_ids is 5, want a list of token ids"),
        ({"stop_token_ids": [1, -2]}, r"\[generate\] stop_token_ids\[1\] is -2, want 0 or more"),
        ({"stop_token_ids": range(17)}, "stop_token_ids has 17 tokens, want at most 16"),
        ({"allowed_token_ids": range(301)}, "allowed_token_ids names 301 tokens, want at most 300"),
        ({"min_tokens": 9, "max_new_tokens": 8}, "min_tokens is 9, want 0 to the 8 new tokens"),
        ({"top_k": 1.5}, r"\[generate\] top_k is 1.5, want a whole number"),
        ({"seed": -1}, r"\[generate\] seed is -1, want 0 or more"),
        ({"max_new_tokens": 2**40}, r"\[generate\] max_new_tokens is 1099511627776, want at most"),
    ):
        with pytest.raises(megalith.UserError, match=message):
            model.generate("x", **settings)
    with pytest.raises(megalith.UserError, match=r"\[decode\] tokens is 'x', want a list of token ids"):
        model.decode("x")
    with pytest.raises(megalith.UserError, match="half of a surrogate pair at 1"):
        model.encode("a\udc80")
    with pytest.raises(megalith.UserError, match="a token of the prompt is 4294967297"):
        model.generate([2**32 + 1])
    with pytest.raises(megalith.UserError, match="5000|256"):
        list(model.generate("x " * 5000, stream=True))


def test_logits_that_are_nan_are_told(tmp_path, capfd):
    for name in ("config.json", "tokenizer.json"):
        shutil.copy(STORYTELLER / name, tmp_path)
    file = bytearray((STORYTELLER / "model.safetensors").read_bytes())
    behind_header = 8 + int.from_bytes(file[:8], "little")
    begin, end = json.loads(file[8:behind_header])["model.norm.weight"]["data_offsets"]
    file[behind_header + begin : behind_header + end] = b"\xff" * (end - begin)  # NaN in every type
    (tmp_path / "model.safetensors").write_bytes(file)
    megalith.load(tmp_path, max_seq_len=256).generate([5], max_new_tokens=2)
    assert "[generate] the model's logits from token 1 on are NaN or infinite" in capfd.readouterr().err


def test_parts_print(model):
    assert str(model.graph).startswith("graph ")
    assert "tasks on" in str(model.tasks) and len(model.tasks) > 10
    assert model.tasks.placement().count("\n") == len(model.tasks.workers)
    assert json.loads(model.tasks.to_json())["tasks"]
    assert "megalith" in model.source
    assert "partition" in str(model.report) and "build" in model.report.stages
    assert model.loops().startswith("# ") and "kernel attention_partial" in model.loops()
    assert pathlib.Path(model.kernel.directory).is_dir()
    assert "parameters" in repr(model)
