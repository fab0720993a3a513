"""What generate() and submit() take beside a prompt, checked: how tokens are drawn, and what ends a sequence."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

from megalith import _megalith, arguments
from megalith._megalith import UserError
from megalith.loaded import Loaded

_MOST_TOKENS = 2**24  # that an iterator may give
_MOST_STOPS = 1024
_LARGEST_ID = 2**31 - 1  # of a token, in any vocabulary


def _token_ids(where: str, name: str, value: Any) -> List[int]:
    """The token ids of an argument; None is none."""
    if value is None:
        return []
    ids = arguments.many(where, name, value, _MOST_TOKENS, "a list of token ids")
    return [arguments.whole(where, f"{name}[{i}]", token, 0, _LARGEST_ID) for i, token in enumerate(ids)]


def _biases(where: str, value: Any) -> Dict[int, float]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UserError(f"[{where}] logit_bias is {arguments.shown(value)}, want a dict from token ids to biases")
    return {
        arguments.whole(where, "a token of logit_bias", token, 0, _LARGEST_ID): arguments.real(
            where, "a bias of logit_bias", bias
        )
        for token, bias in value.items()
    }


class Asked:
    """What a call, ``where`` in messages, wants of each of its prompts; generate() says what the options mean."""

    def __init__(
        self,
        where: str,
        model: Loaded,
        *,
        max_new_tokens: int,
        temperature: float,
        top_p: float,
        top_k: int,
        min_p: float,
        repetition_penalty: float,
        presence_penalty: float,
        frequency_penalty: float,
        seed: int,
        stop: Union[None, str, Sequence[str]],
        ignore_stop_tokens: bool,
        stop_token_ids: Optional[Sequence[int]],
        min_tokens: int,
        logit_bias: Optional[Mapping[int, float]],
        allowed_token_ids: Optional[Sequence[int]],
        bad_words: Union[None, str, Sequence[str]],
        show_special: bool,
        logprobs: bool,
        top_logprobs: int,
    ):
        self._where, self._model = where, model
        self._sampling = _megalith.Sampling()
        for name, value in (
            ("temperature", temperature),
            ("top_p", top_p),
            ("min_p", min_p),
            ("repetition_penalty", repetition_penalty),
            ("presence_penalty", presence_penalty),
            ("frequency_penalty", frequency_penalty),
        ):
            setattr(self._sampling, name, arguments.real(where, name, value))
        self._sampling.top_k = max(arguments.whole(where, "top_k", top_k, -1), 0)
        self._seed = arguments.whole(where, "seed", seed, 0, 2**64 - 1)
        self._max_new_tokens = arguments.whole(where, "max_new_tokens", max_new_tokens)
        if self._max_new_tokens == -1:
            self._max_new_tokens = model.max_seq_len
        self._ignore_stop_tokens = arguments.flag(where, "ignore_stop_tokens", ignore_stop_tokens)
        self._stop_token_ids = _token_ids(where, "stop_token_ids", stop_token_ids)
        self._min_tokens = arguments.whole(where, "min_tokens", min_tokens, 0)
        self._logit_bias = _biases(where, logit_bias)
        self._allowed_token_ids = _token_ids(where, "allowed_token_ids", allowed_token_ids)
        self._show_special = arguments.flag(where, "show_special", show_special)
        self._logprobs = arguments.flag(where, "logprobs", logprobs)
        self._top_logprobs = arguments.whole(where, "top_logprobs", top_logprobs, 0)
        self._stops = self._read_stops(stop)
        words = self._texts("bad_words", "a bad word", [] if bad_words is None else bad_words)
        self._bad_words = _megalith.bad_word_tokens(model.tokenizer, words) if words and model.tokenizer else []

    def _read_stops(self, stop: Any) -> List[str]:
        """The stop strings of a text."""
        if stop is None:
            has_none = self._ignore_stop_tokens or not self._model.tokenizer
            return [] if has_none else _megalith.stop_strings(self._model.folder)
        return self._texts("stop", "a stop string", stop)

    def _texts(self, name: str, one: str, value: Any) -> List[str]:
        """A string or some of them, that a tokenizer makes something of."""
        where = self._where
        if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
            found = [arguments.text(where, name, value)]
        else:
            texts = list(value) if isinstance(value, (set, frozenset)) else value
            texts = arguments.many(where, name, texts, _MOST_STOPS, "a string or a list of strings")
            found = [arguments.text(where, one, text) for text in texts]
        if found:
            self._model._need_tokenizer(where)
        return found

    def request(self, ids: List[int], number: int = 0) -> _megalith.Request:
        """The request of prompt ``number``."""
        request = _megalith.Request()
        request.prompt = ids
        request.max_new_tokens = self._max_new_tokens
        self._sampling.seed = (self._seed + number) % 2**64  # the same prompt given twice makes two texts
        request.sampling = self._sampling
        request.ignore_stop_tokens = self._ignore_stop_tokens
        request.stop_token_ids = self._stop_token_ids
        request.min_tokens = self._min_tokens
        request.logit_bias = self._logit_bias
        request.allowed_token_ids = self._allowed_token_ids
        request.bad_words = self._bad_words
        request.logprobs = self._logprobs
        request.top_logprobs = self._top_logprobs
        return request

    def text_settings(self) -> Dict[str, Any]:
        """How the text of each request is made of its tokens, as a TextStream takes it."""
        stop_tokens = self._stop_token_ids + ([] if self._ignore_stop_tokens else self._model._stop_tokens)
        return {
            "stops": self._stops,
            "stop_tokens": sorted(stop_tokens),
            "show_special": self._show_special,
            "min_tokens": self._min_tokens,
        }
