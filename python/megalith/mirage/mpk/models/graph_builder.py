"""``mirage.mpk.models.graph_builder``."""

from megalith.mirage.not_built import WholeModel


class MirageModelConfig(WholeModel):
    """Refused when it is made."""


class GraphBuilder(WholeModel):
    """Scripts may derive from it; making one is refused."""
