#!/usr/bin/env python3
"""Makes result.md and result.json of what tools/gpu_check.sh has left in a folder.

    gpu_table.py FOLDER

A share is the bytes that a step must read (weights once, and the cache of every text), over its time, over what a kernel
that only reads gets out of the same card in the same run. What is missing is shown as missing: a dash, and the step's exit
code in the list below the table.
"""

import json
import os
import sys

NO_VALUE = "–"


def read_text(folder, name):
    try:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""


def read_json(folder, name):
    try:
        return json.loads(read_text(folder, name))
    except ValueError:
        return None


def read_steps(folder):
    steps = []
    for line in read_text(folder, "steps.tsv").splitlines():
        name, code, seconds, command = line.split("\t", 3)
        steps.append({"name": name, "exit": code, "seconds": int(seconds), "command": command})
    return steps


def our_result(document):
    """`megalith bench` writes a list of tests, or one; ours is that of tokens made one by one."""
    for test in document if isinstance(document, list) else [document]:
        if isinstance(test, dict) and test.get("median_ms"):
            return test
    return None


def case_of_step(name):
    """ours_Qwen3-8B_b8_c512 -> ("Qwen3-8B", 8, 512)."""
    model, batch, context = name.removeprefix("ours_").rsplit("_", 2)
    return model, int(batch.removeprefix("b")), int(context.removeprefix("c"))


def prompts(folder, steps):
    """A row for each model and length of a prompt: what it took us and PyTorch, and our share of the rate of multiplications
    that bench measured. What did not end well is left out, but for PyTorch's cases: it writes those that it is done with."""
    rows = {}

    def row(model, tokens):
        return rows.setdefault((model, tokens), {"model": model, "tokens": tokens, "ours_ms": None, "torch_ms": None})

    for step in steps:
        model = step["name"].removeprefix("prompt_")
        if model in (step["name"], "torch") or step["exit"] != "0":
            continue
        for test in read_json(folder, f"prompt_{model}.json") or []:
            if test.get("n_prompt"):
                ours = row(model, test["n_prompt"])
                ours.update(ours_ms=test["avg_ns"] / 1e6, ours_share=test.get("multiply_share"))
    for found in read_json(folder, "prompt_torch.json") or []:
        row(found["model"], found["tokens"]).update(
            torch_ms=found.get("ms"), torch_variant=found.get("variant"), torch=found.get("variants")
        )
    return list(rows.values())


def cache_bytes(case, length):
    """Keys and values in bf16 that a step reads of `length` positions of each text; 0 of a model that is not here."""
    path = os.path.join(os.path.dirname(__file__), "../../models/shapes", case["model"], "config.json")
    try:
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
    except (OSError, ValueError):
        return 0
    heads = config["num_key_value_heads"] * config["head_dim"]
    return 2 * 2 * config["num_hidden_layers"] * heads * case["batch"] * length


