#!/usr/bin/env python3
"""Writes tests/golden/tokenizers/: small tokenizers and what Hugging Face's `tokenizers` makes of some hundred texts.

    python3 -m venv venv && venv/bin/pip install tokenizers && venv/bin/python tools/make_tokenizer_goldens.py

NAME.tokenizer.json is a BPE trained on the paragraphs below, of bytes or of characters, in the form of a well-known
family; NAME.cases.json holds texts with their ids and decodings, and id sequences with their decodings. The same seed
gives the same files. Random characters are drawn from those that Unicode 3.2 had: libraries disagree about newer ones,
each having the tables of its day (NFC of `tokenizers` is that of Unicode 9).

    python3 tools/make_tokenizer_goldens.py --live NAME --count 10000 --seed 1 [--text FILE]

writes no file, but prints what the goldens' NAME.tokenizer.json makes of random texts, or of FILE's paragraphs: a line
[text, ids, decoded] for each. tests/model/tokenizer_live_test.cpp runs it where `tokenizers` can be imported.
"""

import argparse
import json
import pathlib
import random
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "tokenizers"

PARAGRAPHS = [
    "The old lighthouse keeper climbed the stairs every evening, counting each of the 217 steps aloud. He didn't trust "
    "the lamp's clockwork; he'd seen it stop twice, in 1904 and in 1911, and he'll tell you it was the salt.",
    "When the storm came, we weren't ready. The boats lay on the beach, the nets hung in the trees, and there was "
    "nothing to do but wait. \"It's only wind,\" said the baker. \"I've baked through worse than this!\"",
    "def area(width, height):\n    # both are given in metres\n    if width < 0 or height < 0:\n        return None\n"
    "    return width * height\n\n\nfor i in range(10):\n    print(area(i, 2 * i + 1))\n",
    "Der Bäcker öffnete früh, denn die Straße füllte sich schon mit Leuten. L'été, la mer était plus chaude, et le "
    "garçon mangeait des crêpes. El niño soñó con un pingüino en la mañana. Žluťoučký kůň pěl ďábelské ódy.",
    "Маяк стоял на скале, и море было тёмным. Ο φάρος στεκόταν στον βράχο. 灯台は岩の上に立っていた。"
    "灯塔矗立在岩石上,海是黑暗的。 등대는 바위 위에 서 있었다. كان المنارة على الصخرة. המגדלור עמד על הסלע.",
    "Prices went from $3.50 to $12,345.67 in a week (+352%), which is absurd... or is it?! See https://example.org/a?b=c "
    "and mail me@example.org; the total was 1000000 units, 2^20 of them spare. 🙂🌊 👩‍👩‍👧 ½ cup, 3² = 9.",
    "   Leading spaces,\ttabs\t\tand   runs of   them.  \n\n\n  A new paragraph begins here, and it ends with spaces.   \n",
]

QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
         r"\s+(?!\S)|\s+")
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def byte_level(**options):
    return pre_tokenizers.ByteLevel(**{"add_prefix_space": False, "use_regex": False} | options)


def train(pre_tokenizer, normalizer=None, vocab_size=640):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
                                  show_progress=False)
    tokenizer.train_from_iterator(PARAGRAPHS, trainer)
    return tokenizer


def edited(tokenizer, edit):
    """The tokenizer after a change of its JSON that the Python interface does not offer."""
    document = json.loads(tokenizer.to_str())
    edit(document)
    return Tokenizer.from_str(json.dumps(document)), document


def gpt2():
    tokenizer = train(byte_level(use_regex=True))
    tokenizer.add_special_tokens(["<|endoftext|>"])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)

    def merges_as_strings(document):  # the way older files are written
        document["model"]["merges"] = [" ".join(pair) for pair in document["model"]["merges"]]

    return edited(tokenizer, merges_as_strings)


def qwen2():
    tokenizer = train(pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN2), "isolated"), byte_level()]),
                      normalizers.NFC())
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens([AddedToken(t, normalized=False, special=False) for t in ["<think>", "</think>", "<tool_call>"]])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return edited(tokenizer, lambda document: None)


