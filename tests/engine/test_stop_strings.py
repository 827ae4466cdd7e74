"""Stop strings against a reader who looks at one character at a time."""

from __future__ import annotations

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


@given(st.text("ab", max_size=12), st.lists(short, min_size=1, max_size=3), st.integers(0, 5))
def test_held_is_the_longest_end_that_may_become_a_stop(text, strings, floor):
    assume(read(text, strings, floor) is None)
    ends = [text[i:] for i in range(floor, len(text))]
    beginnings = [end for end in ends if any(s.startswith(end) for s in strings)]
    assert StopStrings(strings).held(text, floor) == max(map(len, beginnings), default=0)
