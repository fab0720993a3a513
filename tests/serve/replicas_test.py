"""Two replicas behind HAProxy, with the configuration of examples/replicas: one is killed under load, and one is told to end."""

import collections
import http.client
import os
import shutil
import signal
import socket
import subprocess
import time

import pytest
from command_server import ROOT, Server
from http_load import PATIENCE, Load, ask

pytestmark = pytest.mark.skipif(not shutil.which("haproxy"), reason="there is no haproxy: apt-get install haproxy")


def free_address():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return "127.0.0.1:%d" % one.getsockname()[1]


class Proxy:
    def __init__(self, one, two):
        self.address, self.stats = free_address(), free_address()
        names = {"HAPROXY_BIND": self.address, "HAPROXY_STATS": self.stats, "REPLICA_ONE": one, "REPLICA_TWO": two}
        self.process = subprocess.Popen(
            ["haproxy", "-f", str(ROOT / "examples/replicas/haproxy.cfg")], env={**os.environ, **names}
        )
        self.wait_for(one="UP", two="UP")

    def states(self):
        """What is known of each replica."""
        connection = http.client.HTTPConnection(self.stats, timeout=5)
        connection.request("GET", "/;csv")
        rows = [line.split(",") for line in connection.getresponse().read().decode().splitlines()]
        where = {name.lstrip("# "): i for i, name in enumerate(rows[0])}
        return {row[where["svname"]]: row[where["status"]] for row in rows[1:] if row[where["pxname"]] == "replicas"}

    def wait_for(self, **wanted):
        states = {}
        for _ in range(PATIENCE * 10):
            try:
                states = self.states()
            except OSError:
                pass
            if all(states.get(name, "").startswith(state) for name, state in wanted.items()):
                return
            time.sleep(0.1)
        pytest.fail(f"want {wanted}, have {states}")


@pytest.fixture
def replicas():
    servers = {"one": Server(), "two": Server()}
    proxy = Proxy(servers["one"].address, servers["two"].address)
    yield servers, proxy
    proxy.process.kill()
    proxy.process.wait()
    for server in servers.values():
        if server.process.poll() is None:
            assert server.end() == 0


def test_what_has_not_begun_is_not_lost_with_a_replica(replicas):
    servers, proxy = replicas
    load = Load(proxy.address)
    load.wait_for_more(40)
    servers["one"].end(signal.SIGKILL)
    before = len(load.outcomes)
    load.wait_for_more(60)
    outcomes = load.end()
    lost = [outcome for outcome in outcomes if not outcome.is_whole and not outcome.text]
    assert not lost, collections.Counter(outcome.error for outcome in lost)
    cut = [outcome for outcome in outcomes if not outcome.is_whole]
    assert len(cut) <= Load.CLIENTS, "more streams than there were at a time"
    assert all(outcome.replica == "one" for outcome in cut)
    assert {outcome.replica for outcome in outcomes[:before]} == {"one", "two"}
    # Its own conversations went to the other one, too.
    proxy.wait_for(one="DOWN", two="UP")
    assert all(ask(proxy.address, f"conversation {i}", tokens=2).replica == "two" for i in range(6))

    # At the same address it is asked again.
    port = servers["one"].address.split(":")[1]
    servers["one"] = Server("--port", port)
    proxy.wait_for(one="UP")
    assert {ask(proxy.address, tokens=2).replica for _ in range(4)} == {"one", "two"}


def test_nothing_is_lost_with_a_replica_that_is_told_to_end(replicas):
    servers, proxy = replicas
    load = Load(proxy.address)
    load.wait_for_more(40)
    assert servers["two"].end(signal.SIGTERM) == 0
    load.wait_for_more(40)
    outcomes = load.end()
    assert all(outcome.is_whole for outcome in outcomes), collections.Counter(outcome.error for outcome in outcomes)
    assert {outcome.replica for outcome in outcomes} == {"one", "two"}


def test_what_belongs_together_goes_to_one_replica(replicas):
    _, proxy = replicas
    of_prefix = {}
    for prefix in ("a", "b", "c", "d", "e", "f", "g", "h"):
        found = {ask(proxy.address, prefix, tokens=2).replica for _ in range(4)}
        assert len(found) == 1, prefix
        of_prefix[prefix] = found.pop()
    assert set(of_prefix.values()) == {"one", "two"}
