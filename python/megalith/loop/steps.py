"""The steps of schedules as methods, made from the list that C++ keeps: what is added there is a method here.

A step's usage says how its line is written, ``split INAME FACTOR -> OUTER[:TAG] INNER[:TAG]``. A method takes what stands in
capitals, in order or by its name in small letters; what it leaves out behind the arrow gets a name such as ``i_outer``.
"""

from __future__ import annotations

import functools
import keyword
import re
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

from megalith import _megalith, arguments
from megalith._megalith import UserError
from megalith.arguments import shown

__all__ = ["aliases", "line_of", "step_usages"]

_MOST = 1000  # names that a step takes
_LARGEST = 2**62  # number; a step says itself what is too large for it

# What one word of a usage is. Words that are none of these make a step whose method takes its line as text.
_SLOT = re.compile(r"(?P<name>[A-Z]+)(?P<tagged>\[:TAG\])?(?P<many>\.\.\.)?$")
_JOINED = re.compile(r"(?P<name>[A-Z]+)\[:(?P=name)\.\.\.\]$")
_PAIRS = re.compile(r"(?P<name>[A-Z]+)=[A-Z]+\.\.\.$")
_SWEPT = re.compile(r"(?P<name>[A-Z]+)\[(?P<inside>[A-Z]+) or :, \.\.\.\]$")
_LIST = re.compile(r"\[(?P<name>[A-Z]+), \.\.\.\]$")
_CHOICE = re.compile(r"[a-z]+(\|[a-z]+)+$")
_ASSIGNED = re.compile(r"[A-Z]+ = [A-Z]+, \.\.\.$")
_BEHIND = ("keep", "shared", "in")  # words at the end of a line with names behind them, both of which may be left out


@dataclass
class _Slot:
    name: str
    kind: str  # one, many, joined, pairs, swept, list, assigned, literal
    tagged: bool = False
    optional: bool = False
    literal: str = ""  # that stands before it


def step_usages() -> List[str]:
    """How the line of each step is written."""
    return list(_megalith.loop_step_usages())


def aliases() -> Dict[str, str]:
    """What other systems call a step, and its name here: methods have both."""
    return dict(_megalith.loop_step_aliases())


def _words(usage: str) -> List[str]:
    """Words of a usage; what belongs together in brackets, or around =, is one."""
    return re.findall(r"[A-Z]+ = [A-Z]+, \.\.\.|\[(?:keep|shared|in) [^\]]*\]|[A-Z]+\[[A-Z]+ or :, \.\.\.\]|\[[A-Z]+, \.\.\.\]|\S+", usage)


def _slot(word: str) -> Optional[_Slot]:
    optional = word.startswith("[") and word.endswith("]") and not _LIST.match(word)
    inner = word[1:-1] if optional else word
    literal = inner.split()[0] if optional else ""
    if literal in _BEHIND:
        return _Slot(literal, "many", optional=True, literal=literal)
    for pattern, kind in ((_SLOT, ""), (_JOINED, "joined"), (_PAIRS, "pairs"), (_SWEPT, "swept"), (_LIST, "list")):
        match = pattern.match(inner)
        if match:
            parts = match.groupdict()
            kind = kind or ("many" if parts["many"] else "one")
            return _Slot(parts["name"].lower(), kind, bool(parts.get("tagged")), optional)
    if _CHOICE.match(word):
        return _Slot("choice", "one")
    if _ASSIGNED.match(word):
        return _Slot("values", "assigned")
    return _Slot(word, "literal") if re.match(r"(->|[a-z]+)$", word) else None


