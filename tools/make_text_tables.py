#!/usr/bin/env python3
"""Writes the tables of characters that chat templates need and utf8proc has not, from Python's own.

    python3 tools/make_text_tables.py

Templates call Python's methods of strings (str.upper, str.isdigit, ...), so Python is the judge of what they do:
megalith/model/unicode_table.h has the characters on which its answer does not follow from their category, and
megalith/model/html_entity_table.h the names that html.unescape() knows.
"""

import html.entities
import pathlib
import textwrap
import unicodedata

MODEL = pathlib.Path(__file__).resolve().parent.parent / "megalith" / "model"
CHARACTERS = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
HEAD = "// Written by tools/make_text_tables.py, from {}.\n#pragma once\n"


def category(c):
    return unicodedata.category(c)


def is_ignorable(c):
    """Whether the rule of the final sigma looks past it: A before it makes the sigma final, a digit does not."""
    return ("A" + c + "Σ").lower().endswith("ς") and not ("1" + c + "Σ").lower().endswith("ς")


def is_start(c):
    return category(c)[0] == "L" or category(c) == "Nl" or c == "_"


def is_part(c):
    return is_start(c) or category(c) in ("Mn", "Mc", "Nd", "Pc")


RANGES = {
    "Digit": ("str.isdigit() without str.isdecimal()", lambda c: c.isdigit() and not c.isdecimal()),
    "Numeric": ("str.isnumeric() outside of the numbers", lambda c: c.isnumeric() and category(c)[0] != "N"),
    "Lower": ("str.islower() outside of Ll", lambda c: c.islower() and category(c) != "Ll"),
    "Upper": ("str.isupper() outside of Lu", lambda c: c.isupper() and category(c) != "Lu"),
    "Ignorable": ("case-ignorable outside of the marks, formats and modifiers",
                  lambda c: is_ignorable(c) and category(c) not in ("Mn", "Me", "Cf", "Lm", "Sk")),
    "IdentifierStart": ("str.isidentifier(), against the category", lambda c: c.isidentifier() != is_start(c)),
    "IdentifierPart": ("behind the first character, against the category",
                       lambda c: ("a" + c).isidentifier() != is_part(c)),
}


def ranges(predicate):
    found = []
    for c in map(ord, filter(predicate, CHARACTERS)):
        if found and found[-1][1] == c - 1:
            found[-1][1] = c
        else:
            found.append([c, c])
    return found


def rows(items):
    items = [item.replace(", ", ",~") for item in items]  # braces stay on one line
    return "\n".join(textwrap.wrap(", ".join(items), 116, initial_indent="    ", subsequent_indent="    ",
                                   break_long_words=False, break_on_hyphens=False)).replace("~", " ")


def points(text):
    return "{" + ", ".join(hex(ord(c)) for c in text) + "}"


def unicode_table():
    out = [HEAD.format(f"Unicode {unicodedata.unidata_version}"), "// clang-format off\nnamespace megalith {\n",
           "struct UnicodeRange {\n  char32_t first, last;\n};\n"]
    for name, (what, predicate) in RANGES.items():
        out.append(f"// {what}.\nconstexpr UnicodeRange k{name}[] = {{\n"
                   + rows([f"{{{a:#x}, {b:#x}}}" for a, b in ranges(predicate)]) + "};\n")
    zeros = [c for c in CHARACTERS if c.isdecimal() and unicodedata.decimal(c) == 0]
    assert all(unicodedata.decimal(chr(ord(zero) + i)) == i for zero in zeros for i in range(10))
    out.append("// The zero of each script; the other digits follow it.\nconstexpr char32_t kZeros[] = {\n"
               + rows([hex(ord(c)) for c in zeros]) + "};\n")
    out.append("struct UnicodeCase {\n  char32_t character;\n  char32_t upper[3], title[3];  // zeros at the end\n};\n")
    special = [c for c in CHARACTERS if len(c.upper()) > 1 or len(c.title()) > 1]
    out.append("// Characters with a capital form of several.\nconstexpr UnicodeCase kSpecialCase[] = {\n"
               + rows([f"{{{ord(c):#x}, {points(c.upper())}, {points(c.title())}}}" for c in special]) + "};\n")
    out.append("}  // namespace megalith\n")
    (MODEL / "unicode_table.h").write_text("\n".join(out))


def entity_table():
    named = html.entities.html5
    parts = []
    for name in sorted({name.rstrip(";") for name in named}):
        # A "!" says that it needs no semicolon.
        parts.append(name + ("!" if name in named else ":") + ".".join(f"{ord(c):x}" for c in named[name + ";"]))
    lines = textwrap.wrap(" ".join(parts), 112, break_long_words=False, break_on_hyphens=False)
    text = "\n".join(f'    "{line} "' for line in lines)
    (MODEL / "html_entity_table.h").write_text(
        HEAD.format("the names of HTML 5") + "\nnamespace megalith {\n\n"
        "// NAME:CODE.CODE, or NAME!CODE where no semicolon needs to follow.\n"
        f"constexpr const char* kHtmlEntities =\n{text};\n\n}}  // namespace megalith\n")


if __name__ == "__main__":
    unicode_table()
    entity_table()
