"""A server started for a benchmark: its start-up timed, its memory watched, and nothing of it left behind."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO
from urllib.parse import urlsplit

from octavo import envs
from octavo.bench.peers import watchdog
from octavo.bench.peers.tree import Memory, PeakMemory, Process, is_alive, processes_of
from octavo.errors import OctavoError

POLL_SECONDS = 0.05
SAMPLE_SECONDS = 1.0
LOG_LINES = 5
KILLED_SECONDS = 10.0
"""How long the kernel may take to end what was killed."""


class ServerError(OctavoError):
    """A server that does not start, or that ended by itself."""


class ServerProcess:
    """A server in a process group of its own. A context manager: ready inside, ended after, in every case.

    Should this process be killed, a watchdog ends the server.
    """

    def __init__(
        self,
        command: Sequence[str],
        ready_url: str,
        env: Mapping[str, str] | None = None,
        log_path: Path = Path(os.devnull),
        *,
        name: str = "server",
        cwd: Path | None = None,
        ready_timeout: float = 300.0,
        grace: float = 20.0,
    ) -> None:
        """``ready_url`` answers 200 as soon as the server can serve; ``env`` is added to this environment. Output goes to ``log_path``.

        Seconds: ``ready_timeout`` from the start to that answer, ``grace`` from being told to end to being killed. Messages say ``name``.
        """
        self.name = name
        self.startup_seconds = 0.0
        """From exec to the first 200."""
        self._command = list(command)
        self._ready_url = ready_url
        self._env = dict(env or {})
        self._log_path = log_path
        self._cwd = cwd
        self._ready_timeout = ready_timeout
        self._grace = grace
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._peak = PeakMemory()
        self._seen: set[Process] = set()
        self._sampler: threading.Thread | None = None
        self._stopping = threading.Event()

    def __enter__(self) -> ServerProcess:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    @property
    def memory(self) -> Memory | None:
        """The most its processes took, so far or until it ended."""
        return self._peak.memory

    @property
    def pid(self) -> int:
        """Of the process started; its group has the same number. Needs a server that was started."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it, and wait until it is ready.

        Raises:
            ServerError: if something answers on its port already, the command cannot be run, or the server ends or is not ready in time.
        """
        if _listening(self._ready_url):
            address = urlsplit(self._ready_url).netloc
            raise ServerError(f"{self.name}: something answers at {address} already, and would be measured in its place; stop it first")
        try:
            started = self._launch()
            self._wait_until_ready(started)
        except BaseException:
            self.stop()
            raise

    def failure(self) -> str | None:
        """How it ended by itself, with the last lines of its log; None while it runs."""
        status = None if self._process is None else self._process.poll()
        if status is None:
            return None
        how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        return f"{self.name} {how}{self._log_tail()}"

    def settle(self) -> None:
        """Read its memory closely; while no load runs, for it may stand still for milliseconds."""
        if self._process is not None and self._process.poll() is None:
            self._peak.settle(processes_of(self._process.pid))

    def stop(self) -> None:
        """End it and all it started: asked first, killed after the grace. Returns when its port is free. Harmless when it has ended."""
        if self._process is not None:
            self._stopping.set()
            if self._sampler is not None:
                self._sampler.join()
            self.settle()
            self._signal(signal.SIGTERM)
            if not self._wait_until_gone(self._grace):
                self._signal(signal.SIGKILL)
                self._wait_until_gone(KILLED_SECONDS)
        if self._watchdog is not None:
            self._watchdog.kill()
            self._watchdog.communicate()

    def _launch(self) -> float:
        """Start the process, its watchdog and the sampling of its memory; when it was."""
        self._log_path.parent.mkdir(parents=True, exist_ok=True)
        script = [sys.executable, "-I", "-S", watchdog.__file__, str(self._grace)]
        self._watchdog = subprocess.Popen(script, stdin=subprocess.PIPE, start_new_session=True)
        with self._log_path.open("wb") as log:
            started = time.monotonic()
            self._process = self._run(log)
        assert self._watchdog.stdin is not None
        self._watchdog.stdin.write(f"{self._process.pid}\n".encode())
        self._watchdog.stdin.flush()
        self._sampler = threading.Thread(target=self._sample, name="octavo-memory", daemon=True)
        self._sampler.start()
        return started

    def _run(self, log: BinaryIO) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                self._command,
                env=envs.for_child(**self._env),
                cwd=self._cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise ServerError(f"{self.name}: {self._command[0]} cannot be run: {error.strerror}") from None

    def _wait_until_ready(self, started: float) -> None:
        while not _answers(self._ready_url):
            if (failure := self.failure()) is not None:
                raise ServerError(f"{failure}, before it was ready")
            if time.monotonic() - started > self._ready_timeout:
                raise ServerError(f"{self.name} was not ready in {self._ready_timeout:g} s at {self._ready_url}{self._log_tail()}")
            time.sleep(POLL_SECONDS)
        self.startup_seconds = time.monotonic() - started
        if (failure := self.failure()) is not None:  # then what answered is another server
            raise ServerError(f"{failure}, and another server answers at {self._ready_url}")

    def _sample(self) -> None:
        while not self._stopping.wait(SAMPLE_SECONDS):
            self._peak.sample(self._members())

    def _members(self) -> list[Process]:
        """Its processes that live now. All that were ever seen are remembered, so that one whose parent has gone is ended too."""
        found = processes_of(self.pid)
        self._seen.update(found)
        return sorted({*found, *(process for process in self._seen if is_alive(process))})

    def _signal(self, number: signal.Signals) -> None:
        members = self._members()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)
        for process in members:
            if is_alive(process) and number == signal.SIGKILL:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, number)

    def _wait_until_gone(self, seconds: float) -> bool:
        """Whether within ``seconds`` none of its processes is left and its port is free."""
        assert self._process is not None
        deadline = time.monotonic() + seconds
        while self._process.poll() is None or self._members() or _listening(self._ready_url):
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_SECONDS)
        return True

    def _log_tail(self) -> str:
        """The log's last lines, for a message; nothing for an empty log."""
        try:
            with self._log_path.open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - 4096))
                lines = log.read().decode(errors="replace").splitlines()
        except OSError:
            return ""
        told = [line.strip() for line in lines if line.strip()][-LOG_LINES:]
        return f" ({' | '.join(told)})" if told else ""


def _listening(url: str) -> bool:
    """Whether something takes connections at the address of ``url``. What does not answer in a second is busy, not gone."""
    place = urlsplit(url)
    try:
        with socket.create_connection((place.hostname or "127.0.0.1", place.port or 80), timeout=1):
            return True
    except TimeoutError:
        return True
    except OSError:
        return False


def _answers(url: str) -> bool:
    """Whether a GET of ``url`` brings 200."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname or "127.0.0.1", place.port or 80, timeout=2)
    try:
        connection.request("GET", place.path or "/")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
