"""Prompts that come at any time, from threads and from asyncio: the same sequences as generate() makes, and nobody waits for
somebody else's reader. What ends a process is in scripts of their own."""

import asyncio
import gc
import json
import os
import pathlib
import shutil
import threading
import time

import numpy as np
import pytest
from conftest import NO_GPU
from test_ends import INTERRUPT, run

import megalith

ROOT = pathlib.Path(__file__).resolve().parents[2]
STORYTELLER = ROOT / "models" / "storyteller"
PROMPTS = ["Once upon a time", "The king said", "A fox", [300, 301, 302]]
LONG = {"max_new_tokens": 200, "ignore_stop_tokens": True}


def kernel(target):
    """Options of one kernel for all of these tests: it takes a while to compile, and another one may have sums in another order."""
    return {"max_seq_len": 256, "max_batch": 2, "num_workers": 1 if target == "cpu" else 0}


def made(target="cpu", folder=STORYTELLER, **options):
    return megalith.Engine(folder, target, **kernel(target), **options)


@pytest.fixture(scope="module", params=["cpu", "cuda"])
def target(request):
    if request.param == "cuda" and NO_GPU is not None:
        pytest.skip(NO_GPU)
    return request.param


@pytest.fixture(scope="module")
def engine(target):
    with made(target, max_queue=60) as one:
        yield one


@pytest.fixture(scope="module")
def model(target):
    return megalith.load(STORYTELLER, target, **kernel(target))


def settled(engine, seconds=20):
    """The load once nothing runs or waits."""
    end = time.time() + seconds
    while (load := engine.load()).running + load.waiting > 0 and time.time() < end:
        time.sleep(0.005)
    assert (load.running, load.waiting, load.pages_used) == (0, 0, 0)
    return load


def until(condition, seconds=20):
    end = time.time() + seconds
    while not condition() and time.time() < end:
        time.sleep(0.002)
    assert condition()


# ---- what is made -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 1.0, "seed": 3},
        {"temperature": 0.8, "top_p": 0.9, "top_k": 40, "min_p": 0.01, "repetition_penalty": 1.1, "seed": 2**64 - 1},
        {"presence_penalty": 0.5, "frequency_penalty": 0.5, "logit_bias": {300: 2.0}, "ignore_stop_tokens": True},
        {"temperature": 9.0, "allowed_token_ids": [5, 9, 12], "min_tokens": 12, "show_special": True},
        {"stop": ["ed", "ing "], "min_tokens": 3},
        {"stop_token_ids": [12, 14, 259]},
        {"temperature": 0.8, "seed": 5, "logprobs": True, "top_logprobs": 4},
        {"bad_words": ["the", "upon a"], "stop": "ing"},
    ],
)
def test_the_same_as_generate(engine, model, options):
    answers = [engine.submit(prompt, max_new_tokens=24, **options) for prompt in PROMPTS]
    assert [answer.result() for answer in answers] == [
        model.generate(prompt, max_new_tokens=24, **options) for prompt in PROMPTS
    ]


def test_pieces_are_the_text(engine, model):
    whole = model.generate("Once upon a time", max_new_tokens=15)
    answer = engine.submit("Once upon a time", max_new_tokens=15)
    pieces = list(answer)
    assert "".join(pieces) == whole.text == answer.text
    assert [piece.token for piece in pieces] == whole.tokens == answer.tokens
    assert {(piece.request, piece.logprob) for piece in pieces} == {(0, None)} and answer.logprobs == []
    assert list(answer) == [] and answer.result() == whole  # each piece once, the whole as often as one likes


def test_a_stop_string_ends_the_request(engine, model):
    whole = model.generate("Once upon a time", max_new_tokens=200, ignore_stop_tokens=True)
    stop = whole.text[20:24]
    before = settled(engine).generated_tokens
    answer = engine.submit("Once upon a time", stop=stop, **LONG)
    assert "".join(answer) == whole.text[: whole.text.index(stop)] and answer.finish_reason == "stop"
    assert answer.tokens == whole.tokens[: len(answer.tokens)]
    assert settled(engine).generated_tokens - before < 150  # and nothing goes on unseen


def test_a_reader_is_not_needed_for_a_stop_string(engine):
    answer = engine.submit("Once upon a time", stop=["e"], **LONG)
    until(lambda: answer.finish_reason is not None)
    assert answer.finish_reason == "stop" and answer.usage.generated_tokens < 50
    settled(engine)


