#!/usr/bin/env python3
"""What vLLM's engine makes of a load, random weights of true shapes in bf16: a step of so many sequences, a prompt's time,
and tokens a second of requests of which so many are at work at a time. No HTTP, no tokenizer: what its server adds is left
out. Needs a GPU and vLLM (pip install vllm==0.24.0).

    vllm_load.py --out vllm.json --model models/shapes/Qwen3-8B --sequences 1,8,64,128 --concurrency 64,128

A step is (time of 49 tokens - time of one) / 48, of prompts of 464 tokens that all come at once; the least of some runs
counts.
"""

import argparse
import asyncio
import json
import random
import time

import vllm
from vllm import SamplingParams
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.inputs import TokensPrompt
from vllm.sampling_params import RequestOutputKind
from vllm.usage.usage_lib import UsageContext
from vllm.v1.engine.async_llm import AsyncLLM

VOCABULARY, STEPS, CONTEXT, RUNS = 100_000, 48, 464, 4


class Load:
    """Requests of an engine, each of random tokens of its own."""

    def __init__(self, engine):
        self.engine, self.count, self.random = engine, 0, random.Random(0)

    async def request(self, prompt, tokens):
        """A prompt of so many tokens and as many made as asked for."""
        self.count += 1
        ids = [self.random.randrange(VOCABULARY) for _ in range(prompt)]
        how = SamplingParams(
            temperature=0,
            max_tokens=tokens,
            ignore_eos=True,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        async for output in self.engine.generate(TokensPrompt(prompt_token_ids=ids), how, f"r{self.count}"):
            made = len(output.outputs[0].token_ids)
        if made != tokens:
            raise RuntimeError(f"vLLM made {made} tokens, wanted {tokens}")

    async def together(self, sequences, prompt, tokens):
        """Seconds until the last of `sequences` requests has ended."""
        begin = time.perf_counter()
        await asyncio.gather(*[self.request(prompt, tokens) for _ in range(sequences)])
        return time.perf_counter() - begin

    async def closed_loop(self, concurrency, requests, prompt, tokens):
        """Tokens a second with `concurrency` requests at a time."""
        gate = asyncio.Semaphore(concurrency)

        async def one():
            async with gate:
                await self.request(prompt, tokens)

        begin = time.perf_counter()
        await asyncio.gather(*[one() for _ in range(requests)])
        return requests * tokens / (time.perf_counter() - begin)


async def measure(arguments):
    options = AsyncEngineArgs(
        model=arguments.model,
        load_format="dummy",
        skip_tokenizer_init=True,
        max_model_len=arguments.max_model_len,
    )
    load = Load(AsyncLLM.from_engine_args(options, usage_context=UsageContext.OPENAI_API_SERVER))
    results = {"vllm": vllm.__version__, "model": arguments.model, "steps_ms": {}, "prompt_ms": {}, "tokens_per_s": {}}
    await load.together(8, CONTEXT, 16)
    for prompt in arguments.prompts:
        times = [await load.together(1, prompt, 1) for _ in range(2 * RUNS)]
        results["prompt_ms"][prompt] = 1e3 * min(times)
        print(f"prompt of {prompt}: {1e3 * min(times):.2f} ms", flush=True)
    for sequences in arguments.sequences:
        long = min([await load.together(sequences, CONTEXT, STEPS + 1) for _ in range(RUNS)])
        short = min([await load.together(sequences, CONTEXT, 1) for _ in range(RUNS)])
        results["steps_ms"][sequences] = 1e3 * (long - short) / STEPS
        print(f"{sequences} sequences: {results['steps_ms'][sequences]:.3f} ms a step", flush=True)
    for concurrency in arguments.concurrency:
        requests = arguments.requests * concurrency
        rates = [await load.closed_loop(concurrency, requests, 512, 256) for _ in range(arguments.repetitions)]
        results["tokens_per_s"][concurrency] = rates
        print(f"{concurrency} at a time, 512 and 256 tokens: {', '.join(f'{r:.0f}' for r in rates)} tokens/s", flush=True)
    return results


def numbers(text):
    return [int(number) for number in text.split(",") if number]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="results, as JSON")
    parser.add_argument("--model", required=True, help="a folder with config.json")
    parser.add_argument("--sequences", type=numbers, default=[], metavar="N,N", help="steps of so many sequences")
    parser.add_argument("--prompts", type=numbers, default=[], metavar="N,N", help="prompts of so many tokens")
    parser.add_argument("--concurrency", type=numbers, default=[], metavar="N,N", help="requests at a time")
    parser.add_argument("--requests", type=int, default=8, help="for each that is at work at a time (8)")
    parser.add_argument("--repetitions", type=int, default=1, help="of each load of requests (1)")
    parser.add_argument("--max-model-len", type=int, default=1024)
    arguments = parser.parse_args()
    results = asyncio.run(measure(arguments))
    with open(arguments.out, "w", encoding="utf-8") as file:
        json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
