#!/usr/bin/env python3
"""Compares our logits with those of `transformers` in float32, on the same card and the same random weights.

    gpu_logits.py --config FOLDER --megalith BINARY [--target cuda] [--tokens 24] [--limit 2e-2] [--work DIR] [--seed 1]

Makes a Hugging Face folder of FOLDER's config.json with random bf16 weights, runs `megalith logits` on it, then
transformers with those weights in float32, and compares token by token: |ours - theirs| / |theirs|, both as vectors over the
vocabulary. Prints JSON; the exit code is 1 if a token is beyond the limit.

Random weights know no likely token: a random model's logits are close to each other, so the comparison is of all of
them, not of the first.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile


def read_safetensors(path, name):
    """One f32 tensor of a file."""
    import torch

    with open(path, "rb") as file:
        header_bytes = int.from_bytes(file.read(8), "little")
        entry = json.loads(file.read(header_bytes))[name]
        begin, end = entry["data_offsets"]
        file.seek(8 + header_bytes + begin)
        data = bytearray(file.read(end - begin))
    if entry["dtype"] != "F32":
        raise SystemExit(f"gpu_logits: {name} of {path} is {entry['dtype']}, want F32")
    return torch.frombuffer(data, dtype=torch.float32).reshape(entry["shape"])


def make_model(config_folder, folder, seed):
    """A float32 model with weights that bf16 has, whose sums keep the size of what they sum over; and its folder."""
    import torch
    from safetensors.torch import save_file
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(config_folder)).float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2:
                parameter.normal_(0, parameter.shape[1] ** -0.5)
            elif name.endswith("bias"):
                parameter.normal_(0, 0.1)
            else:
                parameter.uniform_(0.9, 1.1)
            parameter.copy_(parameter.bfloat16())
    # Of tied weights named_parameters() has one.
    os.makedirs(folder)
    save_file(
        {name: parameter.detach().bfloat16().contiguous() for name, parameter in model.named_parameters()},
        os.path.join(folder, "model.safetensors"),
        metadata={"format": "pt"},
    )
    shutil.copy(os.path.join(config_folder, "config.json"), folder)
    return model


def their_logits(model, tokens, device):
    import torch

    # TF32 is not float32.
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    with torch.no_grad():
        return model.to(device)(torch.tensor([tokens], device=device)).logits[0].float().cpu()


def compare(ours, theirs):
    if ours.shape != theirs.shape:
        raise SystemExit(f"gpu_logits: our logits are {list(ours.shape)}, theirs {list(theirs.shape)}")
    errors = ((ours.double() - theirs.double()).norm(dim=1) / theirs.double().norm(dim=1)).tolist()
    same = (ours.argmax(dim=1) == theirs.argmax(dim=1)).sum().item()
    return {"relative_l2": errors, "worst": max(errors), "same_likeliest": same, "tokens": len(errors)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True)
    parser.add_argument("--megalith", required=True)
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--limit", type=float, default=2e-2)
    parser.add_argument("--work")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()

    work = arguments.work or tempfile.mkdtemp()
    folder = os.path.join(work, "logits_model")
    try:
        model = make_model(arguments.config, folder, arguments.seed)
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            vocabulary = json.load(file)["vocab_size"]
        tokens = [(i * 7919 + 13) % vocabulary for i in range(arguments.tokens)]
        output = os.path.join(work, "logits.safetensors")
        subprocess.run(
            [arguments.megalith, "logits", folder, "--target", arguments.target, "-o", output]
            + ["--tokens", ",".join(map(str, tokens)), "--max-seq-len", str(max(256, arguments.tokens + 8))],
            check=True,
            stdout=sys.stderr,
        )
        device = "cuda" if arguments.target.startswith("cuda") else "cpu"
        result = compare(read_safetensors(output, "logits"), their_logits(model, tokens, device))
    finally:
        if not arguments.work:
            shutil.rmtree(work, ignore_errors=True)
    result.update(model=os.path.basename(arguments.config.rstrip("/")), limit=arguments.limit)
    print(json.dumps(result, indent=1))
    if not result["worst"] <= arguments.limit:  # also where it is no number
        print(f"gpu_logits: {result['worst']:.3g} is beyond {arguments.limit:.3g}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
