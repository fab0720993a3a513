"""The names under which scripts written for Mirage's persistent kernels find things: the one import to change.

import megalith.mirage as mirage
from megalith.mirage.mpk.persistent_kernel import PersistentKernel
"""

from typing import Any

from megalith._megalith import UserError
from megalith.mirage import mpk
from megalith.mirage.dtypes import bfloat16, dtype, float16, float32, int8, int32, int64
from megalith.mirage.mpk import speculative
from megalith.mirage.mpk.mpk import MPK, MPKMetadata
from megalith.mirage.mpk.persistent_kernel import PersistentKernel
from megalith.persistent_kernel import get_configurations_from_gpu

__all__ = [
    "MPK",
    "MPKMetadata",
    "PersistentKernel",
    "bfloat16",
    "dtype",
    "float16",
    "float32",
    "get_configurations_from_gpu",
    "int32",
    "int64",
    "int8",
    "mpk",
    "new_kernel_graph",
    "new_threadblock_graph",
    "speculative",
]


def new_kernel_graph(*_: Any, **__: Any) -> Any:
    """Mirage's superoptimizer, which is no part of its persistent kernels: not here."""
    raise UserError("[new_kernel_graph] Mirage's superoptimizer is not built: build kernels with PersistentKernel")


def new_threadblock_graph(*_: Any, **__: Any) -> Any:
    """The same."""
    raise UserError("[new_threadblock_graph] Mirage's superoptimizer is not built: build kernels with PersistentKernel")