def collect(folder):
    steps = read_steps(folder)
    done = {step["name"] for step in steps if step["exit"] == "0"}
    stream = (read_json(folder, "stream.json") or {}) if "stream" in done else {}
    torch = read_json(folder, "torch.json") or {}
    cases = {}

    def case(key):
        model, batch, context = key
        return cases.setdefault(key, {"model": model, "batch": batch, "context": context, "torch": []})

    for step in steps:
        if not step["name"].startswith("ours_"):
            continue
        row = case(case_of_step(step["name"]))
        ours = our_result(read_json(folder, step["name"] + ".json")) if step["name"] in done else None
        if ours:
            row["ours_ms"] = ours["median_ms"]
            weights = ours.get("bytes_per_token", 0) * ours.get("n_parallel", 1)
            made = ours.get("n_gen")  # the last tokens of the context
            row["bytes"] = weights + (cache_bytes(row, row["context"] - made // 2) if made else 0)
    for found in torch.get("cases", []):
        row = case((found["model"], found["batch"], found["context"]))
        row["torch"].append({k: v for k, v in found.items() if k not in ("model", "batch", "context")})
        row["bytes"] = found.get("bytes_per_step", row.get("bytes"))
    limit = stream.get("median_gbs")
    for row in cases.values():
        timed = [variant for variant in row["torch"] if "median_ms" in variant]
        if timed:
            best = min(timed, key=lambda variant: variant["median_ms"])
            row["torch_ms"], row["torch_variant"] = best["median_ms"], best["variant"]
        for who in ("ours", "torch"):
            if row.get(who + "_ms") and row.get("bytes") and limit:
                row[who + "_share"] = row["bytes"] / (row[who + "_ms"] * 1e6) / limit
        if row.get("ours_ms") and row.get("torch_ms"):
            row["speedup"] = row["torch_ms"] / row["ours_ms"]
    return {
        "commit": read_text(folder, "commit.txt"),
        "command": read_text(folder, "command.txt"),
        "gpu_before": read_text(folder, "gpu_before.txt"),
        "gpu_after": read_text(folder, "gpu_after.txt"),
        "torch_version": torch.get("torch"),
        "stream_gbs": limit,
        "cases": list(cases.values()),
        "prompts": prompts(folder, steps),
        "steps": steps,
    }


def cell(value, form):
    return NO_VALUE if value is None else form.format(value)


def markdown(result):
    commit = result["commit"].replace("\n", ", ") or "unknown"
    lines = [
        "# GPU check",
        "",
        f"Commit {commit}. `{result['command']}`",
        "",
        "Card before and after (name, driver, SM clock, its maximum, memory clock, power, temperature, memory in use):",
        "",
        f"    {result['gpu_before'] or 'unknown'}",
        f"    {result['gpu_after'] or 'unknown'}",
        "",
        f"Memory read by a kernel that does nothing else: {cell(result['stream_gbs'], '{:.0f} GB/s')}. "
        f"PyTorch {result['torch_version'] or 'not run'}. Random weights in bf16; milliseconds are medians per step.",
        "",
        "| model | batch | context | GB a step | ours ms | of stream | PyTorch ms | of stream | faster by |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for row in result["cases"]:
        torch_ms = cell(row.get("torch_ms"), "{:.3f}")
        if row.get("torch_variant"):
            torch_ms += f" ({row['torch_variant']})"
        size = row["bytes"] / 1e9 if row.get("bytes") else None
        lines.append(
            f"| {row['model']} | {row['batch']} | {row['context']} | {cell(size, '{:.2f}')} "
            f"| {cell(row.get('ours_ms'), '{:.3f}')} | {cell(row.get('ours_share'), '{:.1%}')} "
            f"| {torch_ms} | {cell(row.get('torch_share'), '{:.1%}')} | {cell(row.get('speedup'), '{:.2f}')} |"
        )
    if result["prompts"]:
        lines += [
            "",
            "| model | prompt | ours ms | of multiplications | PyTorch ms | faster by |",
            "|---|--:|--:|--:|--:|--:|",
        ]
    for row in result["prompts"]:
        ours, torch_ms = row["ours_ms"], cell(row["torch_ms"], "{:.2f}")
        if row.get("torch_variant"):
            torch_ms += f" ({row['torch_variant']})"
        speedup = row["torch_ms"] / ours if ours and row["torch_ms"] else None
        lines.append(
            f"| {row['model']} | {row['tokens']} | {cell(ours, '{:.2f}')} | {cell(row.get('ours_share'), '{:.1%}')} "
            f"| {torch_ms} | {cell(speedup, '{:.2f}')} |"
        )
    lines += ["", "| step | seconds | ended |", "|---|--:|---|"]
    endings = {"0": "well", "124": "out of time", "137": "killed", "skipped": "skipped: no time left"}
    for step in result["steps"]:
        lines.append(f"| {step['name']} | {step['seconds']} | {endings.get(step['exit'], 'exit ' + step['exit'])} |")
    return "\n".join(lines) + "\n"


def write(folder):
    result = collect(folder)
    for name, text in (("result.json", json.dumps(result, indent=1) + "\n"), ("result.md", markdown(result))):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    write(sys.argv[1])
