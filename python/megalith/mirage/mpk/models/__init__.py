"""``mirage.mpk.models``: builders of whole models, not built yet."""
