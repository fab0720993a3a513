"""`megalith serve` as a process of its own, for tests in Python. The command is named by MEGALITH_COMMAND."""

import os
import pathlib
import re
import signal
import subprocess
import threading

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMMAND = os.environ["MEGALITH_COMMAND"]
STORYTELLER = (COMMAND, "serve", str(ROOT / "models/storyteller"), "--port", "0", "-t", "1")


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

    def end(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        code = self.process.wait(60)
        self.reader.join(10)
        return code
