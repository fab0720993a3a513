"""A model's folder, compiled and loaded: prompts in, text and tokens out."""

from __future__ import annotations

import os
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from megalith import _megalith, arguments
from megalith._megalith import UserError

Prompt = Union[str, Sequence[int]]
_MOST_TOKENS = 2**24  # that an iterator may give
_MOST_STOPS = 1024
_LARGEST_ID = 2**31 - 1  # of a token, in any vocabulary


class Generation(NamedTuple):
    """What was made of one prompt."""

    text: str  # "" if the model has no tokenizer
    tokens: List[int]  # the new ones
    reason: str  # why it ended: "stop" (a stop token) or "length"


class Piece(str):
    """A piece of text as it is made, always whole characters; with the token that completed it and whose it is."""

    token: int
    request: int

    def __new__(cls, text: str, token: int, request: int) -> "Piece":
        piece = super().__new__(cls, text)
        piece.token = token
        piece.request = request
        return piece


_TEXT_OR_IDS = "a string or a list of token ids"


def _token_ids(name: str, value: Any) -> List[int]:
    """The token ids of an argument of ``generate``; None is none."""
    if value is None:
        return []
    ids = arguments.many("generate", name, value, _MOST_TOKENS, "a list of token ids")
    return [arguments.whole("generate", f"{name}[{i}]", token, 0, _LARGEST_ID) for i, token in enumerate(ids)]


def _biases(value: Any) -> Dict[int, float]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UserError(f"[generate] logit_bias is {arguments.shown(value)}, want a dict from token ids to biases")
    return {
        arguments.whole("generate", "a token of logit_bias", token, 0, _LARGEST_ID): arguments.real(
            "generate", "a bias of logit_bias", bias
        )
        for token, bias in value.items()
    }


def _is_text(prompt: Any) -> bool:
    return isinstance(prompt, (str, bytes, bytearray))


