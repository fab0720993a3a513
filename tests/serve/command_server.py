"""`megalith serve` as a process of its own, for tests in Python. The command is named by MEGALITH_COMMAND."""

import array
import json
import math
import os
import pathlib
import re
import signal
import struct
import subprocess
import threading
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMMAND = os.environ["MEGALITH_COMMAND"]
STORYTELLER = (COMMAND, "serve", str(ROOT / "models/storyteller"), "--port", "0", "-t", "1")


def logprobs_of(tokens):
    """How likely the bundled model holds each token behind each of `tokens`, by `megalith logits`."""
    words = [COMMAND, "logits", str(ROOT / "models/storyteller"), "-t", "1", "--tokens", ",".join(map(str, tokens)), "-o", "-"]
    file = subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout
    begin = 8 + struct.unpack("<Q", file[:8])[0]
    rows, columns = json.loads(file[8:begin])["logits"]["shape"]
    logits = array.array("f", file[begin:])
    assert rows == len(tokens) and len(logits) == rows * columns
    told = []
    for row in (logits[i * columns : (i + 1) * columns] for i in range(rows)):
        total = math.log(sum(map(math.exp, row)))
        told.append([logit - total for logit in row])
    return told


class Server:
    """A command that serves, the bundled model by default, from the moment that it does; what it says on stderr is kept."""

    def __init__(self, *options, key="none", words=STORYTELLER):
        self.process = subprocess.Popen([*words, *options], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.lines = []
        is_ready = threading.Event()

        def read():
            for line in self.process.stderr:
                self.lines.append(line)
                if line.startswith("serving "):
                    is_ready.set()
            is_ready.set()

        self.reader = threading.Thread(target=read, daemon=True)
        self.reader.start()
        assert is_ready.wait(300)
        found = re.search(r"at (http://\S+)/v1", "".join(self.lines))
        assert found, self.lines
        self.url = found[1]
        self.address = self.url.removeprefix("http://")
        self.options = {"base_url": self.url + "/v1", "api_key": key, "timeout": 120}

    def client(self, **options):
        """A client of OpenAI's."""
        import openai  # which not all that use a server have

        return openai.OpenAI(**{**self.options, **options})

    def load(self):
        """Requests at work."""
        return json.load(urllib.request.urlopen(self.url + "/load"))["server_load"]

    def tokens_of(self, text):
        body = json.dumps({"prompt": text}).encode()
        asked = urllib.request.Request(self.url + "/tokenize", body, {"Content-Type": "application/json"})
        return json.load(urllib.request.urlopen(asked))["tokens"]

    def end(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        code = self.process.wait(60)
        self.reader.join(10)
        return code
