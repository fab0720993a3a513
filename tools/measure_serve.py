#!/usr/bin/env python3
"""What clients see of a server (`megalith serve`): time to the first token, time between tokens, tokens a second.

    megalith serve MODEL --target cuda --max-batch 64 --port 8000 &
    tools/measure_serve.py --port 8000 --vocab 151000 --load 1,512,128 --load 8,512,128,16 --late-prompt 8,4096

Prompts are random token ids, answers are streamed and end at their limit. One process and one thread, so what it says of
many streams at a time has its own delay in it. Times are in milliseconds.
"""
import argparse
import asyncio
import json
import random
import time


class Answer:
    """When a request was sent, and when each of its tokens came; seconds."""

    def __init__(self):
        self.sent = 0.0
        self.tokens = []


async def ask(options, prompt_tokens, max_tokens, seed):
    """Sends one request and reads its stream to the end. RuntimeError for an answer that is not 200."""
    ids = random.Random(seed)
    body = json.dumps({
        "prompt": [ids.randrange(10, options.vocab) for _ in range(prompt_tokens)],
        "max_tokens": max_tokens, "stream": True, "ignore_eos": True, "temperature": 0,
    }).encode()
    reader, writer = await asyncio.open_connection(options.host, options.port, limit=1 << 22)
    answer = Answer()
    answer.sent = time.perf_counter()
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                 b"Content-Length: %d\r\n\r\n" % len(body) + body)
    status = await reader.readline()
    if b" 200 " not in status:
        raise RuntimeError(f"the server answered {status.decode(errors='replace').strip()}")
    while line := await reader.readline():
        if line.startswith(b"data: [DONE]"):
            break
        if line.startswith(b"data: "):
            answer.tokens.append(time.perf_counter())
    writer.close()
    return answer


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * share))] * 1e3


def report(name, answers):
    # The last event of a stream has no token, and the first two may come together.
    between = [b - a for answer in answers for a, b in zip(answer.tokens[2:-1], answer.tokens[3:])]
    first = [answer.tokens[0] - answer.sent for answer in answers]
    seconds = max(answer.tokens[-1] for answer in answers) - min(answer.sent for answer in answers)
    tokens = sum(len(answer.tokens) - 1 for answer in answers)
    print(f"{name}: first token p50 {percentile(first, .5):.2f}, p99 {percentile(first, .99):.2f}; between tokens "
          f"p50 {percentile(between, .5):.3f}, p90 {percentile(between, .9):.3f}, p99 {percentile(between, .99):.3f}, "
          f"most {percentile(between, 1):.3f}; {tokens / seconds:.0f} tokens/s", flush=True)


async def run_load(options, at_a_time, prompt, made, requests):
    slots = asyncio.Semaphore(at_a_time)

    async def one(seed):
        async with slots:
            return await ask(options, prompt, made, seed)

    report(f"{at_a_time} at a time, {prompt} in, {made} out, {requests} requests",
           await asyncio.gather(*[one(seed) for seed in range(requests)]))


async def run_late_prompt(options, decoding, prompt):
    answers = [asyncio.create_task(ask(options, 64, 160, seed)) for seed in range(decoding)]
    await asyncio.sleep(0.35)
    late = await ask(options, prompt, 8, decoding)
    report(f"{decoding} make tokens while a prompt of {prompt} comes", await asyncio.gather(*answers))
    print(f"that prompt's first token after {(late.tokens[0] - late.sent) * 1e3:.1f}", flush=True)


async def main(options):
    await ask(options, 8, 4, 0)  # to warm up
    for load in options.load or [[1, 512, 128, 4], [8, 512, 128, 16]]:
        at_a_time, prompt, made, *requests = load
        await run_load(options, at_a_time, prompt, made, requests[0] if requests else 2 * at_a_time)
    if options.late_prompt:
        await run_late_prompt(options, *options.late_prompt)


def numbers(text):
    return [int(number) for number in text.split(",")]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--vocab", type=int, default=4000, help="token ids are below this (4000)")
    parser.add_argument("--load", type=numbers, action="append", metavar="C,P,N,R",
                        help="C at a time, prompts of P tokens, N made, R requests in all (2 C); may be given several times")
    parser.add_argument("--late-prompt", type=numbers, metavar="C,P", help="C make tokens while a prompt of P comes")
    asyncio.run(main(parser.parse_args()))
