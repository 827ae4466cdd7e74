"""Reads server-sent events from bytes as they come. No I/O here."""

from __future__ import annotations

MAX_EVENT = 8 * 2**20
"""Bytes; more without an end is no event."""

Event = tuple[bytes, bytes]
"""(name, data); most have no name."""


class EventReader:
    """Splits a body into events, wherever its reads were cut. Source: HTML standard, 9.2.6, Interpreting an event stream."""

    def __init__(self) -> None:
        self._rest = b""
        self._after_cr = False

    def feed(self, data: bytes) -> list[Event]:
        """The events that ``data`` completes; comments and events without data are none. Raises ValueError for one without an end."""
        if not data:
            return []
        if b"\r" in data or self._after_cr:
            data = self._one_newline(data)
        *blocks, self._rest = (self._rest + data).split(b"\n\n")
        if len(self._rest) > MAX_EVENT:
            raise ValueError(f"an event of more than {MAX_EVENT} bytes")
        return [event for block in blocks if (event := _read(block)) is not None]

    def end(self) -> list[Event]:
        """What was still open when the body ended: the standard drops it, but a server that forgets the last empty line means it."""
        block, self._rest = self._rest, b""
        event = _read(block)
        return [] if event is None else [event]

    def _one_newline(self, data: bytes) -> bytes:
        """CRLF and CR as LF; a CR at the end is one already, and an LF that follows it then is dropped."""
        if self._after_cr and data.startswith(b"\n"):
            data = data[1:]
        self._after_cr = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _read(block: bytes) -> Event | None:
    if block.startswith(b"data: ") and b"\n" not in block:
        return b"", block[6:]
    name = b""
    data = []
    for line in block.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        key, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if key == b"data":
            data.append(value)
        elif key == b"event":
            name = value
    return (name, b"\n".join(data)) if data else None
