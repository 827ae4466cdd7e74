"""Reads an HTTP/1.1 response from bytes as they come. No I/O here.

Of our own because the load client stamps a chunk's time where its bytes arrive, and shares its cores with the server that it measures: see
benchmarks/server/bench_client.py for what a general client costs.
"""

from __future__ import annotations

from octavo.errors import OctavoError

MAX_LINE = 65536
"""Bytes of a head, or of a line between chunks."""


class ProtocolError(OctavoError):
    """What came is not HTTP/1.1."""


class ResponseReader:
    """One response. ``feed`` it until ``complete``; source: RFC 9112."""

    def __init__(self) -> None:
        self.status = 0
        """0: the head is not here yet; so for all that follows."""
        self.reason = ""
        self.headers: dict[str, str] = {}
        """By lower-case name; of several alike the last."""
        self.complete = False
        self.reusable = False
        """Whether the connection may carry another request once this is complete."""
        self._rest = b""
        self._chunked = False
        self._left: int | None = None
        """Bytes to come, of the body or the chunk; None: until the connection ends."""
        self._place = "size"
        """Of a chunked body, what the next line is: size, end (of a chunk), trailer."""

    def feed(self, data: bytes) -> bytes:
        """The bytes of the body that ``data`` brought. Raises ProtocolError."""
        if not self.status:
            data = self._rest + data
            while not self.status:
                head, found, after = data.partition(b"\r\n\r\n")
                if not found:
                    self._keep(data)
                    return b""
                self._read_head(head)
                data = after
            self._rest = b""
        if self.complete:
            self.reusable = self.reusable and not data
            return b""
        return self._read_chunks(data) if self._chunked else self._read_plain(data)

    def end(self) -> None:
        """The connection has ended. Raises ProtocolError if the response has not."""
        if self.status and not self._chunked and self._left is None:
            self.complete = True
        if not self.complete:
            raise ProtocolError("the connection was closed in the middle of the answer" if self.status else "closed without an answer")

    def _read_head(self, head: bytes) -> None:
        first, *lines = head.decode("latin-1").split("\r\n")
        version, _, rest = first.partition(" ")
        code, _, reason = rest.partition(" ")
        if not version.startswith("HTTP/1.") or not (code.isascii() and code.isdigit() and len(code) == 3):
            raise ProtocolError(f"no HTTP/1.1 answer: {first[:80]!r}")
        if code.startswith("1"):
            return
        self.status, self.reason = int(code), reason.strip()
        self.headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        self._chunked = self.headers.get("transfer-encoding", "").lower().endswith("chunked")
        self._left = 0 if self._chunked else self._length()
        self.complete = not self._chunked and self._left == 0
        kept = self.headers.get("connection", "").lower()
        self.reusable = self._left is not None and kept != "close" and (version != "HTTP/1.0" or kept == "keep-alive")

    def _length(self) -> int | None:
        if self.status in (204, 304):
            return 0
        length = self.headers.get("content-length")
        if length is None:
            return None
        if not (length.isascii() and length.isdigit()):
            raise ProtocolError(f"Content-Length: {length[:80]!r}")
        return int(length)

    def _read_plain(self, data: bytes) -> bytes:
        if self._left is None:
            return data
        if len(data) >= self._left:
            self.reusable = self.reusable and len(data) == self._left
            self.complete = True
        body = data[: self._left]
        self._left -= len(body)
        return body

    def _read_chunks(self, data: bytes) -> bytes:
        if self._rest:
            data, self._rest = self._rest + data, b""
        parts = []
        at = 0
        while not self.complete:
            if self._left:
                part = data[at : at + self._left]
                parts.append(part)
                at += len(part)
                self._left -= len(part)
                if self._left:
                    break
            end = data.find(b"\n", at)
            if end < 0:
                self._keep(data[at:])
                break
            self._read_line(data[at:end].rstrip(b"\r"))
            at = end + 1
        else:
            self.reusable = self.reusable and at == len(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _read_line(self, line: bytes) -> None:
        if self._place == "size":
            digits = line.partition(b";")[0].strip()
            try:
                self._left = int(digits, 16)
            except ValueError:
                raise ProtocolError(f"no size of a chunk: {line[:80]!r}") from None
            if self._left < 0:
                raise ProtocolError(f"no size of a chunk: {line[:80]!r}")
            self._place = "end" if self._left else "trailer"
        elif self._place == "end":
            if line:
                raise ProtocolError(f"a chunk longer than its size: {line[:80]!r}")
            self._place = "size"
        elif not line:
            self.complete = True

    def _keep(self, rest: bytes) -> None:
        if len(rest) > MAX_LINE:
            raise ProtocolError(f"more than {MAX_LINE} bytes of head")
        self._rest = rest
