"""An engine that takes prompts at any time, from any thread and from asyncio: the HTTP server's, without the server."""

from __future__ import annotations

import json
from types import TracebackType
from typing import Any, Generator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Type, Union

from megalith import _megalith, arguments
from megalith._megalith import SystemError, UserError
from megalith.event_loops import wakeup_of_loop
from megalith.loaded import Folder, Loaded, opened
from megalith.model import Generation, Piece, Prompt
from megalith.sampling import Asked

_MOST_WAITING = 2**20
_MOST_SECONDS = 1e9  # that fit into a clock's time


class QueueFull(SystemError):
    """As many requests wait as may (``max_queue``): try again when one has ended."""


class Usage(NamedTuple):
    """Tokens of an answer, until now."""

    prompt_tokens: int
    cached_tokens: int  # of them, those that the prefix cache had
    generated_tokens: int


class Answer:
    """What is being made of one prompt; ``Engine.submit`` makes it.

    Iterating, with ``for`` or ``async for``, gives its pieces as they are made (Piece: a str with ``.token`` and ``.logprob``),
    each of them once. ``result()`` and ``await`` give the whole of it, whoever has read pieces. All of it may be called from any
    thread. It is aborted by ``abort()``, where a task that waits for it is cancelled and no other one waits, and when nobody
    holds it any more.
    """

    def __init__(self, engine: "Engine", answer: _megalith.Answer):
        if not isinstance(answer, _megalith.Answer):
            raise UserError("[Answer] an answer is made by Engine.submit")
        self._engine = engine  # which is closed when nobody holds it
        self._answer = answer

    def __iter__(self) -> "Answer":
        return self

    def __next__(self) -> Piece:
        """Waits for the next piece. What ended the engine is raised behind the last one."""
        made = self._answer.next()
        if made is None:
            raise StopIteration
        text, token, logprob = made
        return Piece(text, token, 0, logprob)

    def __aiter__(self) -> "Answer":
        return self

    async def __anext__(self) -> Piece:
        while True:
            is_over = self._answer.is_over  # before the look, for pieces that come in between
            made = self._answer.take()
            if made is not None:
                text, token, logprob = made
                return Piece(text, token, 0, logprob)
            if is_over:
                self._answer.check()
                raise StopAsyncIteration
            await wakeup_of_loop().wait(self._answer, is_end=False)

    def __await__(self) -> Generator[Any, None, Generation]:
        return self._wait().__await__()

    async def _wait(self) -> Generation:
        while not self._answer.is_over:
            await wakeup_of_loop().wait(self._answer, is_end=True)
        return self._generation()

    def result(self, timeout: Optional[float] = None) -> Generation:
        """Waits for the whole answer. TimeoutError if it takes longer than ``timeout`` seconds; it goes on then. Of an aborted
        one, what there is, with the reason "abort". Raises what ended the engine, if that came first."""
        seconds = -1.0 if timeout is None else arguments.number("result", "timeout", timeout, 0)
        if not self._answer.wait(min(seconds, _MOST_SECONDS)):
            raise TimeoutError(f"[result] the answer is not complete after {seconds:g} s: wait again, or abort() it")
        return self._generation()

    def _generation(self) -> Generation:
        self._answer.check()
        reason = self._answer.finish_reason
        assert reason is not None
        answer = self._answer
        return Generation(answer.text, answer.tokens, reason, answer.logprobs, answer.top_logprobs)

    def abort(self) -> None:
        """Ends it now: what is made is there, no more comes, and its place is free within a step. If it has ended: nothing."""
        self._answer.abort()

    @property
    def finish_reason(self) -> Optional[str]:
        """None while it goes on; "stop" (a stop token or a stop string), "length", "abort", or "error"."""
        return self._answer.finish_reason

    @property
    def text(self) -> str:
        """Made until now, also of an answer that ended with an error; "" if the model has no tokenizer."""
        return self._answer.text

    @property
    def tokens(self) -> List[int]:
        """Made until now."""
        return self._answer.tokens

    @property
    def logprobs(self) -> List[float]:
        """Of the tokens; empty unless ``submit`` was told to."""
        return self._answer.logprobs

    @property
    def top_logprobs(self) -> List[List[Tuple[int, float]]]:
        """Of the tokens: the most probable ones in the place of each, with theirs, the best first; empty unless ``submit`` was
        told to."""
        return self._answer.top_logprobs

    @property
    def prompt_logprobs(self) -> List[Tuple[float, List[Tuple[int, float]]]]:
        """Of each token of the prompt but the first, with the most probable ones in its place; there with the first token of
        the answer, and empty unless ``submit`` was told to."""
        return self._answer.prompt_logprobs

    @property
    def usage(self) -> Usage:
        """How many tokens there are until now."""
        answer = self._answer
        return Usage(answer.prompt_tokens, answer.cached_tokens, answer.generated_tokens)

    def __repr__(self) -> str:
        return f"<answer of {self._answer.generated_tokens} tokens, {self.finish_reason or 'under way'}>"


