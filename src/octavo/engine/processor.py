"""A user's prompt and parameters to engine requests: everything is checked here, so that the engine never sees a bad request."""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from octavo.config import EngineArgs
from octavo.engine.info import EngineInfo
from octavo.errors import InvalidRequestError
from octavo.request import EngineCoreRequest
from octavo.sampling_params import SamplingParams
from octavo.tokenizer.chat_template import ChatTemplate, Message
from octavo.tokenizer.load import load_tokenizer
from octavo.tokenizer.tokenizer import Tokenizer, bad_word_token_ids
from octavo.weights import hub

Prompt = str | Sequence[int] | dict[str, Any]
"""A text, token ids, {"prompt": text} or {"prompt_token_ids": ids}."""

CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"

MAX_LISTED_TOKENS = 1 << 21
"""Token ids in the parameters of one request, counted once for each of its n completions."""


@dataclass(frozen=True)
class PreparedRequest:
    """A request that passed every check: ``children`` go to the engine, one a completion."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    params: SamplingParams
    """As given, with ``max_tokens`` and ``seed`` filled in."""
    children: list[EngineCoreRequest]
    special_stops: dict[int, str] = field(default_factory=dict)
    """Stop strings that are one special token: its id, and the string."""


class InputProcessor:
    """Checks and completes requests for one engine. Safe to use from several threads."""

    def __init__(self, tokenizer: Tokenizer, info: EngineInfo, seed: int | None = None) -> None:
        self._tokenizer = tokenizer
        self._info = info
        self._eos_token_ids = [token for token in tokenizer.eos_token_ids if self._knows(token)]
        self._random = random.Random(seed)
        self._numbers = itertools.count()

    def prepare(
        self, request_id: str, prompt: Prompt, params: SamplingParams | None = None, *, priority: int = 0, cache_salt: str | None = None
    ) -> PreparedRequest:
        """The engine requests of one prompt. Ids of the children are unique for the life of this processor; an empty
        ``request_id`` is replaced by a made-up one.

        Raises:
            InvalidRequestError: an empty prompt, ids or parameters outside the model's, or more tokens than its context or the KV
                pool holds (then ``code`` is context_length_exceeded).
        """
        params = params if params is not None else SamplingParams()
        self._check_params(params)
        text, ids = self._token_ids(prompt)
        max_tokens = self._check_length(len(ids), params.max_tokens)
        self._check_ids(ids)
        seed = params.seed if params.seed is not None else self._random.getrandbits(63)
        params = params.clone(max_tokens=max_tokens, seed=seed)
        special_stops = self._special_stops(params.stop)
        shared = self._engine_params(params, special_stops)
        self._check_choice(shared)
        number = next(self._numbers)
        request_id = request_id or f"request-{number}"
        children = [
            EngineCoreRequest(
                request_id=f"{request_id}:{number}:{index}",
                prompt_token_ids=ids,
                sampling_params=_child_params(shared, index),
                priority=priority,
                cache_salt=cache_salt,
                eos_token_ids=self._eos_token_ids,
            )
            for index in range(params.n)
        ]
        return PreparedRequest(request_id, text, ids, params, children, special_stops)

    def check_text(self, text: str) -> None:
        """Refuse a prompt that is sure to be too long, before it takes the time to tokenize it. Raises InvalidRequestError."""
        most = min(self._info.max_model_len, self._info.pool_tokens + 1) - 1
        if self._tokenizer.surely_exceeds(text, most):
            raise InvalidRequestError(
                f"the prompt has {len(text)} characters, which take more than {most} tokens: the model's context holds "
                f"{self._info.max_model_len} tokens, and the KV pool {self._info.pool_tokens} of one sequence",
                field="prompt",
                code=CONTEXT_LENGTH_EXCEEDED,
            )

    def _knows(self, token: int) -> bool:
        """Whether the model has the token; a tokenizer may know some that it lacks."""
        return 0 <= token < self._info.vocab_size

    def _token_ids(self, prompt: Prompt) -> tuple[str | None, list[int]]:
        """The prompt's text, if it has one, and its ids, not checked yet."""
        if isinstance(prompt, dict):
            known = [name for name in ("prompt_token_ids", "prompt") if prompt.get(name) is not None]
            if not known:
                raise InvalidRequestError(f"prompt = {prompt!r:.100}: give prompt or prompt_token_ids", field="prompt")
            text, prompt = prompt.get("prompt"), prompt[known[0]]
        else:
            text = None
        if isinstance(prompt, str):
            self.check_text(prompt)
            text, ids = prompt, self._tokenizer.encode(prompt)
        else:
            ids = _listed(prompt)
        if not ids:
            raise InvalidRequestError("prompt is empty: it needs at least one token", field="prompt")
        return text, ids

    def _check_ids(self, ids: list[int]) -> None:
        for token in ids:
            if type(token) is not int or not self._knows(token):
                raise InvalidRequestError(
                    f"prompt token {token!r:.100}: token ids are integers, 0 to {self._info.vocab_size - 1}", field="prompt"
                )

    def _check_params(self, params: SamplingParams) -> None:
        params.check_vocabulary(self._info.vocab_size)
        most = self._info.max_logprobs
        for name in ("logprobs", "prompt_logprobs"):
            if (getattr(params, name) or 0) > most:
                raise InvalidRequestError(f"{name} = {getattr(params, name)}: it must be 0 to {most} (max_logprobs)", field=name)
        if params.stop and not params.detokenize:
            raise InvalidRequestError("stop: without detokenize there is no text to look for stop strings in", field="stop")

    def _check_choice(self, params: SamplingParams) -> None:
        """Refuse a child's parameters that leave no token to choose from at the first place."""
        forbidden = {word[0] for word in params.bad_words_token_ids if len(word) == 1}
        if params.min_tokens:
            forbidden |= {*self._info.eos_token_ids, *self._eos_token_ids, *params.stop_token_ids}
        allowed = params.allowed_token_ids
        left = self._info.vocab_size - len(forbidden) if allowed is None else len(set(allowed) - forbidden)
        if left <= 0:
            name = "bad_words" if allowed is None else "allowed_token_ids"
            raise InvalidRequestError(f"{name}: with min_tokens, stop_token_ids and bad_words every token is forbidden", field=name)

    def _check_length(self, num_prompt: int, max_tokens: int | None) -> int:
        """The number of output tokens allowed: as asked, or all that fit."""
        limit, pool = self._info.max_model_len, self._info.pool_tokens
        asked = f"the prompt has {num_prompt} tokens" + (f" and max_tokens is {max_tokens}" if max_tokens is not None else "")
        # The last token is never stored, so a pool of N tokens serves sequences of N + 1.
        most = min(limit, pool + 1) - num_prompt
        if most >= max(max_tokens or 1, 1):
            return max_tokens if max_tokens is not None else most
        whole = num_prompt + (max_tokens or 1)
        bound = f"the model's context holds {limit} tokens, prompt and output together"
        if whole <= limit:
            bound = f"the KV pool holds {pool} tokens of one sequence (its last token is not stored)"
        name = "max_tokens" if max_tokens is not None and most >= 1 else "prompt"
        raise InvalidRequestError(f"{asked}, {whole} together: {bound}", field=name, code=CONTEXT_LENGTH_EXCEEDED)

    def _special_stops(self, stops: Sequence[str]) -> dict[int, str]:
        found = {self._tokenizer.token_to_id(stop): stop for stop in stops}
        special = self._tokenizer.special_ids
        return {token: stop for token, stop in found.items() if token is not None and token in special and self._knows(token)}

    def _engine_params(self, params: SamplingParams, special_stops: dict[int, str]) -> SamplingParams:
        """What the children share, as the engine sees it: no strings, only ids. Each child sends it, so its size counts n times."""
        words = [word for word in bad_word_token_ids(params.bad_words, self._tokenizer) if all(map(self._knows, word))]
        shared = params.clone(
            n=1,
            stop=[],
            stop_token_ids=[*params.stop_token_ids, *special_stops],
            bad_words=[],
            bad_words_token_ids=[*params.bad_words_token_ids, *words],
        )
        lists = (shared.stop_token_ids, shared.allowed_token_ids or (), shared.logit_bias or (), *shared.bad_words_token_ids)
        size = sum(map(len, lists))
        if params.n * size > MAX_LISTED_TOKENS:
            raise InvalidRequestError(
                f"n = {params.n}: with {size} token ids in stop_token_ids, allowed_token_ids, logit_bias and bad_words, "
                f"at most {MAX_LISTED_TOKENS // size}",
                field="n",
            )
        return shared


