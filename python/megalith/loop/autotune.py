"""Which of several schedules is the fastest: measured once for each kind of call, and kept on disk.

    @megalith.loop.autotune([{"t": 8}, {"t": 16}, {"t": 32}], key=["n", "m"])
    def transposed(t):
        return plain.tile(["i", "j"], [t, t])

    b = transposed(a)          # measures the three, then runs the fastest; the next process knows it
    print(transposed.table())
"""

from __future__ import annotations

import inspect
import json
import math
import sys
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

from megalith import _megalith, arguments
from megalith._megalith import CapacityError, UserError
from megalith.arguments import shown
from megalith.loop.bench import do_bench
from megalith.loop.kernel import Kernel
from megalith.tensors import DeviceTensor

__all__ = ["Autotuned", "Config", "Tried", "autotune"]

_MOST = 100_000  # configurations
_BAR = 24  # characters


@dataclass(frozen=True)
class Config:
    """What the function of ``autotune`` is called with; ``before(arguments)`` runs before each measured run."""

    values: Mapping[str, Any]
    before: Optional[Callable[[Dict[str, Any]], Any]] = None

    def __str__(self) -> str:
        return ", ".join(f"{name} = {value}" for name, value in self.values.items()) or "no values"


@dataclass(frozen=True)
class Tried:
    """A configuration and what became of it: ``ms`` is infinite where the machine cannot hold it, and ``reason`` says why;
    None where a model or ``prune`` left it out."""

    config: Config
    ms: Optional[float]
    reason: str = ""


@dataclass
class _Tuned:
    best: Config
    tried: List[Tried] = field(default_factory=list)
    from_disk: bool = False


Prune = Callable[[Sequence[Config], Dict[str, int]], Iterable[Config]]
Model = Callable[[Kernel, Dict[str, int]], float]


