"""One run: requests are sent when they are due, or when a client is free, and what comes back is noted.

The event loop does nothing else while it runs: bodies are made before it, tokens are credited after it, and garbage is not collected.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import resource
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from octavo.bench.load.connection import Pool, reason
from octavo.bench.load.credit import CountTokens
from octavo.bench.load.exchange import Exchange
from octavo.bench.load.health import SHORT_S, Heartbeat, bottleneck
from octavo.bench.load.records import ClientHealth, LoadRun, RequestRecord, StopWhen
from octavo.bench.load.target import Target
from octavo.bench.workload.requests import DrawnRequest
from octavo.errors import InvalidRequestError

SPARE_FILES = 64
"""Open files that the client needs beside one for each connection."""
GONE_S = 2.0
"""A server that refuses connections for so long is gone."""
KNOCK_S = 0.2
ASK_S = 0.25
"""Between two questions of whether the run is to be stopped."""


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """How a run is made."""

    request_timeout: float = 600.0
    """Seconds from the send after which a request has expired."""
    max_client_lag: float = 0.05
    """Seconds; see octavo.bench.load.health.bottleneck."""
    stop_when: StopWhen | None = None
    """Ends the run early: ``interrupted`` is then what it said."""


def offer(target: Target, requests: Sequence[DrawnRequest], *, concurrency: int | None, options: LoadOptions | None = None) -> LoadRun:
    """Send ``requests``, wait for the answers, and tell what came when.

    Open loop: each is sent at its arrival, whatever the server does; ``concurrency``, if given, caps what is in flight, and the wait for a
    place counts in the latency. Closed loop, if all arrive at 0 and ``concurrency`` is given: so many clients, each of which sends its next
    request when its last one is over.

    SIGINT, or a server that is gone, ends the run early: ``interrupted`` says why, and the requests that were never sent are there too.

    Raises:
        InvalidRequestError: more connections than this process may have open files; a URL that is none; no tokenizer where one is needed.
    """
    _allow_files(min(concurrency or len(requests), len(requests)), needed=concurrency is not None)
    messages = [target.message(request) for request in requests]
    run = _Run(target, requests, messages, concurrency, options or LoadOptions())
    with _no_collection():
        asyncio.run(run.drive())
    return run.result(_counter(target))


class _Run:
    """State of a run, in its event loop."""

    def __init__(
        self, target: Target, requests: Sequence[DrawnRequest], messages: Sequence[bytes], concurrency: int | None, options: LoadOptions
    ) -> None:
        self._target = target
        self._requests = requests
        self._messages = messages
        self._concurrency = concurrency
        self._options = options
        self._closed = concurrency is not None and all(request.arrival == 0 for request in requests)
        self._records = [_record(request) for request in requests]
        self._exchanges: list[Exchange] = []
        self._in_flight = self._peak = 0
        self._interrupted: str | None = None
        self._knocking: asyncio.Task[None] | None = None

    async def drive(self) -> None:
        """From first send to last answer."""
        self._loop = asyncio.get_running_loop()
        self._pool = Pool(self._target.address)
        self._epoch = time.time()
        self._started = self._loop.time()
        self._heartbeat = Heartbeat(self._started)
        self._main = asyncio.ensure_future(self._clients() if self._closed else self._arrivals())
        asking = None if self._options.stop_when is None else asyncio.ensure_future(self._ask_whether_to_stop(self._options.stop_when))
        with self._stopped_by_sigint(), contextlib.suppress(asyncio.CancelledError):
            await self._main
            if self._knocking is not None:
                await self._knocking
        if asking is not None:
            asking.cancel()
        end = self._loop.time()
        self._cpu = self._heartbeat.stop(end)
        self._seconds = max((record.ended for record in self._records if record.ended is not None), default=end - self._started)
        if self._interrupted is not None:
            self._seconds = end - self._started
        self._pool.abort()

    def result(self, count: CountTokens | None) -> LoadRun:
        """After it."""
        for exchange in self._exchanges:
            exchange.close(count)
        records = self._records if self._closed else sorted(self._records, key=lambda record: record.scheduled)
        return LoadRun(
            records=records,
            started=self._epoch,
            seconds=self._seconds,
            open_loop=not self._closed,
            client=self._health(),
            interrupted=self._interrupted,
        )

    def _health(self) -> ClientHealth:
        sent = [] if self._closed else [r.sent - r.scheduled - r.queued for r in self._records if r.sent is not None]
        share = self._cpu / self._seconds if self._seconds > 0 else 0.0
        missed = None
        if self._closed and self._concurrency is not None and self._interrupted is None:
            wanted = min(self._concurrency, len(self._requests))
            missed = f"{self._peak} requests in flight at most, not {wanted}" if self._peak < wanted else None
        steady = share if self._seconds >= SHORT_S else 0.0
        why = bottleneck(sent, self._heartbeat.lags, steady, self._options.max_client_lag, missed)
        return ClientHealth(cpu_share=share, send_lag=sent, loop_lag=self._heartbeat.lags, peak_in_flight=self._peak, bottleneck=why)

    async def _arrivals(self) -> None:
        """Open loop."""
        places = asyncio.Semaphore(self._concurrency) if self._concurrency is not None else None
        async with asyncio.TaskGroup() as group:
            for number in sorted(range(len(self._requests)), key=lambda number: self._requests[number].arrival):
                due = self._started + self._requests[number].arrival
                if (wait := due - self._loop.time()) > 0:
                    await asyncio.sleep(wait)
                group.create_task(self._in_place(number, places))

    async def _in_place(self, number: int, places: asyncio.Semaphore | None) -> None:
        if places is None:
            return await self._ask(number)
        begun = self._loop.time()
        async with places:
            self._records[number].queued = self._loop.time() - begun
            await self._ask(number)

    async def _clients(self) -> None:
        """Closed loop."""
        numbers = iter(range(len(self._requests)))

        async def client() -> None:
            for number in numbers:
                if self._knocking is not None:
                    await self._knocking  # without this, a dead server would use up all requests at once
                self._records[number].scheduled = self._loop.time() - self._started
                await self._ask(number)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._concurrency or 1, len(self._requests))):
                group.create_task(client())

    async def _ask(self, number: int) -> None:
        """One request, to its end."""
        record = self._records[number]
        exchange = Exchange(record, self._started)
        self._exchanges.append(exchange)
        record.sent = self._loop.time() - self._started
        try:
            async with asyncio.timeout(self._options.request_timeout):
                await self._exchanged(exchange, self._messages[number])
        except TimeoutError:
            exchange.fail(self._loop.time(), "expired", f"no end of the answer within {self._options.request_timeout:g} s")
        except OSError as error:
            exchange.fail(self._loop.time(), "failed", f"no connection: {reason(error)}")
            exchange.cut = True
        if exchange.cut and self._knocking is None:
            self._knocking = asyncio.ensure_future(self._knock())

    async def _exchanged(self, exchange: Exchange, message: bytes) -> None:
        """On an idle connection; if the server closed that one in the very moment it was used again, on a fresh one."""
        for fresh in (False, True):
            connection = await self._pool.connect(fresh=fresh)
            self._in_flight += 1
            self._peak = max(self._peak, self._in_flight)
            try:
                if await connection.exchange(message, exchange):
                    return
            except asyncio.CancelledError:
                connection.abort()
                raise
            finally:
                self._in_flight -= 1

    async def _knock(self) -> None:
        """A connection was lost or refused: is the server gone? Then the run ends."""
        address = self._target.address
        until = self._loop.time() + GONE_S
        why = ""
        while self._loop.time() < until:
            try:
                transport, _ = await self._loop.create_connection(asyncio.Protocol, address.host, address.port)
            except OSError as error:
                why = reason(error)
                await asyncio.sleep(KNOCK_S)
            else:
                transport.abort()
                self._knocking = None
                return
        self._stop(f"the server is gone: for {GONE_S:g} s no connection could be made ({why})")

    async def _ask_whether_to_stop(self, stop_when: StopWhen) -> None:
        while True:
            await asyncio.sleep(ASK_S)
            if (why := stop_when(self._records, self._loop.time() - self._started)) is not None:
                return self._stop(why)

    def _stop(self, why: str) -> None:
        self._interrupted = why
        self._main.cancel()

    @contextlib.contextmanager
    def _stopped_by_sigint(self) -> Iterator[None]:
        """Ctrl-C ends the run and not the program; only a program's first thread can be told of it."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._loop.add_signal_handler(signal.SIGINT, self._stop, "stopped by SIGINT")
        try:
            yield
        finally:
            self._loop.remove_signal_handler(signal.SIGINT)


def _record(request: DrawnRequest) -> RequestRecord:
    return RequestRecord(
        index=request.index,
        kind=request.kind,
        tenant=request.tenant,
        prompt_tokens=len(request.prompt_token_ids),
        prompt_as_text=request.prompt_text is not None,
        output_tokens=request.output_tokens,
        scheduled=request.arrival,
    )


def _counter(target: Target) -> CountTokens | None:
    tokenizer = target.tokenizer
    return None if tokenizer is None else lambda text: len(tokenizer.encode(text, add_special_tokens=False))


def _allow_files(connections: int, needed: bool) -> None:
    """Raise this process's limit on open files to what the connections take. ``needed``: fewer will not do."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * connections + SPARE_FILES  # while the last bytes of an answer are on their way, the next request may need another one
    if hard != resource.RLIM_INFINITY and wanted > hard:
        if needed and connections + SPARE_FILES > hard:
            limit = f"this process may open {hard} files, and needs {SPARE_FILES} beside its connections"
            raise InvalidRequestError(f"max_concurrency = {connections}: {limit}", field="max_concurrency")
        wanted = hard
    if soft != resource.RLIM_INFINITY and wanted > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """No pause for collecting garbage in here."""
    enabled = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if enabled:
            gc.enable()
