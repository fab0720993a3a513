"""Servers that tests of a file share."""

import os

import pytest
from command_server import Server


@pytest.fixture(scope="module")
def server():
    server = Server()
    yield server
    assert server.end() == 0


@pytest.fixture(scope="module")
def echo_server():
    """One whose model repeats what it is told (echo/echo_server.cpp)."""
    if "MEGALITH_ECHO" not in os.environ:
        pytest.skip("no echo_server: make test builds it")
    server = Server("hermes", words=(os.environ["MEGALITH_ECHO"],))
    yield server
    server.process.stdin.close()
    assert server.process.wait(60) == 0
