"""One way to ask both routes of the OpenAI API, whole or streamed, and to read the answers alike."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from support.live_server import LiveServer
from support.sse import read_chunks

PATHS = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}
EVERY_WAY = pytest.mark.parametrize(("route", "streamed"), [(route, streamed) for route in PATHS for streamed in (False, True)])


@dataclass
class Choice:
    """One choice of an answer; of a streamed one, its chunks joined."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    scored: list[str] = field(default_factory=list)
    """Texts of the tokens that have log-probabilities."""
    logprobs: list[float | None] = field(default_factory=list)
    """Those of ``scored``."""
    likeliest: list[float] = field(default_factory=list)
    """Log-probabilities of the likeliest tokens at all places."""
    pieces: list[str] = field(default_factory=list)
    """The text as it came: one piece, or one a chunk (a chat's first chunk, which says the role, left out)."""
    finish_reasons: list[str] = field(default_factory=list)

    def add(self, part: dict[str, Any]) -> None:
        text = _text(part)
        if part.get("delta", {}).get("role") is None:
            self.pieces.append(text)
        self.text += text
        self.token_ids += part.get("token_ids") or []
        self.finish_reasons += [part["finish_reason"]] if part["finish_reason"] else []
        for token, own, likeliest in _scores(part.get("logprobs") or {}):
            self.scored.append(token)
            self.logprobs.append(own)
            self.likeliest += likeliest


@dataclass
class Answer:
    """What a request brought."""

    choices: dict[int, Choice]
    usage: dict[str, Any] | None

    @property
    def only(self) -> Choice:
        """The choice of an answer that has one, which must have ended once."""
        (choice,) = self.choices.values()
        assert len(choice.finish_reasons) == 1
        return choice


def body(route: str, streamed: bool, logprobs: int | None = None, prompt: str | list[int] = "hi", **fields: Any) -> dict[str, Any]:
    """A request's body; token ids are returned, and the usage too."""
    asked: dict[str, Any] = {"return_token_ids": True, "max_tokens": 100, "stream": streamed}
    asked |= {"stream_options": {"include_usage": True}} if streamed else {}
    asked |= {"prompt": prompt} if route == "completions" else {"messages": [{"role": "user", "content": prompt}]}
    if logprobs is not None:
        asked |= {"logprobs": logprobs} if route == "completions" else {"logprobs": True, "top_logprobs": logprobs}
    return asked | fields


def ask(server: LiveServer, route: str, streamed: bool, **fields: Any) -> Answer:
    """A request that must succeed; ``fields`` as for ``body``."""
    response = server.post(PATHS[route], body(route, streamed, **fields))
    assert response.status_code == 200, response.text
    chunks = read_chunks(response.text) if streamed else [response.json()]
    return collect(chunks)


def collect(chunks: Iterable[dict[str, Any]]) -> Answer:
    """An answer from the chunks of a stream, or from the one body."""
    answer = Answer({}, None)
    for chunk in chunks:
        answer.usage = chunk.get("usage") or answer.usage
        for part in chunk["choices"]:
            answer.choices.setdefault(part["index"], Choice()).add(part)
    return answer


def _text(part: dict[str, Any]) -> str:
    text: str = part["text"] if "text" in part else (part.get("message") or part["delta"]).get("content", "")
    return text


def _scores(logprobs: dict[str, Any]) -> Iterable[tuple[str, float | None, list[float]]]:
    """Each token with its log-probability and those of the likeliest."""
    for entry in logprobs.get("content", ()):  # chat
        yield entry["token"], entry["logprob"], [top["logprob"] for top in entry["top_logprobs"]]
    for place, token in enumerate(logprobs.get("tokens", ())):  # completions
        likeliest = (logprobs["top_logprobs"][place] or {}) if logprobs.get("top_logprobs") else {}
        yield token, logprobs["token_logprobs"][place], list(likeliest.values())
