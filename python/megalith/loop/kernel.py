"""``Kernel``: a loop kernel, its schedule, and what was compiled of it."""

from __future__ import annotations

import math
import os
import pathlib
import re
import sys
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

from megalith import _megalith, arguments
from megalith._megalith import UserError
from megalith.arguments import shown
from megalith.loop.steps import add_methods
from megalith.tensors import DeviceTensor, dtype_name, numpy_dtype, to_device

__all__ = ["Check", "Kernel", "add_listener", "kernel", "remove_listener"]

_SPECIMEN = re.compile(r"\s*(?P<dtype>\w+)\s*(\[(?P<shape>[\d\s,]*)\])?\s*$")

Listener = Callable[["_megalith.CompileReport", str], None]
_listeners: List[Listener] = []


def add_listener(listener: Listener) -> Listener:
    """``listener(report, target)`` is called whenever a loop kernel was compiled or found in the cache on disk:
    ``report.cache_hit``, and ``report.times`` with (stage, milliseconds, where it came from) of each stage. Calls of what
    this process has loaded already are not told. Works as a decorator."""
    if not callable(listener):
        raise UserError(f"[loop] the listener is {shown(listener)}, want a function (report, target)")
    _listeners.append(listener)
    return listener


def remove_listener(listener: Listener) -> None:
    """It is told no more. UserError if it was not told before."""
    if listener not in _listeners:
        raise UserError(f"[loop] {shown(listener)} is no listener")
    _listeners.remove(listener)


def _compiled(report: "_megalith.CompileReport", target: str) -> None:
    for listener in list(_listeners):
        listener(report, target)


_TORCH_NAMES = {"bf16": "bfloat16", "f16": "float16", "f32": "float32", "i8": "int8", "i32": "int32", "i64": "int64"}


_allocators: Dict[Tuple[type, str], Callable[[Any, Tuple[int, ...]], Any]] = {}
_MOST_ALLOCATORS = 1000  # types are kept alive


def _empty(shape: Tuple[int, ...], dtype: Any) -> Any:
    """numpy's, but large ones begin where a line of a cache does, as torch's: vectors go past the caches only there."""
    import numpy

    line, least = 64, 1 << 16
    count = math.prod(shape) * numpy.dtype(dtype).itemsize
    if count < least:
        return numpy.empty(shape, dtype)
    memory = numpy.empty(count + line, numpy.uint8)
    start = -memory.ctypes.data % line
    return memory[start : start + count].view(dtype).reshape(shape)


def _allocator(kind: type, dtype: str) -> Callable[[Any, Tuple[int, ...]], Any]:
    """What makes outputs beside arguments of this type."""
    if kind.__module__.partition(".")[0] == "torch":
        torch = sys.modules["torch"]
        of_torch = getattr(torch, _TORCH_NAMES[dtype])
        return lambda like, shape: torch.empty(shape, dtype=of_torch, device=like.device)
    import numpy

    of_numpy = numpy_dtype(dtype)
    if kind is numpy.ndarray:
        return lambda like, shape: _empty(shape, of_numpy)
    on_gpu = 2  # as DLPack has it

    def make(like: Any, shape: Tuple[int, ...]) -> Any:
        if isinstance(like, DeviceTensor) or getattr(like, "__dlpack_device__", lambda: (1, 0))()[0] == on_gpu:
            return DeviceTensor(shape, of_numpy)
        return _empty(shape, of_numpy)

    return make


def _allocate(like: Any, shape: Tuple[int, ...], dtype: str) -> Any:
    """An output, of the library of the first argument."""
    allocator = _allocators.get((type(like), dtype))
    if allocator is None:
        allocator = _allocator(type(like), dtype)
        if len(_allocators) < _MOST_ALLOCATORS:
            _allocators[type(like), dtype] = allocator
    return allocator(like, shape)


_megalith.loop_hooks_set(_allocate, _compiled)


@dataclass(frozen=True)
class Check:
    """What ``Kernel.check()`` found: that all is right, else it would have raised."""

    sizes: Mapping[str, int]
    max_error: float  # largest difference, as a share of what is allowed
    outputs: Mapping[str, Any]

    def __str__(self) -> str:
        sizes = ", ".join(f"{name} = {value}" for name, value in self.sizes.items())
        return f"right for {sizes}: the largest difference is {self.max_error:.2g} of what is allowed"