def test_logprobs_of_the_prompt(engine, model):
    ids = model.encode("Once upon a time there was")
    answer = engine.submit(ids, max_new_tokens=2, top_logprobs=1, prompt_logprobs=2)
    assert answer.result().tokens == model.generate(ids, max_new_tokens=2).tokens
    assert [len(top) for top in answer.top_logprobs] == [1, 1] and answer.logprobs == []
    assert len(answer.prompt_logprobs) == len(ids) - 1
    for i, (logprob, top) in enumerate(answer.prompt_logprobs, 1):
        logits = model.logits(ids[:i]).astype(float)
        values = logits - np.log(np.exp(logits).sum())
        assert logprob == pytest.approx(values[ids[i]], abs=1e-4)
        assert [token for token, _ in top] == list(np.argsort(-logits)[:2])
    assert engine.submit(ids, max_new_tokens=1).result().text and engine.submit(ids, max_new_tokens=1).prompt_logprobs == []


def test_logprobs(engine, model):
    answer = engine.submit("Once upon a time", max_new_tokens=6, logprobs=True)
    pieces = list(answer)
    assert [piece.logprob for piece in pieces] == answer.logprobs and len(answer.logprobs) == 6
    logits = model.logits("Once upon a time").astype(np.float64)
    logits -= logits.max()
    assert answer.logprobs[0] == pytest.approx(logits[pieces[0].token] - np.log(np.exp(logits).sum()), abs=1e-4)


def test_usage(engine):
    engine.clear_prefix_cache()
    prompt = list(range(300, 340))
    first = engine.submit(prompt, max_new_tokens=5, ignore_stop_tokens=True)
    assert first.usage.prompt_tokens == 40
    first.result()
    second = engine.submit(prompt, max_new_tokens=7, ignore_stop_tokens=True)
    salted = engine.submit(prompt, max_new_tokens=7, ignore_stop_tokens=True, cache_salt="somebody else")
    assert second.result() == salted.result() and second.result().tokens[:5] == first.result().tokens
    assert [a.usage for a in (first, second, salted)] == [(40, 0, 5), (40, 32, 7), (40, 0, 7)]
    load = settled(engine)
    assert load.pages_kept > 0 and load.prefix_hits >= 32 and "pages used" in repr(load)
    engine.clear_prefix_cache()
    assert engine.load().pages_kept == 0


def test_without_a_tokenizer(tmp_path):
    folder = tmp_path / "storyteller"
    folder.mkdir()
    for name in ("config.json", "model.safetensors", "generation_config.json"):
        shutil.copy(STORYTELLER / name, folder)
    with made(folder=folder) as engine:
        pieces = list(engine.submit([300, 301], max_new_tokens=5, ignore_stop_tokens=True))
        assert len(pieces) == 5 and set(pieces) == {""}
        for call in (lambda: engine.submit("A fox"), lambda: engine.submit([300], stop="x")):
            with pytest.raises(megalith.UserError, match=r"\[submit\] .* has no tokenizer.json"):
                call()


