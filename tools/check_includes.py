#!/usr/bin/env python3
"""Checks that no file includes one from a folder below its own, that freestanding headers include only each other, and
that every file includes what it uses of the standard library.

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


# What declares the names that our headers use, of those that reach every source by the precompiled header
# (cmake/folder.cmake): no compilation shows that one of them is missing.
DECLARED_IN = {
    "algorithm": "all_of any_of copy copy_n fill find find_if lower_bound max min ranges sort upper_bound",
    "array": "array",
    "atomic": "atomic atomic_flag atomic_ref memory_order_acq_rel memory_order_acquire memory_order_relaxed memory_order_release",
    "cmath": "ceil exp floor isfinite isinf isnan log log2 pow sqrt",
    "cstddef": "byte size_t",
    "functional": "function greater hash less reference_wrapper",
    "initializer_list": "initializer_list",
    "limits": "numeric_limits",
    "map": "map multimap",
    "memory": "dynamic_pointer_cast enable_shared_from_this make_shared make_unique shared_ptr unique_ptr weak_ptr",
    "mutex": "call_once lock_guard mutex once_flag recursive_mutex scoped_lock unique_lock",
    "optional": "make_optional nullopt optional",
    "set": "multiset set",
    "span": "span",
    "string": "string to_string",
    "string_view": "string_view",
    "tuple": "get tie tuple",
    "unordered_map": "unordered_map",
    "utility": "as_const exchange forward move pair swap",
    "vector": "vector",
}
HEADER_OF = {name: header for header, names in DECLARED_IN.items() for name in names.split()}
# Headers that declare the small ones as well, by the standard or because their own functions take them.
BRINGS = {
    "algorithm": {"initializer_list", "utility"},
    "map": {"initializer_list", "utility", "functional"},
    "set": {"initializer_list", "functional"},
    "span": {"array", "cstddef"},
    "string": {"initializer_list", "string_view"},
    "utility": {"initializer_list", "tuple"},
    "vector": {"initializer_list"},
}
STANDARD = re.compile(r"\bstd::(\w+)")
COMMENT = re.compile(r"//.*")


def brought(path: str, seen: set[str]) -> set[str]:
    """Headers of others that a file includes, itself or by ours."""
    found = set()
    for _, included in INCLUDE.findall((ROOT / path).read_text()):
        if included in seen:
            continue
        seen.add(included)
        if (ROOT / included).is_file():
            found |= brought(included, seen)
        else:
            found |= {included} | BRINGS.get(included, set())
    return found


def unbrought(path: str, text: str):
    """Names of the standard library whose headers a file neither includes nor gets from one of ours."""
    here = brought(path, set())
    said = set()
    for number, line in enumerate(text.splitlines(), 1):
        for name in STANDARD.findall(COMMENT.sub("", line)):
            header = HEADER_OF.get(name)
            if header and header not in here | said:
                said.add(header)
                yield f"{path}:{number}: std::{name} needs <{header}>"
    if re.search(r"\bu?int\d+_t\b", COMMENT.sub("", text)) and not here & {"cstdint", "sys/types.h", "isl/cpp.h"}:
        yield f"{path}: int64_t and the like need <cstdint>"
    if "fmt::" in COMMENT.sub("", text) and not any(header.startswith("fmt/") for header in here):
        yield f"{path}: fmt:: needs <fmt/format.h>"


def findings(path: str, text: str, order: list[str]):
    own = folder_of(path)
    if own not in order:
        yield f"{path}: the folder {own} is not in CMakeLists.txt"
        return
    if path.endswith((".h", ".cpp")) and not is_freestanding(path):
        yield from unbrought(path, text)
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