class Kernel(_megalith.LoopKernel):
    """A loop kernel and its schedule; ``kernel()`` makes one of a text. It does not change: each step gives another one.

    Steps are methods, ``k.split("i", 16)``; ``k.apply(text)`` runs several lines. A call takes inputs in the order of
    ``arguments``, then outputs that are there already, and sizes, attributes and ``stream`` by name; outputs that it is not
    given it makes, of the library of its first argument, and returns them.
    """

    def __init__(
        self,
        text: str,
        *,
        alignment: bool = True,
        divisibility: bool = True,
        ones: bool = True,
        never: Iterable[str] = (),
    ):
        if isinstance(text, os.PathLike):
            try:
                text = pathlib.Path(text).read_text(encoding="utf-8")
            except Exception as error:  # of the system, of what is not in UTF-8, and of names with a NUL
                raise UserError(f"[loop.kernel] the text cannot be read from {shown(text)}: {error}") from None
        super().__init__(
            arguments.text("loop.kernel", "the text", text),
            arguments.flag("loop.kernel", "alignment", alignment),
            arguments.flag("loop.kernel", "divisibility", divisibility),
            arguments.flag("loop.kernel", "ones", ones),
            set(_names("never", never)),
        )

    def _made(self, *args: Any) -> "Kernel":
        made = Kernel.__new__(Kernel)
        _megalith.LoopKernel.__init__(made, self, *args)
        return made

    def _then(self, line: str, named: Dict[str, "Kernel"]) -> "Kernel":
        before = self
        for name, other in named.items():
            before = before._made(name, other)
        return before._made(line)

    def __getattr__(self, name: str) -> Callable[..., "Kernel"]:
        steps = ", ".join(sorted(usage.split()[0] for usage in _megalith.loop_step_usages()))
        raise AttributeError(f"a loop kernel has no {name!r}; its steps are {steps}")

    # ---- the schedule ---------------------------------------------------------------------------------------------

    def apply(self, text: str) -> "Kernel":
        """The kernel after the steps of a text, a line each, as ``schedule`` has them."""
        result = self
        for number, line in enumerate(arguments.text("apply", "the text", text).splitlines(), 1):
            try:
                result = result._made(line)
            except UserError as error:
                raise type(error)(f"line {number}: {error}") from None
        return result

    @property
    def schedule(self) -> str:
        """The steps so far, a line each: what ``apply()`` reads."""
        return "".join(f"{step}\n" for step in self.steps)

    def specialized(
        self,
        *,
        alignment: Optional[bool] = None,
        divisibility: Optional[bool] = None,
        ones: Optional[bool] = None,
        never: Optional[Iterable[str]] = None,
    ) -> "Kernel":
        """The kernel, specialized otherwise; what is left out stays as it is.

        ``alignment``: arrays that begin at a multiple of 16 bytes are told from others; ``divisibility``: sizes that are
        multiples of 16; ``ones``: sizes that are 1; ``never``: arrays and sizes of which nothing is assumed. All are in
        use unless switched off. Dtypes that the text leaves open always count."""
        now = self.specializing
        options = [
            value if given is None else arguments.flag("specialized", name, given)
            for name, value, given in zip(("alignment", "divisibility", "ones"), now, (alignment, divisibility, ones))
        ]
        return self._made(*options, now[3] if never is None else set(_names("never", never)))

    # ---- what becomes of it ---------------------------------------------------------------------------------------

    def source(self, target: str = "cpu") -> str:
        """The function that it becomes on a CPU, or for ``"cuda"``; dtypes that are open are f32 there."""
        if arguments.text("source", "the target", target) not in ("cpu", "cuda"):
            raise UserError(f'[source] the target is {shown(target)}, want "cpu" or "cuda"')
        return self.source_for(target)

    def passes(self) -> Dict[str, str]:
        """What it is before a schedule, in four passes: ``"types"``, ``"common_subexpressions"`` (which also folds constants),
        ``"dependences"`` (a line for each, with the relation between instances as isl writes it), and ``"domains"``
        (reductions as loops, dealt out as tags say). The kernel as a text after each; the steps ``common_subexpressions``, ``fold_constants`` and
        ``realise_reductions`` do the same to the kernel itself."""
        return dict(self.passes_of())

    @property
    def asm(self) -> Dict[str, Any]:
        """Of what was compiled last: ``"loops"`` (the kernel with what is known of its arguments), ``"cpp"`` and ``"so"``, or
        ``"cu"``, ``"ptx"`` and ``"cubin"``."""
        made: Any = self.artifacts()
        if made is None:
            raise UserError("[asm] nothing was compiled yet: call it, or warmup()")
        return dict(made)

    def counts(self, **sizes: int) -> Dict[str, Any]:
        """Operations and accesses for these sizes, counted by isl: ``ops`` ((dtype, operation) -> how many), ``flops``,
        ``tensors`` (loads, stores and their bytes), ``moved_bytes`` (what must go to and from memory at least)."""
        return dict(self.counts_of(_sizes("counts", sizes)))

    def warmup(self, *specimens: Any, target: str = "cpu", **named: Any) -> bool:
        """Compiles for arguments that are not there: ``k.warmup("f32[128, 64]", "f32[64, 32]", target="cuda:sm_90a")``, or
        arrays, of which only type and shape are looked at. Sizes by name. True if there was something to compile, or to
        fetch from the cache on disk."""
        tensors, sizes = [], {}
        known = [name for name, *_ in self.arguments]
        if len(specimens) > len(known):
            raise UserError(f"[warmup] {len(specimens)} tensors are too many: want {', '.join(known)}")
        given = dict(zip(known, specimens))
        for name, value in named.items():
            if name in known:
                given[name] = value
            else:
                sizes[name] = value
        for name, specimen in given.items():
            tensors.append((name, *_described(name, specimen)))
        return self.warm(tensors, _sizes("warmup", sizes), arguments.text("warmup", "the target", target))

    def check(
        self,
        *inputs: Any,
        against: Union[None, Callable[..., Any], Any] = None,
        target: str = "cpu",
        rtol: float = 1e-3,
        atol: float = 1e-3,
        seed: int = 0,
        **sizes: Any,
    ) -> Check:
        """Runs it and compares every output with ``against``: a function of the inputs as numpy arrays, or arrays; left out,
        the kernel without its schedule in the interpreter, which is slow. ``inputs``: left out, random ones for ``sizes``.
        UserError naming the first element that is wrong."""
        import numpy

        on_gpu = arguments.text("check", "the target", target) != "cpu"
        rtol = arguments.number("check", "rtol", rtol, 0)
        atol = arguments.number("check", "atol", atol, 0)
        seed = arguments.whole("check", "seed", seed, 0)
        try:
            given = list(inputs) or self._random_inputs(_sizes("check", sizes), seed)
        except MemoryError as error:
            raise _megalith.SystemError(f"[check] {error}") from None
        named = {} if inputs else _sizes("check", sizes)
        before = [_on_host(one) for one in given]
        device = [to_device(one) if on_gpu and isinstance(one, numpy.ndarray) else one for one in given]
        made = self(*device, **named)
        names = [name for name, role, *_ in self.arguments if role == "output"]
        found = list(made) if isinstance(made, tuple) else [] if made is None else [made]
        if not names:
            names = [name for name, role, *_ in self.arguments if role == "inout"]
            found = [one for one, (_, role, *_) in zip(device, self.arguments) if role == "inout"]
        if against is None:
            wanted = _interpreted(self, before, named)
        else:
            wanted = against(*before) if callable(against) else against
        if not isinstance(wanted, (tuple, list)):
            wanted = [wanted]
        for one in wanted:
            if not hasattr(one, "shape") or not hasattr(one, "dtype") or str(one.dtype) == "object":
                raise UserError(f"[check] the reference has {shown(one)}, want an array for each of {', '.join(names)}")
        if len(wanted) != len(found):
            raise UserError(f"[check] the reference has {len(wanted)} arrays, want {len(found)}: {', '.join(names)}")
        largest = 0.0
        outputs = {}
        for name, have, want in zip(names, found, wanted):
            have = _on_host(have)
            outputs[name] = have
            largest = max(largest, _difference(name, have, numpy.asarray(want, dtype=numpy.float64), rtol, atol))
        return Check(named, largest, outputs)

    def _random_inputs(self, sizes: Dict[str, int], seed: int) -> List[Any]:
        import numpy

        random = numpy.random.default_rng(seed)
        shapes = self.shapes(sizes)
        made = []
        for name, role, dtype, _ in self.arguments:
            if role == "output":
                continue
            if dtype in ("i8", "i32", "i64"):
                made.append(random.integers(-8, 8, shapes[name]).astype(numpy_dtype(dtype)))
            else:
                made.append(random.uniform(-1, 1, shapes[name]).astype(numpy_dtype(dtype or "f32")))
        return made

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        inputs = ", ".join(f"{name}: {dtype or 'any'}{shape}" for name, _, dtype, shape in self.arguments)
        return f"<loop kernel {self.name or 'without a name'} ({inputs}), {len(self.steps)} steps>"


