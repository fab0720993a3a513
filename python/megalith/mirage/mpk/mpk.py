"""``mirage.mpk.mpk``: MPK's wrapper around a whole model, not built yet."""

from megalith.mirage.mpk.models.graph_builder import MirageModelConfig
from megalith.mirage.not_built import WholeModel

__all__ = ["MPK", "MPKMetadata", "MirageModelConfig"]


class MPKMetadata(WholeModel):
    """Refused when it is made."""


class MPK(WholeModel):
    """Refused when it is made."""
