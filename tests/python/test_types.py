"""The package is typed, and its types are right: mypy reads it with the extension's stub, as an editor does."""

import pathlib
import subprocess
import sys

import pytest

import megalith


def test_mypy_finds_nothing(tmp_path):
    pytest.importorskip("mypy")
    folder = pathlib.Path(megalith.__file__).parent
    assert (folder / "py.typed").exists() and (folder / "_megalith.pyi").exists()
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--ignore-missing-imports", f"--cache-dir={tmp_path}", "-p", "megalith"],
        cwd=folder.parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


def test_everything_public_says_what_it_is():
    """Every public name has a docstring; every layer's names the shapes of what it takes."""
    for name in megalith.__all__:
        if name != "__version__":
            assert getattr(megalith, name).__doc__, name
    layers = [name for name in dir(megalith.PersistentKernel) if name.endswith("_layer") and not name.startswith("_")]
    assert len(layers) >= 19
    for name in layers:
        doc = getattr(megalith.PersistentKernel, name).__doc__
        assert doc and "(" in doc and ("grid_dim" in doc), name