@functools.lru_cache(maxsize=None)
def _slots(usage: str) -> Optional[Tuple[_Slot, ...]]:
    """The slots of a usage, the step's name left out; None if it has what no method can be made of."""
    slots: List[_Slot] = []
    once = re.sub(r"(?<=\]), \.\.\.$", "", usage)  # a line may do it to several; a method does it once
    for word in _words(once)[1:]:
        slot = _slot(word)
        if slot is None:
            return None
        if slots and slots[-1].kind == "literal" and slots[-1].name != "->" and slot.kind != "literal":
            slot.literal = slots.pop().name
        slots.append(slot)
    seen: Dict[str, int] = {}
    for slot in slots:  # move INSTRUCTION before INSTRUCTION: the second goes by "before"
        if slot.kind == "literal":
            continue
        seen[slot.name] = seen.get(slot.name, 0) + 1
        if seen[slot.name] > 1 or slot.literal:
            slot.name = slot.literal or f"{slot.name}s"
    return tuple(slots)


def _texts(where: str, value: Any) -> List[str]:
    values = [value] if isinstance(value, str) or arguments.as_whole(value) is not None else value
    if not isinstance(values, (list, tuple)) or len(values) > _MOST:
        raise UserError(f"[{where}] {shown(value)} is no name, no whole number, and no list of such")
    return [_text(where, one) for one in values]


def _text(where: str, value: Any) -> str:
    if isinstance(value, str):
        text = arguments.text(where, "a name", value)
    else:
        number = arguments.as_whole(value)
        if number is None:
            raise UserError(f"[{where}] {shown(value)} is no name and no whole number")
        text = str(arguments.whole(where, "a number", number, -_LARGEST, _LARGEST))
    if "\n" in text or "#" in text:
        raise UserError(f"[{where}] {shown(value)} has a line end or a #, which are no part of a step")
    return text


def _rendered(where: str, slot: _Slot, value: Any, defaults: List[str]) -> str:
    if slot.kind == "pairs":
        return " ".join(f"{_text(where, name)}={_text(where, of)}" for name, of in value.items())
    if slot.kind == "assigned":
        return ", ".join(f"{_text(where, name)} = {_text(where, of)}" for name, of in value.items())
    texts = _texts(where, value)
    if slot.tagged:
        for i, text in enumerate(texts):
            if ":" not in text and _megalith.is_loop_tag(text):
                texts[i] = f"{defaults[i] if i < len(defaults) else f'{defaults[0]}_{i}'}:{text}"
    if slot.kind == "joined":
        return ":".join(texts)
    if slot.kind == "list":
        return f"[{', '.join(texts)}]"
    if slot.kind == "one" and len(texts) != 1:
        raise UserError(f"[{where}] {slot.name} is {shown(value)}, want one")
    return " ".join(texts)


def _name_of(slot: _Slot) -> str:
    return f"{slot.name}_" if keyword.iskeyword(slot.name) else slot.name


