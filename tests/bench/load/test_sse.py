from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.bench.load.sse import MAX_EVENT, EventReader

LINES = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=20).map(str.encode)
NEWLINES = st.sampled_from([b"\n", b"\r\n", b"\r"])


def read(pieces: list[bytes]) -> list[tuple[bytes, bytes]]:
    reader = EventReader()
    return [event for piece in pieces for event in reader.feed(piece)]


@given(
    events=st.lists(st.tuples(st.sampled_from([b"", b"error"]), st.lists(LINES, min_size=1, max_size=3), st.booleans())),
    newline=NEWLINES,
    space=st.booleans(),
    data=st.data(),
)
def test_events_are_the_same_wherever_reads_cut_them(
    events: list[tuple[bytes, list[bytes], bool]], newline: bytes, space: bool, data: st.DataObject
) -> None:
    stream = b""
    for name, lines, comment in events:
        stream += (b": a comment" + newline) * comment + (b"event:" + name + newline) * bool(name)
        stream += b"".join(b"data:" + b" " * (space or line.startswith(b" ")) + line + newline for line in lines) + newline
    places = sorted({0, len(stream), *data.draw(st.lists(st.integers(0, len(stream))))})
    pieces = [stream[a:b] for a, b in pairwise(places)]
    assert read(pieces) == [(name, b"\n".join(lines)) for name, lines, _ in events]


@pytest.mark.parametrize("ending", [b"\n\n", b"\r\r", b"\r\n\r"])
def test_an_event_is_there_with_the_byte_that_ends_it(ending: bytes) -> None:
    """Of CRLF CRLF that is the second CR: it ends a line whether LF follows or not."""
    reader = EventReader()
    assert reader.feed(b"data: 1" + ending[:-1]) == []
    assert reader.feed(ending[-1:]) == [(b"", b"1")]
    assert reader.feed(b"\ndata: 2\n\n" if ending.endswith(b"\r") else b"data: 2\n\n") == [(b"", b"2")]


def test_comments_retries_ids_and_events_without_data_are_none() -> None:
    assert read([b": ping\n\nretry: 10\nid: 7\n\nevent: x\n\n\n\ndata: y\n\n"]) == [(b"", b"y")]


def test_a_byte_order_mark_is_no_part_of_it() -> None:
    assert read([b"\xef\xbb\xbfdata: y\n\n"]) == [(b"", b"y")]


def test_the_last_event_may_lack_its_empty_line() -> None:
    reader = EventReader()
    assert reader.feed(b"data: 1\n\ndata: 2\n") == [(b"", b"1")]
    assert reader.end() == [(b"", b"2")]
    assert reader.end() == []


def test_an_event_without_an_end_is_refused() -> None:
    with pytest.raises(ValueError, match="more than"):
        read([b"x" * (MAX_EVENT + 1)])
