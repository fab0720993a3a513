"""Code in the documents is code: every ```python block runs."""

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def blocks():
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for number, block in enumerate(re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL), 1):
            yield pytest.param(block, id=f"{path.name}:{number}")


@pytest.mark.parametrize("block", list(blocks()))
def test_block(block):
    done = subprocess.run([sys.executable, "-c", block], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
