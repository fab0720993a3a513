"""The names under which scripts written for Mirage's persistent kernels find things: the one import to change.

import megalith.mirage as mirage
from megalith.mirage.mpk.persistent_kernel import PersistentKernel
"""

from megalith.mirage import mpk
from megalith.mirage.dtypes import bfloat16, dtype, float16, float32, int8, int32, int64
from megalith.mirage.mpk.persistent_kernel import PersistentKernel
from megalith.persistent_kernel import get_configurations_from_gpu

__all__ = [
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
]
