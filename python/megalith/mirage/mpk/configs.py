"""``mirage.mpk.configs``: where later versions of MPK have the configurations of speculation."""

from megalith.mirage.mpk.speculative import (
    LookaheadConfig,
    PromptLookupConfig,
    SpecDecodeConfig,
    spec_decode_class,
)

__all__ = ["LookaheadConfig", "PromptLookupConfig", "SpecDecodeConfig", "spec_decode_class"]
