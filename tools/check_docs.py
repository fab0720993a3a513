#!/usr/bin/env python3
"""Checks the pages: every relative link and anchor leads somewhere, and each page of docs/ opens with whom it is for.

The pages are the .md files that git knows. Web addresses are not looked up.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^(```|~~~).*?^\1\s*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *#* *$", re.MULTILINE)
OPENING = re.compile(r"\A# [^\n]+\n+For: \S")


def without_code(text: str) -> str:
    """The text with its code blocks and code spans emptied, line breaks kept."""
    text = FENCE.sub(lambda block: "\n" * block[0].count("\n"), text)
    return re.sub(r"`[^`\n]+`", "``", text)


def anchors(text: str) -> set[str]:
    """The anchors of a page, named as GitHub names them: of equal headings the second one is heading-1."""
    seen: dict[str, int] = {}
    result = set()
    for heading in HEADING.findall(FENCE.sub("", text)):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", heading).replace(" ", "-")
        number = seen.get(name, 0)
        seen[name] = number + 1
        result.add(f"{name}-{number}" if number else name)
    return result


def findings(path: str, text: str, read):
    """What is wrong with one page. read(path) is the text of a file or None; a folder is an empty text."""
    if path.startswith("docs/") and not OPENING.match(text):
        yield f'{path}:1: wanted after the title: a paragraph "For: who reads this, and what they can do after it"'
    for number, line in enumerate(without_code(text).split("\n"), 1):
        for target in LINK.findall(line):
            if re.match(r"[a-z]+:", target):
                continue
            file, _, anchor = target.partition("#")
            parts: list[str] = []
            for part in [*pathlib.PurePosixPath(path).parent.parts, *file.split("/")] if file else path.split("/"):
                if part == ".." and parts:
                    parts.pop()
                elif part not in ("", "."):
                    parts.append(part)
            goal = "/".join(parts)
            there = read(goal)
            if there is None:
                yield f"{path}:{number}: the link ({target}) leads to no file: {goal}"
            elif anchor and anchor not in anchors(there):
                known = ", ".join(sorted(anchors(there)))
                yield f"{path}:{number}: the link ({target}) names no heading of {goal}; it has: {known}"


def self_test() -> None:
    """A link that leads nowhere must be found, and one that leads somewhere must not."""
    code = "```sh\n# no heading\n```\n"
    pages = {"docs/a.md": f"# A\n\nFor: all.\n\n## Two `words`, here\n{code}## Same\n## Same\n", "x.h": ""}
    there = "[a](a.md#two-words-here) [b](../x.h) [c](a.md#same-1) [d](#b) [e](https://x.org/y#z) `[f](g.md)`\n"
    assert not list(findings("docs/b.md", "# B\n\nFor: all. " + there, {**pages, "docs/b.md": "# B\n"}.get))
    for target in ("b.md", "a.md#three", "a.md#no-heading", "a.md#same-2", "x.h", "#c", "a.svg"):
        link = f"![a]({target})"
        assert list(findings("docs/c.md", "# C\n\nFor: all. " + link, {**pages, "docs/c.md": "# D\n"}.get)), link
    assert list(findings("docs/c.md", "# C\n\nThis page.\n", pages.get))
    assert not list(findings("README.md", "# C\n\nThis page.\n", pages.get))


def main() -> int:
    self_test()
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"],
                            cwd=ROOT, check=True, capture_output=True, text=True).stdout

    def read(path: str):
        place = ROOT / path
        return "" if place.is_dir() else place.read_text(errors="replace") if place.is_file() else None

    pages = [path for path in listed.split("\0") if path and (ROOT / path).is_file()]
    found = [line for path in pages for line in findings(path, (ROOT / path).read_text(), read)]
    print("\n".join(found) if found else f"check_docs: {len(pages)} pages, all links lead somewhere")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
