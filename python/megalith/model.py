"""A model's folder, compiled and loaded: prompts in, text and tokens out."""

from __future__ import annotations

from typing import Any, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from megalith import _megalith, arguments
from megalith._megalith import UserError
from megalith.loaded import TEXT_OR_IDS, Folder, Loaded, opened
from megalith.sampling import Asked

Prompt = Union[str, Sequence[int]]


class _Made(NamedTuple):
    text: str  # "" if the model has no tokenizer
    tokens: List[int]  # the new ones
    reason: str  # why it ended: "stop" (a stop token or a stop string), "length", or "abort" of an Answer


class Generation(_Made):
    """What was made of one prompt: ``text, tokens, reason = generation``. With logprobs, if they were asked for."""

    logprobs: List[float]  # of the tokens
    top_logprobs: List[List[Tuple[int, float]]]  # the most probable tokens in the place of each, and theirs

    def __new__(
        cls,
        text: str,
        tokens: List[int],
        reason: str,
        logprobs: Sequence[float] = (),
        top_logprobs: Sequence[List[Tuple[int, float]]] = (),
    ) -> Generation:
        made = super().__new__(cls, text, tokens, reason)
        made.logprobs = list(logprobs)
        made.top_logprobs = list(top_logprobs)
        return made


class Piece(str):
    """A piece of text as it is made, always whole characters; with the token that completed it and whose it is."""

    token: int
    request: int
    logprob: Optional[float]  # of the token, by the model's own logits; None where nobody asked

    def __new__(cls, text: str, token: int, request: int = 0, logprob: Optional[float] = None) -> "Piece":
        piece = super().__new__(cls, text)
        piece.token = token
        piece.request = request
        piece.logprob = logprob
        return piece


def _is_text(prompt: Any) -> bool:
    return isinstance(prompt, (str, bytes, bytearray))


