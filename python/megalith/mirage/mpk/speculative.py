"""``mirage.mpk.speculative``: how tokens are to be guessed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from megalith._megalith import UserError
from megalith.arguments import shown, whole


@dataclass
class SpecDecodeConfig:
    method: str


@dataclass
class LookaheadConfig(SpecDecodeConfig):
    method: str = "lookahead"
    spec_length: int = 7


@dataclass
class PromptLookupConfig(SpecDecodeConfig):
    method: str = "promptlookup"
    ngram_size: int = 3
    spec_length: int = 5


def spec_decode_class(
    spec_decode: Optional[str], ngram_size: int = 3, spec_length: int = 5
) -> Optional[SpecDecodeConfig]:
    """What a PersistentKernel takes as spec_decode_config: None for None. "lookahead" has a configuration, as in MPK, and no
    layers, so a kernel refuses it."""
    if spec_decode is None:
        return None
    ngram_size = whole("spec_decode_class", "ngram_size", ngram_size, 1)
    spec_length = whole("spec_decode_class", "spec_length", spec_length, 1)
    kind = spec_decode if isinstance(spec_decode, str) else ""
    if kind == "lookahead":
        return LookaheadConfig(spec_length=spec_length)
    if kind == "promptlookup":
        return PromptLookupConfig(ngram_size=ngram_size, spec_length=spec_length)
    raise UserError(f"[spec_decode_class] spec_decode is {shown(spec_decode)}, want None, promptlookup or lookahead")
