#!/usr/bin/env python3
"""Trains models/storyteller, the small model that Megalith's demos and tests run.

From one text file (books, two blank lines between them, one blank line between paragraphs) come a byte-level BPE
tokenizer and a Qwen3-shaped language model, written as a Hugging Face folder that transformers opens unchanged:

    python3 tools/train_storyteller.py --data fairy_tales.txt.xz --out models/storyteller

About 2.5 M tokens are few, even for 6.6 M parameters: what limits the model is not compute but overfitting. So a few
larger teachers with strong dropout are trained first, and the small student learns from the average of what they
predict as well as from the text ("born-again" distillation, Furlanello et al. 2018). `--teachers 0` leaves that out.
It pays: the student reaches 3.18 nats per held-out token, where its teachers, twice its size, reach 3.33 to 3.42.

Needs torch, transformers 5, tokenizers, safetensors. Six minutes on an H200. Progress goes to stderr, samples to stdout.
Ctrl-C ends the training of the model in hand and goes on with what it has learnt so far.
"""

import argparse
import json
import lzma
import math
import shlex
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

kEndOfText = "<|endoftext|>"
kVocabSize = 4096
kContext = 1024
# Qwen2's and Qwen3's way of cutting text before BPE: contractions, words, single digits, punctuation, line ends, spaces.
kSplit = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")

# One stretch of every book is kept for validation, from the middle: the ends of old books are notes and indexes.
kHeldOutShare = 0.025
kHeldOutStart = 0.6

# Peak learning rate and decay for AdamW at 32 k tokens a step. The decay is five times the usual 0.1, because the text
# is seen dozens of times; the same holds for dropout, which each model sets for itself.
kLearningRate = 2e-3
kWeightDecay = 0.5
kWarmupSteps = 200
kSequencesPerStep = 32
# The student's target is this much the teachers' distribution, and the rest the token that stands in the text.
kTeacherWeight = 0.7

kPrompts = ["Once upon a time", "There was once a king who had three daughters,", "The old witch",
            "'Dear mother,' said the youngest son, 'let me"]


@dataclass(frozen=True)
class Shape:
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    intermediate: int
    dropout: float


kStudent = Shape(hidden=256, layers=7, heads=4, kv_heads=2, intermediate=768, dropout=0.1)
kStudentAlone = replace(kStudent, dropout=0.2)
# Teachers differ in dropout and seed: what they disagree about is what the text leaves open. After 40 epochs 0.3 was the
# best of the three and still gaining; at 0.2 the held-out loss turned up again halfway.
kTeachers = [Shape(hidden=384, layers=8, heads=6, kv_heads=2, intermediate=1152, dropout=p) for p in (0.25, 0.3, 0.2)]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# ---------------------------------------------------------------------------------------------- text and tokens

def read_books(path: Path) -> tuple[list[str], list[str]]:
    """The file's documents as (training, held out); a book with a stretch taken out becomes two training documents."""
    opener = lzma.open if path.suffix == ".xz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        books = [book.strip().split("\n\n") for book in file.read().split("\n\n\n")]
    training, held_out = [], []
    for paragraphs in books:
        begin = int(len(paragraphs) * kHeldOutStart)
        end = begin + math.ceil(len(paragraphs) * kHeldOutShare)
        held_out.append("\n\n".join(paragraphs[begin:end]))
        training += ["\n\n".join(part) for part in (paragraphs[:begin], paragraphs[end:]) if part]
    return training, held_out