class Model:
    """A model that is ready to go; ``megalith.load`` makes one.

    ``graph``, ``loops()``, ``tasks``, ``tasks.placement()``, ``source`` and ``report`` show what it was compiled to.
    """

    def __init__(self, folder: str, target: str, engine: _megalith.Engine, tokenizer: Optional[_megalith.Tokenizer]):
        if not isinstance(engine, _megalith.Engine):
            raise UserError("[Model] a model is made by megalith.load")
        self.folder = folder
        self._target = target
        self.tokenizer = tokenizer
        self._engine = engine

    # ---- generating -------------------------------------------------------------------------------------------

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
        ids = arguments.many(where, name, prompt, self.max_seq_len, _TEXT_OR_IDS)
        for token in ids:
            if arguments.as_whole(token) is None:
                raise UserError(f"[{where}] {name} has {arguments.shown(token)} in it, want {_TEXT_OR_IDS}")
        return [arguments.whole(where, f"a token of {name}", token) for token in ids]

    def _prompts(self, prompt: Any) -> Tuple[List[List[int]], bool]:
        """The token ids of each prompt, and whether there was a list of them."""
        if _is_text(prompt):
            return [self._ids("generate", "the prompt", prompt)], False
        most = max(self.max_batch, self.max_seq_len)
        items = arguments.many("generate", "the prompt", prompt, most, f"{_TEXT_OR_IDS}, or a list of such")
        if all(arguments.as_whole(item) is not None for item in items):
            return [self._ids("generate", "the prompt", items)], False
        return [self._ids("generate", f"prompt {i + 1}", item) for i, item in enumerate(items)], True

    def generate(
        self,
        prompt: Union[Prompt, Sequence[Prompt]],
        *,
        max_new_tokens: int = 128,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int = 0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        seed: int = 0,
        stop: Union[None, str, Sequence[str]] = None,
        ignore_stop_tokens: bool = False,
        stop_token_ids: Optional[Sequence[int]] = None,
        min_tokens: int = 0,
        logit_bias: Optional[Mapping[int, float]] = None,
        allowed_token_ids: Optional[Sequence[int]] = None,
        show_special: bool = False,
        stream: bool = False,
    ) -> Any:
        """Continues a prompt, a string or token ids; or a list of such, as one batch.

        Gives a Generation, or a list of them for a list. With ``stream``: an iterator of pieces of text as they are
        made (Piece: a str with ``.token`` and ``.request``); leaving it early ends the generation. Temperature 0 takes
        the likeliest token. ``max_new_tokens`` and ``top_k`` of -1 are no limit. The same seed makes the same text.
        ``stop``: texts that end one, before they come; None: those of generation_config.json. ``stop_token_ids``: tokens
        that do, beside the model's, which ``ignore_stop_tokens`` does not count. Before ``min_tokens`` new tokens
        nothing ends a text: tokens that would are not drawn. ``logit_bias``: what is added to the logits of tokens, by
        their ids; ``allowed_token_ids``: those that alone may come. ``show_special``: special tokens are part of the
        text. UserError for an empty or too long prompt, a token that the vocabulary does not
        have, more prompts than ``max_batch``.
        """
        prompts, is_list = self._prompts(prompt)
        sampling = _megalith.Sampling()
        for name, value in (
            ("temperature", temperature),
            ("top_p", top_p),
            ("min_p", min_p),
            ("repetition_penalty", repetition_penalty),
            ("presence_penalty", presence_penalty),
            ("frequency_penalty", frequency_penalty),
        ):
            setattr(sampling, name, arguments.real("generate", name, value))
        sampling.top_k = max(arguments.whole("generate", "top_k", top_k, -1), 0)
        seed = arguments.whole("generate", "seed", seed, 0, 2**64 - 1)
        max_new_tokens = arguments.whole("generate", "max_new_tokens", max_new_tokens)
        if max_new_tokens == -1:
            max_new_tokens = self.max_seq_len
        ignore_stop_tokens = arguments.flag("generate", "ignore_stop_tokens", ignore_stop_tokens)
        own_stops = _token_ids("stop_token_ids", stop_token_ids)
        min_tokens = arguments.whole("generate", "min_tokens", min_tokens, 0)
        biases, allowed = _biases(logit_bias), _token_ids("allowed_token_ids", allowed_token_ids)
        stream = arguments.flag("generate", "stream", stream)
        show_special = arguments.flag("generate", "show_special", show_special)
        requests = []
        for i, ids in enumerate(prompts):
            request = _megalith.Request()
            request.prompt = ids
            request.max_new_tokens = max_new_tokens
            sampling.seed = (seed + i) % 2**64  # the same prompt given twice makes two texts
            request.sampling = sampling
            request.ignore_stop_tokens = ignore_stop_tokens
            request.stop_token_ids = own_stops
            request.min_tokens = min_tokens
            request.logit_bias = biases
            request.allowed_token_ids = allowed
            requests.append(request)
        stop_tokens = own_stops if ignore_stop_tokens else own_stops + self._engine.stop_tokens
        settings = {"stop_tokens": sorted(stop_tokens), "show_special": show_special, "min_tokens": min_tokens}
        texts = self._texts(len(requests), self._stops(stop, ignore_stop_tokens), settings)
        made = _megalith.TokenStream(self._engine, requests, is_stream=stream)
        if stream:
            return self._stream(made, len(requests), texts)
        tokens: List[List[int]] = [[] for _ in requests]
        reasons = ["none"] * len(requests)
        pieces: List[List[str]] = [[] for _ in requests]
        running = len(requests)
        with made:
            for r, token, finished, reason in iter(made.next, None):
                running -= finished
                if texts and texts[r].is_over:  # by a stop string: it goes on unseen until all have ended
                    continue
                if finished:
                    reasons[r] = reason
                else:
                    tokens[r].append(token)
                if texts:
                    pieces[r].append(texts[r].finish() if finished else texts[r].push(token))
                    if texts[r].is_stopped:
                        reasons[r] = "stop"
                    if running and all(text.is_over for text in texts):
                        break
        results = [Generation("".join(text), ids, reason) for text, ids, reason in zip(pieces, tokens, reasons)]
        return results if is_list else results[0]

    def _stops(self, stop: Any, ignore_stop_tokens: bool) -> List[str]:
        """The stop strings of a text."""
        if stop is None:
            return [] if ignore_stop_tokens or not self.tokenizer else _megalith.stop_strings(self.folder)
        if isinstance(stop, (str, bytes)) or not hasattr(stop, "__iter__"):
            return [arguments.text("generate", "stop", stop)]
        texts = list(stop) if isinstance(stop, (set, frozenset)) else stop
        texts = arguments.many("generate", "stop", texts, _MOST_STOPS, "a string or a list of strings")
        return [arguments.text("generate", "a stop string", text) for text in texts]

    def _texts(self, count: int, stops: List[str], settings: Dict[str, Any]) -> List[_megalith.TextStream]:
        """A text for each request; none if there is no tokenizer."""
        if not self.tokenizer:
            if stops:
                self._need_tokenizer("generate")
            return []
        return [_megalith.TextStream(self.tokenizer, stops=stops, **settings) for _ in range(count)]

    def _stream(
        self, tokens: _megalith.TokenStream, running: int, texts: List[_megalith.TextStream]
    ) -> Iterator[Piece]:
        with tokens:
            for request, token, finished, _ in iter(tokens.next, None):
                running -= finished
                text = ""
                if texts:
                    if texts[request].is_over:  # by a stop string: it goes on unseen until all have ended
                        continue
                    text = texts[request].finish() if finished else texts[request].push(token)
                if not finished or text:
                    yield Piece(text, token, request)
                if running and texts and all(text.is_over for text in texts):
                    return

    def logits(self, prompt: Prompt) -> Any:
        """The logits behind the last token of a prompt: a numpy array, f32 (vocabulary,)."""
        import numpy

        result = numpy.empty((self.vocab_size,), numpy.float32)
        self._engine.logits(self._ids("logits", "the prompt", prompt), result.ctypes.data)
        return result

    # ---- looking at it ----------------------------------------------------------------------------------------

    @property
    def graph(self) -> _megalith.Graph:
        """The tensor graph of one iteration."""
        return self._engine.graph

    def loops(self) -> str:
        """The loop kernels: what each node means."""
        return self.graph.loops(self._target)

    @property
    def kernel(self) -> _megalith.CompiledKernel:
        """The compiled kernel; ``.directory`` has its source, machine code and the compiler's command."""
        return self._engine.kernel

    @property
    def tasks(self) -> _megalith.TaskGraph:
        """All tasks and events; ``.placement()`` says who runs what."""
        return self._engine.kernel.tasks

    @property
    def source(self) -> str:
        """The generated source."""
        return self._engine.kernel.source

    @property
    def report(self) -> Any:
        """Which stages ran, and how long each took."""
        return self._engine.kernel.report

    @property
    def vocab_size(self) -> int:
        return self._engine.vocab_size

    @property
    def max_seq_len(self) -> int:
        return self._engine.max_seq_len

    @property
    def max_batch(self) -> int:
        return self._engine.max_batch

    @property
    def num_parameters(self) -> int:
        return self._engine.num_parameters

    def __repr__(self) -> str:
        return (
            f"<model {self.folder}: {self.num_parameters / 1e6:.1f} M parameters, {self._engine.num_workers} workers, "
            f"{self.max_batch} requests of {self.max_seq_len} tokens>"
        )


