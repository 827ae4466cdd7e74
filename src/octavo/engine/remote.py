"""An engine in a process of its own, seen from the client's side.

The process is started with exec, never forked. Two ZeroMQ sockets in a private folder (mode 0700) carry msgpack messages
(octavo.engine.messages). The child ends when the pipe that is its standard input closes, so it cannot outlive the client.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec
import zmq
import zmq.asyncio

from octavo import errors
from octavo.config import EngineArgs
from octavo.engine import messages
from octavo.engine.client import STALL_SECONDS, Health, Progress
from octavo.engine.info import EngineInfo
from octavo.errors import EngineDeadError, EngineTimeoutError, OctavoError
from octavo.kv.disk import SPILL_SECONDS
from octavo.outputs import EngineCoreOutputs, EngineStats
from octavo.request import EngineCoreRequest

logger = logging.getLogger(__name__)

START_TIMEOUT_S = 600.0
STOP_TIMEOUT_S = 5.0
ASK_TIMEOUT_S = 10.0


class EngineProcess:
    """Client of one engine process. Used from one thread (an event loop's); ``launch`` returns before the model is loaded.

    The end of the process, however it comes, is noticed at once and raised as EngineDeadError wherever someone waits.
    """

    def __init__(self, args: EngineArgs) -> None:
        self.args = args
        self._info: EngineInfo | None = None
        self.stats = EngineStats()
        """The engine after its last step, or answer."""
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._num_asked = 0
        self._num_added = 0
        self._unseen: deque[int] = deque()
        self._dead = ""
        self._stopping = False
        self._progress = Progress()
        self._directory = _private_directory()
        self._remove_directory = weakref.finalize(self, shutil.rmtree, self._directory, ignore_errors=True)
        self._context = zmq.Context()
        self._to_engine = _socket(self._context, zmq.PUSH)
        self._to_engine.connect(messages.address(self._directory, messages.TO_ENGINE_SOCKET))
        self._from_engine = _socket(self._context, zmq.PULL)
        self._from_engine.bind(messages.address(self._directory, messages.FROM_ENGINE_SOCKET))
        self._receiver: zmq.asyncio.Socket | None = None
        launched = time.monotonic()
        command = [sys.executable, "-m", "octavo.engine.process", self._directory]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=2)
        self._to_engine.send(messages.encode(messages.Start(dataclasses.asdict(args), launched)))
        self._watcher = threading.Thread(target=self._watch, name="engine-watcher", daemon=True)
        self._watcher.start()

    @classmethod
    def launch(cls, args: EngineArgs) -> EngineProcess:
        """Start the process; loading goes on while the caller does other things, until ``wait_ready``."""
        return cls(args)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def info(self) -> EngineInfo:
        assert self._info is not None, "wait_ready comes first"
        return self._info

    @property
    def unseen(self) -> Sequence[int]:
        """Prompt tokens of each request sent that ``stats`` does not know of yet."""
        while len(self._unseen) > self._num_added - self.stats.added:
            self._unseen.popleft()
        return self._unseen

    def wait_ready(self, timeout: float = START_TIMEOUT_S) -> EngineInfo:
        """Block until the model is loaded.

        Raises:
            InvalidRequestError, ModelFileError: what the engine found wrong.
            EngineDeadError: the process ended, or was not ready within ``timeout`` seconds (it is ended then).
        """
        deadline = time.monotonic() + timeout
        while self._info is None:
            if not self._from_engine.poll(int(max(0.0, deadline - time.monotonic()) * 1000)):
                self.shutdown(grace_s=0)
                raise EngineDeadError(f"the engine was not ready within {timeout:.0f} s")
            try:
                message = self._decode(self._from_engine.recv())
            except errors.OctavoError:
                self.shutdown()
                raise
            if isinstance(message, messages.Ready):
                self._info, self.stats = message.info, message.stats
        return self._info

    def add(self, request: EngineCoreRequest) -> None:
        if self._dead:
            raise EngineDeadError(self._dead)
        self._progress.added(request.request_id)
        self._num_added += 1
        self._unseen.append(len(request.prompt_token_ids))
        self._to_engine.send(messages.encode(messages.Add(request)))

    def abort(self, request_ids: list[str]) -> None:
        self._progress.aborted(request_ids)
        if not self._dead:
            self._to_engine.send(messages.encode(messages.Abort(request_ids)))

    async def ask(self, question: messages.Question, *arguments: Any, timeout: float = ASK_TIMEOUT_S) -> Any:
        """The engine's answer, given between two steps. Somebody must be at ``receive`` meanwhile: it comes in there.

        Raises:
            EngineDeadError: the process has ended, or ends before it answers.
            EngineTimeoutError: there is no answer after ``timeout`` seconds.
        """
        if self._dead:
            raise EngineDeadError(self._dead)
        self._num_asked += 1
        ask = messages.Ask(self._num_asked, question, list(arguments))
        answer = self._asked[ask.ask_id] = asyncio.get_running_loop().create_future()
        self._to_engine.send(messages.encode(ask))
        try:
            return await asyncio.wait_for(answer, timeout)
        except TimeoutError:
            raise EngineTimeoutError(f"the engine has not answered within {timeout:g} s: it is in a long step, or stuck") from None
        finally:
            del self._asked[ask.ask_id]

    async def receive(self) -> EngineCoreOutputs:
        """What the next step brings. Raises EngineDeadError, now and ever after, once the process has ended."""
        if self._receiver is None:
            self._receiver = zmq.asyncio.Socket.from_socket(self._from_engine)
        try:
            while True:
                if self._dead:
                    raise EngineDeadError(self._dead)
                message = self._decode(await self._receiver.recv())
                if isinstance(message, messages.Answer):
                    self._take_answer(message)
                elif isinstance(message, messages.Step):
                    self._progress.stepped(message.outputs)
                    self.stats = message.outputs.stats or self.stats
                    return message.outputs
        except errors.OctavoError as error:
            for answer in self._asked.values():
                if not answer.done():
                    answer.set_exception(EngineDeadError(str(error)))
            raise

    def _take_answer(self, message: messages.Answer) -> None:
        """An answer that comes too late is nobody's."""
        self.stats = message.stats
        if (answer := self._asked.get(message.ask_id)) is not None and not answer.done():
            if message.error:
                answer.set_exception(OctavoError(message.error))
            else:
                answer.set_result(message.value)

    def health(self, stall_seconds: float = STALL_SECONDS) -> Health:
        if not self._dead and self._process.poll() is not None:
            self._dead = _epitaph(self._process.returncode)
        return self._progress.health(stall_seconds, self._dead)

    def shutdown(self, grace_s: float | None = None) -> None:
        """Ask the process to end, insist after ``grace_s`` seconds, and clean up. Idempotent.

        By default that is a few, and those that it may take to put its prefix cache on disk.
        """
        if self._stopping:
            return
        if grace_s is None:
            grace_s = STOP_TIMEOUT_S + (SPILL_SECONDS if self.args.prefix_cache_dir else 0)
        self._stopping = True
        self._dead = self._dead or "the engine was shut down"
        with contextlib.suppress(zmq.ZMQError):
            self._to_engine.send(messages.encode(messages.Stop()), zmq.NOBLOCK)
        try:
            self._process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._watcher.join()
        assert self._process.stdin is not None
        self._process.stdin.close()
        if self._receiver is not None:
            self._receiver.close()
        self._context.destroy(linger=0)
        self._remove_directory()

    def _decode(self, data: bytes) -> messages.Ready | messages.Step | messages.Answer | None:
        """A message, or None for one that is not ours. Raises what a Failed message says."""
        try:
            message = messages.decode_from_engine(data)
        except msgspec.MsgspecError as error:
            logger.warning("dropped a malformed message of %d bytes from the engine's socket: %s", len(data), error)
            return None
        if isinstance(message, messages.Failed):
            self._dead = message.message
            raise _failure(message)
        return message

    def _watch(self) -> None:
        """Wait for the process's end, and say it on the socket where the client listens: after what the engine sent itself."""
        code = self._process.wait()
        if self._info is not None and not self._stopping:
            logger.error("%s; nothing is served any more", _epitaph(code))
        with contextlib.suppress(zmq.ZMQError):
            socket = _socket(self._context, zmq.PUSH)
            socket.connect(messages.address(self._directory, messages.FROM_ENGINE_SOCKET))
            socket.send(messages.encode(messages.Failed(_epitaph(code))))
            socket.close(linger=1000)


def _private_directory() -> str:
    """A new folder of mode 0700, at a path short enough for the names of local sockets."""
    directory = tempfile.mkdtemp(prefix="octavo-")
    if len(f"{directory}/{messages.FROM_ENGINE_SOCKET}") < zmq.IPC_PATH_MAX_LEN:
        return directory
    os.rmdir(directory)
    return tempfile.mkdtemp(prefix="octavo-", dir="/tmp")


def _socket(context: zmq.Context[zmq.Socket[bytes]], kind: int) -> zmq.Socket[bytes]:
    """A socket without a limit on queued messages: the front bounds what is open."""
    socket = context.socket(kind)
    socket.set_hwm(0)
    return socket


def _epitaph(code: int) -> str:
    if code < 0:
        return f"the engine process ended by signal {-code} ({signal.strsignal(-code)})"
    return f"the engine process ended with exit code {code}"


def _failure(message: messages.Failed) -> errors.OctavoError:
    """The error that the engine met, of its own class."""
    kind = getattr(errors, message.error, EngineDeadError)
    if kind is errors.InvalidRequestError:
        return errors.InvalidRequestError(message.message, field=message.field)
    error: errors.OctavoError = kind(message.message)
    return error
