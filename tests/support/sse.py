"""Reads server-sent events strictly."""

from __future__ import annotations

import json
from typing import Any


def read_events(text: str) -> list[Any]:
    """The data of each event, parsed; "[DONE]" as it is. Fails on anything else in the stream."""
    assert text.endswith("\n\n")
    events = []
    for block in text.removesuffix("\n\n").split("\n\n"):
        assert block.startswith("data: ") and "\n" not in block, f"not an event: {block!r}"
        data = block.removeprefix("data: ")
        events.append(data if data == "[DONE]" else json.loads(data))
    return events


def read_chunks(text: str) -> list[dict[str, Any]]:
    """The chunks of a stream that succeeded: exactly one [DONE], at the end."""
    *chunks, done = read_events(text)
    assert done == "[DONE]"
    assert "[DONE]" not in chunks
    return chunks


def stream_text(chunks: list[dict[str, Any]], index: int = 0) -> str:
    """The text of one choice of a completion."""
    return "".join(choice["text"] for chunk in chunks for choice in chunk["choices"] if choice["index"] == index)


def chat_text(chunks: list[dict[str, Any]], index: int = 0) -> str:
    """The text of one choice of a chat completion."""
    return "".join(choice["delta"].get("content", "") for chunk in chunks for choice in chunk["choices"] if choice["index"] == index)
