"""The engine process: ``python -m octavo.engine.process FOLDER``, started by octavo.engine.remote and by nobody else.

Its loop: take in what came, once; run a step; send what it brought, in one message. Without work it sleeps on the socket.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
import threading
import time

import msgspec
import zmq

from octavo.config import EngineArgs
from octavo.engine import messages
from octavo.engine.core import EngineCore
from octavo.engine.garbage import settle
from octavo.engine.logs import show_logs
from octavo.errors import InvalidRequestError, OctavoError
from octavo.kv.guard import PolicyError

logger = logging.getLogger("octavo.engine")

IDLE_MS = 500
"""So long without work makes an engine idle."""
STATS_SECONDS = 0.05
"""What the client knows of the engine while nothing begins or ends is at most so old, and a step."""


class _Channel:
    """The process's two sockets. What cannot be decoded is logged and dropped."""

    def __init__(self, directory: str) -> None:
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
        self._inbox = context.socket(zmq.PULL)
        self._inbox.set_hwm(0)
        self._inbox.bind(messages.address(directory, messages.TO_ENGINE_SOCKET))
        self._outbox = context.socket(zmq.PUSH)
        self._outbox.set_hwm(0)
        self._outbox.connect(messages.address(directory, messages.FROM_ENGINE_SOCKET))

    def send(self, message: messages.FromEngine) -> None:
        self._outbox.send(messages.encode(message))

    def next(self, wait_ms: int | None) -> messages.ToEngine | None:
        """The next message, or None if there is none within so long; None waits for ever, 0 not at all."""
        while self._inbox.poll(wait_ms):
            data = self._inbox.recv()
            try:
                return messages.decode_to_engine(data)
            except msgspec.MsgspecError as error:
                logger.warning("dropped a malformed message of %d bytes: %s", len(data), error)
        return None

    def receive(self, wait_ms: int | None) -> list[messages.ToEngine]:
        """All that is there, after waiting so long for a first message."""
        received: list[messages.ToEngine] = []
        while (message := self.next(0 if received else wait_ms)) is not None:
            received.append(message)
        return received

    def close(self) -> None:
        self._outbox.close(linger=2000)
        self._inbox.close(linger=0)
        zmq.Context.instance().term()


def main() -> int:
    """Load the model that the first message names, and serve until told to stop. Returns the exit code."""
    show_logs()
    for number in (signal.SIGINT, signal.SIGTERM):  # a terminal or a service manager sends them to all; the client then ends this process
        signal.signal(number, signal.SIG_IGN)
    _end_with_client(sys.argv[1])
    channel = _Channel(sys.argv[1])
    try:
        core = _start(channel)
        if core is None:
            return 1
        settle()
        try:
            return _serve(core, channel)
        finally:
            core.close()
    finally:
        channel.close()


def _start(channel: _Channel) -> EngineCore | None:
    """The engine, announced as ready; or None, and the reason sent."""
    start = _await_start(channel)
    booted = time.monotonic() - start.launched
    try:
        core = EngineCore(EngineArgs(**start.args), earlier_phases={"process": booted})
    except OctavoError as error:
        field = error.field if isinstance(error, InvalidRequestError) else None
        channel.send(messages.Failed(str(error), type(error).__name__, field))
        return None
    except Exception as error:
        logger.exception("the engine could not start")
        channel.send(messages.Failed(f"the engine could not start: {type(error).__name__}: {error}"))
        return None
    channel.send(messages.Ready(core.info, core.stats()))
    return core


def _await_start(channel: _Channel) -> messages.Start:
    """What comes behind it, a Stop perhaps, stays in the socket."""
    while not isinstance(message := channel.next(wait_ms=None), messages.Start):
        continue
    return message


def _serve(core: EngineCore, channel: _Channel) -> int:
    """Step while there is work; an engine that stays idle for a moment checks its books, and sleeps."""
    patience: int | None = None
    reporter = _Reporter(core, channel)
    while True:
        received = channel.receive(0 if core.has_unfinished_requests else patience)
        for message in received:
            if isinstance(message, messages.Add):
                core.add_request(message.request)
                reporter.has_news = True
            elif isinstance(message, messages.Abort):
                core.abort(message.request_ids)
            elif isinstance(message, messages.Ask):
                channel.send(_answer(core, message))
            elif isinstance(message, messages.Stop):
                return 0
        if not core.has_unfinished_requests and all(isinstance(message, messages.Ask) for message in received):
            if not received:
                _check_books(core)
                patience = None
            continue
        patience = IDLE_MS
        try:
            reporter.step()
        except Exception as error:
            logger.exception("a step failed; the engine ends")
            channel.send(messages.Failed(f"a step failed: {type(error).__name__}: {error}"))
            return 1


class _Reporter:
    """Makes steps, and sends what they bring.

    Tokens go first: while they are detokenized and sent, on another core, the engine does its accounts. Its stats go with a step that ends
    a request, that leaves nothing to do or that comes after news, and else every STATS_SECONDS: to pack and read them costs both processes
    as much as a token.
    """

    def __init__(self, core: EngineCore, channel: _Channel) -> None:
        self._core, self._channel = core, channel
        self._told = 0.0
        self.has_news = False
        """Requests came in that no stats have told of."""

    def step(self) -> None:
        outputs = self._core.advance()
        ends = any(output.finish_reason is not None for output in outputs.outputs)
        if ends or self.has_news or not self._core.has_unfinished_requests or time.monotonic() - self._told >= STATS_SECONDS:
            self._core.account()
            outputs.stats = self._core.stats()
            self._channel.send(messages.Step(outputs))
            self._told, self.has_news = time.monotonic(), False
        else:
            self._channel.send(messages.Step(outputs))
            self._core.account()


def _answer(core: EngineCore, ask: messages.Ask) -> messages.Answer:
    try:
        value = getattr(core, ask.question)(*ask.arguments)
    except PolicyError as error:
        return messages.Answer(ask.ask_id, None, core.stats(), str(error))
    return messages.Answer(ask.ask_id, value, core.stats())


def _check_books(core: EngineCore) -> None:
    """An engine that has lost count of blocks still serves; it says so loudly."""
    try:
        core.check_integrity()
    except Exception:  # a plugin's check may raise anything
        logger.exception("the KV pool's books do not balance")


def _end_with_client(directory: str) -> None:
    """Die when the client does: its end of our standard input closes, whatever killed it. Its folder goes too."""

    def wait() -> None:
        while os.read(0, 4096):
            continue
        shutil.rmtree(directory, ignore_errors=True)
        os._exit(1)

    threading.Thread(target=wait, name="client-watcher", daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())
