#!/usr/bin/env python3
"""Says in some sixty lines which tests failed and with what: failed_tests.py build/release/Testing/Temporary/LastTest.log

Logs of CI show their end first, and the failure that they are read for stands thousands of lines above. tools/run_tests.sh
ends with this.
"""

import re
import sys

MOST_LINES = 60
MOST_OF_ONE = 12
PROGRAM = re.compile(r"^\d+/\d+ Test(?:ing)?: (.+)$")
RUNS = re.compile(r"^\[ RUN      \] (\S+)")
FAILED = re.compile(r"^\[  FAILED  \] (\S+) \(\d+ ms\)|^\[  FAILED  \] (\S+), where .* \(\d+ ms\)$")
FAILURE = re.compile(r"^\S+:\d+: Failure$|^unknown file: Failure$")
OF_PYTEST = re.compile(r"^(?:FAILED|ERROR) (\S+::.*?|\S+\.py)(?: - (.*))?$")


def programs(log: str):
    """(name, lines, passed) of each that ran."""
    name, lines, inside = "", [], False
    for line in log.splitlines():
        if match := PROGRAM.match(line):
            name, lines, inside = match[1], [], False
        elif line == "Output:":
            inside = True
        elif line == "<end of output>":
            inside = False
        elif inside:
            lines.append(line)
        elif name and line.startswith("Test ") and line.rstrip().endswith("."):  # "Test Passed.", "Test Failed."
            yield name, lines, line.startswith("Test Passed") or line.startswith("Test Skipped")
            name = ""


def failures(name: str, lines: list[str]):
    """(test, what it said) of a program that failed; one that crashed or is no collection of tests counts as one."""
    found, running, said = [], "", None
    for line in lines:
        if match := RUNS.match(line):
            running, said = match[1], None
        elif match := FAILED.match(line):
            found.append((f"{name}: {match[1] or match[2]}".rstrip(","), said or []))
            running, said = "", None
        elif line.startswith("[       OK ]"):
            running = ""
        elif match := OF_PYTEST.match(line):
            found.append((f"{name}: {match[1]}", [match[2]] if match[2] else []))
        elif running and said is None and FAILURE.match(line):
            said = [line]
        elif running and said is not None and line:
            said.append(line)
    if running or not found:
        where = f" in {running}" if running else ""
        found.append((f"{name} ended{where}, or ran out of time; its last lines", [line for line in lines if line][-8:]))
    return found


def report(log: str) -> str:
    found = [one for name, lines, passed in programs(log) if not passed for one in failures(name, lines)]
    if not found:
        return ""
    of_one = max(1, min(MOST_OF_ONE, MOST_LINES // len(found) - 1))
    text = []
    for test, said in found[: MOST_LINES // 2]:
        text.append(f"FAILED {test}")
        text += [f"  {line[:200]}" for line in said[:of_one]]
    if len(found) > MOST_LINES // 2:
        text.append(f"and {len(found) - MOST_LINES // 2} more")
    return "\n".join(text)


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8", errors="replace") as file:
        text = report(file.read())
    if text:
        print(text)
