#!/usr/bin/env python3
"""Checks that each header compiles alone: nobody has to know what to include before it.

What of the standard library many sources include is read once for all of them, as the build does; what a header forgets
of that check_includes.py finds. A header is also checked where only headers that it includes itself come before it: its
own text finds the same declarations then as when it is alone. So one run of the compiler checks a whole chain of headers,
each of which includes the one before, and is hardly longer than for the last of them.
"""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
COMPILER = os.environ.get("CXX", "c++")
FLAGS = "-std=c++20 -Wall -Wextra -Wno-missing-field-initializers -Werror -fopenmp-simd -I.".split()


def closures(headers: list[str]) -> dict[str, set[str]]:
    """What each header includes of the others, directly or not."""
    includes = {header: [i for i in INCLUDE.findall((ROOT / header).read_text()) if i in headers] for header in headers}
    found: dict[str, set[str]] = {}

    def closure(header: str) -> set[str]:
        if header not in found:
            found[header] = set()  # ends a circle, should there be one
            found[header] = set(includes[header]).union(*(closure(included) for included in includes[header])) - {header}
        return found[header]

    for header in headers:
        closure(header)
    return found


def chains(below: dict[str, set[str]]) -> list[list[str]]:
    """The fewest chains in which each header includes the one before: a largest matching of headers and next ones."""
    before: dict[str, str] = {}  # by header, the one in front of it

    def has_next(header: str, seen: set[str]) -> bool:
        for larger in above[header]:
            if larger in seen:
                continue
            seen.add(larger)
            if larger not in before or has_next(before[larger], seen):
                before[larger] = header
                return True
        return False

    above: dict[str, list[str]] = {header: [] for header in below}
    for header, included in below.items():
        for smaller in included:
            above[smaller].append(header)
    for header in sorted(below):
        above[header].sort(key=lambda larger: (len(below[larger]), larger))
        has_next(header, set())
    last = set(below) - set(before.values())
    result = []
    for header in sorted(last):
        chain = [header]
        while chain[0] in before:
            chain.insert(0, before[chain[0]])
        result.append(chain)
    return result


def main() -> int:
    headers = sorted(str(path.relative_to(ROOT)) for folder in ("megalith", "tools") for path in (ROOT / folder).rglob("*.h"))
    below = closures(headers)
    to_check = chains(below)
    standard = re.search(r"set\(megalith_precompiled([^)]*)\)", (ROOT / "cmake/folder.cmake").read_text())
    with tempfile.TemporaryDirectory() as folder:
        precompiled = pathlib.Path(folder) / "standard.h"
        precompiled.write_text("".join(f"#include {name}\n" for name in standard[1].split()))
        subprocess.run([COMPILER, *FLAGS, "-x", "c++-header", precompiled, "-o", f"{precompiled}.gch"], check=True)

        def check(chain: list[str]) -> bool:
            includes = [word for header in chain for word in ("-include", header)]
            command = [COMPILER, *FLAGS, "-fsyntax-only", "-Winvalid-pch", "-include", str(precompiled), *includes,
                       "-x", "c++", "/dev/null"]
            return subprocess.run(command, cwd=ROOT).returncode == 0

        # Those that include most take longest, and begin first.
        to_check.sort(key=lambda chain: -len(below[chain[-1]]))
        with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            failed = [chain for chain, ok in zip(to_check, pool.map(check, to_check)) if not ok]
    for chain in failed:
        print(f"do not compile alone, or not behind what they include: {' '.join(chain)}", file=sys.stderr)
    if not failed:
        print(f"headers: {len(headers)} compile alone, in {len(to_check)} runs of the compiler")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