def llama3():
    def ignore_merges(document):  # and words that only this option can reach
        vocab = document["model"]["vocab"]
        for word in ["Ġwonderful", "Ġlighthouses", "lamp", "ðŁĮį"]:
            vocab.setdefault(word, len(vocab))
        document["model"]["ignore_merges"] = True

    tokenizer, _ = edited(
        train(pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"), byte_level()])), ignore_merges)
    tokenizer.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"])
    begin = tokenizer.token_to_id("<|begin_of_text|>")
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|> $B:1",
                                      special_tokens=[("<|begin_of_text|>", begin)])])
    return edited(tokenizer, lambda document: None)


def mixed():
    """Everything that the three families do not use."""
    steps = [pre_tokenizers.Digits(individual_digits=False),
             pre_tokenizers.Split("-", "merged_with_previous"),
             pre_tokenizers.Split(Regex(r"[.,;]"), "merged_with_next"),
             pre_tokenizers.Split(Regex(r"\w+"), "contiguous", invert=True),
             pre_tokenizers.Split("|", "removed"),
             byte_level(add_prefix_space=True, use_regex=True)]
    tokenizer = train(pre_tokenizers.Sequence(steps), normalizers.NFKC())
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True),
                                  AddedToken("<sep>", rstrip=True, special=True),
                                  AddedToken("<s>", special=True, normalized=True)])
    tokenizer.add_tokens([AddedToken("lamp", single_word=True), AddedToken("lamps"), AddedToken("日本", lstrip=True, rstrip=True),
                          AddedToken("ffi", normalized=True), AddedToken("<maskless>", normalized=False)])
    start = tokenizer.token_to_id("<s>")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A <sep>", special_tokens=[("<s>", start), ("<sep>", tokenizer.token_to_id("<sep>"))])
    return edited(tokenizer, lambda document: None)


def gpt4o():
    tokenizer = train(pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(GPT4O), "isolated"), byte_level()]))
    tokenizer.add_special_tokens(["<|endoftext|>", "<|start|>", "<|end|>"])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return edited(tokenizer, lambda document: None)


def train_characters(bytes_=True, vocab_size=760, alphabet=110):
    """As SentencePiece has it: <unk>, <s>, </s>, the bytes, merges, and some of the text's characters."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    first = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256) if bytes_]
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=first, limit_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(PARAGRAPHS, trainer)
    return tokenizer


def sentencepiece(document, prefix_added):
    document["model"] |= {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True, "ignore_merges": False}
    document["added_tokens"] = document["added_tokens"][:3]  # the trainer makes one of each byte, too
    for token in document["added_tokens"]:
        token["normalized"] = prefix_added
    document["decoder"] = {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    document["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}


def llama2():
    def form(document):
        sentencepiece(document, prefix_added=False)
        document["pre_tokenizer"] = None
        document["normalizer"] = {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "\u2581"}, {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]}

    return edited(train_characters(), form)


def mistral():
    def form(document):
        sentencepiece(document, prefix_added=False)
        document["pre_tokenizer"] = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": False}
        document["normalizer"] = None

    tokenizer, _ = edited(train_characters(), form)
    tokenizer.add_special_tokens(["[INST]", "[/INST]"])
    return edited(tokenizer, lambda document: None)


def characters():
    """Characters, and everything that the two families above do not use: no byte tokens, an unknown token for each
    character, special tokens in normalized text, normalizers one after the other, Metaspace as a decoder."""
    def form(document):
        sentencepiece(document, prefix_added=True)
        document["model"] |= {"fuse_unk": False, "byte_fallback": False}
        document["normalizer"] = {"type": "Sequence", "normalizers": [
            {"type": "Strip", "strip_left": True, "strip_right": True}, {"type": "NFKC"}, {"type": "Lowercase"},
            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
            {"type": "Replace", "pattern": {"String": "``"}, "content": "\""}, {"type": "NFD"}]}
        document["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": True}, {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}]}
        document["decoder"] = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}

    return edited(train_characters(bytes_=False, vocab_size=420, alphabet=70), form)


def train_gaps(pre_tokenizer, special):
    """Without the byte alphabet: bytes that the paragraphs do not have get no token, and an id is left out."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(PARAGRAPHS[:3], trainer)
    return tokenizer


def gaps_dropped():
    """Bytes without a token become nothing."""

    def ids_apart(document):
        vocab = document["model"]["vocab"]
        for token, index in vocab.items():
            vocab[token] = index if index < 100 else index + 7

    return edited(train_gaps(byte_level(use_regex=True), ["<|endoftext|>"]), ids_apart)


