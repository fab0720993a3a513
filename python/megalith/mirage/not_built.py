"""Names of MPK that scripts import and that are not built yet: making one says so."""

from __future__ import annotations

from typing import Any

from megalith._megalith import UserError


class NotBuilt:
    """The base of them. ``what`` they are for, and what to take ``instead``."""

    what = ""
    instead = ""

    def __init__(self, *_: Any, **__: Any):
        raise UserError(f"[{type(self).__name__}] {self.what} is not built yet: {self.instead}")


class WholeModel(NotBuilt):
    """MPK's own builders of models, and its wrapper around them."""

    what = "MPK's way to build whole models"
    instead = "take megalith.load() for a model, or PersistentKernel layer by layer"
