#!/usr/bin/env python3
"""Checks that no file includes one from a folder below its own, and that freestanding headers include only each other.

The order of the folders is that of the megalith_folder() lines in CMakeLists.txt, with tools and python last.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]', re.MULTILINE)


# Who describes graphs and models, and who serves requests with them, knows no body: layouts and limits of kernels are for
# those to know who choose (optimize/), plan (task/) and run (runtime/) them. What the host and kernels hand each other is
# in runtime/.
KNOW_NO_KERNEL = ("graph", "model", "engine")


def folders() -> list[str]:
    """Folders in the order in which they may build on each other."""
    text = (ROOT / "CMakeLists.txt").read_text()
    return re.findall(r"^\s*megalith_folder\((\w+)\)", text, re.MULTILINE) + ["tools", "python"]


def folder_of(path: str) -> str:
    parts = path.split("/")
    return parts[1] if parts[0] == "megalith" else parts[0]


def is_freestanding(path: str) -> bool:
    """Headers that are compiled into every kernel: on a machine that has a compiler, but none of our files."""
    if path.startswith("megalith/kernels/"):
        return path.endswith((".h", ".cuh")) and not path.endswith("/embedded.h")
    if path.startswith("megalith/runtime/cuda/"):
        return path.endswith(".cuh")
    return path.startswith("megalith/runtime/cpu/") and path.endswith(".h") or path in (
        "megalith/runtime/protocol.h",
        "megalith/runtime/mailbox.h",
        "megalith/runtime/profile.h",
        "megalith/runtime/batch.h",
        "megalith/runtime/view_error.h",
    )


def findings(path: str, text: str, order: list[str]):
    own = folder_of(path)
    if own not in order:
        yield f"{path}: the folder {own} is not in CMakeLists.txt"
        return
    for match in INCLUDE.finditer(text):
        line = text.count("\n", 0, match.start(2)) + 1
        bracket, included = match.groups()
        ours = included.startswith(("megalith/", "tools/", "python/"))
        if own in KNOW_NO_KERNEL and included.startswith("megalith/kernels/"):
            yield f"{path}:{line}: {own}/ must not include {included}"
        if is_freestanding(path):
            if not (ours and is_freestanding(included)):
                yield f"{path}:{line}: a freestanding header includes {included}"
        elif ours and not is_freestanding(included):  # they need nothing, so everyone may use them
            folder = folder_of(included)
            if folder not in order or order.index(folder) > order.index(own):
                yield f"{path}:{line}: {own}/ stands above {folder}/ and must not include {included}"
        elif bracket == '"' and not ours:
            yield f"{path}:{line}: include {included} by its path from the root"


def main() -> int:
    order = folders()
    count = 0
    bad = []
    for top in ("megalith", "tools", "python"):
        for file in sorted((ROOT / top).rglob("*")):
            if file.suffix in (".h", ".cpp", ".cu", ".cuh"):
                count += 1
                bad += findings(str(file.relative_to(ROOT)), file.read_text(), order)
    print("\n".join(bad) if bad else f"includes: {count} files keep the order {' < '.join(order)}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