def gaps_unknown():
    """Bytes without a token become the unknown token, each of them; its own letters are bytes, too."""

    def unknown(document):
        document["model"] |= {"unk_token": "<unk>", "fuse_unk": False}

    return edited(train_gaps(byte_level(use_regex=True), ["<unk>", "<|endoftext|>"]), unknown)


def gaps_fused():
    """Those in a row become one; a word that is a token is taken whole."""

    def fused(document):
        document["model"] |= {"unk_token": "<unk>", "fuse_unk": True, "ignore_merges": True}

    return edited(train_gaps(pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN2), "isolated"), byte_level()]),
                             ["<unk>", "<|endoftext|>"]), fused)


def gaps_fallback():
    """First the tokens of the bytes that the alphabet's letter for a byte is written in, as far as there are some."""

    def fallback(document):
        vocab = document["model"]["vocab"]
        for byte in list(range(0xC2, 0xC6)) + list(range(0x80, 0xB0)):
            vocab[f"<0x{byte:02X}>"] = len(vocab)
        document["model"] |= {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True}

    return edited(train_gaps(byte_level(use_regex=True), ["<unk>", "<|endoftext|>"]), fallback)


STYLES = [gpt2, qwen2, llama3, mixed, gpt4o, llama2, mistral, characters, gaps_dropped, gaps_unknown, gaps_fused,
          gaps_fallback]

FIXED = [
    "", " ", "  ", "\n", "\t", "a", "Hello world", " Hello  world ", "don't DON'T we'LL I'Ve it's 'S 's", "'ſ it'ſ",
    "0", "12", "123", "1234", "12345678901", "3.14159", "x1y22z333", "½²³ Ⅷ ٣٤٥", "\r\n", "a\r\nb\r\n\r\nc", "a\n\n\nb", "  \n  x",
    "x   ", "tab\tand\u00a0nbsp\u2003em\u3000wide", "\u180evowel\u180e separator", "\u0085next line\u0085 x", "\u2028line\u2029par",
    "\x00\x01\x1c\x1f\x7f", "\ufeffbom", "\ufffd", "\U0010ffff", "e\u0301 \u00e9 e\u0301\u0323 \u1e9b\u0323 \u212b \uac00 \u1100\u1161\u11a8",
    "ﬁ ﬃ ﷺ ① ㎏ ｆｕｌｌ ｶﾞ", "🙂🌊👩‍👩‍👧‍👦🇩🇪🏳️‍🌈", "मानक हिन्दी", "ภาษาไทย", "日本語のテキスト", "中文文本,没有空格。", "한국어 텍스트",
    "عربي نص", "עברית", "Ελληνικά", "Žluťoučký kůň", "!!!???...", "--> <-- == != <= >=", "a-b-c--d-", ".a,b;c.,;", "a|b||c|",
    "http://a.b/c?d=e&f=g#h", "snake_case camelCase PascalCase", "x" * 100, "ab" * 200, " " * 70, "\n" * 40, "the" * 50, "a b " * 30,
    "<|endoftext|>", "a<|endoftext|>b", "<|endoftext|><|endoftext|>", "<|im_start|>user\nHi<|im_end|>\n", "<|im_start|", "<|im_<|im_end|>",
    "<think>\nhm\n</think>", "<|begin_of_text|>x<|eot_id|>", "a <mask> b", "a  \u00a0<mask>  b", "<mask><mask> <mask>", "a <sep> b <sep>",
    "<sep> <mask>", "<s>x<s>", "lamp", "lamps", "lamp lamps clamp lamp. lamp_ lampé lamp\u0301 \u0301lamp Ⓐlamp \u200dlamp", "<maskless> <mask", "日本 日本語 x 日本 y",
    "\u2581", "\u2581\u2581x \u2581", "<0x0A>", "<unk>", "a<unk> b", "</s> x", "[INST] hi [/INST]ho</s>", "HELLO\u0130I\u0307 \u03a3\u03a3 \u1e9e", "``quoted''",
    "o\ufb03ce office ofﬁce", "wonderful a wonderful lighthouses", "lamp", " lamp", "🌍", " 🌍",
]


