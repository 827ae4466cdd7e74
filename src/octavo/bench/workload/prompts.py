"""Prompts of an exact number of tokens, as ids or as text.

A prompt is a row of parts: those that others share, then its own. Each part is drawn from a random stream that its key names, so that the
same key is the same text wherever it occurs. As text, a prompt is counted by encoding it: the number is proven, not hoped for.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import numpy as np

from octavo.bench.workload.text import PromptText
from octavo.bench.workload.tokens import Tokens
from octavo.errors import InvalidRequestError, OctavoError
from octavo.tokenizer.tokenizer import Tokenizer

_TRIES = 32
"""Rounds of cutting and filling in search of the length, and places that are tried then. Two or three rounds do nearly always."""
_BROKEN = "\ufffd"
"""Half a character, where ids are cut: left out."""


@dataclass(frozen=True)
class Part:
    """Some tokens of a prompt."""

    key: tuple[int, ...]
    """Says which; the same key, the same tokens."""
    tokens: int
    nth: int | None = None
    """Of a part that is one prompt's own: the prompt's number, so that no two begin at the same place of a text. None: shared."""


class Source(Protocol):
    """What tokens are drawn from."""

    def stream(self, random: np.random.Generator, nth: int | None) -> Iterator[int]:
        """Ids without end."""


class RandomSource:
    """Uniform random ids."""

    def __init__(self, tokens: Tokens, as_text: bool) -> None:
        """``as_text``: words, which a tokenizer cuts again where they were joined."""
        self._ids = tokens.words if as_text else tokens.ordinary

    def stream(self, random: np.random.Generator, nth: int | None) -> Iterator[int]:
        count = 256
        while True:
            yield from self._ids[random.integers(0, len(self._ids), count)].tolist()


class TextSource:
    """A text from some place on, and from its beginning again where it ends."""

    def __init__(self, tokenizer: Tokenizer, text: str, seed: Sequence[int], salt: str) -> None:
        """``salt`` is written before each part, if it is not empty."""
        self._ids = [i for i in tokenizer.encode(text, add_special_tokens=False) if i not in tokenizer.special_ids]
        if not self._ids:
            raise InvalidRequestError("text: this tokenizer makes no ordinary token of it", field="text")
        self._head = tokenizer.encode(f"{salt} ", add_special_tokens=False) if salt else []
        random = np.random.default_rng(seed)
        self._first, self._stride = int(random.integers(len(self._ids))), int(random.integers(1, len(self._ids) + 1))
        while math.gcd(self._stride, len(self._ids)) > 1:
            self._stride += 1

    def stream(self, random: np.random.Generator, nth: int | None) -> Iterator[int]:
        """The n-th prompt's own part begins n strides on: at places that all differ, until there are as many as the text has tokens."""
        place = int(random.integers(len(self._ids))) if nth is None else (self._first + nth * self._stride) % len(self._ids)
        yield from self._head
        yield from self._ids[place:]
        while True:
            yield from self._ids


class Writer:
    """Writes the prompts of one workload."""

    def __init__(self, tokens: Tokens, seed: int, as_text: bool, salt: str) -> None:
        """``salt``: another, and all prompts are others, with the same lengths and the same sharing.

        Raises:
            InvalidRequestError: ``as_text``, and there is no tokenizer.
        """
        self._tokens = tokens
        self._as_text = as_text
        self._salt = hashlib.sha256(salt.encode()).hexdigest()[:12] if salt else ""
        self._seed = [seed, int(self._salt or "0", 16)]
        self._sources: dict[str | None, Source] = {}
        self._shared: dict[tuple[PromptText | None, Part, str], str] = {}
        if as_text:
            self._tokenizer = tokens.tokenizer

    def write(self, parts: Sequence[Part], text: PromptText | None) -> tuple[list[int], str | None]:
        """Ids of a prompt and, if it is to be text, the text; what it is made of is ``text``, or None for random tokens.

        Raises:
            InvalidRequestError: it is made of text, and there is no tokenizer.
        """
        source = self._source(text)
        if not self._as_text:
            return [i for part in parts for i in self._take(source, part)], None
        return self._write_text(parts, source, text)

    def _write_text(self, parts: Sequence[Part], source: Source, text: PromptText | None) -> tuple[list[int], str]:
        """The shared parts' text, which is always the same, and as much more that the whole has its number of tokens.

        Where a tokenizer gives the joined parts more than all of them have, the last shared one becomes the prompt's own.
        """
        while True:
            head = ""
            for part in parts[:-1]:
                head += self._shared_text(source, text, part, " " if head else "")
            found = self._exact(source, head, parts[-1], sum(part.tokens for part in parts))
            if found is not None:
                return found
            if len(parts) == 1:
                raise OctavoError(f"no text of exactly {parts[0].tokens} tokens was found with this tokenizer; send token ids instead")
            *shared, last, own = parts
            parts = [*shared, Part(own.key, last.tokens + own.tokens, own.nth)]

    def _shared_text(self, source: Source, text: PromptText | None, part: Part, glue: str) -> str:
        """``glue``, and text of the part's number of tokens with it: whatever comes before, a tokenizer cuts at the space between."""
        key = text, part, glue
        if key not in self._shared:
            found = self._exact(source, "", part, part.tokens, glue)
            self._shared[key] = "" if found is None else found[1]
        return self._shared[key]

    def _exact(self, source: Source, head: str, part: Part, total: int, glue: str = "") -> tuple[list[int], str] | None:
        """``head``, ``glue`` (by default a space, where there is a head) and text of ``part``, of ``total`` tokens together."""
        for attempt in range(_TRIES):
            between = glue or (" " if head and attempt % 2 == 0 else "")
            found = _grow(self._tokenizer, head + between, self._stream(source, part, attempt), part.tokens, total)
            if found is not None:
                return found
        return None

    def _take(self, source: Source, part: Part) -> list[int]:
        return list(islice(self._stream(source, part, 0), part.tokens))

    def _stream(self, source: Source, part: Part, attempt: int) -> Iterator[int]:
        return source.stream(np.random.default_rng([*self._seed, attempt, *part.key]), None if attempt else part.nth)

    def _source(self, text: PromptText | None) -> Source:
        name = None if text is None else text.text
        if name not in self._sources:
            if text is None:
                self._sources[name] = RandomSource(self._tokens, self._as_text)
            else:
                self._sources[name] = TextSource(self._tokens.tokenizer, text.text, self._seed, self._salt)
        return self._sources[name]


def _grow(tokenizer: Tokenizer, head: str, stream: Iterator[int], count: int, total: int) -> tuple[list[int], str] | None:
    """Ids and text of exactly ``total`` tokens that begin with ``head``, which lacks about ``count``.

    Encodes, cuts what is too much, fills up what is missing, and encodes again. None where that goes round in circles. What is added has no
    spaces around it: parts are joined there, and a tokenizer cuts between two words.
    """
    own = _more(tokenizer, stream, count).lstrip()
    for _ in range(_TRIES):
        text = head + own
        ids = tokenizer.encode(text, add_special_tokens=False)
        if len(ids) == total:
            return ids, text
        if len(ids) < total:
            own += _more(tokenizer, stream, total - len(ids))
        else:
            own = tokenizer.decode(ids[:total]).replace(_BROKEN, "")[len(head) :].strip()
            if not own:
                return None
    return None


def _more(tokenizer: Tokenizer, stream: Iterator[int], count: int) -> str:
    return tokenizer.decode(islice(stream, count), continuation=True).replace(_BROKEN, "").rstrip()
