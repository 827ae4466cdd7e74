"""Stop strings in a text that grows: where one is complete, and how much of the end may yet become one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class StopMatch:
    """A stop string found: text[start:end] == string."""

    string: str
    start: int
    end: int


class StopStrings:
    """The stop strings of one completion."""

    def __init__(self, strings: Sequence[str]) -> None:
        self._strings = tuple(dict.fromkeys(strings))
        self._longest = max((len(s) for s in self._strings), default=0)

    def find(self, text: str, floor: int, scanned: int) -> StopMatch | None:
        """The stop string that a reader meets first, character by character, however the text came in pieces.

        That is the one with the smallest end, of several the longest. Matches start at or after ``floor``; text[:scanned]
        is known to hold no whole one.
        """
        matches = []
        for string in self._strings:
            start = text.find(string, max(floor, scanned - len(string) + 1))
            if start >= 0:
                matches.append(StopMatch(string, start, start + len(string)))
        return min(matches, key=lambda m: (m.end, m.start), default=None)

    def held(self, text: str, floor: int) -> int:
        """How many characters at the end of ``text``, not before ``floor``, are the beginning of a stop string.

        ``text`` holds no whole one from ``floor`` on.
        """
        most = min(self._longest - 1, len(text) - floor)
        for count in range(most, 0, -1):
            tail = text[-count:]
            if any(string.startswith(tail) for string in self._strings):
                return count
        return 0
