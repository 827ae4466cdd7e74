"""Fetches what a server says of itself while it is under load.

What it says is read after the run. Meanwhile answers are packed, and of those of /admin/steps the numbers of the steps are read, since the
next question depends on them.
"""

from __future__ import annotations

import http.client
import logging
import threading
import time
import zlib
from dataclasses import dataclass, field

import msgspec

from octavo.bench.load.target import Target
from octavo.bench.observe.metrics import Dialect, recognise
from octavo.bench.observe.observation import Observation

logger = logging.getLogger(__name__)

FIRST_ROUND_S = 5.0
METRICS, STEPS, ENGINE = "/metrics", "/admin/steps", "/admin/engine"


@dataclass(frozen=True, slots=True)
class Reply:
    """What one GET brought. Times are seconds since the epoch."""

    sent: float
    received: float
    status: int
    packed: bytes

    @property
    def body(self) -> bytes:
        return zlib.decompress(self.packed)


@dataclass(slots=True)
class Recording:
    """All replies of a run, in order, and what went wrong."""

    url: str
    dialect: Dialect | None = None
    version: Reply | None = None
    engine: Reply | None = None
    metrics: list[Reply] = field(default_factory=list)
    steps: list[Reply] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    """Path → why it is asked for no more."""
    missed: list[str] = field(default_factory=list)
    """Of each round that failed, why."""


class _Last(msgspec.Struct):
    """As much of /admin/steps as the next question needs."""

    last: int = 0
    steps: list[_Number] = []


class _Number(msgspec.Struct):
    step: int


class Observer:
    """A thread that asks for /metrics once an interval, and, of an Octavo, for the steps since then; on a connection of its own.

    A server that says nothing, or dies, does no harm: the Observation tells.
    """

    def __init__(self, url: str, *, api_key: str | None = None, interval: float = 1.0, timeout: float = 10.0) -> None:
        """Raises InvalidRequestError for what is no URL of a server."""
        self._address = Target(url, "").address
        self._headers = {"User-Agent": "octavo-bench"} | ({"Authorization": f"Bearer {api_key}"} if api_key else {})
        self._interval, self._timeout = interval, timeout
        self._recording = Recording(url)
        self._connection: http.client.HTTPConnection | None = None
        self._seen: int | None = None
        self._begun, self._stopping = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._watch, name="observer", daemon=True)

    def start(self) -> None:
        """Begin, and wait for the first round: totals count from there. FIRST_ROUND_S at most, if the server is slow to answer."""
        self._thread.start()
        self._begun.wait(FIRST_ROUND_S)

    def stop(self, run_started: float) -> Observation:
        """A last round, the end, and what was seen, on the clock of a run that began ``run_started`` seconds after the epoch."""
        from octavo.bench.observe.reading import read

        self._stopping.set()
        self._thread.join()
        try:
            return read(self._recording, run_started, local=self._address.local)
        except Exception as error:  # a server of another version; the client's figures are not lost for it
            logger.exception("what %s said cannot be read", self._recording.url)
            return Observation(partial=True, notes=[f"what the server said of itself cannot be read ({type(error).__name__}: {error})"])

    def _watch(self) -> None:
        try:
            due = time.monotonic() + self._interval
            self._introduce()
            self._round()
            self._begun.set()
            while not self._stopping.wait(max(0.0, due - time.monotonic())):
                self._round()
                due = max(due + self._interval, time.monotonic())
            self._round()
            self._look_back()
        finally:
            self._begun.set()
            self._disconnect()

    def _introduce(self) -> None:
        """Whom we speak with."""
        reply = self._get(METRICS)
        if reply is None or reply.status != 200:
            return
        dialect = self._recording.dialect = recognise(reply.body.decode("utf-8", "replace"))
        if dialect is not None:
            self._recording.version = self._get(dialect.version_path)
        if dialect is not None and dialect.engine == "octavo":
            self._recording.engine = self._get(ENGINE)

    def _look_back(self) -> None:
        """After the load: the most memory it took is told now."""
        before = self._recording.engine
        if before is not None and before.status == 200 and (after := self._ask(ENGINE)) is not None:
            self._recording.engine = after

    def _round(self) -> None:
        recording = self._recording
        if recording.dialect is None and not recording.metrics and METRICS not in recording.refused:
            self._introduce()
        if (reply := self._ask(METRICS)) is not None:
            recording.metrics.append(reply)
        if recording.dialect is not None and recording.dialect.engine == "octavo":
            self._fetch_steps()

    def _fetch_steps(self) -> None:
        """All since the last round; at first where the count stands."""
        while True:
            reply = self._ask(STEPS if self._seen is None else f"{STEPS}?after={self._seen}", STEPS)
            if reply is None:
                return
            try:
                found = msgspec.json.decode(reply.body, type=_Last)
            except msgspec.MsgspecError:
                self._recording.refused[STEPS] = "its answer is not understood"
                return
            self._recording.steps.append(reply)
            self._seen = found.steps[-1].step if found.steps else found.last
            if self._seen >= found.last:
                return

    def _ask(self, path: str, name: str = "") -> Reply | None:
        """A reply of status 200; a refusal is noted, and the path, ``name`` for short, is asked for no more."""
        name = name or path
        if name in self._recording.refused:
            return None
        reply = self._get(path)
        if reply is not None and reply.status not in (200, 503, 504):
            self._recording.refused[name] = f"HTTP {reply.status}"
        return reply if reply is not None and reply.status == 200 else None

    def _get(self, path: str) -> Reply | None:
        """One GET; a connection that has gone stale is opened once more."""
        for fresh in (self._connection is None, True):
            try:
                return self._exchange(path)
            except (OSError, http.client.HTTPException) as error:
                self._disconnect()
                if fresh:
                    self._recording.missed.append(f"{path}: {error or type(error).__name__}")
                    return None
        return None

    def _exchange(self, path: str) -> Reply:
        if self._connection is None:
            kind = http.client.HTTPSConnection if self._address.tls else http.client.HTTPConnection
            self._connection = kind(self._address.host, self._address.port, timeout=self._timeout)
        sent = time.time()
        self._connection.request("GET", self._address.path + path, headers=self._headers)
        response = self._connection.getresponse()
        body = response.read()
        return Reply(sent, time.time(), response.status, zlib.compress(body, 1))

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