add_methods(Kernel, Kernel._then)


def kernel(
    text: str,
    *,
    alignment: bool = True,
    divisibility: bool = True,
    ones: bool = True,
    never: Iterable[str] = (),
) -> Kernel:
    """A kernel of a text (docs/loop-kernels.md), or of a ``pathlib.Path`` to one. Declarations may be left out: a domain and
    an instruction are enough, and dtypes come with the arrays. The options are those of ``Kernel.specialized``."""
    return Kernel(text, alignment=alignment, divisibility=divisibility, ones=ones, never=never)


def _names(option: str, names: Iterable[str]) -> List[str]:
    if isinstance(names, str):
        names = [names]
    return [arguments.text("loop", option, name) for name in arguments.many("loop", option, names, 1000, "a list of names")]


def _sizes(where: str, sizes: Mapping[str, Any]) -> Dict[str, int]:
    return {name: arguments.whole(where, name, value, 0, 2**62) for name, value in sizes.items()}


def _described(name: str, specimen: Any) -> Tuple[str, Sequence[int]]:
    if isinstance(specimen, str):
        match = _SPECIMEN.match(specimen)
        if match is None:
            raise UserError(f'[warmup] {name} is {shown(specimen)}, want a text such as "f32[128, 64]"')
        dims = [part for part in re.split(r"[\s,]+", match["shape"] or "") if part]
        return dtype_name(match["dtype"]), [arguments.whole("warmup", name, int(part), 0, 2**62) for part in dims]
    if not hasattr(specimen, "shape") or not hasattr(specimen, "dtype"):
        raise UserError(f'[warmup] {name} is {shown(specimen)}, want an array or a text such as "f32[128, 64]"')
    return dtype_name(specimen.dtype), [int(size) for size in specimen.shape]