def line_of(usage: str, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> str:
    """The line of a step for what its method is called with. UserError that shows the usage if that does not fit."""
    step = usage.split()[0]
    slots = _slots(usage)
    # A step may be given as it is written.
    if not kwargs and len(args) == 1 and isinstance(args[0], str) and (slots is None or " " in args[0].strip()):
        return f"{step} {_text(step, args[0])}"
    if slots is None:
        raise UserError(f'[{step}] want the rest of its line as text: "{usage}"')
    given = _given(step, usage, slots, args, dict(kwargs))
    parts, arrow, first = [step], False, ""
    names: List[str] = []  # what names behind the arrow are made of
    for slot in slots:
        if slot.kind == "literal":
            arrow |= slot.name == "->"
            parts.append(slot.name)
            continue
        value = given.get(slot.name)
        if value is None and slot.optional:
            continue
        if value is None and not arrow:
            raise UserError(f'[{step}] {_name_of(slot)} is missing: "{usage}"')
        defaults = [f"{name}_{slot.name}" for name in (names if slot.kind == "many" else names[:1])]
        if slot.optional:
            defaults = [f"{first}_{i}" for i in range(_MOST if value is None else len(_texts(step, value)))]
        if value is None and slot.literal:
            raise UserError(f'[{step}] {_name_of(slot)} is missing: "{usage}"')
        if slot.literal:
            parts.append(slot.literal)
        if slot.kind == "swept":
            tensor, sweep = value if isinstance(value, tuple) and len(value) == 2 else (value, [":"])
            first = _text(step, tensor)
            names = [first]
            parts.append(f"{first}[{', '.join(_texts(step, sweep))}]")
            continue
        if not names and not arrow and slot.kind in ("one", "many", "joined"):
            names = _texts(step, value)
            first = names[0] if names else ""
        parts.append(_rendered(step, slot, defaults if value is None else value, defaults))
    return " ".join(part for part in parts if part)


def _given(step: str, usage: str, slots: Iterable[_Slot], args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Dict[str, Any]:
    """Slot -> what was given for it."""
    open_slots = [slot for slot in slots if slot.kind != "literal"]
    given: Dict[str, Any] = {}
    rest = list(args)
    for i, slot in enumerate(open_slots):
        name = _name_of(slot)
        if slot.kind in ("many", "list", "joined") and f"{slot.name}s" in kwargs:
            name = f"{slot.name}s"
        if name in kwargs and slot.kind not in ("pairs", "assigned"):
            given[slot.name] = kwargs.pop(name)
            if slot.kind == "swept":
                given[slot.name] = (given[slot.name], kwargs.pop("sweep", rest.pop(0) if rest else [":"]))
        elif slot.kind == "swept" and rest:
            tensor = rest.pop(0)
            given[slot.name] = (tensor, rest.pop(0) if rest else kwargs.pop("sweep", [":"]))
        elif slot.kind in ("pairs", "assigned"):
            value = rest.pop(0) if rest else kwargs.pop(name, {})
            if not isinstance(value, dict):
                raise UserError(f"[{step}] {name} is {shown(value)}, want a dict")
            others = {_name_of(one) for one in open_slots}
            given[slot.name] = {**value, **{key: kwargs.pop(key) for key in list(kwargs) if key not in others}}
        elif rest:
            is_last = all(one.optional and one.literal for one in open_slots[i + 1 :])
            takes_all = slot.kind == "many" and is_last and not slot.optional
            if takes_all and not isinstance(rest[0], (list, tuple)):
                given[slot.name], rest = rest, []  # order("i", "j")
            else:
                given[slot.name] = rest.pop(0)
    if step in ("tag", "tag_iname") and kwargs:  # tag(i="g.0", j="l.0")
        pairs = [part for pair in kwargs.items() for part in pair]
        if "iname" not in given:
            given["iname"], pairs = pairs[0], pairs[1:]
        given["tag"] = [*_texts(step, given.get("tag", [])), *pairs]
        kwargs = {}
    if rest or kwargs:
        extra = ", ".join([*(shown(one) for one in rest), *(f"{name}=" for name in kwargs)])
        raise UserError(f'[{step}] {extra} is too much: "{usage}"')
    return given


def add_methods(cls: type, then: Callable[[Any, str, Dict[str, Any]], Any]) -> None:
    """A method of each step."""

    def method(usage: str) -> Callable[..., Any]:
        step = usage.split()[0]

        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            named: Dict[str, Any] = {}
            if step == "fuse" and args and isinstance(args[0], cls):
                other: Any = args[0]
                named[other.name or "other"] = other
                args = (other.name or "other", *args[1:])
            return then(self, line_of(usage, args, kwargs), named)

        run.__name__ = step
        run.__qualname__ = f"{cls.__name__}.{step}"
        run.__doc__ = f"The kernel after the step ``{usage}`` (docs/schedules.md)."
        return run

    methods = {usage.split()[0]: method(usage) for usage in step_usages()}
    others = {alias: methods[name] for alias, name in aliases().items() if name in methods}
    for name, run in {**others, **methods}.items():
        if not hasattr(cls, name):
            setattr(cls, name, run)
