"""``mirage.mpk.persistent_kernel``."""

from megalith.dtensor import DTensor
from megalith.persistent_kernel import PersistentKernel, get_configurations_from_gpu

__all__ = ["DTensor", "PersistentKernel", "get_configurations_from_gpu"]
