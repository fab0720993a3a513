#!/usr/bin/env python3
"""Writes what tests compare Megalith with: tokens and logits of a model, as transformers computes them in float32.

    python3 tools/make_goldens.py models/storyteller --out tests/golden

writes, for a Hugging Face folder called NAME,

    NAME.json               8 prompts: text, ids, 64 greedy tokens, and at each step how far the best logit leads the next;
                            end-of-text does not stop and nothing is suppressed. A small lead excuses another choice
    NAME_logits.safetensors "prompt.0" ... [V] float32, logits at each prompt's last position
    tokenizer_NAME.json     300 texts with their ids and what those decode to; ids that decode to broken UTF-8

Every step runs the whole sequence again, without a cache: slow, and nothing to go wrong. Needs torch and transformers.
"""

import argparse
import json
import platform
import random
from pathlib import Path

import tokenizers
import torch
import transformers
from safetensors.torch import save_file

kNumGreedy = 64

kPrompts = [
    "Once",
    "Once upon a time",
    "The old witch",
    "'Who is there?' cried the wolf, 'and what have you in your basket?'",
    "\u201cDear mother,\u201d said the youngest son,\n\n\u201clet me go out into the wide world \u2014 I\u2019ll be back in a year\u2026\u201d",
    "THE GOLDEN BIRD\n\nA certain king had a beautiful garden, and in the garden stood a tree",
    "In 1697 there were 12 princesses, 7 dwarfs & 1 frog;  the frog paid 3.50 crowns.\n",
    "There was once upon a time a poor woodcutter who lived with his wife and his seven children in a little cottage at the "
    "edge of a great forest. One winter, when the snow lay deep upon the ground and there was nothing left to eat in the "
    "house but a single crust of bread, he took his axe upon his shoulder, kissed them all, and went out to seek his fortune. "
    "He had not gone far before he met an old grey man, who bade him good-day, and said:",
]

# Texts that a tokenizer gets wrong, alone and joined by chance.
kTexts = [
    "", " ", "  ", "   ", "\n", "\n\n", "\n \n", " \n", "\t", "\t\t x", "\r\n", "\r", "a\r\nb\r\n\r\nc", "\u00a0", "a\u00a0b", "\u3000x", "\u2003 \u2003",
    "\u2028line\u2029paragraph", "\u0085next", "\x0b\x0c", "trailing ", "trailing   ", " leading", "    four", "a  b   c    d", "x \n  y", ".\n\n", "!?\r\n",
    "Once upon a time there was a king.", "She said, \"No!\" and ran.", "'What is it?' asked he.", "The King's daughter hadn't come.",
    "I'm you're he'll she'd we've it's can't", "I'M YOU'RE HE'LL SHE'D WE'VE IT'S CAN'T", "'S'T'RE'VE'M'LL'D", "'s't're've'm'll'd", "'sabc 'tabc 'reabc",
    "don''t", "rock 'n' roll", "o'clock", "'twas", "\u2019s it\u2019s don\u2019t", "'\u017f it'\u017f", "l'\u00e9t\u00e9", "'", "''", "' s",
    "0", "7", "42", "1234567890", "3.14159", "1,000,000", "1e-5", "x2y3", "\u0663\u0664", "\u00bd\u00b2\u2167", "\u09e7\u09e8", "\U0001d7d9\U0001d7da", "12th of May 1805",
    "Hello, world!", "hello_world", "snake_case_name", "camelCaseName", "UPPER lower Title", "a-b--c---d", "...", ". . .", "(a)[b]{c}<d>", "#!/bin/sh -c",
    "if (x == 0) {\n    return y[1];\n}\n", "\tfor i in range(10):\n\t\tprint(i)", "https://example.org/a?b=c&d=%20", "name@example.org", "$5.00 + 10% = ?", "a/b\\c",
    "na\u00efve caf\u00e9 \u00c6r\u00f8 \u0153uvre", "nai\u0308ve cafe\u0301", "e\u0301\u0301 a\u0323\u0302 a\u0302\u0323", "\u1e9b\u0323", "\u212b \u2126 \u212a", "\u0958\u0915\u093c", "q\u0307\u0323",
    "\u0344 \u0374 \u037e \u0387", "\u1100\u1161\u11a8 \uac00\u11a8 \ud55c\uad6d\uc5b4", "\u0301", " \u0301x", "\u00df\u1e9e \u0130\u0131 \u01c5", "\u2260 =\u0338", "\ufb01 \u2460 \u00aa",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002", "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8", "\u30ab\u3099 \u30cf\u309a", "\uff21\uff22\uff43\uff11", "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440", "\u0419 \u0418\u0306",
    "\u0393\u03b5\u03b9\u03ac \u03c3\u03bf\u03c5", "\u05e9\u05dc\u05d5\u05dd", "\u0645\u0631\u062d\u0628\u0627", "\u0928\u092e\u0938\u094d\u0924\u0947", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35", "\u0dc1\u0dca\u200d\u0dbb\u0dd3", "\U0001d400\U00010330\U0002f800",
    "\U0001f600", "\U0001f44d\U0001f3fd", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1eb\U0001f1f7", "\u2764\ufe0f", "a\U0001f43ab", " \U0001f451 king", "\u2603\u2744", "\u2014\u2013\u2212", "\u00ab\u00bb\u201e\u201c",
    "\ufffd", "\ufeffbom", "\x00", "a\x00b", "\x01\x02\x7f", "\x1b[31mred", "\ue000\uf8ff", "\uffff\ufffe", "\U0010ffff", "\u0378\u0530", "\u200b\u200c\u200d\u2060", "\u202eabc\u202c", "\u00ad", "\ud7ff\ue000",
    "<|endoftext|>", "The end.<|endoftext|>Once", " <|endoftext|> ", "<|endoftext|><|endoftext|>", "<|endoftext", "|endoftext|>", "<|ENDOFTEXT|>", "<| endoftext |>", "x<|endoftext|>'s", "\n<|endoftext|>\n", "<|im_start|>user\n",
    "\u0120\u010a\u00c3\u00a9", "\u00c4\u00a0", "<0x0A>", "\u2581the", "##ing", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "abababababababababab", "zzzzzzzzq", "!!!!!!!!!!!!!!!!", " " * 40, "\n" * 20, "-" * 70, "supercalifragilisticexpialidocious",
]


