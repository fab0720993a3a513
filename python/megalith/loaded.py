"""A model's folder, opened: what megalith.load and megalith.Engine make their models of, and how prompts become token ids."""

from __future__ import annotations

import os
from typing import Any, List, NamedTuple, Optional, Sequence, Union

from megalith import _megalith, arguments
from megalith._megalith import UserError

Folder = Union[str, "os.PathLike[str]"]
TEXT_OR_IDS = "a string or a list of token ids"
_MOST_TOKENS = 2**24  # that an iterator may give


class Opened(NamedTuple):
    """What a folder holds."""

    folder: str
    target: str
    engine: _megalith.Engine
    tokenizer: Optional[_megalith.Tokenizer]


class Loaded:
    """A model, and the tokenizer that its folder may have."""

    def __init__(self, folder: str, engine: _megalith.Engine, tokenizer: Optional[_megalith.Tokenizer]):
        self.folder = folder
        self.tokenizer = tokenizer
        self._stop_tokens = engine.stop_tokens
        self._vocab_size, self._max_seq_len = engine.vocab_size, engine.max_seq_len
        self._max_batch, self._num_workers = engine.max_batch, engine.num_workers
        self._num_parameters = engine.num_parameters

    def encode(self, text: str) -> List[int]:
        """Token ids of a text, with what the tokenizer puts around one."""
        return self._need_tokenizer("encode").encode(arguments.text("encode", "the text", text))

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of token ids."""
        tokenizer = self._need_tokenizer("decode")
        ids = arguments.many("decode", "tokens", tokens, _MOST_TOKENS, "a list of token ids")
        return tokenizer.decode([arguments.whole("decode", f"tokens[{i}]", token, 0) for i, token in enumerate(ids)])

    def _need_tokenizer(self, what: str) -> _megalith.Tokenizer:
        if self.tokenizer is None:
            raise UserError(f"[{what}] {self.folder} has no tokenizer.json: give token ids instead of text")
        return self.tokenizer

    def _ids(self, where: str, name: str, prompt: Any) -> List[int]:
        """The token ids of one prompt, called ``name`` in messages."""
        if isinstance(prompt, str):
            return self._need_tokenizer(where).encode(arguments.text(where, name, prompt))
        ids = arguments.many(where, name, prompt, self.max_seq_len, TEXT_OR_IDS)
        for token in ids:
            if arguments.as_whole(token) is None:
                raise UserError(f"[{where}] {name} has {arguments.shown(token)} in it, want {TEXT_OR_IDS}")
        return [arguments.whole(where, f"a token of {name}", token) for token in ids]

    @property
    def vocab_size(self) -> int:
        return self._vocab_size

    @property
    def max_seq_len(self) -> int:
        return self._max_seq_len

    @property
    def max_batch(self) -> int:
        return self._max_batch

    @property
    def num_parameters(self) -> int:
        return self._num_parameters

    def _shape(self) -> str:
        return (
            f"{self.folder}: {self.num_parameters / 1e6:.1f} M parameters, {self._num_workers} workers, "
            f"{self.max_batch} requests of {self.max_seq_len} tokens"
        )


def _quant_columns(where: str, quantization: Optional[str]) -> int:
    if quantization is None:
        return 0
    text = quantization if isinstance(quantization, str) else ""
    if text == "none":
        return 0
    kind, _, columns = text.partition(":")
    if kind == "int8" and (not columns or (len(columns) < 10 and columns.isdecimal() and int(columns) > 0)):
        return int(columns or 32)
    raise UserError(
        f"[{where}] quantization is {arguments.shown(quantization)}, want None, int8, or int8:N for N columns to a scale"
    )


def _path(where: str, what: str, folder: Folder) -> str:
    try:
        return arguments.text(where, what, os.fsdecode(folder))
    except UserError:
        raise
    except Exception:
        raise UserError(f"[{where}] {what} is {arguments.shown(folder)}, want a path") from None


def opened(
    where: str,
    folder: Folder,
    target: Optional[str],
    *,
    num_workers: int,
    max_seq_len: int,
    max_batch: int,
    max_batched_tokens: int,
    draft_tokens: int,
    draft_model: Optional[Folder],
    page_size: int,
    quantization: Optional[str],
    load_format: str,
    serves: bool = False,
) -> Opened:
    """A Hugging Face folder, compiled and loaded; ``where`` is the call, as messages name it. What is 0 is chosen, the batch
    only for one that ``serves``."""
    path = _path(where, "the folder", folder)
    if target is None:
        target = "cpu" if num_workers not in (0, -1) else _megalith.default_target()
    target = arguments.text(where, "target", target)
    if not isinstance(load_format, str) or load_format not in ("auto", "dummy"):
        raise UserError(f"[{where}] load_format is {arguments.shown(load_format)}, want auto or dummy")
    has_tokenizer = os.path.exists(os.path.join(path, "tokenizer.json"))
    tokenizer = _megalith.Tokenizer.open(path) if has_tokenizer else None
    engine = _megalith.Engine(
        path,
        target=target,
        num_workers=max(arguments.whole(where, "num_workers", num_workers, -1), 0),
        max_seq_len=max(arguments.whole(where, "max_seq_len", max_seq_len, -1), 0),
        max_batch=max(arguments.whole(where, "max_batch", max_batch, -1 if serves else 1), 0),
        max_batched_tokens=max(arguments.whole(where, "max_batched_tokens", max_batched_tokens, -1), 0),
        draft_tokens=max(arguments.whole(where, "draft_tokens", draft_tokens, -1), 0),
        draft_model="" if draft_model is None else _path(where, "draft_model", draft_model),
        page_size=arguments.whole(where, "page_size", page_size, 1),
        quant_columns=_quant_columns(where, quantization),
        dummy=load_format == "dummy",
        end_token=tokenizer.end_token if tokenizer else None,
        serves=serves,
    )
    return Opened(path, target, engine, tokenizer)
