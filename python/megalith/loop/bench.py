"""How long something takes: on a GPU by events, on a CPU by the clock, with cold caches."""

from __future__ import annotations

import pathlib
import statistics
import time
from typing import Any, Callable, List, Optional, Sequence, Union

from megalith import _megalith, arguments
from megalith._megalith import UserError
from megalith.arguments import shown

__all__ = ["do_bench"]

_GPU_FLUSH_BYTES = 256 << 20  # more than the L2 of any GPU that there is
_CPU_FLUSH_BYTES = 64 << 20  # where the system does not tell the size of its caches
_MOST_RUNS = 10_000


def _cpu_flush_bytes() -> int:
    """Twice the largest cache."""
    sizes = []
    for path in pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        if text[:-1].isdigit() and text[-1] in "KM":
            sizes.append(int(text[:-1]) << (10 if text[-1] == "K" else 20))
    return min(2 * max(sizes), _GPU_FLUSH_BYTES) if sizes else _CPU_FLUSH_BYTES


class _Clock:
    """Runs something so many times; milliseconds of each."""

    def __init__(self, gpu: int, stream: int, flush: bool, before: Optional[Callable[[], Any]]):
        self._before = before
        self._gpu = _megalith.LoopClock(gpu, stream, _GPU_FLUSH_BYTES if flush else 0) if gpu >= 0 else None
        self._buffer: Any = None
        if gpu < 0 and flush:
            import numpy

            self._buffer = numpy.zeros(_cpu_flush_bytes(), numpy.int8)

    def times(self, function: Callable[[], Any], runs: int) -> List[float]:
        times = []
        for _ in range(runs):
            if self._before is not None:
                self._before()
            if self._gpu is not None:
                self._gpu.begin()
                function()
                self._gpu.end()
                continue
            if self._buffer is not None:
                self._buffer += 1
            begin = time.perf_counter()
            function()
            times.append(1e3 * (time.perf_counter() - begin))
        return list(self._gpu.times_ms()) if self._gpu is not None else times


def do_bench(
    function: Callable[[], Any],
    *,
    warmup_ms: float = 25,
    rep_ms: float = 100,
    quantiles: Optional[Sequence[float]] = None,
    flush: bool = True,
    gpu: int = -1,
    stream: int = 0,
    before: Optional[Callable[[], Any]] = None,
) -> Union[float, List[float]]:
    """The median of what ``function()`` takes, in milliseconds, or the ``quantiles``.

    It runs for about ``warmup_ms``, then for ``rep_ms``. ``flush``: caches are filled with something else before each run.
    ``gpu``: the work is on that GPU, on ``stream`` (an address; 0: the default one), and events measure it; -1: the host's
    clock does. ``before()`` runs before each run and is not measured."""
    if not callable(function):
        raise UserError(f"[do_bench] it is {shown(function)}, want a function without arguments")
    if before is not None and not callable(before):
        raise UserError(f"[do_bench] before is {shown(before)}, want a function without arguments")
    warmup_ms = arguments.number("do_bench", "warmup_ms", warmup_ms, 0)
    rep_ms = arguments.number("do_bench", "rep_ms", rep_ms, 0)
    if quantiles is not None:
        quantiles = arguments.many("do_bench", "quantiles", quantiles, _MOST_RUNS, "a list of numbers of 0 to 1")
        for quantile in quantiles:
            if not 0 <= arguments.number("do_bench", "a quantile", quantile) <= 1:
                raise UserError(f"[do_bench] a quantile is {quantile}, want 0 to 1")
    gpu = arguments.whole("do_bench", "gpu", gpu, -1)
    stream = arguments.whole("do_bench", "stream", stream, 0, 2**63 - 1)
    clock = _Clock(gpu, stream, arguments.flag("do_bench", "flush", flush), before)
    function()  # which may compile
    estimate = max(statistics.median(clock.times(function, 5)), 1e-4)
    clock.times(function, min(_MOST_RUNS, int(warmup_ms / estimate)))
    times = sorted(clock.times(function, max(5, min(_MOST_RUNS, int(rep_ms / estimate)))))
    if quantiles is None:
        return statistics.median(times)
    return [times[min(len(times) - 1, int(quantile * len(times)))] for quantile in quantiles]
