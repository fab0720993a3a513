"""The extension's own TypeErrors list C++ signatures and name no argument: here they become messages in words.

What a function takes is read off its signature, which nanobind keeps for stubs: whatever is bound is explained, and nothing
is written down twice. Only calls that failed come here.
"""

from __future__ import annotations

import ast
import functools
import inspect
from typing import Any, Callable, Iterator, List, TypeVar

from megalith._megalith import UserError
from megalith.arguments import shown

_Function = TypeVar("_Function", bound=Callable[..., Any])

_LONGEST = 2**20  # range that is taken for a list
_WORDS = {"str": "a string", "int": "a whole number", "float": "a number", "bool": "True or False", "None": "None"}
_MANY = {"str": "strings", "int": "whole numbers", "float": "numbers"}


def _name(annotation: ast.expr) -> str:
    """The last word of a name such as megalith._megalith.Graph."""
    return ast.unparse(annotation).rpartition(".")[2]


def _choices(annotation: ast.expr) -> List[ast.expr]:
    """The types that are joined by |."""
    if isinstance(annotation, ast.BinOp):
        return _choices(annotation.left) + _choices(annotation.right)
    return [annotation]


def _parts(annotation: ast.Subscript) -> List[ast.expr]:
    return annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]


def _words(annotation: ast.expr) -> str:
    choices = _choices(annotation)
    if len(choices) > 1:
        return " or ".join(_words(choice) for choice in choices)
    if not isinstance(annotation, ast.Subscript):
        name = _name(annotation)
        return _WORDS.get(name) or f"a megalith.{name}"
    kind, parts = _name(annotation.value), _parts(annotation)
    if kind == "Mapping":
        return f"a dict from {_words(parts[0])} to {_words(parts[1])}"
    if kind == "Sequence":
        many = [_MANY.get(_name(part)) or _words(part) for part in _choices(parts[0])]
        return f"a list of {' or '.join(many)}"
    return f"({', '.join(_words(part) for part in parts)})"


def _is_text(value: Any) -> bool:
    """Halves of surrogate pairs, as of undecodable file names, are none."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def _is_one(name: str, value: Any) -> bool:
    if name == "str":
        return _is_text(value)
    if name == "int":
        return hasattr(value, "__index__")
    if name == "float":
        return not isinstance(value, (str, bytes)) and hasattr(value, "__float__")
    return any(base.__name__ == name for base in type(value).__mro__) or (name == "None" and value is None)


def _wrong(place: str, value: Any, annotation: ast.expr) -> Iterator[str]:
    """What is wrong with a value, down to the element."""
    choices = _choices(annotation)
    if len(choices) > 1:
        fits = any(not any(_wrong(place, value, choice)) for choice in choices)
    elif not isinstance(annotation, ast.Subscript):
        fits = _is_one(_name(annotation), value)
    else:
        kind, parts = _name(annotation.value), _parts(annotation)
        fits = isinstance(value, dict) if kind == "Mapping" else isinstance(value, (list, tuple))
        if kind == "tuple" and fits:
            fits = len(value) == len(parts)
        if fits and kind == "Mapping":
            for key, item in value.items():
                yield from _wrong(f"a key of {place}", key, parts[0])
                yield from _wrong(f"{place}[{shown(key)}]", item, parts[1])
        elif fits:
            for i, item in enumerate(value):
                yield from _wrong(f"{place}[{i}]", item, parts[i if kind == "tuple" else 0])
    if not fits:
        yield f"{place} is {shown(value)}, want {_words(annotation)}"


def _numbers(place: str, value: Any) -> Iterator[str]:
    """The numbers in a value that the extension may not take, if they are all that is left."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _numbers(f"{place}[{shown(key)}]", item)
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            yield from _numbers(f"{place}[{i}]", item)
    elif isinstance(value, int) and not 0 <= value < 2**31:
        yield f"{place} is {shown(value)}, which is too {'small' if value < 0 else 'large'}"


def _explain(function: Any, where: str, args: Any, kwargs: Any) -> Exception:
    """The error of a call that the extension did not take."""
    definition = ast.parse(function.__nb_signature__[0][0].replace("\\", "_") + ": ...").body[0]
    assert isinstance(definition, ast.FunctionDef)
    taken = definition.args
    required = len(taken.args) - len(taken.defaults)
    parameters, annotations = [], {}
    for i, argument in enumerate(taken.args):
        default = inspect.Parameter.empty if i < required else None
        parameters.append(inspect.Parameter(argument.arg, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default))
        annotations[argument.arg] = argument.annotation
    for argument, value in zip(taken.kwonlyargs, taken.kw_defaults):
        default = inspect.Parameter.empty if value is None else None
        parameters.append(inspect.Parameter(argument.arg, inspect.Parameter.KEYWORD_ONLY, default=default))
        annotations[argument.arg] = argument.annotation
    try:
        given = inspect.Signature(parameters).bind(*args, **kwargs).arguments
    except TypeError as error:
        return TypeError(f"[{where}] {error}")
    for name, value in given.items():
        annotation = annotations[name]
        for wrong in _wrong(name, value, annotation) if annotation else ():  # self has none
            return UserError(f"[{where}] {wrong}")
    for name, value in given.items():
        for wrong in _numbers(name, value):
            return UserError(f"[{where}] {wrong}")
    return UserError(f"[{where}] the arguments do not fit: want ({ast.unparse(taken)})")


def explained(function: _Function, where: str) -> _Function:
    """A function of the extension, called ``where`` in messages, with errors in words."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for value in (*args, *kwargs.values()):
            if type(value) is range and value.stop > _LONGEST:  # it would be made a list of
                raise UserError(f"[{where}] {shown(value)} has more items than anybody wants")
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            if "incompatible function arguments" not in str(error):
                raise
        raise _explain(function, where, args, kwargs)

    return call  # type: ignore[return-value]


def explain(*classes: type) -> None:
    """The same of all public methods of classes of the extension. (Constructors are its own business: nanobind finds them
    without looking at the class.)"""
    for one in classes:
        for name, method in list(vars(one).items()):
            if name.startswith("_") or not hasattr(method, "__nb_signature__"):
                continue
            wrapped = explained(method, f"{one.__name__}.{name}")
            setattr(one, name, staticmethod(wrapped) if type(method).__name__ == "nb_func" else wrapped)