class Model(Loaded):
    """A model that is ready to go; ``megalith.load`` makes one.

    ``graph``, ``loops()``, ``tasks``, ``tasks.placement()``, ``source`` and ``report`` show what it was compiled to.
    """

    def __init__(self, folder: str, target: str, engine: _megalith.Engine, tokenizer: Optional[_megalith.Tokenizer]):
        if not isinstance(engine, _megalith.Engine):
            raise UserError("[Model] a model is made by megalith.load")
        super().__init__(folder, engine, tokenizer)
        self._target = target
        self._engine = engine

    # ---- generating -------------------------------------------------------------------------------------------

    def _prompts(self, prompt: Any) -> Tuple[List[List[int]], bool]:
        """The token ids of each prompt, and whether there was a list of them."""
        if _is_text(prompt):
            return [self._ids("generate", "the prompt", prompt)], False
        most = max(self.max_batch, self.max_seq_len)
        items = arguments.many("generate", "the prompt", prompt, most, f"{TEXT_OR_IDS}, or a list of such")
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
        bad_words: Union[None, str, Sequence[str]] = None,
        show_special: bool = False,
        logprobs: bool = False,
        top_logprobs: int = 0,
        stream: bool = False,
    ) -> Any:
        """Continues a prompt, a string or token ids; or a list of such, as one batch.

        Gives a Generation, or a list of them for a list. With ``stream``: an iterator of pieces of text as they are
        made (Piece: a str with ``.token`` and ``.request``); leaving it early ends the generation. Temperature 0 takes
        the likeliest token. ``max_new_tokens`` and ``top_k`` of -1 are no limit. The same seed makes the same text.
        ``stop``: texts that end one, before they come; None: those of generation_config.json. ``stop_token_ids``: tokens
        that do, beside the model's, which ``ignore_stop_tokens`` does not count. Before ``min_tokens`` new tokens
        nothing ends a text: tokens that would are not drawn. ``logit_bias``: what is added to the logits of tokens, by
        their ids; ``allowed_token_ids``: those that alone may come; ``bad_words``: texts that are not made.
        ``show_special``: special tokens are part of the text. ``logprobs``: each token comes with the logarithm of its
        probability; ``top_logprobs``: and so many of the most probable tokens in its place. UserError for an empty or too long prompt, a token that the vocabulary does not
        have, more prompts than ``max_batch``.
        """
        prompts, is_list = self._prompts(prompt)
        stream = arguments.flag("generate", "stream", stream)
        asked = Asked(
            "generate",
            self,
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            min_p=min_p,
            repetition_penalty=repetition_penalty,
            presence_penalty=presence_penalty,
            frequency_penalty=frequency_penalty,
            seed=seed,
            stop=stop,
            ignore_stop_tokens=ignore_stop_tokens,
            stop_token_ids=stop_token_ids,
            min_tokens=min_tokens,
            logit_bias=logit_bias,
            allowed_token_ids=allowed_token_ids,
            bad_words=bad_words,
            show_special=show_special,
            logprobs=logprobs,
            top_logprobs=top_logprobs,
        )
        requests = [asked.request(ids, i) for i, ids in enumerate(prompts)]
        texts: List[_megalith.TextStream] = []  # none if there is no tokenizer
        if self.tokenizer:
            texts = [_megalith.TextStream(self.tokenizer, **asked.text_settings()) for _ in requests]
        made = _megalith.TokenStream(self._engine, requests, is_stream=stream)
        if stream:
            return self._stream(made, len(requests), texts, requests[0].logprobs)
        tokens: List[List[int]] = [[] for _ in requests]
        values: List[List[float]] = [[] for _ in requests]
        tops: List[List[List[Tuple[int, float]]]] = [[] for _ in requests]
        reasons = ["none"] * len(requests)
        pieces: List[List[str]] = [[] for _ in requests]
        running = len(requests)
        with made:
            for r, token, finished, reason, logprob, top in iter(made.next, None):
                running -= finished
                if texts and texts[r].is_over:  # by a stop string: it goes on unseen until all have ended
                    continue
                if finished:
                    reasons[r] = reason
                else:
                    tokens[r].append(token)
                    if requests[r].logprobs:
                        values[r].append(logprob)
                    if requests[r].top_logprobs:
                        tops[r].append(top)
                if texts:
                    pieces[r].append(texts[r].finish() if finished else texts[r].push(token))
                    if texts[r].is_stopped:
                        reasons[r] = "stop"
                    if running and all(text.is_over for text in texts):
                        break
        results = [
            Generation("".join(pieces[r]), tokens[r], reasons[r], values[r], tops[r]) for r in range(len(requests))
        ]
        return results if is_list else results[0]

    def _stream(
        self, tokens: _megalith.TokenStream, running: int, texts: List[_megalith.TextStream], has_logprobs: bool
    ) -> Iterator[Piece]:
        with tokens:
            for request, token, finished, _, logprob, _ in iter(tokens.next, None):
                running -= finished
                text = ""
                if texts:
                    if texts[request].is_over:  # by a stop string: it goes on unseen until all have ended
                        continue
                    text = texts[request].finish() if finished else texts[request].push(token)
                if not finished or text:
                    yield Piece(text, token, request, logprob if has_logprobs and not finished else None)
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

    def __repr__(self) -> str:
        return f"<model {self._shape()}>"


def load(
    folder: Folder,
    target: Optional[str] = None,
    *,
    num_workers: int = 0,
    max_seq_len: int = 0,
    max_batch: int = 1,
    max_batched_tokens: int = 0,
    draft_tokens: int = 0,
    draft_model: Optional[Folder] = None,
    page_size: int = 16,
    quantization: Optional[str] = None,
    load_format: str = "auto",
) -> Model:
    """Compiles and loads a Hugging Face folder: config.json, safetensors, tokenizer.json.

    ``target``: "cpu" or "cuda" (None: the GPU of this machine if it has one and ``num_workers`` is not given, else the
    CPU). ``num_workers``: threads or multiprocessors (0: all). ``max_seq_len``: tokens of the
    longest sequence (0: the model's, at most 4096). ``max_batch``: prompts at a time. ``max_batched_tokens``: tokens
    worked on at a time (0: chosen). -1 is the same as 0. ``draft_tokens``: guesses beside the next token, up to 15, from
    what stood in the text before (0: none); the text is the same. ``draft_model``: the folder of a small model of the same
    tokenizer, which guesses instead (0: 4 tokens). ``page_size``: positions a page of the cache.
    ``quantization``: None, "int8" or "int8:N". ``load_format``: "auto", or "dummy" for random weights. UserError for a
    folder that does not hold such a model, SystemError if memory, compiler or GPU are wanting.
    """
    found = opened(
        "load",
        folder,
        target,
        num_workers=num_workers,
        max_seq_len=max_seq_len,
        max_batch=max_batch,
        max_batched_tokens=max_batched_tokens,
        draft_tokens=draft_tokens,
        draft_model=draft_model,
        page_size=page_size,
        quantization=quantization,
        load_format=load_format,
    )
    return Model(*found)