def test_priorities(target):
    with made(target) as engine:
        first = [engine.submit("A", **LONG) for _ in range(2)]
        until(lambda: engine.load().running == 2)
        ended = []
        answers = [engine.submit("A", max_new_tokens=20, ignore_stop_tokens=True, priority=p) for p in (2, 1, -1)]
        assert engine.load().waiting == 3

        def wait(number):
            answers[number].result()
            ended.append(number)

        threads = [threading.Thread(target=wait, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        first[0].abort()
        for thread in threads:
            thread.join()
        assert ended == [2, 1, 0]


# ---- many at a time -----------------------------------------------------------------------------------------------


def options_of(number):
    """Of the n-th of many: no two alike."""
    return {"max_new_tokens": 5 + number % 23, "temperature": number % 3 * 0.5, "seed": number, "ignore_stop_tokens": True}


def test_many_async_streams(engine, model):
    alone = [model.generate(PROMPTS[i % 4], **options_of(i)) for i in range(50)]

    async def stream(number):
        pieces = [piece async for piece in engine.submit(PROMPTS[number % 4], **options_of(number))]
        return "".join(pieces), [piece.token for piece in pieces]

    async def main():
        before = threading.active_count()
        streams = [asyncio.ensure_future(stream(number)) for number in range(50)]
        await asyncio.sleep(0.01)
        assert threading.active_count() == before
        return await asyncio.gather(*streams)

    for _ in range(2):  # the second time in another loop
        streams = asyncio.run(main())
        assert [text for text, _ in streams] == [one.text for one in alone]
        assert [tokens[: len(one.tokens)] for (_, tokens), one in zip(streams, alone)] == [one.tokens for one in alone]
    settled(engine)


def test_awaited(engine, model):
    async def main():
        answers = [engine.submit(prompt, max_new_tokens=12) for prompt in PROMPTS]
        again = asyncio.gather(*(asyncio.shield(asyncio.ensure_future(wait(answer))) for answer in answers))
        return [await answer for answer in answers], await again

    async def wait(answer):
        return await answer

    assert asyncio.run(main()) == ([model.generate(prompt, max_new_tokens=12) for prompt in PROMPTS],) * 2


def test_threads_submit(engine, model):
    alone = [model.generate(PROMPTS[i % 4], **options_of(i)).tokens for i in range(40)]
    made, errors = [None] * 40, []

    def client(first):
        try:
            for i in range(first, 40, 5):
                answer = engine.submit(PROMPTS[i % 4], **options_of(i))
                made[i] = answer.result().tokens if i % 2 else ("".join(answer), answer.tokens)[1]
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=client, args=(first,)) for first in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == [] and made == alone
    settled(engine)


def test_two_threads_read_one_answer(engine):
    answer = engine.submit("A", **LONG)
    parts = [[], []]
    threads = [threading.Thread(target=lambda part=part: part.extend(p.token for p in answer)) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(parts[0] + parts[1]) == sorted(answer.tokens) and len(answer.tokens) == 200


def test_a_slow_reader_holds_up_nobody(engine):
    slow = engine.submit("A", **LONG)
    next(slow)
    assert len(engine.submit("A fox", max_new_tokens=100, ignore_stop_tokens=True).result(timeout=60).tokens) == 100
    until(lambda: slow.finish_reason == "length")  # nor does the slow one itself wait in the engine
    assert 1 + len([piece.token for piece in slow]) == 200


# ---- the end of one -----------------------------------------------------------------------------------------------


def test_abort_frees_the_place(engine):
    answers = [engine.submit("A", **LONG) for _ in range(6)]
    next(answers[0])
    assert engine.load().running == 2 and engine.load().waiting == 4
    for answer in answers:
        answer.abort()
        answer.abort()
        made = answer.result()
        assert made.reason == answer.finish_reason == "abort" and len(made.tokens) < 200
        assert "".join(answer) in made.text
    settled(engine)


def test_a_cancelled_task_frees_the_place(engine):
    async def stream(answer):
        async for _ in answer:
            pass

    async def main():
        answers = [engine.submit("A", **LONG) for _ in range(4)]
        tasks = [asyncio.ensure_future(stream(answer)) for answer in answers]
        tasks.append(asyncio.ensure_future(asyncio.wait_for(engine.submit("A", **LONG), 0.02)))
        await asyncio.sleep(0.02)
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(end, (asyncio.CancelledError, asyncio.TimeoutError)) for end in ended)
        assert [answer.finish_reason for answer in answers] == ["abort"] * 4

    asyncio.run(main())
    settled(engine)


def test_one_of_two_that_wait_may_leave(engine):
    async def wait(answer):
        return await answer

    async def main():
        answer = engine.submit("A", **LONG)
        stays, leaves = asyncio.ensure_future(wait(answer)), asyncio.ensure_future(wait(answer))
        await asyncio.sleep(0.01)
        leaves.cancel()
        return await stays

    assert len(asyncio.run(main()).tokens) == 200


def test_a_loop_that_ends_early(engine):
    async def main():
        async for _ in engine.submit("A", **LONG):
            break

    asyncio.run(main())
    gc.collect()
    settled(engine)


def test_what_nobody_holds_is_aborted(engine):
    answers = [engine.submit("A", **LONG) for _ in range(5)]
    next(answers[0])
    circle = [answers.pop()]
    circle.append(circle)
    del circle
    answers.clear()
    gc.collect()
    settled(engine)
    for _ in engine.submit("A", **LONG):
        break
    settled(engine)


def test_a_timeout(engine):
    answer = engine.submit("A", **LONG)
    with pytest.raises(TimeoutError, match=r"\[result\] the answer is not complete after 0 s"):
        answer.result(timeout=0)
    assert len(answer.result(timeout=60).tokens) == 200  # it went on


# ---- the end of all -----------------------------------------------------------------------------------------------

CLOSED = "the engine was closed before this answer was complete"


def test_close_with_work_in_flight(target):
    engine = made(target)
    read, waits, running, aborted = (engine.submit("A", **LONG) for _ in range(4))
    aborted.abort()
    first = next(read)
    caught = []

    def wait():
        try:
            waits.result()
        except megalith.UserError as error:
            caught.append(str(error))

    thread = threading.Thread(target=wait)
    thread.start()
    engine.close()
    engine.close()
    thread.join()
    assert len(caught) == 1 and CLOSED in caught[0]
    rest = []
    with pytest.raises(megalith.UserError, match=CLOSED):
        for piece in read:
            rest.append(piece)
    assert first + "".join(rest) == read.text and read.finish_reason == "abort"  # what was made is not lost
    with pytest.raises(megalith.UserError, match=CLOSED):
        asyncio.run(awaited(running))
    assert aborted.result().reason == "abort"
    for call in (lambda: engine.submit("A"), engine.load, engine.clear_prefix_cache):
        with pytest.raises(megalith.UserError, match="the engine is closed: make another one"):
            call()
    assert "closed" in repr(engine) and engine.max_batch == 2


async def awaited(answer):
    return await answer


def test_close_while_others_submit():
    engine = made()
    ends = []

    def client():
        try:
            while True:
                answer = engine.submit("A", max_new_tokens=3)
                answer.result()
        except megalith.UserError as error:
            ends.append("closed" in str(error))

    threads = [threading.Thread(target=client) for _ in range(6)]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    engine.close()
    for thread in threads:
        thread.join()
    assert ends == [True] * 6


def test_an_answer_keeps_its_engine(target, model):
    answer = made(target).submit("Once upon a time", max_new_tokens=8)
    gc.collect()
    assert answer.result() == model.generate("Once upon a time", max_new_tokens=8)


# ---- errors -------------------------------------------------------------------------------------------------------


def test_a_full_queue_refuses_and_loses_nothing(target):
    with made(target, max_queue=2) as engine:
        answers = [engine.submit("A", **LONG) for _ in range(4)]
        with pytest.raises(megalith.QueueFull, match=r"\[submit\] 2 requests are at work and 2 wait, which is the most"):
            engine.submit("A")
        assert issubclass(megalith.QueueFull, megalith.SystemError)
        answers.pop().abort()
        until(lambda: engine.load().waiting == 1)
        answers.append(engine.submit("A", max_new_tokens=5, ignore_stop_tokens=True))
        assert [len(answer.result().tokens) for answer in answers] == [200, 200, 200, 5]


def test_mistakes(engine):
    before = settled(engine)
    for prompt, message in (
        ([], "empty"),
        ([10**6], "vocabulary"),
        (5, r"\[submit\] the prompt is 5, want a string or a list of token ids"),
        (["a", "b"], r"\[submit\] the prompt has 'a' in it"),
        ("x" * 5000, "tokens, but a sequence may have 256"),
    ):
        with pytest.raises(megalith.UserError, match=message):
            engine.submit(prompt)
    for settings, message in (
        ({"temperature": "hot"}, r"\[submit\] temperature is 'hot', want a number"),
        ({"temperature": -1}, "temperature is -1"),
        ({"logit_bias": [1]}, r"\[submit\] logit_bias is \[1\], want a dict"),
        ({"stop": 5}, r"\[submit\] stop is 5, want a string"),
        ({"min_tokens": 9, "max_new_tokens": 8}, "min_tokens is 9, want 0 to the 8 new tokens"),
        ({"logprobs": 5}, r"\[submit\] logprobs is 5, want True or False"),
        ({"top_logprobs": 21}, "top_logprobs is 21, want 0 to 20"),
        ({"prompt_logprobs": -1}, r"\[submit\] prompt_logprobs is -1, want 0 or more"),
        ({"bad_words": ["a", " "]}, 'bad_words has the word " ", want one that is more than spaces'),
        ({"bad_words": [5]}, r"\[submit\] a bad word is 5, want a string"),
        ({"priority": "high"}, r"\[submit\] priority is 'high', want a whole number"),
        ({"cache_salt": 5}, r"\[submit\] cache_salt is 5, want a string"),
        ({"json_schema": 5}, r"\[submit\] json_schema is 5, want a string"),
        ({"choice": "yes"}, r"\[submit\] choice is 'yes', want a list of texts"),
        ({"regex": "a", "grammar": "b"}, r"\[submit\] regex and grammar both say what the text may be"),
        ({"regex": "("}, "the regular expression is none that can be followed"),
    ):
        with pytest.raises(megalith.UserError, match=message):
            engine.submit("x", **settings)
    with pytest.raises(TypeError, match="max_tokens"):
        engine.submit("x", max_tokens=5)
    with pytest.raises(megalith.UserError, match=r"\[result\] timeout is -1.0, want a finite number of at least 0"):
        engine.submit("x").result(timeout=-1)
    for settings, message in (
        ({"max_queue": -1}, r"\[Engine\] max_queue is -1, want 0 or more"),
        ({"prefix_cache": "x"}, r"\[Engine\] prefix_cache is 'x', want True or False"),
        ({"page_size": 0}, r"\[Engine\] page_size is 0, want at least 1"),
        ({"quantization": "int4"}, r"\[Engine\] quantization is 'int4'"),
    ):
        with pytest.raises(megalith.UserError, match=message):
            megalith.Engine(STORYTELLER, **settings)
    with pytest.raises(megalith.UserError, match=r"\[Answer\] an answer is made by Engine.submit"):
        megalith.Answer(engine, None)
    assert settled(engine).prompt_tokens - before.prompt_tokens <= 1  # of the one whose result() was refused


def test_logits_that_are_nan(tmp_path):
    folder = tmp_path / "storyteller"
    folder.mkdir()
    for name in ("config.json", "tokenizer.json"):
        shutil.copy(STORYTELLER / name, folder)
    file = bytearray((STORYTELLER / "model.safetensors").read_bytes())
    behind_header = 8 + int.from_bytes(file[:8], "little")
    begin, end = json.loads(file[8:behind_header])["model.norm.weight"]["data_offsets"]
    file[behind_header + begin : behind_header + end] = b"\xff" * (end - begin)  # NaN in every type
    (folder / "model.safetensors").write_bytes(file)
    with made(folder=folder) as engine:
        answers = [engine.submit([5], max_new_tokens=20) for _ in range(5)]
        for answer in answers:
            with pytest.raises(megalith.UserError, match="the model's logits from token 1 on are NaN or infinite"):
                answer.result()
            assert answer.finish_reason == "error" and pieces_before_the_error(answer) == []
        settled(engine)


def pieces_before_the_error(answer):
    pieces = []
    with pytest.raises(megalith.UserError, match="NaN"):
        for piece in answer:
            pieces.append(piece)
    return pieces


def test_an_error_of_the_engine_reaches_every_answer(tmp_path):
    shutil.copytree(STORYTELLER, tmp_path / "storyteller")
    with made(folder=tmp_path / "storyteller") as engine:
        file = tmp_path / "storyteller" / "model.safetensors"
        os.truncate(file, file.stat().st_size - 1)
        answers = [engine.submit("A", **LONG) for _ in range(6)]

        async def read(answer):
            async for _ in answer:
                pass

        for number, answer in enumerate(answers):
            with pytest.raises(megalith.SystemError, match="has become shorter while it was in use"):
                [answer.result, lambda: list(answer), lambda: asyncio.run(read(answer))][number % 3]()
        settled(engine)


# ---- processes ----------------------------------------------------------------------------------------------------

HEAD = f"""
import asyncio
def engine(): return megalith.Engine({str(STORYTELLER)!r}, max_seq_len=256, max_batch=2, num_workers=1)
LONG = dict(max_new_tokens=250, ignore_stop_tokens=True)
async def awaited(answer): return await answer
"""


def test_a_text_is_what_it_was_told_to_be(engine):
    options = {"max_new_tokens": 120, "temperature": 1.0}
    schema = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 99}, "is_king": {"type": "boolean"}},
              "required": ["age", "is_king"], "additionalProperties": False}
    answers = [engine.submit("The king is", **options, seed=seed, json_schema=schema) for seed in range(4)]
    for answer in answers:
        made = answer.result()
        value = json.loads(made.text)
        assert made.reason == "stop" and list(value) == ["age", "is_king"]
        assert 0 <= value["age"] <= 99 and isinstance(value["is_king"], bool)
    assert engine.submit("So", **options, choice=["yes", "no"]).result().text in ("yes", "no")
    assert engine.submit("So", **options, regex="(la ){3}").result().text == "la la la "
    assert engine.submit("So", **options, grammar='root ::= "la " | "lo " root').result().text.endswith("la ")


