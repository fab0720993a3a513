"""``mirage.mpk.base_dynamic_shard_loader``: weights distributed over several GPUs, which are not built yet."""

import enum

from megalith.mirage.not_built import NotBuilt


class ShardType(enum.Enum):
    """How a weight is distributed: by its rows, its columns, whole experts, or not at all."""

    COL_PARALLEL = 0
    ROW_PARALLEL = 1
    EXPERT_PARALLEL = 2
    NONE = 100


class BaseDynamicShardLoader(NotBuilt):
    """Scripts may derive from it; making one is refused."""

    what = "dealing weights to several GPUs"
    instead = "load the whole model on one"