class Autotuned:
    """A kernel of several schedules; ``autotune`` makes it. A call is that of the fastest one."""

    def __init__(self, function: Callable[..., Kernel], configs: Sequence[Config], key: Optional[List[str]], options: Any):
        self.function = function
        self.configs = configs
        self.key = key
        self._prune: Optional[Prune] = options["prune"]
        self._model: Optional[Model] = options["model"]
        self._top_k: Optional[int] = options["top_k"]
        self._restore: List[str] = options["restore"]
        self._reset: List[str] = options["reset"]
        self._bench: Callable[..., Any] = options["bench"]
        self._cache: bool = options["cache"]
        self._kernels: Dict[int, Kernel] = {}
        self._tuned: Dict[Any, _Tuned] = {}
        self._last: Optional[_Tuned] = None
        self.__name__ = getattr(function, "__name__", "kernel")
        self.__doc__ = function.__doc__

    # ---- what a user asks for -------------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.best(*args, **kwargs)(*args, **kwargs)

    def best(self, *args: Any, **kwargs: Any) -> Kernel:
        """The kernel that is the fastest for such arguments; measures if that is not known."""
        base = self._first()
        sizes, dtypes, gpu, stream = base.describe(*args, **kwargs)
        for name in self.key or ():
            if name not in sizes:
                raise UserError(f"[{self.__name__}] the key has {name!r}, which is no size: want {', '.join(sizes)}")
        key = (tuple(sizes[name] for name in self.key) if self.key is not None else tuple(sizes.values()), dtypes, gpu)
        tuned = self._tuned.get(key)
        if tuned is None:
            chosen = self._chosen(sizes)
            note = self._note(key, chosen) if self._cache else ""
            tuned = self._known(note) or self._tune(chosen, note, gpu, stream, args, kwargs)
            self._tuned[key] = tuned
        self._last = tuned
        return self.kernel(tuned.best)

    def kernel(self, config: Config) -> Kernel:
        """The kernel of one configuration. CapacityError if it cannot be on any machine."""
        made = self._kernels.get(id(config))
        if made is None:
            made = self.function(**config.values)
            if not isinstance(made, Kernel):
                raise UserError(f"[{self.__name__}] returns {shown(made)} for {config}, want a loop kernel")
            self._kernels[id(config)] = made
        return made

    @property
    def tried(self) -> List[Tried]:
        """What was tried for the last call, the fastest first."""
        return list(self._last.tried) if self._last else []

    @property
    def best_config(self) -> Optional[Config]:
        """The configuration of the last call."""
        return self._last.best if self._last else None

    @property
    def from_disk(self) -> bool:
        """Whether the last call's was measured by another process."""
        return self._last.from_disk if self._last else False

    def table(self) -> str:
        """What was tried for the last call, a line each."""
        lines = []
        for one in self.tried:
            ms = "not tried" if one.ms is None else "-" if math.isinf(one.ms) else f"{one.ms:.4f} ms"
            lines.append(f"{ms:>14}  {one.config}{'  ' + one.reason if one.reason else ''}")
        return "\n".join(lines)

    # ---- on disk --------------------------------------------------------------------------------------------------

    def _first(self) -> Kernel:
        """Of the first configuration that can be, for names and sizes."""
        reason = ""
        for config in self.configs:
            try:
                return self.kernel(config)
            except CapacityError as error:
                reason = reason or str(error)
        raise CapacityError(f"[{self.__name__}] no configuration fits: {reason}")

    def _note(self, key: Any, chosen: Sequence[Config]) -> str:
        parts = [_megalith.__version__, _megalith.loop_machine(key[2]), repr(key)]
        parts.append(str([i for i, config in enumerate(self.configs) if any(config is one for one in chosen)]))
        for config in self.configs:
            try:
                parts.append(f"{config}: {self.kernel(config).hash}")
            except CapacityError:
                parts.append(f"{config}: -")
        return "tuned-" + str(_megalith.content_hash("\n".join(parts)))

    def _known(self, note: str) -> Optional[_Tuned]:
        if not note:
            return None
        try:
            saved = json.loads(_megalith.cache_note(note))
            tried = [
                Tried(self.configs[int(at)], None if ms is None else float(ms), str(reason)) for at, ms, reason in saved
            ]
        except (ValueError, TypeError, IndexError):
            return None  # there is none, or somebody wrote into it: it is made anew
        if not tried or tried[0].ms is None or not math.isfinite(tried[0].ms):
            return None
        return _Tuned(tried[0].config, tried, from_disk=True)

    def _save(self, note: str, tuned: _Tuned) -> None:
        if note:
            at = {id(config): i for i, config in enumerate(self.configs)}
            _megalith.cache_note_set(
                note, json.dumps([[at[id(one.config)], one.ms, one.reason] for one in tuned.tried])
            )

    # ---- measuring ------------------------------------------------------------------------------------------------

    def _tune(self, chosen: Sequence[Config], note: str, gpu: int, stream: int, args: Any, kwargs: Any) -> _Tuned:
        left_out = [Tried(config, None) for config in self.configs if not any(config is one for one in chosen)]
        named = dict(zip([name for name, *_ in self._first().arguments], args))
        named.update(kwargs)
        keep = _Kept(self.__name__, named, self._restore, self._reset)
        tried: List[Tried] = []
        bar = _Bar(f"tuning {self.__name__}", len(chosen))
        try:
            for config in chosen:
                tried.append(self._measure(config, keep, named, gpu, stream, args, kwargs))
                bar.step(min(one.ms for one in tried if one.ms is not None))
        finally:
            bar.end()
            keep.back()
        tried.sort(key=lambda one: math.inf if one.ms is None else one.ms)
        if not tried or tried[0].ms is None or math.isinf(tried[0].ms):
            raise CapacityError(
                f"[{self.__name__}] no configuration fits: {tried[0].reason if tried else 'prune left none'}"
            )
        tuned = _Tuned(tried[0].config, tried + left_out)
        self._save(note, tuned)
        return tuned

    def _chosen(self, sizes: Dict[str, int]) -> List[Config]:
        chosen = list(self.configs)
        if self._prune is not None:
            asked = arguments.many(self.__name__, "what prune returns", self._prune(chosen, dict(sizes)), _MOST, "a list")
            chosen = [config for config in chosen if any(config is one for one in asked)]
        if self._model is not None:
            costs = []
            for config in chosen:
                try:
                    costs.append((float(self._model(self.kernel(config), dict(sizes))), config))
                except CapacityError:
                    costs.append((math.inf, config))
            costs.sort(key=lambda pair: pair[0])
            chosen = [config for _, config in costs]
        return chosen if self._top_k is None else chosen[: self._top_k]

    def _measure(
        self, config: Config, keep: "_Kept", named: Dict[str, Any], gpu: int, stream: int, args: Any, kwargs: Any
    ) -> Tried:
        def before() -> None:
            keep.prepare()
            if config.before is not None:
                config.before(named)

        try:
            made = self.kernel(config)
            before()
            ms = self._bench(lambda: made(*args, **kwargs), gpu=gpu, stream=stream, before=before)
            return Tried(config, float(ms))
        except CapacityError as error:
            return Tried(config, math.inf, str(error))


