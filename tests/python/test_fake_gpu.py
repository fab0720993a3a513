"""All of the CUDA target but the kernels' own work, on a stand-in for the driver."""

import os
import pathlib
import subprocess
import sys

import pytest


def test_kernels_for_a_gpu():
    driver = os.environ.get("FAKE_CUDA", "")
    if not os.path.exists(driver):
        pytest.skip("FAKE_CUDA names no stand-in for the driver; ctest sets it")
    folder = pathlib.Path(__file__).parent
    done = subprocess.run(
        [sys.executable, folder / "fake_gpu.py"],
        env={**os.environ, "MEGALITH_CUDA_DRIVER": driver},
        capture_output=True,
        text=True,
    )
    if "NVRTC" in done.stderr and "cannot open" in done.stderr:
        pytest.skip(done.stderr.splitlines()[-1])
    assert done.returncode == 0, done.stderr
    assert done.stdout == "as on a GPU\n"
