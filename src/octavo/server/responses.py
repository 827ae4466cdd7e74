"""Responses: JSON, server-sent events, and work that ends when its client leaves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

encode_json = msgspec.json.Encoder().encode


class JsonResponse(Response):
    """``content`` as JSON."""

    media_type = "application/json"

    def __init__(self, content: Any, status_code: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(encode_json(content), status_code, headers)


class EventStream(Response):
    """Server-sent events: each item of ``events`` is the bytes of one or more whole events.

    ``events`` is closed when it ends and when sending is cancelled or fails.
    """

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[bytes, None], headers: Mapping[str, str] | None = None) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no", **(headers or {})})
        del self.headers["content-length"]
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with contextlib.aclosing(self._events) as events:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async for event in events:
                await send({"type": "http.response.body", "body": event, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})


class WhileConnected(Response):
    """Makes and sends the answer of ``work``, and cancels both as soon as the client leaves.

    So cancelling ``work``, or closing the stream it answers with, must free all that it holds. The request's body must
    have been read.
    """

    def __init__(self, work: Callable[[], Awaitable[Response]]) -> None:
        super().__init__()
        self._work = work

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def answer() -> None:
            await (await self._work())(scope, receive, send)

        await _until_disconnect(receive, answer())


async def _until_disconnect(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    task = asyncio.create_task(work)
    watcher = asyncio.create_task(_disconnected(receive))
    try:
        await asyncio.wait((task, watcher), return_when=asyncio.FIRST_COMPLETED)
    finally:
        watcher.cancel()
        task.cancel()  # without effect on a task that is done
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
