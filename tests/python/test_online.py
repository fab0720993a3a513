"""mode="online_pinned": requests that are submitted while the kernel runs, as scripts for MPK do it."""

import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from test_speculation import repeating_weights
from test_token_loop import LONGEST, PROMPTS, VOCABULARY, Decoder, step_by_step, tables, weights

import megalith
import megalith.mirage as mi
from megalith.mirage.mpk.persistent_kernel import PersistentKernel


def online(slots, rows, place=lambda array: array, rows_of_tokens=None, **params):
    return Decoder(tables(rows_of_tokens or slots, slots, rows), slots, rows, place, mode="online_pinned", **params)


@pytest.fixture(scope="module")
def texts():
    """Of the prompts, each by itself, step by step."""
    return [step_by_step(prompt, -1) for prompt in PROMPTS]


def test_a_script_submits_requests_while_the_kernel_runs(target, texts):
    """The script: what MPK's engine makes around a kernel, its names and its order."""
    place = megalith.to_device if target == "cuda" else lambda array: array
    eos = texts[0][12]
    meta = tables(2, 2, 6)
    meta.update(pinned_step=np.zeros(2, np.int32), generation_config=np.zeros((2, 4), np.int64))
    decoder = Decoder(meta, 2, 6, place, mode="online_pinned", pinned_ring_capacity=4, eos_token_id=eos)
    mpk = SimpleNamespace(
        metadata=SimpleNamespace(mode="online_pinned"), pinned_ring_capacity=4, total_num_requests=2,
        persistent_kernel=decoder.kernel, **meta,
    )  # fmt: skip
    runtime = mi.mpk.OnlinePinnedRuntime(mpk)
    runtime.reset()
    runtime.start()
    decoder.kernel()
    time.sleep(0.05)  # nothing runs before the first request
    wanted = [step_by_step(prompt, eos) for prompt in PROMPTS]
    for rid, prompt in enumerate(PROMPTS):
        runtime.submit(rid, np.array(prompt))
        time.sleep(0.003)
    for rid in (2, 0, 3, 1):
        row, step = runtime.wait_for_request(rid, timeout=60)
        assert runtime.get_output_tokens(rid).tolist() == wanted[rid] and step == len(wanted[rid]) - 1 and row in (0, 1)
    time.sleep(0.1)  # the kernel waits in the middle of an iteration
    runtime.submit(9, PROMPTS[0])
    row, step = runtime.wait_for_request(9)
    assert runtime.read_tokens_at_row(row, step).tolist() == wanted[0]
    assert runtime.read_tokens_range(row, 5, step).tolist() == wanted[0][5:]
    assert runtime.release_request(9) and not runtime.release_request(9)
    runtime.shutdown()
    decoder.kernel.wait()
    if target == "cpu":
        assert list(meta["tokens"][row, : step + 1]) == wanted[0]