def train_tokenizer(documents: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(kSplit), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    tokenizer.train_from_iterator(documents, trainers.BpeTrainer(
        vocab_size=kVocabSize, special_tokens=[kEndOfText], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tokenizer


def encode(tokenizer: Tokenizer, documents: list[str]) -> torch.Tensor:
    """All documents in one row, kEndOfText after each."""
    ids = [token for encoding in tokenizer.encode_batch([text + kEndOfText for text in documents]) for token in encoding.ids]
    return torch.tensor(ids)                                                                 # (N)


# --------------------------------------------------------------------------------------------------------- model

def make_config(shape: Shape, end_of_text: int) -> dict:
    """config.json in the classic form, with rope_theta at top level, which every version of transformers reads."""
    return {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
        "vocab_size": kVocabSize, "hidden_size": shape.hidden, "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads, "num_key_value_heads": shape.kv_heads, "head_dim": 64,
        "intermediate_size": shape.intermediate, "hidden_act": "silu", "rms_norm_eps": 1e-6,
        "attention_bias": False, "attention_dropout": 0.0, "use_sliding_window": False,
        "max_position_embeddings": kContext, "rope_theta": 10000.0, "rope_scaling": None,
        "tie_word_embeddings": True, "initializer_range": 0.02, "use_cache": True, "torch_dtype": "bfloat16",
        "bos_token_id": end_of_text, "eos_token_id": end_of_text, "pad_token_id": end_of_text,
    }


def make_model(config: dict, dropout: float, device: str) -> Qwen3ForCausalLM:
    """Qwen3 has dropout on attention weights only; hooks add it where the residual stream is written and read out."""
    options = {key: value for key, value in config.items() if key not in ("architectures", "model_type", "torch_dtype")}
    model = Qwen3ForCausalLM(Qwen3Config(**options)).to(device)
    for name, module in model.named_modules():
        if name.endswith((".embed_tokens", ".o_proj", ".down_proj", "model.norm")):
            module.dropout = dropout
            module.register_forward_hook(lambda m, _, output: F.dropout(output, m.dropout, m.training))
    if device == "cuda":
        compile_layers(model)
    return model


def compile_layers(model: Qwen3ForCausalLM) -> None:
    """One layer at a time: they share code, so that the compiler runs once for all of them, in seconds."""
    for layer in model.model.layers:
        layer.compile(dynamic=False)


def held_out_loss(model: Qwen3ForCausalLM, tokens: torch.Tensor) -> float:
    """Mean nats per token over windows of kContext that do not overlap."""
    windows = tokens.unfold(0, kContext + 1, kContext)                                       # (W, T + 1)
    was_training = model.training
    model.eval()
    total = 0.0
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        for part in windows.split(16):
            logits = model(part[:, :-1], use_cache=False).logits.float()                     # (B, T, V)
            total += F.cross_entropy(logits.flatten(0, 1), part[:, 1:].flatten(), reduction="sum").item()
    model.train(was_training)
    return total / (len(windows) * kContext)


@torch.no_grad()
def targets(teachers: list[Qwen3ForCausalLM], inputs: torch.Tensor, answers: torch.Tensor) -> torch.Tensor:
    """What the student shall predict: the text's tokens (B * T), or with teachers a distribution (B * T, V)."""
    answers = answers.flatten()
    if not teachers:
        return answers
    mixed = sum(t(inputs, use_cache=False).logits.float().softmax(-1) for t in teachers).flatten(0, 1)
    mixed *= kTeacherWeight / len(teachers)
    return mixed.scatter_add_(1, answers[:, None], torch.full_like(mixed[:, :1], 1 - kTeacherWeight).expand(len(mixed), 1))


def train(name: str, config: dict, dropout: float, training: torch.Tensor, held_out: torch.Tensor, *, epochs: float,
          minutes: float, batch: int, seed: int, teachers: list[Qwen3ForCausalLM]) -> tuple[Qwen3ForCausalLM, float]:
    """The best model on the held-out text, weights rounded to bf16; stops after epochs or minutes, the earlier."""
    torch.manual_seed(seed)
    device = training.device.type
    model = make_model(config, dropout, device)
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim == 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": kWeightDecay}, {"params": vectors, "weight_decay": 0.0}],
                                  betas=(0.9, 0.95), fused=device == "cuda")
    autocast = torch.autocast(device, torch.bfloat16)
    num_steps = max(2, int(epochs * len(training) / (batch * kContext)))
    evaluate_every = max(1, num_steps // 12)
    say(f"[{name}] {sum(p.numel() for p in model.parameters()) / 1e6:.2f} M parameters, {num_steps} steps of {batch} x {kContext}")

    best_loss, best_weights, progress, start = math.inf, None, 0.0, time.time()
    try:
        for step in range(num_steps):
            # The cosine follows the clock where the clock is the tighter limit, so that a slower machine also ends it.
            rate = kLearningRate * min(1, (step + 1) / kWarmupSteps) * (0.02 + 0.98 * (1 + math.cos(math.pi * progress)) / 2)
            for group in optimizer.param_groups:
                group["lr"] = rate
            begins = torch.randint(len(training) - kContext, (batch, 1), device=device)
            windows = training[begins + torch.arange(kContext + 1, device=device)]            # (B, T + 1)
            inputs, answers = windows[:, :-1].contiguous(), windows[:, 1:]
            with autocast:
                logits = model(inputs, use_cache=False).logits                               # (B, T, V)
                loss = F.cross_entropy(logits.float().flatten(0, 1), targets(teachers, inputs, answers))
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if step == 0:
                loss.item()
                start = time.time()                                                          # compiling is not training
            progress = max((step + 1) / num_steps, (time.time() - start) / (60 * minutes))
            if (step + 1) % evaluate_every == 0 or progress >= 1:
                with autocast:
                    now = held_out_loss(model, held_out)
                say(f"[{name}] step {step + 1:5}  {time.time() - start:5.0f} s  loss {loss.item():.3f}  held out {now:.3f}")
                if now < best_loss:
                    best_loss, best_weights = now, {k: v.bfloat16() for k, v in model.state_dict().items()}
            if progress >= 1:
                break
    except KeyboardInterrupt:
        say(f"[{name}] stopped by hand")
    model.load_state_dict(best_weights or model.state_dict())
    return model.eval(), best_loss


# -------------------------------------------------------------------------------------------------------- folder

def write_folder(out: Path, config: dict, model: Qwen3ForCausalLM, tokenizer: Tokenizer) -> None:
    out.mkdir(parents=True, exist_ok=True)
    end_of_text = config["eos_token_id"]
    weights = {name: tensor.bfloat16().cpu().contiguous() for name, tensor in model.state_dict().items()
               if name != "lm_head.weight"}                                                  # tied to the embedding
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    (out / "model.safetensors").chmod(0o644)
    tokenizer.save(str(out / "tokenizer.json"))
    special = {"content": kEndOfText, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    files = {
        "config.json": config,
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": False, "add_prefix_space": False,
            "added_tokens_decoder": {str(end_of_text): special}, "bos_token": kEndOfText, "eos_token": kEndOfText,
            "pad_token": kEndOfText, "clean_up_tokenization_spaces": False, "model_max_length": kContext,
        },
        "generation_config.json": {
            "do_sample": True, "temperature": 0.8, "top_p": 0.95, "top_k": 40,
            "bos_token_id": end_of_text, "eos_token_id": end_of_text, "pad_token_id": end_of_text,
        },
    }
    for name, content in files.items():
        (out / name).write_text(json.dumps(content, indent=2) + "\n")


def write_card(out: Path, *, parameters: int, tokens: int, nats_per_token: float, nats_per_byte: float,
               teachers: list[float], sample: str) -> None:
    taught = (f"It learnt from the text and from {len(teachers)} larger teachers (held-out loss "
              f"{', '.join(f'{loss:.2f}' for loss in teachers)}), which are not kept. " if teachers else "")
    quoted = "\n".join("> " + line if line else ">" for line in sample.split("\n"))
    (out / "README.md").write_text(f"""---
language: en
license: apache-2.0
pipeline_tag: text-generation
library_name: transformers
---
# storyteller

A small language model that writes fairy tales: the model that Megalith's demos, tests and documentation run. It fits in
a repository and behaves like its big relatives: Qwen3 architecture, byte-level BPE with Qwen's pre-tokenizer, bf16.

| | |
|---|---|
| parameters | {parameters:,} (input and output embeddings shared) |
| vocabulary | {kVocabSize}, with an end-of-text token between documents |
| context | {kContext} tokens |
| trained on | {tokens / 1e6:.2f} M tokens of 21 public-domain story books in English: Grimm, Andersen, Lang's fairy books, Carroll, Barrie, Baum, Kipling, Burnett, Jacobs |
| held-out loss | {nats_per_token:.3f} nats per token, {nats_per_byte:.3f} per byte ({nats_per_byte / math.log(2):.3f} bits), on {kHeldOutShare:.1%} of every book; bf16 weights, float32 arithmetic |
| licence | Apache-2.0 |

It knows the manner of the old tales, and nothing of the world: expect princes, wolves and errands, not facts or a plot
that holds. The books are of their time, in what they say about people too.

{taught}The command that trained it:

    {shlex.join(["python3", *sys.argv])}

A sample (temperature 0.8, top-p 0.95, top-k 40):

{quoted}
""")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the books: .txt or .txt.xz, UTF-8")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--epochs", type=float, default=80, help="passes over the text for the student (80)")
    parser.add_argument("--minutes", type=float, default=2.5, help="the most time for the student; the schedule ends on time (2.5)")
    parser.add_argument("--teachers", type=int, default=3, choices=range(len(kTeachers) + 1), help="how many teachers (3)")
    parser.add_argument("--teacher-epochs", type=float, default=40, help="passes over the text for each teacher (40)")
    parser.add_argument("--teacher-minutes", type=float, default=1, help="the most time for each teacher (1)")
    parser.add_argument("--batch", type=int, default=kSequencesPerStep, help="sequences of %d tokens a step (%d)" % (kContext, kSequencesPerStep))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()

    training_text, held_out_text = read_books(args.data)
    tokenizer = train_tokenizer(training_text)
    end_of_text = tokenizer.token_to_id(kEndOfText)
    training, held_out = (encode(tokenizer, text).to(args.device) for text in (training_text, held_out_text))
    held_out_bytes = sum(len(text.encode()) for text in held_out_text)
    say(f"{len(training)} tokens to learn from, {len(held_out)} held out, {held_out_bytes / len(held_out):.2f} bytes per token")
    torch._dynamo.config.recompile_limit = 64       # one layer class, several shapes and dtypes; each compiles once

    teachers, teacher_losses = [], []
    for i, shape in enumerate(kTeachers[:args.teachers]):
        teacher, loss = train(f"teacher {i + 1}", make_config(shape, end_of_text), shape.dropout, training, held_out, teachers=[],
                              epochs=args.teacher_epochs, minutes=args.teacher_minutes, batch=args.batch, seed=args.seed + 1 + i)
        teachers.append(teacher)
        teacher_losses.append(loss)
    shape = kStudent if teachers else kStudentAlone
    config = make_config(shape, end_of_text)
    student, _ = train("student", config, shape.dropout, training, held_out, teachers=teachers,
                       epochs=args.epochs, minutes=args.minutes, batch=args.batch, seed=args.seed)
    write_folder(args.out, config, student, tokenizer)

    # From here on only what was written counts: the folder is opened as a user would open it.
    model = AutoModelForCausalLM.from_pretrained(args.out, dtype=torch.float32).to(args.device)
    text_tokenizer = AutoTokenizer.from_pretrained(args.out)
    nats_per_token = held_out_loss(model, held_out)
    nats_per_byte = nats_per_token * len(held_out) / held_out_bytes
    say(f"held out, bf16 weights: {nats_per_token:.4f} nats per token, {nats_per_byte:.4f} per byte")
    samples = []
    for i, prompt in enumerate(kPrompts):
        torch.manual_seed(args.seed + i)
        inputs = text_tokenizer(prompt, return_tensors="pt").to(args.device)
        samples.append(text_tokenizer.decode(model.generate(**inputs, max_new_tokens=200)[0], skip_special_tokens=True))
        print(f"--- sample {i + 1}\n{samples[-1]}\n", flush=True)
    write_card(args.out, parameters=model.num_parameters(), tokens=len(training), nats_per_token=nats_per_token,
               nats_per_byte=nats_per_byte, teachers=teacher_losses, sample=samples[0])


if __name__ == "__main__":
    main()
