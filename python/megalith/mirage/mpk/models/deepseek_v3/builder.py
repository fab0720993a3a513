"""``mirage.mpk.models.deepseek_v3.builder``."""

from megalith.mirage.mpk.models.graph_builder import GraphBuilder


class DeepSeekV3Builder(GraphBuilder):
    """Refused when it is made."""
