#!/usr/bin/env python3
"""Writes tests/golden/tiny: random models of a few hundred kilobytes, with what transformers computes from them.

    python3 tools/make_tiny_models.py --out tests/golden/tiny

Together they take every turn that a loader and a decoder can take: all architectures, both forms of config.json (rope_theta
at top level, and transformers 5's rope_parameters), tied and untied embeddings, one file and shards, bf16, f16 and f32, head
sizes 64, 80 and 128, every rope scaling with a short original context, biases on every projection, a sliding window as long as
the tests' context, sizes that no tile divides, the text models of multimodal ones under the names that their makers gave them.
Models that are there already are left alone; --only NAME makes one again. Each folder holds

    config.json, model*.safetensors   the model
    golden.json                       a prompt of 70 ids, 16 greedy ids (end of text ignored), and each one's lead in logits
    logits.safetensors                "logits" [4, V] float32, at the prompt's last 4 positions

Weights are scaled so that layers matter more than the embedding and attention is neither flat nor one-hot. The seed is the
first that makes every greedy choice clear (kMinLead), so that another summation order, or bf16 activations, give the same tokens.
"""

import argparse
import json
from pathlib import Path

import torch
from make_goldens import greedy, versions, write_json
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

kPromptTokens = 70
kNumGreedy = 16
kMinLead = 0.2

kLlama3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
kCommon = {"num_hidden_layers": 2, "hidden_act": "silu", "attention_bias": False, "max_position_embeddings": 256, "bos_token_id": 1, "eos_token_id": 2}
kQwen3 = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "rms_norm_eps": 1e-6, **kCommon}
kQwen2 = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "rms_norm_eps": 1e-6, "use_sliding_window": False, "sliding_window": 32,
          "max_window_layers": 2, **{key: value for key, value in kCommon.items() if key != "attention_bias"}}
kMistral = {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "rms_norm_eps": 1e-5, **kCommon}
kLlama = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "rms_norm_eps": 1e-5, "mlp_bias": False, **kCommon}

kYarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}

# Multimodal models: the outer file, and how their makers' names differ from those of the modules. The towers are never used.
kMistral3 = {"architectures": ["Mistral3ForConditionalGeneration"], "model_type": "mistral3", "image_token_index": 10, "spatial_merge_size": 2,
             "vision_config": {"model_type": "pixtral", "hidden_size": 32, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
                               "head_dim": 16, "image_size": 32, "patch_size": 16}}
kQwen2_5Vl = {"architectures": ["Qwen2_5_VLForConditionalGeneration"], "model_type": "qwen2_5_vl", "image_token_id": 3, "video_token_id": 4,
              "vision_start_token_id": 5, "vision_end_token_id": 6,
              "vision_config": {"model_type": "qwen2_5_vl", "hidden_size": 32, "intermediate_size": 16, "depth": 1, "num_heads": 2, "out_hidden_size": 64,
                                "patch_size": 2, "spatial_merge_size": 2, "temporal_patch_size": 1, "fullatt_block_indexes": [0], "window_size": 8}}
kPublishedNames = {
    "mistral3": {"model.language_model.": "language_model.model.", "lm_head.": "language_model.lm_head.", "model.vision_tower.": "vision_tower.",
                 "model.multi_modal_projector.": "multi_modal_projector."},
    "qwen2_5_vl": {"model.language_model.": "model.", "model.visual.": "visual."}}

