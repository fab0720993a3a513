"""Loop kernels of one's own: a text, a schedule of named steps, and a call with arrays of any library.

    import megalith.loop

    k = megalith.loop.kernel("{ [i, j, k] : 0 <= i < n and 0 <= j < m and 0 <= k < l } c[i, j] = sum(k, a[i, k] * b[k, j])")
    k = k.tile(["i", "j"], [16, 16]).split("k", 16).vectorise("j_inner")
    c = k(a, b)            # compiled for these arguments, once, and kept on disk

docs/loops-python.md begins at the beginning; docs/schedules.md has the steps.
"""

from megalith._megalith import CapacityError
from megalith.loop.autotune import Autotuned, Config, Tried, autotune
from megalith.loop.bench import do_bench
from megalith.loop.kernel import Check, Kernel, add_listener, kernel, remove_listener
from megalith.loop.steps import aliases, step_usages

__all__ = [
    "Autotuned",
    "CapacityError",
    "Check",
    "Config",
    "Kernel",
    "Tried",
    "add_listener",
    "aliases",
    "autotune",
    "do_bench",
    "kernel",
    "remove_listener",
    "step_usages",
]
