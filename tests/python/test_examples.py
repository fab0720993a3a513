"""Every example runs as its reader would run it, and finds itself right."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = sorted(path.stem for path in (ROOT / "examples" / "python").glob("*.py") if path.stem != "tensors")


def run(name, *arguments):
    path = ROOT / "examples" / "python" / f"{name}.py"
    done = subprocess.run([sys.executable, path, *arguments], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name, target):
    if name == "quick_start":
        if target == "cuda":
            pytest.skip("the quick start is for a CPU")
        assert run(name).startswith("Once upon a time there")
    else:
        assert "largest difference" in run(name, target)
