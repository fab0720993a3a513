"""What a caller hands over, checked before the extension sees it: its own TypeError names no argument."""

from __future__ import annotations

import operator
from typing import Any

from megalith._megalith import UserError

_MOST = 2**31 - 1


def whole(where: str, name: str, value: Any, least: int = -_MOST, most: int = _MOST) -> int:
    """A whole number of `least` to `most`, numpy's as well."""
    try:
        number = operator.index(value)
    except TypeError:  # arrays have __index__, too, and refuse
        raise UserError(f"[{where}] {name} is {value!r}, want a whole number") from None
    if number < least:
        raise UserError(f"[{where}] {name} is {number}, want {'0 or more' if least == 0 else f'at least {least}'}")
    if number > most:
        raise UserError(f"[{where}] {name} is {number}, want at most {most}")
    return number


def real(where: str, name: str, value: Any) -> float:
    """A number; a text that reads as one is none."""
    try:
        if not isinstance(value, (str, bytes)):
            return float(value)
    except (TypeError, ValueError, OverflowError):
        pass
    raise UserError(f"[{where}] {name} is {value!r}, want a number")


def text(where: str, name: str, value: Any) -> str:
    """A text that UTF-8 can write: halves of surrogate pairs, as of undecodable file names, are none."""
    if not isinstance(value, str):
        raise UserError(f"[{where}] {name} is {value!r}, want a string")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise UserError(f"[{where}] {name} has half of a surrogate pair at {error.start}, which is no UTF-8") from None
    return value
