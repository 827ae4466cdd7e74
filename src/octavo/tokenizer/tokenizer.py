"""Text to token ids and back: one interface for every vocabulary.

A vocabulary (``Vocabulary``) says how text is cut into ids and which bytes an id stands for; the rest (special tokens,
decoding, caches) is common to all, so that a stream and a whole answer are decoded by the same few lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from octavo.errors import InvalidRequestError


class Vocabulary(Protocol):
    """What differs between kinds of vocabulary. Implementations keep no state that a call changes, but for caches."""

    @property
    def size(self) -> int:
        """Ids are 0 to size - 1; some may be unassigned."""

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        """Ids of a text, which is valid Unicode. The text of a special token becomes that token."""

    def id_to_token(self, token_id: int) -> str | None:
        """The token as the vocabulary writes it (e.g. "Ġthe", "▁the"), or None if there is no such id."""

    def token_to_id(self, token: str) -> int | None:
        """The id of a token as the vocabulary writes it, or None."""

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes the token adds to a text; empty for an id that does not exist."""


@dataclass(frozen=True, kw_only=True)
class TokenizerInfo:
    """A model file's words about its vocabulary."""

    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()
    """Tokens that end a text or a turn; the model's own end-of-sequence token comes first."""
    special_ids: frozenset[int] = frozenset()
    """Tokens that ``skip_special_tokens`` leaves out."""
    add_bos: bool = False
    """Whether ``encode`` with special tokens begins with ``bos_token_id``."""
    start_strip: int = 0
    """Leading spaces that the first piece of a text loses, at most."""
    chat_template: str | None = None


class Tokenizer:
    """The tokenizer of one model. Safe to use from several threads."""

    def __init__(self, vocabulary: Vocabulary, info: TokenizerInfo) -> None:
        self._vocabulary = vocabulary
        self._bytes: dict[int, bytes] = {}
        self.vocab_size = vocabulary.size
        self.bos_token_id = info.bos_token_id
        self.eos_token_ids = info.eos_token_ids
        self.special_ids = info.special_ids
        self.add_bos = info.add_bos
        self.start_strip = info.start_strip
        self.chat_template = info.chat_template
        self.bos_token = self._name(info.bos_token_id)
        """The token's text, or "" if the model has none; so too ``eos_token``."""
        self.eos_token = self._name(info.eos_token_ids[0] if info.eos_token_ids else None)

    def _name(self, token_id: int | None) -> str:
        return "" if token_id is None else self.id_to_token(token_id) or ""

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of ``text``; with the model's BOS (and EOS) tokens if it wants them and ``add_special_tokens``.

        Raises:
            InvalidRequestError: the text holds half of a surrogate pair, which no encoding has.
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidRequestError(
                f"the text holds U+{ord(text[error.start]):04X} at character {error.start}: a lone surrogate is not valid Unicode"
            ) from error
        return self._vocabulary.encode(text, add_special_tokens)

    def encode_rendered(self, text: str) -> list[int]:
        """Token ids of a rendered chat template, which writes its special tokens itself: exactly one BOS where the model wants one."""
        ids = self.encode(text, add_special_tokens=False)
        if self.add_bos and self.bos_token_id is not None and ids[:1] != [self.bos_token_id]:
            ids.insert(0, self.bos_token_id)
        return ids

    @cached_property
    def longest_token(self) -> int:
        """Bytes of the longest token."""
        return max(len(self.token_bytes(token_id)) for token_id in range(self.vocab_size))

    def surely_exceeds(self, text: str, num_tokens: int) -> bool:
        """Whether ``text`` has more tokens than that whatever they are, told without tokenizing it: no token is longer than the longest.

        A vocabulary that drops characters (spaces before a special token, say) is taken at its word for what it keeps.
        """
        return len(text) > num_tokens and len(text) > num_tokens * self.longest_token

    def decode(
        self,
        ids: Iterable[int],
        skip_special_tokens: bool = True,
        spaces_between_special_tokens: bool = True,
        *,
        continuation: bool = False,
    ) -> str:
        """The text of ``ids``. Bytes that are not UTF-8 become U+FFFD, one for each cut or broken character.

        ``continuation``: the ids go on from a text that has begun, so a leading space belongs to them.
        ``spaces_between_special_tokens``: see ``PieceStream``.
        """
        pieces = PieceStream(self, skip_special_tokens, spaces_between_special_tokens, continuation)
        return pieces.feed(ids).decode("utf-8", "replace")

    def id_to_token(self, token_id: int) -> str | None:
        """The token as the vocabulary writes it, or None if there is no such id."""
        return self._vocabulary.id_to_token(token_id)

    def token_to_id(self, token: str) -> int | None:
        """The id of a token as the vocabulary writes it, or None."""
        return self._vocabulary.token_to_id(token)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes the token stands for, within a text; empty for ids past the vocabulary (a padded embedding has some)."""
        piece = self._bytes.get(token_id)
        if piece is None:
            piece = self._bytes[token_id] = self._vocabulary.token_bytes(token_id)
        return piece

    def token_text(self, token_id: int) -> str:
        """The token's own text, for logprobs; a part of a character shows as U+FFFD, so use ``token_bytes`` to join them."""
        return self.token_bytes(token_id).decode("utf-8", "replace")


class PieceStream:
    """Ids to bytes, in order: which tokens show, and which leading spaces do.

    Spaces between special tokens are those that the tokens themselves bring. With ``spaces_between_special_tokens`` False,
    a special token that follows another loses the spaces it begins with (what vLLM does for fast tokenizers).
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        skip_special_tokens: bool = True,
        spaces_between_special_tokens: bool = True,
        continuation: bool = False,
    ) -> None:
        self._tokenizer = tokenizer
        self._special = tokenizer.special_ids
        self._skip_special = skip_special_tokens
        self._spaces = spaces_between_special_tokens
        self._at_start = not continuation and tokenizer.start_strip > 0
        self._after_special = False

    def feed(self, ids: Iterable[int]) -> bytes:
        """The bytes that ``ids`` add."""
        if self._skip_special and not self._at_start:
            special, token_bytes = self._special, self._tokenizer.token_bytes
            return b"".join([token_bytes(i) for i in ids if i not in special])
        return b"".join([self._piece(i) for i in ids])

    def _piece(self, token_id: int) -> bytes:
        piece = self._tokenizer.token_bytes(token_id)
        special = token_id in self._special
        if special and self._skip_special:
            return b""
        if special and self._after_special and not self._spaces:
            piece = piece.lstrip(b" ")
        self._after_special = special
        if self._at_start and piece:
            self._at_start = False
            leading = len(piece) - len(piece.lstrip(b" "))
            piece = piece[min(leading, self._tokenizer.start_strip) :]
        return piece


def bad_word_token_ids(words: Sequence[str], tokenizer: Tokenizer) -> list[list[int]]:
    """Token sequences that spell each word, at the start of a text and after a space.

    vLLM's ``bad_words`` takes the form after a space only where it is as long as the other, so that a word which is one token
    after a space gets through; here it is left out only where the other form already ends it.
    """
    sequences: list[list[int]] = []
    for word in words:
        bare = tokenizer.encode(word.lstrip(" "), add_special_tokens=False)
        spaced = tokenizer.encode(" " + word.lstrip(" "), add_special_tokens=False)
        if bare:
            sequences.append(bare)
        if spaced and (not bare or spaced[-len(bare) :] != bare):
            sequences.append(spaced)
    return sequences