class _Kept:
    """Arguments whose values are put back, or set to zero, between runs."""

    def __init__(self, where: str, named: Dict[str, Any], restore: Sequence[str], reset: Sequence[str]):
        for name in [*restore, *reset]:
            if name not in named:
                raise UserError(f"[{where}] {name!r} is to be put back between runs, and is not given")
        self._saved = [(named[name], _copy(named[name])) for name in restore]
        self._zeroed = [named[name] for name in reset]

    def prepare(self) -> None:
        self.back()
        for array in self._zeroed:
            _put(array, 0)

    def back(self) -> None:
        for array, values in self._saved:
            _put(array, values)


def _copy(array: Any) -> Any:
    if isinstance(array, DeviceTensor):
        return array.numpy()
    return array.clone() if hasattr(array, "clone") else array.copy()


def _put(array: Any, values: Any) -> None:
    if isinstance(array, DeviceTensor):
        import numpy

        array.copy_from(numpy.zeros(array.shape, array.dtype) if isinstance(values, int) else values)
    elif hasattr(array, "copy_") and not isinstance(values, int):
        array.copy_(values)
    elif hasattr(array, "zero_"):
        array.zero_()
    else:
        array[...] = values


class _Bar:
    """How far it is, where somebody looks."""

    def __init__(self, what: str, total: int):
        self._what, self._total, self._done = what, total, 0
        self._shows = sys.stderr is not None and sys.stderr.isatty()
        self._best = math.inf
        self._draw()

    def step(self, best: float) -> None:
        self._done, self._best = self._done + 1, best
        self._draw()

    def end(self) -> None:
        if self._shows:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()

    def _draw(self) -> None:
        if not self._shows:
            return
        full = _BAR * self._done // max(1, self._total)
        best = "" if math.isinf(self._best) else f", the best takes {self._best:.4f} ms"
        bar = "#" * full + "." * (_BAR - full)
        sys.stderr.write(f"\r{self._what} [{bar}] {self._done} of {self._total}{best}\033[K")
        sys.stderr.flush()


def autotune(
    configs: Iterable[Union[Config, Mapping[str, Any]]],
    *,
    key: Optional[Sequence[str]] = None,
    prune: Optional[Prune] = None,
    model: Optional[Model] = None,
    top_k: Optional[int] = None,
    restore: Sequence[str] = (),
    reset: Sequence[str] = (),
    bench: Callable[..., Any] = do_bench,
    cache: bool = True,
) -> Callable[[Callable[..., Kernel]], Autotuned]:
    """Decorates a function from the values of a configuration to a kernel; calls take the fastest of them.

    ``configs``: dicts, or ``Config``. ``key``: sizes for each value of which it is measured anew; left out, all. Dtypes and
    the machine always count. ``prune(configs, sizes)``: those worth trying. ``model(kernel, sizes)``: a guess of the cost,
    of which the ``top_k`` lowest are measured. ``restore``: arguments whose values are put back before each run, and at the
    end; ``reset``: those that are set to zero. ``bench``: what measures, as ``do_bench``. ``cache``: results are kept on
    disk. A configuration that the machine cannot hold (``CapacityError``) counts as infinitely slow."""
    given = arguments.many("autotune", "configs", configs, _MOST, "a list of configurations")
    made = []
    for config in given:
        if not isinstance(config, (Config, dict)):
            raise UserError(f"[autotune] configs has {shown(config)}, want a dict from names to values, or a Config")
        made.append(config if isinstance(config, Config) else Config(config))
    if not made:
        raise UserError("[autotune] configs is empty, want at least one configuration")
    for option, function in (("prune", prune), ("model", model), ("bench", bench)):
        if not callable(function) and (function is not None or option == "bench"):
            raise UserError(f"[autotune] {option} is {shown(function)}, want a function")
    names = {
        option: [arguments.text("autotune", option, name) for name in arguments.many("autotune", option, value, _MOST, "names")]
        for option, value in (("key", () if key is None else key), ("restore", restore), ("reset", reset))
    }
    options = {
        "prune": prune, "model": model, "restore": names["restore"], "reset": names["reset"], "bench": bench,
        "top_k": None if top_k is None else arguments.whole("autotune", "top_k", top_k, 1),
        "cache": arguments.flag("autotune", "cache", cache),
    }  # fmt: skip

    def decorate(function: Callable[..., Kernel]) -> Autotuned:
        if not callable(function) or inspect.isclass(function):
            raise UserError(f"[autotune] it decorates {shown(function)}, want a function from values to a loop kernel")
        return Autotuned(function, made, None if key is None else names["key"], options)

    return decorate
