"""The events of OpenAI's streams. Decoded as they come: into typed structs, which skips what nobody asks for, it takes some 2 µs, less
than it costs to keep the bytes of a long run; and an error, or the end, is known at once."""

from __future__ import annotations

from typing import Any

import msgspec


class Delta(msgspec.Struct):
    """Of a chat."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None

    @property
    def text(self) -> str:
        """Thoughts are text too: the model has begun to answer."""
        return (self.reasoning_content or self.reasoning or "") + (self.content or "")


class Choice(msgspec.Struct):
    text: str | None = None
    delta: Delta | None = None
    finish_reason: str | None = None
    token_ids: list[int] | None = None


class PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class UsageBody(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: PromptDetails | None = None


class StreamEvent(msgspec.Struct):
    choices: list[Choice] = []
    usage: UsageBody | None = None
    error: Any = None


decode_event = msgspec.json.Decoder(StreamEvent).decode
"""Raises msgspec.DecodeError."""


def error_message(body: bytes) -> str:
    """What an error's body says: OpenAI's {"error": {"message": …}}, or another of the usual shapes, or its own text, in one line."""
    try:
        return said(msgspec.json.decode(body))
    except msgspec.DecodeError:
        return one_line(body.decode("utf-8", "replace"))


def said(error: Any) -> str:
    """The message in an error that is JSON."""
    if isinstance(error, dict):
        found = next((error[key] for key in ("error", "message", "detail") if error.get(key)), None)
        return said(found) if found is not None else one_line(str(error))
    return one_line(str(error))


def one_line(text: str) -> str:
    """At most 300 characters without line breaks."""
    return " ".join(text.split())[:300]