kModels = {
    "qwen3_tied": {
        **kQwen3, "vocab_size": 501, "hidden_size": 80, "intermediate_size": 144, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 64, "tie_word_embeddings": True, "rope_theta": 1000000.0, "rope_scaling": None, "torch_dtype": "bfloat16"},
    "qwen3_sharded": {
        **kQwen3, "vocab_size": 300, "hidden_size": 72, "intermediate_size": 200, "num_attention_heads": 2, "num_key_value_heads": 1,
        "head_dim": 128, "tie_word_embeddings": False, "rope_theta": 10000.0, "torch_dtype": "bfloat16"},
    # No head_dim: it is hidden_size / num_attention_heads. As many KV heads as heads.
    "llama_tied": {
        **kLlama, "vocab_size": 331, "hidden_size": 128, "intermediate_size": 72, "num_attention_heads": 2, "num_key_value_heads": 2,
        "tie_word_embeddings": True, "rope_theta": 500000.0, "rope_scaling": kLlama3, "torch_dtype": "bfloat16"},
    "llama_untied": {
        **kLlama, "vocab_size": 501, "hidden_size": 80, "intermediate_size": 112, "num_attention_heads": 2, "num_key_value_heads": 1,
        "head_dim": 80, "tie_word_embeddings": False, "rope_parameters": {"rope_theta": 500000.0, **kLlama3}, "dtype": "bfloat16"},
    "qwen2_tied": {
        **kQwen2, "vocab_size": 401, "hidden_size": 128, "intermediate_size": 104, "num_attention_heads": 2, "num_key_value_heads": 1,
        "tie_word_embeddings": True, "rope_theta": 1000000.0, "torch_dtype": "bfloat16"},
    "qwen2_sharded": {
        **kQwen2, "vocab_size": 300, "hidden_size": 80, "intermediate_size": 136, "num_attention_heads": 2, "num_key_value_heads": 2,
        "head_dim": 64, "tie_word_embeddings": False, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, "dtype": "float16"},
    # The window is as long as the tests' longest text; a head size that is not hidden_size / num_attention_heads.
    "mistral_window": {
        **kMistral, "vocab_size": 207, "hidden_size": 48, "intermediate_size": 88, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 64, "tie_word_embeddings": False, "sliding_window": 128, "rope_theta": 10000.0, "torch_dtype": "float32"},
    "mistral_sharded": {
        **kMistral, "vocab_size": 257, "hidden_size": 128, "intermediate_size": 72, "num_attention_heads": 2, "num_key_value_heads": 1,
        "tie_word_embeddings": False, "sliding_window": None, "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0}, "dtype": "bfloat16"},
    # Biases on all seven projections.
    "llama_biases": {
        **kLlama, "vocab_size": 211, "hidden_size": 72, "intermediate_size": 104, "num_attention_heads": 2, "num_key_value_heads": 1,
        "head_dim": 64, "tie_word_embeddings": False, "attention_bias": True, "mlp_bias": True, "rope_theta": 10000.0,
        "rope_scaling": {"type": "linear", "factor": 4.0}, "torch_dtype": "bfloat16"},
    "qwen3_biases": {
        **kQwen3, "vocab_size": 300, "hidden_size": 64, "intermediate_size": 88, "num_attention_heads": 2, "num_key_value_heads": 2,
        "head_dim": 64, "tie_word_embeddings": True, "attention_bias": True, "max_position_embeddings": 128, "rope_theta": 1000000.0,
        "rope_scaling": kYarn, "torch_dtype": "bfloat16"},
    # The tests' sequences are longer than its context.
    "llama_dynamic": {
        **kLlama, "vocab_size": 257, "hidden_size": 96, "intermediate_size": 120, "num_attention_heads": 3, "num_key_value_heads": 3,
        "head_dim": 64, "tie_word_embeddings": True, "max_position_embeddings": 64, "rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0},
        "dtype": "bfloat16"},
    "mistral3": {
        **kMistral3, "tie_word_embeddings": False, "dtype": "bfloat16",
        "text_config": {
            "model_type": "mistral", "vocab_size": 257, "hidden_size": 64, "intermediate_size": 88, "num_hidden_layers": 2, "num_attention_heads": 2,
            "num_key_value_heads": 1, "head_dim": 64, "hidden_act": "silu", "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "sliding_window": None,
            "rope_parameters": {**kYarn, "rope_theta": 10000.0, "beta_fast": 4.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 0.5, "truncate": False}}},
    # One flat file, as Qwen published it.
    "qwen2_5_vl": {
        **kQwen2, **kQwen2_5Vl, "vocab_size": 251, "hidden_size": 64, "intermediate_size": 72, "num_attention_heads": 1, "num_key_value_heads": 1,
        "tie_word_embeddings": True, "rope_theta": 1000000.0, "rope_scaling": {"type": "mrope", "mrope_section": [8, 12, 12]}, "torch_dtype": "bfloat16"},
}


def model_class(model_type: str) -> type:
    return AutoModelForImageTextToText if model_type in kPublishedNames else AutoModelForCausalLM


def random_weights(folder: Path, seed: int) -> dict[str, torch.Tensor]:
    config = AutoConfig.from_pretrained(folder)
    with torch.device("meta"):
        model = model_class(config.model_type).from_config(config)
    chance = torch.Generator().manual_seed(seed)
    weights = {}
    for name, like in model.state_dict().items():
        noise = torch.randn(like.shape, generator=chance)
        if name == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        if name.endswith(("q_norm.weight", "k_norm.weight")):
            weight = 1.4 + 0.3 * noise
        elif name.endswith(".bias"):
            weight = 0.5 * noise
        elif like.ndim == 1:
            weight = 1 + 0.3 * noise
        elif "embed" in name or "lm_head" in name:
            weight = 0.3 * noise
        else:
            weight = 1.5 * noise / like.shape[1] ** 0.5
        for ours, theirs in kPublishedNames.get(config.model_type, {}).items():
            if name.startswith(ours):
                name = theirs + name[len(ours):]
                break
        weights[name] = weight.to(model.config.dtype or torch.bfloat16)
    return weights


def write_weights(folder: Path, weights: dict[str, torch.Tensor], num_files: int) -> None:
    for old in folder.glob("model*"):
        old.unlink()
    names = list(weights)
    files = ["model.safetensors"] if num_files == 1 else [f"model-{i + 1:05}-of-{num_files:05}.safetensors" for i in range(num_files)]
    home = {name: files[i * num_files // len(names)] for i, name in enumerate(names)}
    for file in files:
        save_file({name: weights[name] for name in names if home[name] == file}, folder / file, metadata={"format": "pt"})
        (folder / file).chmod(0o644)
    if num_files > 1:
        index = {"metadata": {"total_size": sum(w.numel() * w.element_size() for w in weights.values())}, "weight_map": home}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


def write_model(folder: Path, config: dict, num_files: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    for seed in range(1000):
        write_weights(folder, random_weights(folder, seed), num_files)
        model = model_class(config["model_type"]).from_pretrained(folder, dtype=torch.float32).eval()
        text = config.get("text_config", config)
        least = 11 if config["model_type"] in kPublishedNames else 3           # above those that stand for images
        prompt = torch.randint(least, text["vocab_size"], (kPromptTokens,), generator=torch.Generator().manual_seed(seed)).tolist()
        # Each prompt by itself, shorter ones first: with dynamic rope its length counts, and only growth makes frequencies anew.
        logits = torch.stack([greedy(model, prompt[:length], 1)[2][-1] for length in range(kPromptTokens - 3, kPromptTokens + 1)])
        tokens, leads, _ = greedy(model, prompt, kNumGreedy, use_cache=model.config.get_text_config().rope_parameters["rope_type"] == "dynamic")
        if min(leads) >= kMinLead and len(set(tokens)) >= kNumGreedy // 2:
            break
    else:
        raise SystemExit(f"{folder.name}: no seed below 1000 makes every greedy choice clear; lower kMinLead")
    save_file({"logits": logits}, folder / "logits.safetensors")
    (folder / "logits.safetensors").chmod(0o644)
    write_json(folder / "golden.json", {"about": "written by tools/make_tiny_models.py", "versions": versions(), "seed": seed,
                                        "prompt": prompt, "greedy": tokens, "lead": leads}, {})
    print(f"{folder.name}: seed {seed}, {sum(w.numel() for w in model.parameters())} parameters, "
          f"logits' deviation {logits.std():.2f}, smallest lead {min(leads):.2f}, {len(set(tokens))} different tokens")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("tests/golden/tiny"), help="folder to write (tests/golden/tiny)")
    parser.add_argument("--only", action="append", choices=kModels, help="make this one, also if it is there")
    args = parser.parse_args()
    torch.set_num_threads(1)                # sums in one order, on every machine
    for name, config in kModels.items():
        if name in args.only if args.only else not (args.out / name).exists():
            write_model(args.out / name, config, 2 if name.endswith("_sharded") else 1)


if __name__ == "__main__":
    main()
