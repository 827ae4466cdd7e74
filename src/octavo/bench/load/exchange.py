"""One request and its answer, as bytes become a record."""

from __future__ import annotations

from http import HTTPStatus

from octavo.bench.load.credit import CountTokens, Piece, credit
from octavo.bench.load.events import Choice, UsageBody, decode_event, error_message, one_line, said
from octavo.bench.load.http1 import ResponseReader
from octavo.bench.load.records import Failure, RequestRecord, Usage
from octavo.bench.load.sse import Event, EventReader

REFUSALS = (429, 503)
DEADLINES = (408, 504)
ENDS: dict[str, tuple[Failure, str]] = {
    "timeout": ("expired", "the server ended the answer at a deadline"),
    "abort": ("failed", "the server aborted the answer"),
    "error": ("failed", "the server ended the answer with an error"),
}
"""Finish reasons of answers that are not whole: Octavo's, and vLLM's."""
MAX_ERROR_BODY = 65536


class Exchange:
    """Fed by a connection; when the answer is ``over``, well or not, ``record`` tells which.

    Text is kept, and tokens are credited to events after the run, by ``close``.
    """

    def __init__(self, record: RequestRecord, started: float) -> None:
        """``started``: time 0 of the record, on the loop's clock."""
        self.record = record
        self.begun = False
        """Whether a byte of an answer came."""
        self.cut = False
        """Whether it failed because there was no connection, or no longer."""
        self._started = started
        self._events = EventReader()
        self._pieces: list[Piece] = []
        self._usage: UsageBody | None = None
        self._ids = 0
        self._error_body = b""

    @property
    def over(self) -> bool:
        return self.record.ended is not None

    def body(self, now: float, response: ResponseReader, data: bytes) -> None:
        """Bytes of the answer's body came at ``now``."""
        if self.over:
            return
        if not self._streams(response):
            self._error_body = (self._error_body + data)[:MAX_ERROR_BODY]
            return
        try:
            self._read(now - self._started, self._events.feed(data))
        except ValueError as error:  # msgspec's are
            self.fail(now, "failed", f"malformed stream: {one_line(str(error))}")

    def end(self, now: float, response: ResponseReader) -> None:
        """The answer is complete at ``now``."""
        if self.over:
            return
        if not self._streams(response):
            return self._refuse(now, response)
        try:
            self._read(now - self._started, self._events.end())
        except ValueError as error:
            return self.fail(now, "failed", f"malformed stream: {one_line(str(error))}")
        if not self.over:
            self._finish(now - self._started, done=False)

    def fail(self, now: float, failure: Failure, message: str) -> None:
        """It is over, and not well."""
        if not self.over:
            self.record.failure, self.record.message = failure, message
            self.record.ended = now - self._started

    def close(self, count: CountTokens | None) -> None:
        """After the run: the chunks and the usage, from what was kept."""
        usage, record = self._usage, self.record
        total = usage.completion_tokens if usage is not None else None
        if record.failure is not None or record.ended is None:
            total = None  # a usage before the end is no total
        record.chunks, record.counted = credit(self._pieces, total, count)
        if usage is not None:
            cached = usage.prompt_tokens_details.cached_tokens if usage.prompt_tokens_details is not None else None
            prompt = record.prompt_tokens if usage.prompt_tokens is None else usage.prompt_tokens
            output = record.received_tokens if usage.completion_tokens is None else usage.completion_tokens
            record.usage = Usage(prompt, output, cached)
        self._pieces = []

    def _streams(self, response: ResponseReader) -> bool:
        self.record.status = response.status
        return response.status == HTTPStatus.OK and not response.headers.get("content-type", "").startswith("application/json")

    def _read(self, when: float, events: list[Event]) -> None:
        for name, data in events:
            if data == b"[DONE]":
                return self._finish(when, done=True)
            event = decode_event(data)
            if event.error is not None or name == b"error":
                message = said(event.error) if event.error is not None else error_message(data)
                return self.fail(when + self._started, "failed", f"error in the stream: {message}")
            if event.usage is not None:
                self._usage = event.usage
            if event.choices:
                self._note(when, event.choices[0], event.usage)

    def _note(self, when: float, choice: Choice, usage: UsageBody | None) -> None:
        text = choice.text or (choice.delta.text if choice.delta is not None else "")
        self._ids += len(choice.token_ids or ())
        so_far = usage.completion_tokens if usage is not None else self._ids or None
        if text and self.record.first_text is None:
            self.record.first_text = when
        if text or so_far is not None:
            self._pieces.append(Piece(when, text, so_far))
        if choice.finish_reason is not None:
            self.record.finish_reason = choice.finish_reason

    def _finish(self, when: float, *, done: bool) -> None:
        """[DONE], or the end of a stream that has none: then it must have told why it stops."""
        if not done and self.record.finish_reason is None:
            return self.fail(when + self._started, "failed", "the stream ended before the answer did")
        if (ended := ENDS.get(self.record.finish_reason or "")) is not None:
            return self.fail(when + self._started, *ended)
        if not any(piece.text for piece in self._pieces):
            return self.fail(when + self._started, "failed", "an answer without text")
        self.record.ended = when

    def _refuse(self, now: float, response: ResponseReader) -> None:
        status = response.status
        if status == HTTPStatus.OK:
            return self.fail(
                now, "failed", f"no stream of events but {response.headers['content-type']}: {error_message(self._error_body)}"
            )
        failure: Failure = "refused" if status in REFUSALS else "expired" if status in DEADLINES else "failed"
        wait = response.headers.get("retry-after")
        later = f" (Retry-After: {wait})" if wait is not None else ""
        self.fail(now, failure, f"HTTP {status} {response.reason}: {error_message(self._error_body)}{later}")
