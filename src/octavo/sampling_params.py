"""How one request's tokens are chosen, and when it stops. Field names and meanings are vLLM's."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from octavo.errors import InvalidRequestError

MAX_N = 128
MAX_LOGPROBS = 100
MAX_STOP_STRINGS = 64
MAX_WORD_LENGTH = 1024
GREEDY_BELOW = 1e-5
"""A temperature under this is greedy: dividing by it would overflow fp32 logits."""


class SamplingParams(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Sampling and stopping rules of one request; crosses the wire as msgpack.

    Raises:
        InvalidRequestError: on construction, naming the field, its value and its limit.
    """

    n: int = 1
    """Independent completions of one prompt; 1 to MAX_N."""
    temperature: float = 1.0
    """0 (or less than GREEDY_BELOW) is greedy; otherwise logits are divided by it. 0 to 100."""
    top_p: float = 1.0
    """Keep the smallest set of tokens whose probability reaches top_p. 0 to 1; 0 keeps the best token."""
    top_k: int = 0
    """Keep the k likeliest tokens; 0 and -1 both mean off."""
    min_p: float = 0.0
    """Drop tokens less likely than min_p times the likeliest. 0 to 1."""
    presence_penalty: float = 0.0
    """Subtracted once from each token in the output so far. -2 to 2."""
    frequency_penalty: float = 0.0
    """Subtracted per occurrence in the output so far. -2 to 2."""
    repetition_penalty: float = 1.0
    """Divides positive and multiplies negative logits of tokens in prompt or output. 0.01 to 100."""
    seed: int | None = None
    """Of the request's random numbers; None: the engine's client draws one. 0 to 2**63 - 1."""
    max_tokens: int | None = 16
    """Most output tokens; None: as many as the context holds."""
    min_tokens: int = 0
    """No end-of-sequence token and no stop before this many output tokens."""
    stop: list[str] = msgspec.field(default_factory=list)
    """Strings that end the output; a single string is accepted."""
    stop_token_ids: list[int] = msgspec.field(default_factory=list)
    """Token ids that end the output."""
    bad_words: list[str] = msgspec.field(default_factory=list)
    """Words of up to MAX_WORD_LENGTH characters that must not be produced; the client turns them into ``bad_words_token_ids``."""
    bad_words_token_ids: list[list[int]] = msgspec.field(default_factory=list)
    """Token sequences that must not be completed."""
    allowed_token_ids: list[int] | None = None
    """If given, only these tokens can be chosen."""
    logit_bias: dict[int, float] | None = None
    """Added to the logits of single tokens; each -100 to 100."""
    ignore_eos: bool = False
    """Do not stop at the model's end-of-sequence tokens."""
    logprobs: int | None = None
    """Return the log-probabilities of the chosen token and of this many likeliest. 0 to MAX_LOGPROBS."""
    prompt_logprobs: int | None = None
    """The same for each prompt token but the first."""
    include_stop_str_in_output: bool = False
    """Keep the stop string (or the stop token's text) in the text."""
    skip_special_tokens: bool = True
    """Leave special tokens out of the text."""
    spaces_between_special_tokens: bool = True
    """Put spaces between special tokens that are shown."""
    detokenize: bool = True
    """False: return ids only, with empty text."""

    def __post_init__(self) -> None:
        if isinstance(self.stop, str):
            self.stop = [self.stop]
        elif self.stop is None:
            self.stop = []
        if self.stop_token_ids is None:
            self.stop_token_ids = []
        if self.bad_words is None:
            self.bad_words = []
        if self.top_k == -1:
            self.top_k = 0
        self._check_types()
        self._check_ranges()
        self._check_lists()

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is always taken."""
        return self.temperature < GREEDY_BELOW

    def check_vocabulary(self, vocab_size: int) -> None:
        """Refuse token ids outside [0, vocab_size); called by whoever knows the model, before the engine."""
        for field in ("stop_token_ids", "allowed_token_ids", "logit_bias"):
            tokens = getattr(self, field) or (0,)
            if len(tokens) > vocab_size:
                raise _bad(field, f"{len(tokens)} token ids", f"at most {vocab_size}, as many as there are")
            for token in (min(tokens), max(tokens)):
                if not 0 <= token < vocab_size:
                    raise _bad(field, token, f"token ids are 0 to {vocab_size - 1}")

    def clone(self, **changes: Any) -> SamplingParams:
        """A checked copy with some fields changed."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        return SamplingParams(**(fields | changes))

    def _check_types(self) -> None:
        for field in ("n", "top_k", "min_tokens"):
            _integer(field, getattr(self, field))
        for field in ("seed", "max_tokens", "logprobs", "prompt_logprobs"):
            if getattr(self, field) is not None:
                _integer(field, getattr(self, field))
        for field in (
            "temperature",
            "top_p",
            "min_p",
            "presence_penalty",
            "frequency_penalty",
            "repetition_penalty",
        ):
            _finite(field, getattr(self, field))

    def _check_ranges(self) -> None:
        _within("n", self.n, 1, MAX_N)
        _within("temperature", self.temperature, 0, 100)
        _within("top_p", self.top_p, 0, 1)
        _within("top_k", self.top_k, 0, 2**31 - 1)
        _within("min_p", self.min_p, 0, 1)
        _within("presence_penalty", self.presence_penalty, -2, 2)
        _within("frequency_penalty", self.frequency_penalty, -2, 2)
        _within("repetition_penalty", self.repetition_penalty, 0.01, 100)
        if self.seed is not None:
            _within("seed", self.seed, 0, 2**63 - 1)
        if self.max_tokens is not None:
            _within("max_tokens", self.max_tokens, 1, 2**31 - 1)
        _within("min_tokens", self.min_tokens, 0, 2**31 - 1)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise _bad("min_tokens", self.min_tokens, f"it must not exceed max_tokens, {self.max_tokens}")
        for field in ("logprobs", "prompt_logprobs"):
            if (value := getattr(self, field)) is not None:
                _within(field, value, 0, MAX_LOGPROBS)

    def _check_lists(self) -> None:
        if len(self.stop) > MAX_STOP_STRINGS:
            raise _bad("stop", f"{len(self.stop)} strings", f"at most {MAX_STOP_STRINGS}")
        for field in ("stop", "bad_words"):
            for word in getattr(self, field):
                if not isinstance(word, str) or not word:
                    raise _bad(field, word, "each must be a string that is not empty")
        for word in self.bad_words:
            if len(word) > MAX_WORD_LENGTH:
                raise _bad("bad_words", f"a word of {len(word)} characters", f"at most {MAX_WORD_LENGTH}")
        for field in ("stop_token_ids", "allowed_token_ids"):
            _integers(field, getattr(self, field) or ())
        if self.allowed_token_ids is not None and not self.allowed_token_ids:
            raise _bad("allowed_token_ids", "[]", "name at least one token, or leave it out")
        _integers("logit_bias", self.logit_bias or ())
        for bias in (self.logit_bias or {}).values():
            _finite("logit_bias", bias)
            _within("logit_bias", bias, -100, 100)


def _bad(field: str, value: object, limit: str) -> InvalidRequestError:
    shown = value if isinstance(value, str) else repr(value)
    return InvalidRequestError(f"{field} = {shown[:100]}: {limit}", field=field)


def _integer(field: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _bad(field, value, "it must be an integer")


def _integers(field: str, values: Collection[object]) -> None:
    """Checks a list as long as a vocabulary in little time."""
    if not set(map(type, values)) <= {int}:
        for value in values:
            _integer(field, value)


def _finite(field: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise _bad(field, value, "it must be a finite number")


def _within(field: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise _bad(field, value, f"it must be {low} to {high}")


def stop_token_set(params: SamplingParams, eos_token_ids: Sequence[int]) -> frozenset[int]:
    """Ids that end this request: its own stop ids, and the model's unless they are ignored."""
    return frozenset(params.stop_token_ids) | (frozenset() if params.ignore_eos else frozenset(eos_token_ids))