def _grammar(
    json_schema: Union[None, str, Mapping[str, Any]],
    regex: Optional[str],
    choice: Optional[Sequence[str]],
    grammar: Optional[str],
) -> Tuple[str, List[str]]:
    """What ``submit`` was told that the text may be: of which kind, and its texts."""
    if isinstance(json_schema, Mapping):
        json_schema = json.dumps(json_schema)
    given = {
        name: value
        for name, value in {"json_schema": json_schema, "regex": regex, "choice": choice, "grammar": grammar}.items()
        if value is not None
    }
    if len(given) > 1:
        raise UserError(f"[submit] {' and '.join(given)} both say what the text may be: give one of them")
    for name, value in given.items():
        if name == "choice":
            texts = arguments.many("submit", name, value, 4096, "a list of texts")
            return name, [arguments.text("submit", name, one) for one in texts]
        return name, [arguments.text("submit", name, value)]
    return "", []


class Engine(Loaded):
    """A model that takes prompts at any time, from any thread and from asyncio; one kernel works on all of them.

    ``folder`` to ``load_format`` are ``megalith.load``'s, but ``max_batch`` of 0 is chosen (8, on a GPU 64), and on a CPU
    ``num_workers`` of 0 leaves a core to Python. ``max_queue``: requests that may wait for a place in the batch.
    ``prefix_cache``: prompts that begin as others did take over their work. ``close()``, or the end of a ``with``, ends it.
    """

    def __init__(
        self,
        folder: Folder,
        target: Optional[str] = None,
        *,
        num_workers: int = 0,
        max_seq_len: int = 0,
        max_batch: int = 0,
        max_batched_tokens: int = 0,
        draft_tokens: int = 0,
        draft_model: Optional[Folder] = None,
        page_size: int = 16,
        quantization: Optional[str] = None,
        load_format: str = "auto",
        max_queue: int = 512,
        prefix_cache: bool = True,
    ):
        max_queue = arguments.whole("Engine", "max_queue", max_queue, 0, _MOST_WAITING)
        prefix_cache = arguments.flag("Engine", "prefix_cache", prefix_cache)
        found = opened(
            "Engine",
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
            serves=True,
        )
        super().__init__(found.folder, found.engine, found.tokenizer)
        self._max_queue = max_queue
        self._service: Optional[_megalith.AsyncEngine] = _megalith.AsyncEngine(
            found.engine, max_queue=max_queue, prefix_cache=prefix_cache
        )

    def submit(
        self,
        prompt: Prompt,
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
        prompt_logprobs: Optional[int] = None,
        priority: int = 0,
        cache_salt: str = "",
        json_schema: Union[None, str, Mapping[str, Any]] = None,
        regex: Optional[str] = None,
        choice: Optional[Sequence[str]] = None,
        grammar: Optional[str] = None,
    ) -> Answer:
        """Begins to continue a prompt, a string or token ids, and returns at once.

        The options are those of ``Model.generate``, and the same seed makes the same text. ``prompt_logprobs``: how likely
        each token of the prompt was, and so many others in its place. ``priority``: lower ones go first, and take the pages of others if there are too few.
        ``cache_salt``: only requests of the same one share what the prefix cache has. ``json_schema`` (a dict, or its
        text), ``regex``, ``choice`` (one of several texts), ``grammar`` (rules in the form of GBNF): one of them says what the
        text may be, and is compiled first. UserError as from ``generate``, or if the
        engine is closed; QueueFull if as many requests wait as may. Whatever it raises, nothing was submitted.
        """
        ids = self._ids("submit", "the prompt", prompt)
        asked = Asked(
            "submit",
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
        request = asked.request(ids)
        if prompt_logprobs is not None:
            request.prompt_logprobs = arguments.whole("submit", "prompt_logprobs", prompt_logprobs, 0)
        request.priority = arguments.whole("submit", "priority", priority)
        request.cache_salt = arguments.text("submit", "cache_salt", cache_salt)
        kind, texts = _grammar(json_schema, regex, choice, grammar)
        answer = self._open("submit").submit(
            request, self.tokenizer, **asked.text_settings(), grammar_kind=kind, grammar_texts=texts
        )
        if answer is None:
            raise QueueFull(
                f"[submit] {self.max_batch} requests are at work and {self._max_queue} wait, which is the most (max_queue): "
                "try again when one has ended"
            )
        return Answer(self, answer)

    def load(self) -> _megalith.ServiceLoad:
        """What it is doing: ``running`` and ``waiting`` requests, ``pages`` of the KV cache, of them ``pages_used``, of the
        others ``pages_kept`` for prompts that begin alike; and sums since it was made, ``generated_tokens`` and others."""
        return self._open("load").load()

    def clear_prefix_cache(self) -> None:
        """Gives up the pages that are kept for prompts that begin alike."""
        self._open("clear_prefix_cache").clear_prefix_cache()

    def close(self) -> None:
        """Ends the kernel and gives back its memory. Answers under way end: their readers get what was made, then a UserError.
        Again: nothing."""
        service = self._service
        if service is not None:
            service.close()
            self._service = None

    def _open(self, where: str) -> _megalith.AsyncEngine:
        service = self._service
        if service is None:
            raise UserError(f"[{where}] the engine is closed: make another one")
        return service

    def __enter__(self) -> "Engine":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<engine {self._shape()}{', closed' if self._service is None else ''}>"
