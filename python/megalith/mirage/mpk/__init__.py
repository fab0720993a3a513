"""``mirage.mpk``: persistent kernels."""

from megalith.mirage.mpk import persistent_kernel
from megalith.mirage.mpk.persistent_kernel import PersistentKernel

__all__ = ["PersistentKernel", "persistent_kernel"]