def random_texts(rng, count, old=unicodedata.ucd_3_2_0):
    assigned = [chr(c) for c in range(0x110000) if old.category(chr(c)) not in ("Cn", "Cs", "Co")]
    marks = [c for c in assigned if unicodedata.combining(c)]
    spaces = [c for c in assigned if unicodedata.category(c) in ("Zs", "Zl", "Zp")] + list("\t\n\v\f\r\x85 ") * 3
    words = " ".join(PARAGRAPHS).split(" ")
    ascii_ = [chr(c) for c in range(32, 127)]

    def piece():
        kind = rng.randrange(9)
        if kind <= 2:
            return " ".join(rng.choices(words, k=rng.randint(1, 4)))
        if kind == 3:
            return "".join(rng.choices(ascii_, k=rng.randint(1, 12)))
        if kind == 4:
            return "".join(rng.choices(assigned, k=rng.randint(1, 6)))
        if kind == 5:
            return rng.choice("aeiounAEK가ᄀ") + "".join(rng.choices(marks, k=rng.randint(1, 4)))
        if kind == 6:
            return "".join(rng.choices(spaces, k=rng.randint(1, 4)))
        if kind == 7:
            return rng.choice(["<|endoftext|>", "<|im_end|>", "<think>", "<mask>", "<sep>", "lamp", "<|eot_id|>", "<s>"])
        return str(rng.randrange(10 ** rng.randint(1, 8)))

    return ["".join(piece() + rng.choice(["", "", " "]) for _ in range(rng.randint(1, 5))) for _ in range(count)]


def cases(tokenizer, texts, rng):
    rows = []
    for text in texts:
        row = {"text": text, "ids": tokenizer.encode(text).ids}
        tokenizer.encode_special_tokens = True
        plain = tokenizer.encode(text, add_special_tokens=False).ids
        tokenizer.encode_special_tokens = False
        row["bare"] = tokenizer.encode(text, add_special_tokens=False).ids
        row["plain"] = plain
        row["decoded"] = tokenizer.decode(row["ids"], skip_special_tokens=False)
        row["skipped"] = tokenizer.decode(row["ids"], skip_special_tokens=True)
        for short, long in (("bare", "ids"), ("plain", "bare"), ("decoded", "text"), ("skipped", "decoded")):
            row[short + "_"] = row[long]  # what an absent member stands for
        rows.append({key: value for key, value in row.items()
                     if not key.endswith("_") and value != row.get(key + "_")})
    # Any ids at all: mostly no text, so that it shows what broken characters become.
    size = tokenizer.get_vocab_size()
    decodes = []
    for _ in range(60):
        ids = [rng.randrange(256) if rng.random() < 0.8 else rng.randrange(size) for _ in range(rng.randint(1, 12))]
        decodes.append({"ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False)})
    return {"cases": rows, "decodes": decodes}


def write(path, value, **options):
    path.write_text(json.dumps(value, ensure_ascii=False, **options) + "\n", encoding="utf-8")


def live(name, count, seed, text):
    tokenizer = Tokenizer.from_file(str(OUT / f"{name}.tokenizer.json"))
    texts = text.read_text().split("\n\n") if text else random_texts(random.Random(seed), count)
    for line, encoding in zip(texts, tokenizer.encode_batch(texts)):
        print(json.dumps([line, encoding.ids, tokenizer.decode(encoding.ids)], separators=(",", ":")))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--live", metavar="NAME", help="print cases of this one, instead of writing files")
    parser.add_argument("--count", type=int, default=10000, help="how many random texts (10000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--text", type=pathlib.Path, help="a file whose paragraphs are the texts, instead of random ones")
    parser.add_argument("--only", action="append", help="write the files of this one; all by default")
    args = parser.parse_args()
    if args.live:
        return live(args.live, args.count, args.seed, args.text)
    OUT.mkdir(parents=True, exist_ok=True)
    for index, make in enumerate(STYLES):
        if args.only and make.__name__ not in args.only:
            continue
        rng = random.Random(20240 + index)
        tokenizer, document = make()
        result = cases(tokenizer, FIXED + random_texts(rng, 230), rng)
        write(OUT / f"{make.__name__}.tokenizer.json", document, indent=None, separators=(",", ":"))
        lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in result["cases"])
        decodes = ",\n".join(json.dumps(row, separators=(",", ":")) for row in result["decodes"])
        (OUT / f"{make.__name__}.cases.json").write_text(
            f'{{"cases":[\n{lines}\n],\n"decodes":[\n{decodes}\n]}}\n', encoding="ascii")
        print(make.__name__, tokenizer.get_vocab_size(), "tokens,", len(result["cases"]), "texts")


if __name__ == "__main__":
    main()
