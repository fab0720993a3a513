"""Ctrl-C while a compiler works for ever: a KeyboardInterrupt at once, and nothing half made in the cache."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

SCRIPT = """
import sys
import megalith

graph = megalith.Graph("interrupted")
graph.add("copy", "copy", [graph.state("x", "f32", [8, 64])])
try:
    megalith.compile(graph, target=sys.argv[1])
except KeyboardInterrupt:
    print("interrupted")
"""


def interrupted(target, started, **environment):
    """What the script printed, signalled once `started` is there; only it, and not those that it started."""
    script = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, target],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not started.exists() and script.poll() is None:
        time.sleep(0.01)
    script.send_signal(signal.SIGINT)
    try:
        out, err = script.communicate(timeout=20)
    except subprocess.TimeoutExpired:
        script.kill()
        raise
    return script.returncode, out, err


def kernels(cache):
    return [path for path in cache.glob("kernels/*") if (path / "kernel.so").exists() or (path / "kernel.cu").exists()]


def test_a_compiler(tmp_path):
    started, late = tmp_path / "started", tmp_path / "late"
    compiler = tmp_path / "c++"
    compiler.write_text(
        "#!/bin/sh\n"
        'case "$*" in *--version) echo made up 1.0; exit 0;; esac\n'
        f"touch {started}\nsleep 3\ntouch {late}\n"
    )
    compiler.chmod(0o755)
    cache = tmp_path / "cache"
    result = interrupted("cpu", started, MEGALITH_CXX=str(compiler), MEGALITH_CACHE_DIR=str(cache))
    assert result == (0, "interrupted\n", "")
    assert not kernels(cache) and not list(cache.glob("failed/*"))
    time.sleep(3.5)
    assert not late.exists()  # it was ended as well


def test_nvrtc(tmp_path):
    nvrtc = os.environ.get("FAKE_NVRTC", "")
    if not pathlib.Path(nvrtc).exists():
        pytest.skip("FAKE_NVRTC names no stand-in for NVRTC; ctest sets it")
    started, cache = tmp_path / "started", tmp_path / "cache"
    result = interrupted(
        "cuda:sm_90a",
        started,
        MEGALITH_NVRTC=nvrtc,
        FAKE_NVRTC_STARTED=str(started),
        MEGALITH_CACHE_DIR=str(cache),
    )
    assert result == (0, "interrupted\n", "")
    assert not kernels(cache)
