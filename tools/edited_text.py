#!/usr/bin/env python3
"""What prompt lookup gains where a text is copied with edits: a checkpoint that makes the edited text of the original one, and the
tokens per second that a server makes of it.

    tools/edited_text.py checkpoint models/shapes/Qwen3-8B OLD NEW DIR
    megalith serve DIR --max-batch 1 -c 8192 --draft-tokens 7 --port 8000 &
    tools/edited_text.py ask DIR --port 8000

A model of random weights edits no text. So DIR has weights of the shape's full size, nearly all of them 0, by which each token has one
successor: embeddings are random, a row of the head is the embedding of the token in front. Tokens are words, runs of spaces and signs, and
those of NEW that stand in OLD, too (a longest common sequence of lines, then of tokens), have the same number. Every place of a text
has a number of its own, so nothing but the copy repeats, while in real text more does. A step costs what it costs with any weights.
"""
import argparse
import difflib
import http.client
import json
import pathlib
import re
import shutil

import numpy

WORD = re.compile(r"\w+|[^\S\n]+|\n|[^\w\s]")


def numbered(old: list[str], new: list[str], first: int) -> tuple[list[int], list[int]]:
    """Numbers of both texts' tokens from `first` on: the same where they match."""
    of_old = list(range(first, first + len(old)))
    of_new, free = [], first + len(old)
    for tag, a, b, begin, end in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            of_new += of_old[a:b]
        else:
            of_new += range(free, free + end - begin)
            free += end - begin
    return of_old, of_new


def header_of(config: dict) -> tuple[dict, int]:
    hidden, vocab, heads = config["hidden_size"], config["vocab_size"], config["num_attention_heads"]
    size = config.get("head_dim") or hidden // heads
    keys, inner = config["num_key_value_heads"] * size, config["intermediate_size"]
    shapes = {"model.embed_tokens.weight": [vocab, hidden], "lm_head.weight": [vocab, hidden], "model.norm.weight": [hidden]}
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        shapes |= {f"{at}self_attn.q_proj.weight": [heads * size, hidden], f"{at}self_attn.k_proj.weight": [keys, hidden],
                   f"{at}self_attn.v_proj.weight": [keys, hidden], f"{at}self_attn.o_proj.weight": [hidden, heads * size],
                   f"{at}mlp.gate_proj.weight": [inner, hidden], f"{at}mlp.up_proj.weight": [inner, hidden],
                   f"{at}mlp.down_proj.weight": [hidden, inner], f"{at}input_layernorm.weight": [hidden],
                   f"{at}post_attention_layernorm.weight": [hidden]}
        if config["model_type"] == "qwen3":
            shapes |= {f"{at}self_attn.q_norm.weight": [size], f"{at}self_attn.k_norm.weight": [size]}
    header, offset = {}, 0
    for name, shape in shapes.items():
        end = offset + 2 * int(numpy.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, end]}
        offset = end
    return header, offset


def write_checkpoint(shape: pathlib.Path, old: str, new: str, to: pathlib.Path) -> None:
    config = json.loads((shape / "config.json").read_text())
    if config.get("tie_word_embeddings") or config["model_type"] not in ("qwen3", "llama"):
        raise SystemExit(f"{shape}: want a model of type qwen3 or llama whose head is no copy of its embeddings")
    of_old, of_new = numbered(WORD.findall(old), WORD.findall(new), 2)
    begin, end = 0, 1  # what stands behind the original, and what ends the edited text
    last = max(of_old + of_new)
    if last >= config["vocab_size"]:
        raise SystemExit(f"the texts have {last + 1} tokens together, and {shape} has {config['vocab_size']}: take shorter ones")
    to.mkdir(parents=True, exist_ok=True)
    shutil.copy(shape / "config.json", to / "config.json")
    (to / "texts.json").write_text(json.dumps({"prompt": of_old + [begin], "answer": of_new}))
    # A server wants a tokenizer; nobody asks it anything.
    vocab = {f"t{token}": token for token in range(last + 1)}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    (to / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": byte_level, "post_processor": None,
        "decoder": byte_level, "model": {"type": "BPE", "vocab": vocab, "merges": []}}))
    header, size = header_of(config)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path = to / "model.safetensors"
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + size)  # the rest is 0, and takes no room on the disk
    data = numpy.memmap(path, dtype=numpy.uint16, mode="r+", offset=8 + len(text))

    def tensor(name: str):
        first, past = (offset // 2 for offset in header[name]["data_offsets"])
        return data[first:past].reshape(header[name]["shape"])

    one, minus_one = 0x3F80, 0xBF80
    embeddings, head = tensor("model.embed_tokens.weight"), tensor("lm_head.weight")
    random = numpy.random.default_rng(1)
    chain = [begin, *of_new, end]
    for token in {*chain, *of_old}:
        embeddings[token] = numpy.where(random.integers(0, 2, embeddings.shape[1]), one, minus_one)
    for before, after in zip(chain, chain[1:]):
        head[after] = embeddings[before]
    for name in header:
        if "norm" in name:
            tensor(name)[:] = one
    data.flush()
    kept = len(set(of_old) & set(of_new))
    print(f"{to}: {len(of_old)} tokens, edited {len(of_new)}, of which {kept} stand in both")


def ask(folder: pathlib.Path, host: str, port: int, times: int) -> None:
    texts = json.loads((folder / "texts.json").read_text())
    body = {"prompt": texts["prompt"], "n_predict": len(texts["answer"]), "temperature": 0, "ignore_eos": True, "return_tokens": True,
            "cache_prompt": False}
    for _ in range(times):
        connection = http.client.HTTPConnection(host, port)
        connection.request("POST", "/completion", json.dumps(body), {"Content-Type": "application/json"})
        answer = json.loads(connection.getresponse().read())
        if "tokens" not in answer:
            raise SystemExit(json.dumps(answer))
        wrong = sum(a != b for a, b in zip(answer["tokens"], texts["answer"])) + abs(len(answer["tokens"]) - len(texts["answer"]))
        timings = answer["timings"]
        print(f"{timings['predicted_n']} tokens, {wrong} wrong, {timings['predicted_ms']:.1f} ms, "
              f"{timings['predicted_per_second']:.1f} tokens/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("checkpoint", help="write the checkpoint and both texts")
    make.add_argument("shape", type=pathlib.Path, help="a folder with the config.json of the shape")
    make.add_argument("old", type=pathlib.Path, help="a text")
    make.add_argument("new", type=pathlib.Path, help="the text as it is edited")
    make.add_argument("to", type=pathlib.Path, help="the folder to write")
    question = commands.add_parser("ask", help="ask a running server for the edited text")
    question.add_argument("folder", type=pathlib.Path)
    question.add_argument("--host", default="127.0.0.1")
    question.add_argument("--port", type=int, default=8000)
    question.add_argument("--times", type=int, default=3)
    options = parser.parse_args()
    if options.command == "checkpoint":
        write_checkpoint(options.shape, options.old.read_text(), options.new.read_text(), options.to)
    else:
        ask(options.folder, options.host, options.port, options.times)


if __name__ == "__main__":
    main()
