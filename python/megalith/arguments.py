"""What a caller hands over, checked before the extension sees it: its own TypeError names no argument."""

from __future__ import annotations

import itertools
import operator
import reprlib
from typing import Any, List, Optional

from megalith._megalith import UserError

_MOST = 2**31 - 1
_LONGEST = 2**24  # list that is looked at
_LARGEST_FLOAT = 3.4028234663852886e38  # of 32 bits


_repr = reprlib.Repr()
_repr.maxother = _repr.maxstring = 160


def shown(value: Any) -> str:
    """A value as messages show it: on a line, not all of a long one, and of one whose repr() fails its type."""
    try:
        return " ".join(_repr.repr(value).split())
    except Exception:
        return f"a {type(value).__name__}"


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool) or type(value).__name__ in ("bool", "bool_")  # numpy's


def as_whole(value: Any) -> Optional[int]:
    """A whole number, numpy's as well; None for what is none. True and False are none."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except Exception:  # arrays have __index__, too, and refuse
        return None


def whole(where: str, name: str, value: Any, least: int = -_MOST, most: int = _MOST) -> int:
    """A whole number of `least` to `most`."""
    number = as_whole(value)
    if number is None:
        raise UserError(f"[{where}] {name} is {shown(value)}, want a whole number")
    if number < least:
        raise UserError(
            f"[{where}] {name} is {shown(number)}, want {'0 or more' if least == 0 else f'at least {least}'}"
        )
    if number > most:
        raise UserError(f"[{where}] {name} is {shown(number)}, want at most {most}")
    return number


def real(where: str, name: str, value: Any) -> float:
    """A number, also NaN or infinite; a text that reads as one is none."""
    try:
        if not isinstance(value, (str, bytes, bytearray)) and not _is_bool(value):
            number = float(value)
            if _LARGEST_FLOAT < abs(number) < float("inf"):
                raise UserError(f"[{where}] {name} is {number}, which is too large")
            return number
    except UserError:
        raise
    except Exception:
        pass
    raise UserError(f"[{where}] {name} is {shown(value)}, want a number")


def number(where: str, name: str, value: Any, least: float = -_LARGEST_FLOAT) -> float:
    """A finite number of at least `least`."""
    result = real(where, name, value)
    if not least <= result <= _LARGEST_FLOAT:
        want = "a finite number" if least == -_LARGEST_FLOAT else f"a finite number of at least {least:g}"
        raise UserError(f"[{where}] {name} is {result}, want {want}")
    return result


def flag(where: str, name: str, value: Any) -> bool:
    """True or False, numpy's as well; or 1 or 0."""
    if _is_bool(value) or as_whole(value) in (0, 1):
        return bool(value)
    raise UserError(f"[{where}] {name} is {shown(value)}, want True or False")


def text(where: str, name: str, value: Any) -> str:
    """A text that UTF-8 can write: halves of surrogate pairs, as of undecodable file names, are none."""
    if not isinstance(value, str):
        raise UserError(f"[{where}] {name} is {shown(value)}, want a string")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise UserError(f"[{where}] {name} has half of a surrogate pair at {error.start}, which is no UTF-8") from None
    return value


def many(where: str, name: str, value: Any, most: int, want: str) -> List[Any]:
    """What a list, a tuple, an array or an iterator has, at most `most`: an iterator may have no end."""
    try:
        if not isinstance(value, (str, bytes, bytearray, dict, set, frozenset)):
            items = list(itertools.islice(iter(value), most + 1))
            if len(items) <= most:
                return items
            length = len(value) if hasattr(value, "__len__") else None
            if length is None or length > max(most, _LONGEST):
                raise UserError(
                    f"[{where}] {name} has {length or f'more than {most}'} items, want {want}, of at most {most}"
                )
            return list(value)  # somebody else says what is too long
    except UserError:
        raise
    except Exception as error:
        if not isinstance(error, TypeError):
            raise UserError(f"[{where}] {name} cannot be read: {type(error).__name__}: {error}") from error
    raise UserError(f"[{where}] {name} is {shown(value)}, want {want}")
