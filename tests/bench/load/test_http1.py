from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.bench.load.http1 import MAX_LINE, ProtocolError, ResponseReader

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def read(pieces: list[bytes]) -> tuple[ResponseReader, bytes]:
    reader = ResponseReader()
    return reader, b"".join(reader.feed(piece) for piece in pieces)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[a:b] for a, b in pairwise(edges)]


@given(parts=st.lists(st.binary(min_size=1, max_size=40)), places=st.lists(st.integers(0, 10_000)), trailer=st.booleans())
def test_a_chunked_body_is_the_same_wherever_reads_cut_it(parts: list[bytes], places: list[int], trailer: bool) -> None:
    chunks = b"".join(b"%X;name=value\r\n%b\r\n" % (len(part), part) for part in parts)
    reader, body = read(cut(HEAD + chunks + b"0\r\n" + b"Trailing: yes\r\n" * trailer + b"\r\n", places))
    assert body == b"".join(parts)
    assert reader.complete and reader.reusable
    assert (reader.status, reader.reason, reader.headers["content-type"]) == (200, "OK", "text/event-stream")


@given(body=st.binary(max_size=100), places=st.lists(st.integers(0, 10_000)))
def test_a_body_of_known_length(body: bytes, places: list[int]) -> None:
    reader, got = read(cut(b"HTTP/1.1 404 Not Found\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body), places))
    assert (got, reader.status, reader.complete, reader.reusable) == (body, 404, True, True)


def test_a_body_that_ends_with_the_connection() -> None:
    reader, body = read([b"HTTP/1.1 200 OK\r\n\r\nab", b"cd"])
    assert body == b"abcd" and not reader.complete
    reader.end()
    assert reader.complete and not reader.reusable


def test_interim_answers_are_skipped() -> None:
    reader, body = read([b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"])
    assert (reader.status, body) == (200, b"hi")


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nmore than was said",
    ],
)
def test_connections_that_cannot_be_used_again(head: bytes) -> None:
    reader, _ = read([head])
    assert reader.complete and not reader.reusable


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        HEAD + b"xyz\r\n",
        HEAD + b"-1\r\n",
        HEAD + b"2\r\nabc\r\n",
        b"x" * (MAX_LINE + 1),
        HEAD + b"1" * (MAX_LINE + 1),
    ],
)
def test_what_is_not_http_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        read([data])


@pytest.mark.parametrize(
    "data", [b"", HEAD[:20], HEAD, HEAD + b"5\r\nabc", HEAD + b"3\r\nabc\r\n0\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab"]
)
def test_an_answer_cut_short_is_told(data: bytes) -> None:
    reader, _ = read([data])
    with pytest.raises(ProtocolError, match="closed"):
        reader.end()
