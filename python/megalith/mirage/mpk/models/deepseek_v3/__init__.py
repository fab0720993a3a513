"""``mirage.mpk.models.deepseek_v3``."""
