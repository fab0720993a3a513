"""A model's folder, compiled and loaded: prompts in, text and tokens out."""

from __future__ import annotations

import os
import queue
import threading
from typing import Any, Iterator, List, NamedTuple, Optional, Sequence, Union

from megalith import _megalith, arguments
from megalith._megalith import UserError

Prompt = Union[str, Sequence[int]]


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


def _is_ids(prompt: Any) -> bool:
    return not isinstance(prompt, (str, bytes)) and all(hasattr(token, "__index__") for token in prompt)


def _is_one(prompt: Any) -> bool:
    """Whether it is one prompt, and not a list of them."""
    return isinstance(prompt, (str, bytes)) or not hasattr(prompt, "__iter__") or _is_ids(prompt)


class Model:
    """A model that is ready to go; ``megalith.load`` makes one.

    ``graph``, ``loops()``, ``tasks``, ``tasks.placement()``, ``source`` and ``report`` show what it was compiled to.
    """

    def __init__(self, folder: str, target: str, engine: _megalith.Engine, tokenizer: Optional[_megalith.Tokenizer]):
        self.folder = folder
        self._target = target
        self.tokenizer = tokenizer
        self._engine = engine
        self._lock = threading.Lock()  # one generation at a time: another thread waits
        self._streaming: Optional[int] = None  # the thread that reads a stream

    # ---- generating -------------------------------------------------------------------------------------------

    def encode(self, text: str) -> List[int]:
        """Token ids of a text, with what the tokenizer puts around one."""
        return self._need_tokenizer("encode").encode(arguments.text("encode", "the text", text))

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of token ids."""
        if isinstance(tokens, (str, bytes)) or not hasattr(tokens, "__iter__"):
            raise UserError(f"[decode] tokens is {tokens!r}, want a list of token ids")
        ids = [arguments.whole("decode", "a token", token) for token in tokens]
        return self._need_tokenizer("decode").decode(ids)

    def _need_tokenizer(self, what: str) -> _megalith.Tokenizer:
        if self.tokenizer is None:
            raise UserError(f"[{what}] {self.folder} has no tokenizer.json: give token ids instead of text")
        return self.tokenizer

    def _turn(self) -> threading.Lock:
        """The lock to generate under. Who waited for a stream of his own would wait for ever."""
        if self._streaming == threading.get_ident():
            raise UserError("[generate] a stream of this model is not read to its end: read it, or close() it")
        return self._lock

    def _ids(self, prompt: Any) -> List[int]:
        if isinstance(prompt, str):
            return self._need_tokenizer("generate").encode(arguments.text("generate", "the prompt", prompt))
        if not hasattr(prompt, "__iter__") or not _is_ids(prompt):
            raise UserError(f"[generate] the prompt is {prompt!r}, want a string or a list of token ids")
        return [arguments.whole("generate", "a token of the prompt", token) for token in prompt]

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
        ignore_stop_tokens: bool = False,
        stream: bool = False,
    ) -> Any:
        """Continues a prompt, a string or token ids; or a list of such, as one batch.

        Gives a Generation, or a list of them for a list. With ``stream``: an iterator of pieces of text as they are
        made (Piece: a str with ``.token`` and ``.request``); leaving it early ends the generation. Temperature 0 is
        greedy. The same seed makes the same text. UserError for an empty or too long prompt, a token that
        the vocabulary does not have, more prompts than ``max_batch``.
        """
        is_list = not _is_one(prompt)
        prompts: List[Any] = list(prompt) if is_list else [prompt]
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
        sampling.top_k = arguments.whole("generate", "top_k", top_k)
        seed = arguments.whole("generate", "seed", seed, 0, 2**64 - 1)
        max_new_tokens = arguments.whole("generate", "max_new_tokens", max_new_tokens)
        requests = []
        for i, one in enumerate(prompts):
            request = _megalith.Request()
            request.prompt = self._ids(one)
            request.max_new_tokens = max_new_tokens
            sampling.seed = (seed + i) % 2**64  # the same prompt given twice makes two texts
            request.sampling = sampling
            request.ignore_stop_tokens = bool(ignore_stop_tokens)
            requests.append(request)
        if stream:
            return self._stream(requests)
        tokens: List[List[int]] = [[] for _ in requests]
        reasons = ["none"] * len(requests)

        def on_token(request: int, token: int, finished: bool, reason: str) -> None:
            if finished:
                reasons[request] = reason
            else:
                tokens[request].append(token)

        with self._turn():
            self._engine.generate(requests, on_token)
        results = [
            Generation(self.tokenizer.decode(ids) if self.tokenizer else "", ids, reason)
            for ids, reason in zip(tokens, reasons)
        ]
        return results if is_list else results[0]

    def _stream(self, requests: List[_megalith.Request]) -> Iterator[Piece]:
        events: "queue.SimpleQueue[Any]" = queue.SimpleQueue()

        def work() -> None:
            try:
                self._engine.generate(requests, lambda *event: events.put(event))
                events.put(None)
            except BaseException as error:  # handed to whoever iterates
                events.put(error)

        with self._turn():
            self._streaming = threading.get_ident()
            thread = threading.Thread(target=work, name="megalith.generate", daemon=True)
            thread.start()
            decoders = [_megalith.StreamDecoder(self.tokenizer) for _ in requests] if self.tokenizer else None
            try:
                while True:
                    event = events.get()
                    if event is None:
                        return
                    if isinstance(event, BaseException):
                        raise event
                    request, token, finished, _ = event
                    text = ""
                    if decoders:
                        text = decoders[request].finish() if finished else decoders[request].push(token)
                    if not finished or text:
                        yield Piece(text, token, request)
            finally:
                if thread.is_alive():
                    self._engine.cancel()
                thread.join()
                self._streaming = None

    def logits(self, prompt: Prompt) -> Any:
        """The logits behind the last token of a prompt: a numpy array, f32 (vocabulary,)."""
        import numpy

        request = _megalith.Request()
        request.prompt = self._ids(prompt)
        request.max_new_tokens = 1
        request.ignore_stop_tokens = True
        result = numpy.empty((self.vocab_size,), numpy.float32)
        with self._turn():
            self._engine.generate([request], lambda *_: None)
            self._engine.read_logits(1, result.ctypes.data)
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
    if quantization in (None, "none"):
        return 0
    kind, _, columns = str(quantization).partition(":")
    if kind == "int8" and (not columns or (columns.isdecimal() and 0 < int(columns) < 2**31)):
        return int(columns or 32)
    raise UserError(f"[load] quantization is {quantization!r}, want None, int8, or int8:N for N columns to a scale")


def load(
    folder: Union[str, "os.PathLike[str]"],
    target: str = "cpu",
    *,
    num_workers: int = 0,
    max_seq_len: int = 0,
    max_batch: int = 1,
    max_batched_tokens: int = 0,
    page_size: int = 16,
    quantization: Optional[str] = None,
    load_format: str = "auto",
) -> Model:
    """Compiles and loads a Hugging Face folder: config.json, safetensors, tokenizer.json.

    ``target``: "cpu" or "cuda". ``num_workers``: threads or multiprocessors (0: all). ``max_seq_len``: tokens of the
    longest sequence (0: the model's, at most 4096). ``max_batch``: prompts at a time. ``max_batched_tokens``: tokens
    worked on at a time (0: chosen). ``page_size``: positions a page of the cache. ``quantization``: None, "int8" or
    "int8:N". ``load_format``: "auto", or "dummy" for random weights. UserError for a folder that does not hold such a
    model, SystemError if memory, compiler or GPU are wanting.
    """
    try:
        path = arguments.text("load", "the folder", os.fsdecode(folder))
    except TypeError:
        raise UserError(f"[load] the folder is {folder!r}, want a path") from None
    target = arguments.text("load", "target", target)
    if load_format not in ("auto", "dummy"):
        raise UserError(f"[load] load_format is {load_format!r}, want auto or dummy")
    engine = _megalith.Engine(
        path,
        target=target,
        num_workers=arguments.whole("load", "num_workers", num_workers, 0),
        max_seq_len=arguments.whole("load", "max_seq_len", max_seq_len, 0),
        max_batch=arguments.whole("load", "max_batch", max_batch, 1),
        max_batched_tokens=arguments.whole("load", "max_batched_tokens", max_batched_tokens, 0),
        page_size=arguments.whole("load", "page_size", page_size, 1),
        quant_columns=_quant_columns(quantization),
        dummy=load_format == "dummy",
    )
    has_tokenizer = os.path.exists(os.path.join(path, "tokenizer.json"))
    return Model(path, target, engine, _megalith.Tokenizer.open(path) if has_tokenizer else None)