def _quant_columns(quantization: Optional[str]) -> int:
    if quantization is None:
        return 0
    text = quantization if isinstance(quantization, str) else ""
    if text == "none":
        return 0
    kind, _, columns = text.partition(":")
    if kind == "int8" and (not columns or (len(columns) < 10 and columns.isdecimal() and int(columns) > 0)):
        return int(columns or 32)
    raise UserError(
        f"[load] quantization is {arguments.shown(quantization)}, want None, int8, or int8:N for N columns to a scale"
    )


def load(
    folder: Union[str, "os.PathLike[str]"],
    target: str = "cpu",
    *,
    num_workers: int = 0,
    max_seq_len: int = 0,
    max_batch: int = 1,
    max_batched_tokens: int = 0,
    draft_tokens: int = 0,
    page_size: int = 16,
    quantization: Optional[str] = None,
    load_format: str = "auto",
) -> Model:
    """Compiles and loads a Hugging Face folder: config.json, safetensors, tokenizer.json.

    ``target``: "cpu" or "cuda". ``num_workers``: threads or multiprocessors (0: all). ``max_seq_len``: tokens of the
    longest sequence (0: the model's, at most 4096). ``max_batch``: prompts at a time. ``max_batched_tokens``: tokens
    worked on at a time (0: chosen). -1 is the same as 0. ``draft_tokens``: guesses beside the next token, up to 15, from
    what stood in the text before (0: none); the text is the same. ``page_size``: positions a page of the cache.
    ``quantization``: None, "int8" or "int8:N". ``load_format``: "auto", or "dummy" for random weights. UserError for a
    folder that does not hold such a model, SystemError if memory, compiler or GPU are wanting.
    """
    try:
        path = arguments.text("load", "the folder", os.fsdecode(folder))
    except UserError:
        raise
    except Exception:
        raise UserError(f"[load] the folder is {arguments.shown(folder)}, want a path") from None
    target = arguments.text("load", "target", target)
    if not isinstance(load_format, str) or load_format not in ("auto", "dummy"):
        raise UserError(f"[load] load_format is {arguments.shown(load_format)}, want auto or dummy")
    has_tokenizer = os.path.exists(os.path.join(path, "tokenizer.json"))
    tokenizer = _megalith.Tokenizer.open(path) if has_tokenizer else None
    engine = _megalith.Engine(
        path,
        target=target,
        num_workers=max(arguments.whole("load", "num_workers", num_workers, -1), 0),
        max_seq_len=max(arguments.whole("load", "max_seq_len", max_seq_len, -1), 0),
        max_batch=arguments.whole("load", "max_batch", max_batch, 1),
        max_batched_tokens=max(arguments.whole("load", "max_batched_tokens", max_batched_tokens, -1), 0),
        draft_tokens=max(arguments.whole("load", "draft_tokens", draft_tokens, -1), 0),
        page_size=arguments.whole("load", "page_size", page_size, 1),
        quant_columns=_quant_columns(quantization),
        dummy=load_format == "dummy",
        end_token=tokenizer.end_token if tokenizer else None,
    )
    return Model(path, target, engine, tokenizer)