def _on_host(array: Any) -> Any:
    """A copy as a numpy array."""
    import numpy

    if isinstance(array, DeviceTensor):
        return array.numpy()
    return numpy.array(array.detach().cpu() if hasattr(array, "detach") else array)


def _interpreted(made: Kernel, inputs: Sequence[Any], sizes: Dict[str, int]) -> List[Any]:
    """The kernel without its schedule, interpreted."""
    plain = made._made()
    result = plain(*inputs, **{name: size for name, size in sizes.items() if name in plain.sizes})
    if result is None:
        return [one for one, (_, role, *_) in zip(inputs, plain.arguments) if role == "inout"]
    return list(result) if isinstance(result, tuple) else [result]


def _difference(name: str, have: Any, want: Any, rtol: float, atol: float) -> float:
    import numpy

    if have.shape != want.shape:
        raise UserError(f"[check] {name} has the shape {list(have.shape)}, and the reference {list(want.shape)}")
    found = numpy.asarray(have, dtype=numpy.float64)
    with numpy.errstate(invalid="ignore"):
        share = numpy.abs(found - want) / (atol + rtol * numpy.abs(want))
    share = numpy.where((found == want) | (numpy.isnan(found) & numpy.isnan(want)), 0.0, share)
    wrong = numpy.argwhere(~(share <= 1))
    if len(wrong):
        at = tuple(int(index) for index in wrong[0])
        raise UserError(
            f"[check] {name}{list(at)} is {found[at]:.9g}, want {want[at]:.9g}; {len(wrong)} of {found.size} elements are "
            "wrong"
        )
    return float(share.max()) if share.size else 0.0