def versions() -> dict:
    return {"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0],
            "tokenizers": tokenizers.__version__, "python": platform.python_version()}


def write_json(path: Path, header: dict, lists: dict[str, list]) -> None:
    """Like json.dump, one line per list item, so that a changed case is one changed line."""
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in header.items()]
    for key, items in lists.items():
        lines.append(f"{json.dumps(key)}: [\n" + ",\n".join("  " + json.dumps(item) for item in items) + "\n]")
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


@torch.no_grad()
def greedy(model, prompt: list[int], num_tokens: int, use_cache: bool = False) -> tuple[list[int], list[float], torch.Tensor]:
    """The tokens, each one's lead over the second best in logits, and the prompt's logits [T, V]."""
    ids, leads, prompt_logits, cache = list(prompt), [], None, None
    for _ in range(num_tokens):
        step = ids if cache is None else ids[-1:]
        output = model(torch.tensor([step]), past_key_values=cache, use_cache=use_cache)
        cache = output.past_key_values if use_cache else None
        logits = output.logits[0]                                                            # (T, V)
        prompt_logits = logits if prompt_logits is None else prompt_logits
        best = logits[-1].topk(2)
        ids.append(best.indices[0].item())
        leads.append(round((best.values[0] - best.values[1]).item(), 5))
    return ids[len(prompt):], leads, prompt_logits


def write_model_goldens(folder: Path, out: Path) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    cases, logits = [], {}
    for i, text in enumerate(kPrompts):
        prompt = tokenizer.encode(text).ids
        tokens, leads, prompt_logits = greedy(model, prompt, kNumGreedy)
        cases.append({"text": text, "ids": prompt, "greedy": tokens, "greedy_text": tokenizer.decode(tokens, skip_special_tokens=False), "lead": leads})
        logits[f"prompt.{i}"] = prompt_logits[-1].contiguous()
    name = folder.resolve().name
    about = f"greedy tokens in float32 on CPU, end of text ignored; written by tools/make_goldens.py models/{name}"
    write_json(out / f"{name}.json", {"about": about, "versions": versions()}, {"prompts": cases})
    save_file(logits, out / f"{name}_logits.safetensors")
    (out / f"{name}_logits.safetensors").chmod(0o644)


def write_tokenizer_goldens(folder: Path, out: Path) -> None:
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    chance = random.Random(1)
    texts = list(kTexts)
    while len(texts) < 300:
        texts.append(chance.choice(["", " "]).join(chance.choices(kTexts, k=chance.randint(2, 5))))
    cases = []
    for text in texts:
        ids = tokenizer.encode(text).ids
        cases.append({"text": text, "ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False)})
    # Single bytes are tokens, so that any bytes can be said: each unfinished or impossible sequence becomes U+FFFD.
    broken = [tokenizer.encode(text).ids[:-1] for text in ("\u00e9", "\u20ac", "\U0001f600", "a\u4f60")]
    broken += [tokenizer.encode(text).ids[1:] for text in ("\u20ac", "\U0001f600", "\u4f60b")]
    broken += [[chance.randrange(1, 257) for _ in range(chance.randint(1, 8))] for _ in range(33)]
    decodes = [{"ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False)} for ids in broken]
    name = folder.resolve().name
    about = f"what the tokenizers library makes of models/{name}/tokenizer.json; written by tools/make_goldens.py"
    write_json(out / f"tokenizer_{name}.json", {"about": about, "versions": versions()}, {"encode": cases, "decode": decodes})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="Hugging Face folder")
    parser.add_argument("--out", type=Path, default=Path("tests/golden"), help="folder to write (tests/golden)")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)                # sums in one order, on every machine
    write_tokenizer_goldens(args.model, args.out)
    write_model_goldens(args.model, args.out)


if __name__ == "__main__":
    main()
