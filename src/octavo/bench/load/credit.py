"""How many tokens each event of a stream brought. Counted after the run: none of it on the clock.

The server's own counts, where it tells them with each event, are exact. Otherwise the text is tokenized, and what comes out is corrected to
the total that the server's usage states; and where that total is the number of events, each brought one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from octavo.bench.load.records import Chunk

Counted = Literal["events", "text", "usage", "chunks"]
"""events: told with each event. text: the text tokenized, and corrected to the usage if there was one. usage: the total alone, shared out
evenly. chunks: nothing was told; each event is taken for one token."""

CountTokens = Callable[[str], int]
"""Tokens of a text, without those (BOS) that belong to no text."""

WINDOW = 200
"""Characters before an event's text that it is tokenized with: its tokens may join with what stands before, but not from far away."""


class Piece(NamedTuple):
    """What one event of a stream brought."""

    time: float
    text: str
    so_far: int | None = None
    """Tokens of the answer up to here, as the server says."""


def credit(pieces: Sequence[Piece], total: int | None, count: CountTokens | None) -> tuple[list[Chunk], Counted]:
    """The chunks of an answer, each of 1 token or more; the first one is the first with text, and tokens before it are its own.

    ``total`` is what the server's last usage says, and it wins: the chunks add up to it, unless it is less than 1.
    """
    first = next((number for number, piece in enumerate(pieces) if piece.text), None)
    if first is None:
        return [], "chunks"
    pieces = pieces[first:]
    tokens: list[int]
    counted: Counted
    if all(piece.so_far is not None for piece in pieces):
        tokens, counted = _told(pieces), "events"
    else:
        pieces = [piece for piece in pieces if piece.text]
        tokens, counted = _estimated(pieces, total, count)
    if total is not None and total > 0:
        tokens = _corrected(tokens, total)
    else:
        tokens[0] = max(tokens[0], 1)
    return [Chunk(piece.time, brought) for piece, brought in zip(pieces, tokens, strict=True) if brought], counted


def _told(pieces: Sequence[Piece]) -> list[int]:
    """Of each, by the running counts; what has no token of its own brings 0."""
    tokens = []
    before = 0
    for piece in pieces:
        so_far = max(piece.so_far or 0, before)
        tokens.append(so_far - before)
        before = so_far
    return tokens


def _estimated(pieces: Sequence[Piece], total: int | None, count: CountTokens | None) -> tuple[list[int], Counted]:
    if total == len(pieces):
        return [1] * len(pieces), "usage"
    if count is None:
        return [1] * len(pieces), "chunks" if total is None else "usage"
    return tokens_by_text([piece.text for piece in pieces], count), "text"


def tokens_by_text(texts: Sequence[str], count: CountTokens) -> list[int]:
    """Tokens that each text adds to those before it, 0 or more: the growth of the count, over a window of the text so far."""
    tokens = []
    window = ""
    before = 0
    for text in texts:
        window += text
        now = count(window)
        tokens.append(max(now - before, 0))
        before = max(now, before)
        if len(window) > 2 * WINDOW:
            window = window[-WINDOW:]
            before = count(window)
    return tokens


def _corrected(tokens: Sequence[int], total: int) -> list[int]:
    """With the sum ``total``, at least 1. Surplus is taken where most is, last from the ends; what is missing is shared out evenly."""
    fixed = list(tokens)
    fixed[0] = max(fixed[0], 1)
    last = len(fixed) - 1
    for _ in range(sum(fixed) - total):
        held = [place for place in range(len(fixed)) if fixed[place] > (place == 0)]
        fixed[max(held, key=lambda place: (fixed[place] - (place in (0, last)), place))] -= 1
    missing = total - sum(fixed)
    return [held + (place + 1) * missing // len(fixed) - place * missing // len(fixed) for place, held in enumerate(fixed)]