@pytest.mark.parametrize("slots,rows,lookup", [(1, 1, None), (3, 7, None), (3, 24, (2, 7))])
def test_several_turns_of_several_conversations(texts, slots, rows, lookup):
    """Five at a time, each a thread; the next turn begins behind the keys that the one before left, if nobody took its slot."""
    made = repeating_weights if lookup else weights
    decoder = online(slots, rows, lookup=lookup, weights=made, rows_of_tokens=slots + 1)
    alone = Decoder(tables(1, 1, 4), 1, 4, lambda array: array, weights=made)
    runtime = mi.mpk.OnlinePinnedRuntime(decoder.kernel)
    decoder.kernel()
    talks, kept = [[] for _ in range(5)], []

    def talk(i):
        text = list(PROMPTS[i % len(PROMPTS)])[:8] + [i]
        for turn in range(3):
            rid = 10 * i + turn
            runtime.submit(rid, text, max_new_tokens=5)
            runtime.wait_for_request(rid)
            text = runtime.get_output_tokens(rid).tolist()
            kept.append(decoder.kernel.served.get(rid).num_kept)
            talks[i].append(text)
            text = text + [7 + turn, i]

    threads = [threading.Thread(target=talk, args=(i,)) for i in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    runtime.shutdown()
    decoder.kernel.wait()
    for i, turns in enumerate(talks):
        for turn, text in enumerate(turns):
            prompt = turns[turn - 1] + [6 + turn, i] if turn else list(PROMPTS[i % len(PROMPTS)])[:8] + [i]
            assert len(text) == len(prompt) + 5 and text[: len(prompt)] == prompt
            alone.meta["tokens"][0, : len(prompt)], alone.meta["step"][0] = prompt, 0
            alone.meta["prompt_lengths"][0] = len(prompt)
            alone.kernel()
            assert list(alone.meta["tokens"][0, : len(text)]) == text, (i, turn)
    assert not lookup or decoder.kernel.counts.accepted_tokens > 0


def test_a_turn_goes_on_behind_the_keys_of_the_one_before(texts):
    """Keys of another conversation, in the other slot, are not touched by it."""
    decoder = online(2, 4)
    runtime = mi.mpk.OnlinePinnedRuntime(decoder.kernel)
    decoder.kernel()
    served = decoder.kernel.served
    for rid, i in ((0, 0), (1, 2)):
        runtime.submit(rid, PROMPTS[i], max_new_tokens=6)
        runtime.wait_for_request(rid)
    rows = [served.get(rid).row for rid in (0, 1)]
    assert rows == [0, 1] and [served.get(rid).num_kept for rid in (0, 1)] == [0, 0]
    for rid, i in ((2, 0), (3, 2)):
        length = len(PROMPTS[i]) + 6
        runtime.submit(rid, texts[i][:length], max_new_tokens=5)
        runtime.wait_for_request(rid)
        assert runtime.get_output_tokens(rid).tolist() == texts[i][: length + 5]
        # All but the last token, which was made and not worked through.
        assert (served.get(rid).row, served.get(rid).num_kept) == (rows[rid - 2], length - 1)
    runtime.shutdown()
    decoder.kernel.wait()


def test_tokens_are_there_while_more_are_made():
    decoder = online(1, 4)
    runtime = mi.mpk.OnlinePinnedRuntime(decoder.kernel)
    decoder.kernel()
    assert runtime.find_row_for_rid(0) == -1 and runtime.get_current_step_at_row(0) == -1
    seen = set()
    for rid in range(500):  # a whole request takes a millisecond or two
        runtime.submit(rid, PROMPTS[0])
        while runtime.get_completion(rid) is None:
            seen.add(len(runtime.get_output_tokens(rid)) - 1)
            assert runtime.get_current_step_at_row(runtime.find_row_for_rid(rid)) in range(-1, LONGEST)
        if any(len(PROMPTS[0]) <= step < LONGEST - 1 for step in seen):
            break
    assert min(seen) >= len(PROMPTS[0]) - 1 and any(len(PROMPTS[0]) <= step < LONGEST - 1 for step in seen)
    assert runtime.get_completion(rid) == (0, LONGEST - 1) and runtime.drain_completions()[-1] == (rid, 0, LONGEST - 1)
    runtime.shutdown()
    decoder.kernel.wait()


def test_a_request_is_cancelled_and_others_go_on(texts):
    decoder = online(1, 4, weights=weights)
    runtime = mi.mpk.OnlinePinnedRuntime(decoder.kernel)
    for rid in range(3):  # before the launch: all wait
        assert not runtime.submit(rid, PROMPTS[rid])
    assert runtime.waiting_count == 3
    runtime.cancel_request(1)  # of one that waits
    decoder.kernel()
    runtime.cancel_request(0)
    assert runtime.wait_for_request(1) and runtime.wait_for_request(0)
    made = runtime.get_output_tokens(0).tolist()
    assert made == texts[0][: len(made)] and runtime.get_output_tokens(1).tolist() == PROMPTS[1]
    runtime.wait_for_request(2)
    assert runtime.get_output_tokens(2).tolist() == texts[2]
    runtime.abandon_request(2)
    with pytest.raises(megalith.UserError, match="there is no request 2"):
        runtime.wait_for_request(2)
    runtime.shutdown()
    decoder.kernel.wait()


def test_it_ends_when_all_is_done_and_begins_again(texts):
    decoder = online(2, 4)
    kernel, runtime = decoder.kernel, mi.mpk.OnlinePinnedRuntime(decoder.kernel)
    for launch in range(2):
        for i in range(3):
            runtime.submit(10 * launch + i, PROMPTS[i])
        kernel()
        with pytest.raises(megalith.UserError, match="the kernel runs already"):
            kernel()
        runtime.shutdown()
        with pytest.raises(megalith.UserError, match="the kernel is ending"):
            runtime.submit(99, PROMPTS[0])
        kernel.wait()
        for i in range(3):
            assert runtime.get_output_tokens(10 * launch + i).tolist() == texts[i]
        runtime.reset()
        assert runtime.drain_completions() == []
    kernel()
    runtime.shutdown()  # nothing was submitted
    kernel.wait()


@pytest.mark.parametrize("has_begun", [True, False])
def test_finalize_ends_a_run(has_begun):
    decoder = online(1, 4)
    runtime = mi.mpk.OnlinePinnedRuntime(decoder.kernel)
    decoder.kernel()
    if has_begun:
        runtime.submit(0, PROMPTS[0], max_new_tokens=1)
        runtime.wait_for_request(0)
    begin = time.monotonic()
    decoder.kernel.finalize()
    assert time.monotonic() - begin < 5


def test_what_ends_the_kernel_reaches_those_who_wait():
    decoder = online(1, 4)
    runtime = mi.mpk.OnlinePinnedRuntime(decoder.kernel)
    decoder.kernel._paged_limits.append((4, 1, 3))  # as if tables of positions were too short
    runtime.submit(0, PROMPTS[0])
    decoder.kernel()
    with pytest.raises(megalith.UserError, match="tables of positions are for 3 positions"):
        runtime.wait_for_request(0)
    with pytest.raises(megalith.UserError, match="tables of positions are for 3 positions"):
        decoder.kernel.wait()


def test_waiting_has_an_end():
    decoder = online(1, 4)
    runtime = mi.mpk.OnlinePinnedRuntime(decoder.kernel)
    runtime.submit(0, PROMPTS[0])
    with pytest.raises(TimeoutError, match="request 0 has not ended after 0.01 s"):
        runtime.wait_for_request(0, timeout=0.01)


@pytest.mark.parametrize(
    "call,message",
    [
        (lambda r: r.submit(0, []), "token_ids has 0 tokens, want 1 to 39"),
        (lambda r: r.submit(0, [1] * LONGEST), "token_ids has 40 tokens, want 1 to 39: max_seq_length is 40"),
        (lambda r: r.submit(0, [1, VOCABULARY]), r"token_ids has 256 at \[1\], but the vocabulary has 256"),
        (lambda r: r.submit(0, "text"), "token_ids is a str, want token ids"),
        (lambda r: r.submit(0, np.zeros((1, 2), np.int64)), "token_ids is a ndarray, want token ids"),
        (lambda r: r.submit(-1, [1]), "rid is -1"),
        (lambda r: r.submit(0, [1], max_new_tokens=0), "max_new_tokens is 0"),
        (lambda r: [r.submit(5, [1]), r.submit(5, [1])], "there is a request 5 already"),
        (lambda r: r.wait_for_request(7), "there is no request 7"),
        (lambda r: r.get_output_tokens(7), "there is no request 7"),
        (lambda r: r.read_tokens_at_row(0, 3), "no request was in row 0"),
    ],
)
def test_what_cannot_be_is_refused(shared, call, message):
    with pytest.raises(megalith.UserError, match=message):
        call(shared)


@pytest.fixture(scope="module")
def shared():
    decoder = online(1, 4)
    return mi.mpk.OnlinePinnedRuntime(decoder.kernel)


def test_other_modes_take_no_requests():
    with pytest.raises(megalith.UserError, match=r'a kernel of mode="offline", want one of mode="online_pinned"'):
        mi.mpk.OnlinePinnedRuntime(PersistentKernel())
    with pytest.raises(megalith.UserError, match=r"a kernel in a int, want one of"):
        mi.mpk.OnlinePinnedRuntime(5)
    with pytest.raises(megalith.UserError, match=r'\[served\] mode is "offline"'):
        PersistentKernel().served
    with pytest.raises(megalith.UserError, match=r'"tokens" has rows for 1 requests, want 2'):
        online(2, 4, rows_of_tokens=1)
    PersistentKernel().wait()
