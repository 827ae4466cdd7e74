"""Server-sent events, as OpenAI streams them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import Any

from octavo.server.errors import to_api_error
from octavo.server.responses import encode_json

Chunk = dict[str, Any]

DONE = b"data: [DONE]\n\n"


async def events(steps: AsyncGenerator[list[Chunk], None]) -> AsyncGenerator[bytes, None]:
    """The chunks of each step as one piece of bytes; then [DONE], or the error that ended them."""
    try:
        async with contextlib.aclosing(steps):
            async for chunks in steps:
                if chunks:
                    yield b"".join([_event(chunk) for chunk in chunks])
    except Exception as error:
        yield _event(to_api_error(error).body())
    else:
        yield DONE


def _event(data: Chunk) -> bytes:
    return b"data: " + encode_json(data) + b"\n\n"
