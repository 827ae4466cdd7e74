"""uvicorn, with Octavo's start and end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator

import uvicorn
from fastapi import FastAPI

logger = logging.getLogger(__name__)

KEEP_ALIVE_S = 75
"""How long an idle connection stays open: longer than clients' pools keep theirs."""

SIGNALS = (signal.SIGINT, signal.SIGTERM)

LAST_WORDS_S = 2
"""What aborted streams get to send their last event."""


class HttpServer(uvicorn.Server):
    """Serves until SIGINT or SIGTERM; then accepts nothing more, and running requests get ``shutdown_timeout`` seconds."""

    def __init__(
        self,
        app: FastAPI,
        *,
        access_log: bool,
        shutdown_timeout: float,
        on_ready: Callable[[], None],
        on_timeout: Callable[[], Awaitable[None]],
    ) -> None:
        """``on_ready`` is called when connections are accepted, ``on_timeout`` is awaited when requests still run after their time."""
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                log_level="warning",
                access_log=access_log,
                lifespan="off",
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=int(shutdown_timeout) + LAST_WORDS_S,
                server_header=False,
            )
        )
        if access_log:
            _show_access_log()
        self._shutdown_timeout = shutdown_timeout
        self._on_ready = on_ready
        self._on_timeout = on_timeout

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at SIGINT and SIGTERM; unlike uvicorn's, without raising them again, so that the caller can clean up."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in SIGNALS:
                loop.remove_signal_handler(number)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        logger.info("Stopping; running requests get %g s", self._shutdown_timeout)
        timer = asyncio.create_task(self._lose_patience())
        await super().shutdown(sockets)
        timer.cancel()

    async def _lose_patience(self) -> None:
        await asyncio.sleep(self._shutdown_timeout)
        await self._on_timeout()


def _show_access_log() -> None:
    """uvicorn's line for each request, where Octavo's own log goes."""
    access = logging.getLogger("uvicorn.access")
    access.setLevel(logging.INFO)
    access.propagate = False
    for handler in logging.getLogger("octavo").handlers:
        access.addHandler(handler)