@pytest.mark.parametrize(
    "code",
    [
        "e = engine()",
        "e = engine(); a = [e.submit('A', **LONG) for _ in range(3)]; next(a[0])",
        "e = engine(); a = e.submit('A', **LONG); import builtins; builtins.kept = (e, a)",
        "e = engine(); forever(lambda: e.submit('A', **LONG).result())",
        "e = engine(); forever(lambda: list(e.submit('A', **LONG)))",
        "e = engine(); forever(lambda: asyncio.run(awaited(e.submit('A', **LONG))))",
        "forever(lambda: engine().submit('A', max_new_tokens=3).result())",
        "e = engine(); a = e.submit('A', **LONG); sys.exit(0)",
        "e = engine(); a = e.submit('A', **LONG); atexit.register(e.close)",
        "e = engine(); a = e.submit('A', **LONG); a.myself = a; del e, a",
    ],
)
def test_a_clean_end(code):
    assert run(HEAD + code) == []


@pytest.mark.parametrize(
    "call",
    [
        "lambda: e.submit('A', **LONG).result()",
        "lambda: list(e.submit('A', **LONG))",
        "lambda: asyncio.run(awaited(e.submit('A', **LONG)))",
    ],
)
def test_ctrl_c(call):
    code = f"e = engine(); interrupted({call}); print(len(e.submit('A', max_new_tokens=2).result().tokens)); print(e.load().running)"
    lines = run(HEAD + INTERRUPT + code)
    assert lines[:2] == ["interrupted", "2"] and int(lines[2]) <= 1  # the interrupted one went with its frame


