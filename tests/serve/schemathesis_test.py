"""Schemathesis against `megalith serve`: requests made at random of what /openapi.json says, right ones and wrong ones. None has
an answer of 500 or more, and answers are of the form that the document says. Run by tools/serve_suites.sh."""

import collections
import json
import pathlib
import subprocess
import sys
import urllib.request

import pytest
from command_server import Server

# What fits the schema may still be refused: members exclude each other, and models have vocabularies and templates.
CHECKS = ("--checks", "all", "--max-examples", "40", "--seed", "1", "--exclude-checks")
# Members that exclude no other one, and that mean something to every model.
FREE = set(
    "model messages prompt input instructions temperature top_p min_p top_k repetition_penalty presence_penalty seed "
    "frequency_penalty ignore_eos skip_special_tokens add_special_tokens priority stream include_reasoning user".split()
)
MESSAGE = {
    "type": "object",
    "required": ["role", "content"],
    "properties": {"role": {"enum": ["system", "user", "assistant"]}, "content": {"type": "string"}},
    "additionalProperties": False,
}
PROMPTS = {
    "messages": {"type": "array", "minItems": 1, "maxItems": 3, "items": MESSAGE},
    "prompt": {"type": "string"},
    "input": {"type": "string"},
}
GENERATIONS = ("/v1/chat/completions", "/v1/completions", "/v1/responses")


@pytest.fixture(scope="module")
def server():
    server = Server("--max-seq-len", "512", "-n", "4", "--slots", "--api-key", "secret")
    yield server
    assert server.end() == 0


def schemathesis(folder, document, server, excluded):
    (folder / "openapi.json").write_text(json.dumps(document))
    words = [str(pathlib.Path(sys.executable).with_name("schemathesis")), "run", "openapi.json", "--url", server.url]
    words += ["--request-timeout", "60", "--no-color", "--header", "Authorization: Bearer secret", *CHECKS, excluded]
    first = len(server.lines)
    ran = subprocess.run(words, cwd=folder, stdout=subprocess.PIPE, text=True, timeout=500)
    assert ran.returncode == 0, ran.stdout
    lines = (json.loads(line) for line in server.lines[first:] if line.startswith("{"))
    return collections.Counter((line["path"], line["status"]) for line in lines)


def document_of(server):
    asked = urllib.request.Request(server.url + "/openapi.json", headers={"Authorization": "Bearer secret"})
    return json.load(urllib.request.urlopen(asked))


# Most of these are refused.
def test_requests_of_all_members(server, tmp_path):
    seen = schemathesis(tmp_path, document_of(server), server, "positive_data_acceptance")
    assert all(seen[path, 400] > 200 for path in GENERATIONS), seen


def test_requests_that_are_right(server, tmp_path):
    document = document_of(server)
    document["paths"] = {path: document["paths"][path] for path in GENERATIONS}
    for path in GENERATIONS:
        schema = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        schema["properties"] = {key: value for key, value in schema["properties"].items() if key in FREE}
        schema["properties"].update({key: one for key, one in PROMPTS.items() if key in schema["properties"]})
    # What this narrower schema does not have may be right, too.
    seen = schemathesis(tmp_path, document, server, "positive_data_acceptance,negative_data_rejection")
    assert all(seen[path, 200] > 20 for path in GENERATIONS), seen
