"""``mirage.mpk``: persistent kernels."""

from megalith.mirage.mpk import base_dynamic_shard_loader, configs, persistent_kernel, speculative
from megalith.mirage.mpk.mpk import MPK, MirageModelConfig, MPKMetadata
from megalith.mirage.mpk.online_pinned_runtime import OnlinePinnedRuntime
from megalith.mirage.mpk.persistent_kernel import PersistentKernel
from megalith.mirage.mpk.speculative import spec_decode_class

__all__ = [
    "MPK",
    "MPKMetadata",
    "MirageModelConfig",
    "OnlinePinnedRuntime",
    "PersistentKernel",
    "base_dynamic_shard_loader",
    "configs",
    "persistent_kernel",
    "spec_decode_class",
    "speculative",
]