def test_an_interrupted_answer_may_be_read_again():
    code = (
        "e = engine(); a = e.submit('A', **LONG); b = [e.submit('A', **LONG) for _ in range(9)]\n"
        "interrupted(b[-1].result, 0.05); print(len(list(a)), len(b[-1].result().tokens))"
    )
    assert run(HEAD + INTERRUPT + code) == ["interrupted", "250 250"]


def test_a_fork():
    code = (
        "e = engine(); a = e.submit('A', **LONG); next(a)\n"
        "calls = [lambda: e.submit('A'), e.load, e.close, lambda: next(a), a.result, a.abort, lambda: a.text]\n"
        "in_a_fork(lambda: [said(call) for call in calls]); print(len(a.result().tokens))"
    )
    lines = run(HEAD + code)
    assert ["make an Engine after the fork" in line for line in lines] == [True] * 7 + [False] * 2
    assert lines[7:] == ["child 0", "250"]
    made_there = "in_a_fork(lambda: print(len(engine().submit('A', max_new_tokens=3).result().tokens)))"
    assert run(HEAD + made_there) == ["3", "child 0"]


def test_a_signal_handler_that_submits():
    code = (
        "e = engine(); seen = []\n"
        "after(0.05, lambda: seen.append(len(e.submit('A', max_new_tokens=2).result().tokens)))\n"
        "while not seen: e.submit('A', max_new_tokens=100, ignore_stop_tokens=True).result()\n"
        "print(seen)"
    )
    assert run(HEAD + code) == ["[2]"]


def test_nothing_is_left_behind():
    code = (
        "import resource\n"
        "def descriptors(): return len(os.listdir('/proc/self/fd'))\n"
        "e = engine(); asyncio.run(awaited(e.submit('A', max_new_tokens=1))); e.close()\n"
        "before = descriptors(), threading.active_count(), len(os.listdir('/proc/self/task'))\n"
        "for _ in range(5):\n"
        "    with engine() as e:\n"
        "        for _ in range(3): asyncio.run(awaited(e.submit('A', max_new_tokens=1)))\n"
        "del e; gc.collect()\n"
        "print((descriptors(), threading.active_count(), len(os.listdir('/proc/self/task'))) == before)"
    )
    assert run(HEAD + code) == ["True"]
