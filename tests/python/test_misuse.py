"""Whatever a caller hands over is used, or refused in Megalith's own words; nothing crashes, nothing waits for ever."""

import pathlib
import re
import subprocess
import sys


def test_every_argument_of_every_function(tmp_path):
    script = pathlib.Path(__file__).parent / "misuse.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=550, cwd=tmp_path)
    *complaints, count = done.stdout.splitlines() or [""]
    assert done.returncode == 0, f"it ended with {done.returncode} in {done.stderr[-3000:]}"
    assert complaints == []
    assert int(re.match(r"(\d+) calls", count)[1]) > 5000
