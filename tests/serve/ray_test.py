"""examples/replicas/ray_serve.py: a replica is killed under load, and a third one comes for more of it. Run by tools/serve_suites.sh."""

import collections
import os
import pathlib
import signal
import subprocess
import sys
import time
import uuid

import pytest
from command_server import COMMAND, ROOT
from http_load import Load, ask

ADDRESS = "127.0.0.1:8000"
MINUTES = 3


@pytest.fixture
def name():
    """Of the served model, by which the replicas' processes are found, too."""
    name = f"replica-{uuid.uuid4().hex[:8]}"
    environment = {
        **os.environ,
        "MEGALITH_COMMAND": COMMAND,
        "MEGALITH_MODEL": str(ROOT / "models/storyteller"),
        "MEGALITH_OPTIONS": f"-t 1 --served-model-name {name}",
        "CPUS_A_REPLICA": "0.5",
        "MAX_REPLICAS": "3",
        "SEQUENCES_A_REPLICA": "1",
    }
    serve = pathlib.Path(sys.executable).with_name("serve")
    process = subprocess.Popen(
        [str(serve), "run", "ray_serve:app"], cwd=ROOT / "examples/replicas", env=environment, start_new_session=True
    )
    wait_until(lambda: process.poll() is None and ask(ADDRESS, tokens=1).is_whole, "an answer")
    yield name
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(120) == 0
    wait_until(lambda: not processes(name), "the end of all replicas")


def wait_until(is_so, what):
    for _ in range(MINUTES * 60):
        if is_so():
            return
        time.sleep(1)
    pytest.fail(f"no {what} within {MINUTES} minutes")


def processes(name):
    found = subprocess.run(["pgrep", "-f", f"^{COMMAND} serve .*{name}"], capture_output=True, text=True)
    return [int(line) for line in found.stdout.split()]


def test_what_has_not_begun_is_not_lost_and_load_brings_a_replica(name):
    wait_until(lambda: len(processes(name)) == 2, "second replica")
    load = Load(ADDRESS)
    load.wait_for_more(40)
    killed = processes(name)[0]
    os.kill(killed, signal.SIGKILL)
    load.wait_for_more(60)
    wait_until(lambda: len(processes(name)) >= 3, "replica in its place, and a third one")
    outcomes = load.end()
    lost = [outcome for outcome in outcomes if not outcome.is_whole and not outcome.text]
    assert not lost, collections.Counter(outcome.error for outcome in lost)
    assert len([outcome for outcome in outcomes if not outcome.is_whole]) <= Load.CLIENTS
    assert killed not in processes(name)
