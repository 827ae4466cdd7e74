"""Stop strings against a reader who looks at one character at a time."""

from __future__ import annotations

import time

from hypothesis import assume, given
from hypothesis import strategies as st

from octavo.engine.stop_strings import StopMatch, StopStrings

short = st.text("ab", min_size=1, max_size=4)


def read(text: str, strings: list[str], floor: int) -> StopMatch | None:
    for end in range(len(text) + 1):
        for start in range(floor, end):
            if text[start:end] in strings:
                return StopMatch(text[start:end], start, end)
    return None


@given(st.text("ab", max_size=20), st.lists(short, min_size=1, max_size=3), st.integers(0, 5), st.data())
def test_a_stop_is_found_where_a_reader_meets_it(text, strings, floor, data):
    """However the text came in pieces: each prefix known to be free of stops may be given as scanned."""
    expected = read(text, strings, floor)
    clean = len(text) if expected is None else expected.end - 1
    scanned = data.draw(st.integers(0, clean))
    assert StopStrings(strings).find(text, floor, scanned) == expected


@given(st.text("ab", max_size=12), st.lists(st.text("ab", min_size=1, max_size=9), min_size=1, max_size=3), st.integers(0, 5), st.data())
def test_held_is_the_longest_end_that_may_become_a_stop(text, strings, floor, data):
    """After whatever pieces the text came in."""
    assume(read(text, strings, floor) is None)
    stops, seen = StopStrings(strings), floor
    while seen < len(text):
        seen = data.draw(st.integers(seen + 1, len(text)))
        ends = [text[i:seen] for i in range(floor, seen)]
        beginnings = [end for end in ends if any(s.startswith(end) for s in strings)]
        assert stops.held(text[:seen], floor) == max(map(len, beginnings), default=0)


def test_long_stop_strings_cost_little():
    """64 of 10,000 characters, whose beginnings 8,000 characters of text are: that takes a second, and minutes if each end is tried."""
    stops = StopStrings(["ab" * 5000 + chr(1000 + i) for i in range(64)])
    text = "ab" * 4000 + "b"
    start = time.process_time()
    for end in range(0, len(text), 4):
        stops.held(text[:end], 0)
    assert stops.held(text, 0) == 0 and stops.held(text + "a", 0) == 1
    assert time.process_time() - start < 10
