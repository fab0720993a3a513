"""How drafts are to be found, as MPK's configurations and layers say it, and how many a run had."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

from megalith._megalith import UserError
from megalith.arguments import shown, whole
from megalith.dtensor import Storage

LONGEST_NGRAM = 64  # tokens that are compared, at most: runtime/batch.h, kLongestMatch
LONGEST_SEQUENCE = 2**25  # in which drafts are looked for: kernels/drafts.h


class PromptLookup(NamedTuple):
    ngram_size: int  # tokens at the end of a sequence that must have stood there before
    spec_length: int  # drafts of a request, at most


class LoopCounts(NamedTuple):
    """Of a run of the token loop."""

    iterations: int
    drafts: int  # iterations of a request that had drafts
    drafted_tokens: int
    accepted_tokens: int  # drafts that were right


class Drafting:
    """What the layers have said so far."""

    def __init__(self, lookup: PromptLookup, places: Storage):
        self.lookup = lookup
        self.places = places  # "where the n-grams stand": nobody reads it
        self.tokens: Optional[Storage] = None  # what embed_layer takes
        self.is_embedded = False
        self.is_verified = False


def lookup_of(where: str, config: Any) -> PromptLookup:
    """What a configuration says; any object that has what MPK's have."""
    method = getattr(config, "method", None)
    if method == "lookahead":
        raise UserError(
            f'[{where}] spec_decode_config has the method "lookahead", for which MPK has a name and no layers: want '
            '"promptlookup"'
        )
    if not isinstance(method, str) or method != "promptlookup":
        raise UserError(
            f"[{where}] spec_decode_config is {shown(config)}, want None or what spec_decode_class() gave for "
            '"promptlookup"'
        )
    return checked_lookup(where, getattr(config, "ngram_size", None), getattr(config, "spec_length", None))


def checked_lookup(where: str, ngram_size: Any, spec_length: Any) -> PromptLookup:
    return PromptLookup(
        whole(where, "ngram_size", ngram_size, 1, LONGEST_NGRAM),
        whole(where, "spec_length", spec_length, 1, 2**31 - 1),
    )
