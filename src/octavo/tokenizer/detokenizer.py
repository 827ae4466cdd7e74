"""Output ids to text, as they come."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from octavo.tokenizer.tokenizer import PieceStream, Tokenizer

_LONGEST_CHARACTER = 4
"""Bytes of a UTF-8 sequence, at most."""


class IncrementalDetokenizer:
    """Turns ids into text piece by piece, in constant time per token.

    The pieces joined are ``Tokenizer.decode`` of all ids, whatever the chunks: text is given out only when it can no longer
    change. A character that the last token leaves unfinished (cut by max_tokens) becomes one U+FFFD at ``flush``, in a stream as
    in a whole answer.
    """

    def __init__(self, tokenizer: Tokenizer, skip_special_tokens: bool = True, spaces_between_special_tokens: bool = True) -> None:
        self._tokenizer = tokenizer
        self._flags = (skip_special_tokens, spaces_between_special_tokens)
        self._pieces = PieceStream(tokenizer, *self._flags)
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def prime(self, prompt_ids: Sequence[int]) -> None:
        """Say what comes before the first output token: call it first, or not at all.

        If the prompt shows any text, the output's leading space is kept; if it ends inside a character, the output completes it.
        """
        visible = PieceStream(self._tokenizer, *self._flags, continuation=True)
        tail = b""
        for token_id in reversed(prompt_ids):
            tail = visible.feed([token_id]) + tail
            if len(tail) >= _LONGEST_CHARACTER:
                break
        self._pieces = PieceStream(self._tokenizer, *self._flags, continuation=bool(tail))
        self._utf8.reset()
        self._utf8.decode(tail)

    def append(self, ids: Sequence[int]) -> str:
        """The text that ``ids`` make certain; it never holds U+FFFD for a character that is still coming."""
        return self._utf8.decode(self._pieces.feed(ids))

    def flush(self) -> str:
        """What is left when no more ids come: "", or one U+FFFD for an unfinished character."""
        return self._utf8.decode(b"", final=True)
