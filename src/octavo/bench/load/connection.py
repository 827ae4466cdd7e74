"""Connections to one server. What arrives is stamped before anything else is done with it."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable

from octavo.bench.load.exchange import Exchange
from octavo.bench.load.http1 import ProtocolError, ResponseReader
from octavo.bench.load.target import Address

READ_BYTES = 65536


class Connection(asyncio.BufferedProtocol):
    """Carries one exchange at a time, HTTP/1.1 without pipelining."""

    def __init__(self, buffer: memoryview, free: Callable[[Connection], None]) -> None:
        """``buffer`` may be shared with other connections of the loop: it is emptied before control returns. ``free`` is called each time
        an exchange has left the connection fit for another."""
        self.open = False
        self.used = False
        self._buffer = buffer
        self._free = free
        self._clock = asyncio.get_running_loop().time
        self._exchange: Exchange | None = None
        self._response = ResponseReader()
        self._settled: asyncio.Future[bool] | None = None

    async def exchange(self, message: bytes, exchange: Exchange) -> bool:
        """Send ``message`` and wait until ``exchange`` is over. False: the server had closed this connection, used before, and knows
        nothing of the message."""
        self._exchange, self._response = exchange, ResponseReader()
        self._settled = asyncio.get_running_loop().create_future()
        self._transport.write(message)
        return await self._settled

    def abort(self) -> None:
        """Close at once; the exchange hears nothing of it."""
        self._exchange = None
        self.open = False
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.open = True

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        now = self._clock()
        exchange, response = self._exchange, self._response
        if exchange is None:  # nobody asked
            return self.abort()
        exchange.begun = True
        try:
            body = response.feed(bytes(self._buffer[:nbytes]))
            if body:
                exchange.body(now, response, body)
            if response.complete:
                exchange.end(now, response)
        except ProtocolError as error:
            exchange.fail(now, "failed", f"malformed answer: {error}")
        if exchange.over:
            self._settle(True)
            self._part(exchange, response)

    def _part(self, exchange: Exchange, response: ResponseReader) -> None:
        """The answer is over. The rest of a good one may yet come; one that failed is not waited for."""
        if response.complete and response.reusable:
            self._exchange = None
            self.used = True
            self._free(self)
        elif response.complete or exchange.record.failure is not None:
            self.abort()

    def _settle(self, answered: bool) -> None:
        if self._settled is not None and not self._settled.done():
            self._settled.set_result(answered)

    def eof_received(self) -> bool:
        return False  # close

    def connection_lost(self, error: Exception | None) -> None:
        now = self._clock()
        self.open = False
        exchange, self._exchange = self._exchange, None
        if exchange is None or exchange.over:
            return
        if self.used and not exchange.begun:
            return self._settle(False)
        try:
            if error is not None:
                raise ProtocolError(f"the connection was lost: {reason(error)}")
            self._response.end()
        except ProtocolError as cut:
            exchange.fail(now, "failed", str(cut))
            exchange.cut = True
        else:
            exchange.end(now, self._response)
        self._settle(True)


class Pool:
    """Connections to one address. Those that are idle are used again, the latest first; there is no limit on their number."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._idle: list[Connection] = []
        self._all: set[Connection] = set()
        self._ip: str | None = None
        self._tls = ssl.create_default_context() if address.tls else None

    async def connect(self, *, fresh: bool = False) -> Connection:
        """One that is open and free. Raises OSError."""
        while self._idle and not fresh:
            connection = self._idle.pop()
            if connection.open:
                return connection
        return await self._new()

    def abort(self) -> None:
        for connection in self._all:
            if connection.open:
                connection.abort()

    async def _new(self) -> Connection:
        """The name is looked up once: where the first connection got to, the others go."""
        loop = asyncio.get_running_loop()
        host, port = self._address.host, self._address.port
        transport, connection = await loop.create_connection(
            lambda: Connection(self._buffer, self._idle.append),
            self._ip or host,
            port,
            ssl=self._tls,
            server_hostname=host if self._tls is not None else None,
        )
        self._ip = transport.get_extra_info("peername")[0]
        self._all = {each for each in self._all if each.open} | {connection}
        return connection


def reason(error: BaseException) -> str:
    """Why an operation on a socket failed, in the system's words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, OSError) and error.errno and not isinstance(error, socket.gaierror | ssl.SSLError):
        return os.strerror(error.errno)
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
