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
    """The stop strings of one completion, followed along its text."""

    def __init__(self, strings: Sequence[str]) -> None:
        self._strings = tuple(dict.fromkeys(strings))
        self._beginnings = [_Beginning(string) for string in self._strings]
        self._followed = 0
        """Characters of the text that ``_beginnings`` have read."""

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

        ``text`` holds no whole one from ``floor`` on. From call to call it grows, and ``floor`` stays; what is new is read once.
        """
        new = text[max(self._followed, floor) :]
        self._followed = len(text)
        for beginning in self._beginnings:
            beginning.read(new)
        return max((beginning.length for beginning in self._beginnings), default=0)


class _Beginning:
    """The longest end of a growing text that begins ``string``: the automaton of Knuth, Morris and Pratt (1977), built as far as it is
    needed. A character takes constant time, amortized, however long the string is.
    """

    __slots__ = ("_borders", "_string", "length")

    def __init__(self, string: str) -> None:
        self.length = 0
        self._string = string
        self._borders = [0]
        """[k - 1]: of the first k characters, the longest proper beginning that is also their end."""

    def read(self, text: str) -> None:
        string = self._string
        if not self.length and string[0] not in text:
            return
        for char in text:
            self.length = self._extended(self.length, char)
            if self.length > len(self._borders):
                self._borders.append(self._extended(self._borders[-1], char))

    def _extended(self, length: int, char: str) -> int:
        """What becomes of a beginning of ``length`` characters when ``char`` follows."""
        string, borders = self._string, self._borders
        while length and string[length] != char:
            length = borders[length - 1]
        return length + (string[length] == char)