def _listed(prompt: Any) -> list[int]:
    if not isinstance(prompt, Sequence):
        raise InvalidRequestError(f"prompt = {prompt!r:.100}: a text or a list of token ids", field="prompt")
    return list(prompt)


def _child_params(shared: SamplingParams, index: int) -> SamplingParams:
    """Parameters of completion ``index``: a seed of its own; the first one scores the prompt."""
    assert shared.seed is not None
    params = copy.copy(shared)
    params.seed = (shared.seed + index) % 2**63
    params.prompt_logprobs = shared.prompt_logprobs if index == 0 else None
    return params


def load_model_tokenizer(args: EngineArgs) -> Tokenizer:
    """The tokenizer that ``args`` name: their own, or the model's. Fetches a model that is not there yet."""
    if args.tokenizer is None:
        return load_tokenizer(hub.resolve(args.model))
    try:
        return load_tokenizer(hub.resolve(args.tokenizer))
    except InvalidRequestError as error:
        raise InvalidRequestError(str(error).replace("model", "tokenizer", 1), field="tokenizer") from error


def render_chat(
    tokenizer: Tokenizer,
    messages: Sequence[Message],
    *,
    add_generation_prompt: bool = True,
    continue_final_message: bool = False,
    template: str | None = None,
    variables: Mapping[str, Any] | None = None,
) -> Prompt:
    """A conversation as a prompt, by the model's chat template or by ``template``; ``variables`` are the template's further ones.

    Raises:
        InvalidRequestError: the model has no template, or the template refuses the messages.
    """
    text = _chat_template(tokenizer, template).render(
        messages, add_generation_prompt=add_generation_prompt, continue_final_message=continue_final_message, **(variables or {})
    )
    return {"prompt": text, "prompt_token_ids": tokenizer.encode_rendered(text)}


@lru_cache(maxsize=8)
def _chat_template(tokenizer: Tokenizer, template: str | None) -> ChatTemplate:
    return ChatTemplate.of(tokenizer, template)
