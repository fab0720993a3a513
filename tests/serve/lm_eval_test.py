"""lm-evaluation-harness against `megalith serve`: the same log-likelihoods as `megalith logits`, whatever the number of requests at
a time. Run by tools/serve_suites.sh."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
from command_server import ROOT, logprobs_of

BEGINNINGS = (
    "Once upon a time there was a little",
    "The king had three daughters, and the youngest",
    "Then the wolf said to the old woman:",
    "In the middle of the forest stood a",
)
ENDS = ("girl who lived with her mother.", "house.", "was so beautiful that the sun", "zzz, 17!")
TASK = """
task: beginnings
dataset_path: json
dataset_kwargs: {data_files: {test: %s}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{beginning}}"
doc_to_choice: "{{ends}}"
doc_to_target: 0
metric_list: [{metric: acc}]
"""


@pytest.mark.parametrize("concurrent", (1, 8))
def test_log_likelihoods(server, tmp_path, concurrent):
    documents = tmp_path / "documents.jsonl"
    documents.write_text("".join(json.dumps({"beginning": one, "ends": ENDS}) + "\n" for one in BEGINNINGS))
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks/beginnings.yaml").write_text(TASK % documents)
    model = (
        f"base_url={server.url}/v1/completions,model=storyteller,tokenizer={ROOT / 'models/storyteller'},"
        f"tokenized_requests=True,max_length=256,num_concurrent={concurrent}"
    )
    words = [str(pathlib.Path(sys.executable).with_name("lm_eval")), "--model", "local-completions", "--model_args", model]
    words += ["--include_path", str(tmp_path / "tasks"), "--tasks", "beginnings", "--batch_size", "3"]
    words += ["--output_path", str(tmp_path / "told"), "--log_samples"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "cache")}
    subprocess.run(words, check=True, env=environment, timeout=300)
    (samples,) = (tmp_path / "told").rglob("samples_beginnings_*.jsonl")
    told = [json.loads(line) for line in samples.read_text().splitlines()]
    assert len(told) == len(BEGINNINGS)
    for sample in told:
        for end, (answer,) in zip(ENDS, sample["resps"]):
            likelihood, is_greedy = (float(answer[0]), str(answer[1]) == "True")
            wanted, wanted_greedy = expected(server, sample["doc"]["beginning"], f" {end}")
            assert abs(likelihood - wanted) < 1e-3
            assert is_greedy == wanted_greedy


def expected(server, beginning, end):
    """The log-likelihood of `end`, and whether each of its tokens is the most probable one."""
    tokens, first = server.tokens_of(beginning + end), len(server.tokens_of(beginning))
    told = logprobs_of(tokens)
    places = [(told[i - 1], tokens[i]) for i in range(first, len(tokens))]
    return sum(row[token] for row, token in places), all(row[token] == max(row) for row, token in places)
