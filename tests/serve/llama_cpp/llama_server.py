#!/usr/bin/env python3
"""Stands in for llama-server in llama.cpp's tests: `megalith serve` on the bundled model, whatever model is named, with what
it knows of llama-server's options. Run by tools/serve_suites.sh; the command is named by MEGALITH_COMMAND."""

import os
import pathlib
import sys

STORYTELLER = pathlib.Path(__file__).resolve().parents[3] / "models/storyteller"
OURS = ("--port", "--host", "--temp", "--seed", "--n-predict", "--api-key", "--alias", "--parallel")
FLAGS = ("--slots",)
NAMES = ("gpt-3.5-turbo", "gpt-3.5-turbo-instruct", "davinci-002", "gpt-4.1", "codellama70b")  # llama-server answers to any
MOST_TOKENS = 1024  # of a sequence of the bundled model
# Options without a value that say nothing to us; any other has one, which is left out where it is not among OURS.
LONELY = ("--no-", "--cont-batching", "--embedding", "--reranking", "--metrics", "--kv-unified", "--swa-full", "--verbose",
          "--context-shift", "--jinja", "--ui-mcp-proxy", "--backend_sampling", "--offline")  # fmt: skip


def translated(words: list[str]) -> list[str]:
    given, flags, rest = {}, [], list(words)
    while rest:
        word = rest.pop(0)
        if word in FLAGS:
            flags.append(word)
        elif not word.startswith(LONELY):
            given[word] = rest.pop(0)
    if given.get("--n-predict") == "-1":  # the rest of the context, as without it
        del given["--n-predict"]
    result = [w for option in OURS if option in given for w in (option, given[option])]
    result += [w for name in NAMES for w in ("--alias", name)]
    if "--ctx-size" in given:  # llama-server's is for all sequences together
        result += ["--max-seq-len", str(min(int(given["--ctx-size"]) // int(given.get("--parallel", "1")), MOST_TOKENS))]
    if "--cors-origins" in given:
        result += ["--cors-origin", given["--cors-origins"]]
    return [*result, *flags]


if __name__ == "__main__":
    command = os.environ["MEGALITH_COMMAND"]
    os.execv(command, [command, "serve", str(STORYTELLER), "-t", "1", *translated(sys.argv[1:])])
