"""Operators that a script declares: a loop kernel as text, and perhaps bodies of its own for a CPU or a GPU.

    @megalith.operator(tasks=[("n", 16), "t"], tests=[{"T": 3, "N": 100}])
    def gelu():
        "y = gelu(x), in the form with a tanh"
        return '''
          input x: f32[T, N]
          output y: f32[T, N]
          { [t, n] : 0 <= t < T and 0 <= n < N }
          y[t, n] = 0.5 * f32(x[t, n]) * (1 + tanh(0.79788456 * (f32(x[t, n]) + 0.044715 * pow(f32(x[t, n]), 3))))
        '''

    graph.add("gelu", "act", [x])                 # in any graph made from now on, on a CPU and on a GPU
    kernel.gelu_layer(x=x, y=y)                   # in any PersistentKernel
    gelu.check()                                  # right on a CPU, and on a GPU if there is one
"""

from __future__ import annotations

import inspect
import os
import pathlib
from typing import Callable, Dict, List, Optional, Sequence, Tuple, Union

from megalith import arguments
from megalith._megalith import Operator, Registry, UserError

Source = Union[str, "os.PathLike[str]"]
Axis = Union[str, Tuple[str, int]]
_MOST = 1000  # tests, or loop variables


def _body(name: str, target: str, source: Source) -> str:
    """The text of a body: itself, or that of the file that a path names."""
    if isinstance(source, str):
        return arguments.text(name, f"the body for {target}", source)
    if not isinstance(source, os.PathLike):
        raise UserError(
            f"[{name}] the body for {target} is a {type(source).__name__}, want its text, or a pathlib.Path to a file"
        )
    try:
        return pathlib.Path(source).read_text(encoding="utf-8")
    except Exception as error:  # of the system, of what is not in UTF-8, and of names with a NUL
        raise UserError(
            f"[{name}] the body for {target} cannot be read from {arguments.shown(source)}: {error}"
        ) from None


def _axes(name: str, tasks: Sequence[Axis]) -> List[Tuple[str, int]]:
    if isinstance(tasks, str):
        tasks = [tasks]
    axes = []
    for axis in arguments.many(name, "tasks", tasks, _MOST, "a list of loop variables"):
        pair = (axis, 1) if isinstance(axis, str) else axis
        if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str)):
            raise UserError(
                f'[{name}] tasks has {arguments.shown(axis)}, want the name of a loop variable, or ("n", 16): with '
                "multiples"
            )
        iname = arguments.text(name, "a loop variable of tasks", pair[0])
        axes.append((iname, arguments.whole(name, f'the multiple of "{iname}"', pair[1], 1)))
    return axes


def _sizes(name: str, tests: Sequence[Dict[str, int]]) -> List[Dict[str, int]]:
    result = []
    for test in arguments.many(name, "tests", tests, _MOST, "a list of dicts from names of sizes to sizes"):
        if not isinstance(test, dict):
            raise UserError(f"[{name}] tests has {arguments.shown(test)}, want a dict from names of sizes to sizes")
        sizes = {}
        for size, value in test.items():
            size = arguments.text(name, "a size of tests", size)
            sizes[size] = arguments.whole(name, f"the size {size} of tests", value, 1)
        result.append(sizes)
    return result


def _index(name: str, index: Optional[Dict[str, str]]) -> Dict[str, str]:
    if index is None:
        return {}
    if not isinstance(index, dict):
        raise UserError(f"[{name}] index is {arguments.shown(index)}, want a dict from inputs to sizes")
    return {
        arguments.text(name, "an input of index", operand): arguments.text(name, f"index[{operand!r}]", size)
        for operand, size in index.items()
    }


def _exact(name: str, exact: Optional[Sequence[str]]) -> Optional[List[str]]:
    if exact is None:
        return None
    operands = arguments.many(name, "exact", exact, _MOST, "a list of operands")
    return [arguments.text(name, "an operand of exact", operand) for operand in operands]


def operator(
    function: Optional[Callable[[], str]] = None,
    *,
    tests: Sequence[Dict[str, int]] = (),
    tasks: Sequence[Axis] = (),
    one_task: bool = False,
    index: Optional[Dict[str, str]] = None,
    exact: Optional[Sequence[str]] = None,
    any_sizes: bool = True,
    cpu: Optional[Source] = None,
    cuda: Optional[Source] = None,
    shared_bytes: int = 0,
    test_mode: bool = False,
    registry: Optional[Registry] = None,
) -> Callable[[Callable[[], str]], Operator]:
    """Declares an operator. The function's name is its name, the docstring says what it is, and what it returns is its
    meaning: a loop kernel with a line for each operand (``input x: f32[T, N]``), each default (``attribute eps = 1e-5``)
    and each size that no shape tells (``parameter G``).

    ``tests``: sizes on which it is tested. Sizes of 1 and odd ones come on top unless ``any_sizes`` is False.
    ``tasks``: the loop variables along which it is cut into tasks, with the multiple of tiles where one is wanted; left
    out, the first subscript of the first output. ``one_task``: it is not cut at all. ``index``: integer input -> the
    size that it points into. ``exact``: operands that take no dtype but the one in the text; left out, those of
    integers. An input of ``index`` is always exact.

    ``cpu``, ``cuda``: bodies that take the place of the generated code: C++ or CUDA, as text or as a path to a file,
    with a function ``void NAME(const auto& task)``. Its operands are ``task.x(t, n)``, typed views of the slices that
    the task may touch; sizes, attributes and ranges stand beside them (``task.N``, ``task.t_begin``). ``shared_bytes``:
    of shared memory that the CUDA body works in, ``task.shared``.

    ``test_mode``: checks it right away, as ``check()`` of what is returned does. ``registry``: left out, all graphs that
    are made from now on know it; declared anew, it takes the place of the one before. UserError if anything is wrong
    with it.
    """
    if function is not None:
        raise UserError("[operator] it takes arguments, tests at the least: @megalith.operator(tests=[...])")

    def declare(made: Callable[[], str]) -> Operator:
        if not callable(made) or not isinstance(getattr(made, "__name__", None), str):
            raise UserError(f"[operator] it decorates {arguments.shown(made)}, want a function")
        name = made.__name__
        text = made()
        if not isinstance(text, str):
            raise UserError(f"[{name}] returns a {type(text).__name__}, want the text of its loop kernel")
        arguments.text(name, "the loop kernel", text)
        bodies = []
        if cpu is not None:
            bodies.append(("cpu", _body(name, "cpu", cpu), 0))
        shared = arguments.whole(name, "shared_bytes", shared_bytes, 0)
        if cuda is not None:
            bodies.append(("cuda", _body(name, "cuda", cuda), shared))
        if registry is not None and not isinstance(registry, Registry):
            raise UserError(f"[{name}] registry is {arguments.shown(registry)}, want a megalith.Registry")
        declared = (Registry.shared() if registry is None else registry).declare(
            name,
            inspect.getdoc(made) or "",
            inspect.cleandoc(text) + "\n",
            tasks=_axes(name, tasks),
            one_task=arguments.flag(name, "one_task", one_task),
            index=_index(name, index),
            exact=_exact(name, exact),
            tests=_sizes(name, tests),
            any_sizes=arguments.flag(name, "any_sizes", any_sizes),
            bodies=bodies,
        )
        if arguments.flag(name, "test_mode", test_mode):
            declared.check()
        return declared

    return declare
