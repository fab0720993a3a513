#!/usr/bin/env python3
"""Prints random chat templates and what transformers makes of them, for tests/model/chat_template_live_test.cpp.

    python3 tools/random_templates.py [--count 10000] [--seed 1]

A line [template, text] for each, text null where transformers raises an error. Needs transformers and jinja2. The
templates get MESSAGES and VARIABLES, which the first line holds. Left out is what cannot be the same: what Python shows
an address of, bytes and complex numbers.
"""

import argparse
import json
import random
import re
import warnings

import transformers.utils.chat_template_utils as chat

warnings.simplefilter("ignore")

MESSAGES = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": " Hi <b> 'there' \"x\" é🙂\n"},
            {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHi"}, {"role": "user", "content": "", "n": 3}]
VARIABLES = {"n": 7, "neg": -3, "big": 10**30, "f": 2.5, "tiny": 1e-7, "t": True, "no": None, "s": "Hello World",
             "u": "ßŉ ΑΣ Σας İi ǆ ﬁ ½²", "w": " \t a-b\n(c) \u00a0", "h": "<a href='x'>&amp; b</a>", "e": "",
             "nan": "nan", "inf": "-Infinity", "l": [3, 1, 2, 1], "ls": ["b", "A", "c", "a"], "mix": [1, "a", None, 2.5, True, [1], {"k": 1}], "el": [],
             "d": {"b": 1, "a": [1, 2], "C": None, "items": 5}, "ed": {},
             "rows": [{"k": "x", "v": 2, "g": {"z": 1}}, {"k": "Y", "v": 1}, {"k": "x", "v": 3.0, "w": None}]}

INTS = ["0", "1", "2", "3", "7", "-1", "-2", "10", "255", "1_000", "0x1F", "0b101", "0o17", "n", "neg", "big", "true",
        "9223372036854775807", "123456789012345678901234567890", "65", "-10"]
FLOATS = ["0.5", "2.5", "-1.5", "1e3", "1.0", "1e16", "1e-5", "f", "tiny", "3.14159", "1e100", "0.1", "-0.0", "2.675",
          "1e22", "123456.789"]
STRINGS = ["'abc'", "'a,b,,c'", "\"it's\"", "'Hello World'", "''", "' x '", "'ß'", "'ǆ ŉ'", "'ΑΣ ΑΣΑ'", "'1_000'", "'0x1f'",
           "'42'", "' -7 '", "'3.5e2'", "nan", "inf", "'٣'", "'a\\nb\\r\\nc\\x0bd'", "'<b>&amp;&eacute;</b>'", "'é🙂'",
           "'a' 'b'", "'%s'", "'%d %5.2f'", "'{}'", "'{0:>5}|{1!r}'", "s", "u", "w", "h", "e", "'b'", "','", "'x'", "' '",
           "'they\\'re bill\\'s'", "'tab\\tx'", "'foo-bar baz_qux'", "'http://a.com/b?c=d, (www.x.org). m@x.de'",
           "'a b  c\\u2003d'", "messages[1].content", "messages[2].content", "messages[0].role"]
LISTS = ["l", "ls", "mix", "el", "[1, 2, 3]", "['x', 'Y', 'z']", "(1, 2)", "('a',)", "()", "[[1, 2], [3]]", "[none, none]",
         "range(5)", "range(10, 0, -3)", "rows", "messages", "[1, 1.0, true]", "['a', 'b', 'a', 'A']", "[3.5, 1, 2]",
         "d.items()", "d.keys()", "d.values()", "[('a', 1), ('b', 2)]", "'abc'", "[{'a': 1}, {'a': 2}]", "[0, '', none]"]
DICTS = ["d", "ed", "{'x': 1, 'y': 'z'}", "{1: 'a', 1.0: 'b', true: 'c'}", "{(1, 2): 3}", "dict(a=1, b='c')", "messages[0]",
         "rows[0]", "{'b': 2, 'A': 1, 'c': none}", "{none: 1, 2.5: 2, 'k': [1, {'z': 1e20}]}"]
OTHERS = ["none", "true", "false", "undefined_thing", "undefined_thing", "namespace(a=1)", "no", "t",
          "messages[9]", "d.zzz", "[].append", "range is callable", "'x' | safe", "'<' | e"]

NO_ARGUMENTS = ["abs", "capitalize", "count", "e", "escape", "filesizeformat", "first", "float", "forceescape", "int",
                "items", "last", "length", "list", "lower", "max", "min", "pprint", "reverse", "reverse | list", "round",
                "safe", "sort", "string", "striptags", "sum", "title", "tojson", "trim", "unique | list", "upper",
                "urlencode", "urlize", "wordcount", "xmlattr", "dictsort", "map | list", "select | list",
                "reject | list", "indent", "wordwrap", "truncate", "center", "join", "default", "format"]
METHODS = ["capitalize()", "casefold()", "isalnum()", "isalpha()", "isascii()", "isdecimal()", "isdigit()", "isidentifier()",
           "islower()", "isnumeric()", "isprintable()", "isspace()", "istitle()", "isupper()", "lower()", "upper()",
           "swapcase()", "title()", "strip()", "lstrip()", "rstrip()", "split()", "rsplit()", "splitlines()",
           "splitlines(true)", "expandtabs()", "items() | list", "keys()", "values()", "copy()", "bit_length()",
           "conjugate()", "as_integer_ratio()", "hex()", "bit_count()", "append(1)", "pop()", "clear()"]
TESTS = ["boolean", "callable", "defined", "escaped", "even", "false", "float", "integer", "iterable", "lower", "mapping",
         "none", "number", "odd", "sequence", "string", "true", "undefined", "upper", "filter", "test"]
NAMES = ["role", "content", "k", "v", "g", "a", "items", "upper", "count", "real", "x", "n", "append", "keys", "format"]
CONVERSIONS = ["d", "i", "s", "r", "a", "x", "X", "o", "e", "f", "g", "G", "E", "c", "%"]


class Random(random.Random):
    def __call__(self, *choices):
        return self.choice(choices)

    def of(self, makers):
        return self.choice(makers)()


class Generator:
    def __init__(self, seed):
        self.r = Random(seed)
        self.depth = 0

    def any(self):
        kinds = [self.int, self.float, self.string, self.string, self.list, self.dict, self.other]
        return self.r.of(kinds)

    def nested(self, makers, leaves):
        if self.depth > 2 or self.r.random() < 0.45:
            return self.r.choice(leaves)
        self.depth += 1
        try:
            return self.r.of(makers)
        finally:
            self.depth -= 1

    def int(self):
        return self.nested([
            lambda: f"({self.number()} {self.r('+', '-', '*', '//', '%', '+', '-')} {self.number()})",
            lambda: f"({self.int()} ** {self.r('2', '3', '0', '-1', '10')})",
            lambda: f"{self.any()} | length", lambda: f"({self.any()} | int)", lambda: f"-{self.int()}",
            lambda: f"({self.string()} | int({self.any()}, {self.r('0', '2', '8', '10', '16', '36', '1')}))",
            lambda: f"{self.string()}.{self.r('find', 'rfind', 'count', 'index', 'rindex')}({self.string()}{self.ends()})",
            lambda: f"({self.list()} | sum)", lambda: f"({self.list()}).count({self.any()})",
            lambda: f"({self.list()}).index({self.any()})"], INTS)

    def float(self):
        return self.nested([
            lambda: f"({self.number()} / {self.number()})", lambda: f"({self.number()} | float)",
            lambda: f"({self.number()} {self.r('+', '-', '*', '//', '%')} {self.float()})",
            lambda: f"({self.number()} | round({self.r('0', '1', '2', '-1', '-2', '5')}{self.r('', '', ', method')}))"
            .replace("method", self.r("'ceil'", "'floor'", "'common'")),
            lambda: f"({self.string()} | float({self.any()}))"], FLOATS)

    def number(self):
        return self.r.of([self.int, self.int, self.float, lambda: self.r("true", "false")])

    def ends(self):
        return self.r("", "", f", {self.small()}", f", {self.small()}, {self.small()}")

    def small(self):
        return str(self.r.randint(-4, 12))

    def format(self):
        """A format(value, spec) of some type."""
        r = self.r
        return (r("", "", r("*", "0", "é", "-") + r("<", ">", "^", "="), r("<", ">", "^", "=")) + r("", "", "+", "-", " ")
                + r("", "", "", "#") + r("", "", "0") + r("", "5", "12", "1") + r("", "", "", ",", "_")
                + r("", "", ".2", ".0", ".10") + r("", "d", "f", "e", "g", "x", "X", "b", "o", "c", "s", "%", "n", "E", "G"))

    def percent(self):
        r = self.r
        return "%" + r("", "", "-", "+", " ", "0", "#", "-0", "+#") + r("", "5", "12", "*") + r("", ".2", ".0", ".*") + \
            r.choice(CONVERSIONS)

    def string(self):
        s = self.string
        return self.nested([
            lambda: f"({s()} ~ {self.any()})", lambda: f"({s()} + {s()})", lambda: f"({s()} * {self.r('0', '2', '3', '-1')})",
            lambda: f"({s()} ~ '')[{self.slice()}]", lambda: f"{s()}[{self.small()}]", lambda: f"({self.any()} | string)",
            lambda: f"{s()}.{self.r.choice(METHODS[:24])}", lambda: f"({s()} | {self.r.choice(NO_ARGUMENTS)})",
            lambda: f"{s()}.{self.r('strip', 'lstrip', 'rstrip', 'removeprefix', 'removesuffix', 'partition', 'rpartition')}({s()})",
            lambda: f"{s()}.replace({s()}, {s()}{self.r('', ', 1', ', -1')})",
            lambda: f"({s()} | replace({self.any()}, {self.any()}{self.r('', ', 1')}))",
            lambda: f"{s()}.{self.r('split', 'rsplit')}({self.r(s(), 'none')}{self.r('', ', 1', ', 2')})",
            lambda: f"{s()}.{self.r('ljust', 'rjust', 'center')}({self.small()}{self.r('', ', ' + s())})",
            lambda: f"{s()}.zfill({self.small()})", lambda: f"{s()}.expandtabs({self.small()})",
            lambda: f"{s()}.join({self.list()})", lambda: f"({self.list()} | join({self.any()}))",
            lambda: f"{s()}.{self.r('startswith', 'endswith')}({self.r(s(), f'({s()}, {s()})')}{self.ends()})",
            lambda: f"{s()}.translate({s()}.maketrans({self.r(f'{s()}, {s()}', self.dict(), repr('ab') + ', ' + repr('xy'))}))",
            lambda: "'{:" + self.format() + "}'.format(" + self.any() + ")",
            lambda: "'" + self.r("{}", "{0}", "{a}", "{0.real}", "{0[a]}", "{0[1]}", "{!r}", "{!s:>8}", "{0:{1}}", "{{}}")
            + "|'.format(" + self.any() + self.r("", ", 5", ", a=" + self.any()) + ")",
            lambda: "('" + self.percent() + self.r("", "|%s") + f"' % {self.r(self.any(), f'({self.any()}, {self.any()})')})",
            lambda: f"('%({self.r('a', 'k', 'x')})s' % {self.dict()})", lambda: f"({self.any()} | tojson({self.json()}))",
            lambda: f"({s()} | indent({self.r('2', repr('> '), '0', '3, true', 'first=true', '2, blank=true')}))",
            lambda: f"({s()} | truncate({self.r('5', '9, true', '3, false, ' + repr(''), '8, leeway=0', '20')}))",
            lambda: f"({s()} | wordwrap({self.r('5', '3, false', '8, wrapstring=' + repr('|'), '6, break_on_hyphens=false')}))",
            lambda: f"({s()} | {self.r('center', 'trim', 'format')}({self.any()}))",
            lambda: f"({self.any()} | {self.r('e', 'safe', 'forceescape', 'striptags', 'title', 'upper', 'urlencode')})",
            lambda: f"({s()} | urlize({self.r('5', 'nofollow=true', 'target=' + repr('_x'), 'rel=' + repr('a b'))}))",
        ], STRINGS)

    def json(self):
        return self.r("", "indent=2", "ensure_ascii=true", "sort_keys=true", "indent=none", "separators=(',', ':')",
                      "indent='--'", "indent=0", "true, 1", "indent=true")

    def slice(self):
        b = lambda: self.r("", self.small(), self.small(), "none")
        return f"{b()}:{b()}" + self.r("", "", f":{self.r('-1', '2', '-2', '1', '')}")

    def list(self):
        l = self.list
        return self.nested([
            lambda: "[" + ", ".join(self.any() for _ in range(self.r.randint(0, 3))) + "]",
            lambda: "(" + "".join(self.any() + ", " for _ in range(self.r.randint(1, 3))) + ")",
            lambda: f"({l()} + {l()})", lambda: f"({l()} * {self.r('0', '2', '-1')})", lambda: f"({l()} | list)[{self.slice()}]",
            lambda: f"({l()} | {self.r('sort', 'unique | list', 'list', 'reverse | list', 'map(' + repr('string') + ') | list')})",
            lambda: f"({l()} | sort({self.r('true', 'case_sensitive=true', 'attribute=0', 'attribute=' + repr('k'), 'reverse=true')}))",
            lambda: f"({l()} | sort(attribute={self.r(repr('k,v'), repr('v,k'), repr('g.z'))}))",
            lambda: f"({l()} | map({self.filter_name()}) | list)",
            lambda: f"({l()} | map(attribute={self.attribute()}{self.r('', ', default=' + self.any())}) | list)",
            lambda: f"({l()} | {self.r('select', 'reject')}({self.test_name()}) | list)",
            lambda: f"({l()} | {self.r('selectattr', 'rejectattr')}({self.attribute()}{self.r('', ', ' + self.test_name())}) | list)",
            lambda: f"({l()} | batch({self.r('2', '3, 0', '1')}) | list)", lambda: f"({l()} | slice({self.r('2', '3, 0')}) | list)",
            lambda: f"({l()} | groupby({self.attribute()}{self.r('', ', default=' + self.any(), ', case_sensitive=true')}))",
            lambda: f"({self.dict()} | dictsort({self.r('', 'true', 'by=' + repr('value'), 'reverse=true')}))",
            lambda: f"({self.dict()} | items | list)", lambda: f"{self.dict()}.{self.r('items()', 'keys()', 'values()')}",
            lambda: f"range({self.small()}{self.r('', ', ' + self.small(), f', {self.small()}, 2')})"], LISTS)

    def filter_name(self):
        return self.r(*(repr(name) for name in ("upper", "length", "int", "string", "tojson", "first", "abs", "list")),
                      f"'default', {self.any()}", f"'replace', {self.string()}, {self.string()}", "'join', '-'", "'nofilter'")

    def test_name(self):
        return self.r(*(repr(name) for name in TESTS[:-2]), f"'equalto', {self.any()}", f"'in', {self.list()}",
                      f"'gt', {self.int()}", f"'divisibleby', {self.int()}", "'notest'")

    def attribute(self):
        return self.r("'k'", "'v'", "'g'", "'g.z'", "'role'", "0", "'0'", "'1.0'", "'x'", "'upper'", "none")

    def dict(self):
        return self.nested([
            lambda: "{" + ", ".join(f"{self.key()}: {self.any()}" for _ in range(self.r.randint(0, 3))) + "}",
            lambda: f"dict({self.dict()}, z={self.any()})", lambda: f"dict({self.list()})",
            lambda: f"dict.fromkeys({self.list()}, {self.any()})", lambda: f"{self.dict()}.copy()"], DICTS)

    def key(self):
        """Of a kind that can be one: Jinja finds a list of constants there even where it is never reached."""
        return self.r.of([self.number, lambda: self.r.choice(STRINGS), lambda: self.r("none", "(1, 'a')", "x", "true", "n")])

    def other(self):
        return self.nested([
            lambda: f"({self.any()} {self.r('==', '!=', '<', '>', '<=', '>=', 'in', 'not in')} {self.any()})",
            lambda: f"({self.number()} {self.r('==', '<', '>=', '!=')} {self.number()} {self.r('<', '==')} {self.number()})",
            lambda: f"({self.any()} is {self.r('', 'not ')}{self.r.choice(TESTS)})",
            lambda: f"({self.any()} is {self.r('eq', 'ne', 'lt', 'ge', 'in', 'divisibleby', 'sameas')}({self.any()}))",
            lambda: f"({self.any()} {self.r('and', 'or')} {self.any()})", lambda: f"(not {self.any()})",
            lambda: f"({self.any()} if {self.any()} else {self.any()})", lambda: f"({self.any()} if {self.any()})",
            lambda: f"({self.any()}).{self.r.choice(NAMES)}", lambda: f"({self.any()})[{self.any()}]",
            lambda: f"({self.any()} | attr({self.r(*map(repr, NAMES))}))", lambda: f"({self.any()} | {self.r.choice(NO_ARGUMENTS)})",
            lambda: f"({self.any()} | default({self.any()}{self.r('', ', true')}))", lambda: f"({self.any()}).{self.r.choice(METHODS)}",
            lambda: f"({self.dict()}).get({self.any()}{self.r('', ', ' + self.any())})", lambda: f"({self.list()})[{self.small()}]",
            lambda: f"({self.list()} | {self.r('min', 'max')}({self.r('', 'true', 'attribute=' + self.attribute())}))",
            lambda: f"({self.list()} | {self.r('first', 'last', 'sum(start=' + self.any() + ')')})",
            lambda: f"({self.any()} {self.r('+', '-', '*', '/', '//', '%')} {self.any()})",
            lambda: f"{self.r('-', '+')}{self.any()}"], OTHERS)

    # ---- statements ----

    def text(self):
        return self.r("", "", " ", "\n", "  ", "x", " y\n", "\n\n ", "{# c #}", "{#- c -#}", "a ")

    def tag(self, content):
        return "{%" + self.r("", "", "-", "+") + " " + content + " " + self.r("", "", "-", "+") + "%}"

    def output(self):
        return "{{" + self.r("", "", "-") + " " + self.r(self.name(), self.any(), self.any()) + " " + self.r("", "", "-") + "}}"

    def name(self):
        return self.r("x", "y", "z", "i", "n", "s", "l", "x", "loop.index", "loop.last", "loop.length", "loop.nextitem",
                      "loop.previtem", "loop.changed(x)", "loop.cycle(1, 2)", "loop.revindex", "loop.depth", "loop.first", "ns.x",
                      "caller", "varargs", "kwargs", "m(1)", "m(x, y=2)", "m()", "m(1, 2, 3)", "caller(x)", "loop")

    def body(self):
        self.depth += 1
        try:
            return "".join(self.statement() for _ in range(self.r.randint(1, 3)))
        finally:
            self.depth -= 1

    def target(self):
        return self.r("x", "y", "z", "n", "s", "x, y", "ns.x", "l", "messages", "loop")

    def statement(self):
        if self.depth > 3 or self.r.random() < 0.4:
            return self.text() + self.output() + self.text()
        t, b = self.tag, self.body
        return self.text() + self.r.of([
            lambda: t(f"set {self.target()} = {self.r(self.any(), self.name(), '1, 2')}"),
            lambda: t(f"set {self.r('x', 'y')}{self.r('', ' | upper', ' | trim | length')}") + b() + t("endset"),
            lambda: t(f"if {self.r(self.any(), self.name())}") + b() + self.r("", t("else") + b(), t("elif x") + b()) + t("endif"),
            lambda: t(f"for {self.r('i', 'x', 'x', 'x, y', 'i')} in {self.r(self.list(), self.list(), 'x', self.list() + ' | map(' + repr('string') + ')')}"
                      f"{self.r('', '', ' if x', ' if i', ' if ' + self.any())}{self.r('', '', ' recursive')}")
            + b() + self.r("", "", t("break"), t("continue"), "{{ loop([]) }}", "{% if loop.first %}{{ loop(l) }}{% endif %}")
            + self.r("", t("else") + b()) + t("endfor"),
            lambda: t(f"macro m({self.r('', 'x', 'x, y=1', 'x=2, y=x', 'caller=none')})") + b() + t("endmacro"),
            lambda: t(f"call{self.r('', '(x)', '(x, y=3)')} m({self.r('', '1', 'x')})") + b() + t("endcall"),
            lambda: t(f"with {self.r('', 'x = 1', 'x = 1, y = x', 'ns = namespace(x=1)')}") + b() + t("endwith"),
            lambda: t(f"filter {self.r('upper', 'trim', 'replace(' + repr('a') + ', x)', 'indent')}") + b() + t("endfilter"),
            lambda: t("generation") + b() + t("endgeneration"), lambda: t("set ns = namespace(x=0)"),
            lambda: t(self.r("print x, y", "print 1", "autoescape false")) + self.r("", "x"),
            lambda: t("raw") + self.r("{{ x }}", " {% y ") + t("endraw"),
            lambda: t("set c = cycler(1, 2)") + "{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.pos }}",
            lambda: t("set j = joiner()") + "{{ j() }}{{ j() }}"]) + self.text()

    def template(self):
        if self.r.random() < 0.6:
            return "{{ " + self.any() + " }}"
        self.depth = 0
        return "{% set ns = namespace(x=1) %}{% macro m(x) %}[{{ x }}]{% endmacro %}" * self.r(0, 1) + \
            "".join(self.statement() for _ in range(self.r.randint(1, 4)))


def render(template):
    try:
        return chat._cached_compile_jinja_template(template).render(
            messages=MESSAGES, tools=None, documents=None, add_generation_prompt=True, bos_token="<s>", eos_token="</s>",
            **VARIABLES)
    except Exception:
        return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    # As texts of their own: not every reader keeps integers of more than 64 bits.
    print(json.dumps({"messages": json.dumps(MESSAGES), "variables": {k: json.dumps(v) for k, v in VARIABLES.items()}}))
    generator = Generator(options.seed)
    count = 0
    while count < options.count:
        template = generator.template()
        text = render(template)
        try:
            (text or "").encode()
        except UnicodeEncodeError:  # a lone surrogate
            continue
        # What cannot be the same.
        if text is not None and re.search(r"at.{1,3}0x[0-9a-f]+|<class |<function |<built-in|\d+j\)", text, re.IGNORECASE):
            continue
        print(json.dumps([template, text]))
        count += 1


if __name__ == "__main__":
    main()
