"""Finding special tokens in a text before anything else is tokenized."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping

_SCANNED_GROUP = 64
"""Above this many tokens with one beginning, looking up what stands at each of its places beats searching for each token."""


class SpecialSplitter:
    """Cuts a text at its special tokens, as llama.cpp does: longer ones first (in bytes), each from left to right."""

    def __init__(self, ids: Mapping[str, int]) -> None:
        """``ids``: the special tokens' texts (none is empty) and ids."""
        self._ids = dict(sorted(ids.items(), key=lambda item: (-len(item[0].encode("utf-8", "replace")), item[1])))
        groups: dict[str, set[str]] = defaultdict(set)
        for text in self._ids:
            groups[text[:3]].add(text)
        self._groups = dict(groups)
        """By how they begin: most texts hold the beginning of none of thousands."""

    def split(self, text: str) -> list[str | int]:
        """The text's parts in order: text that is not empty, and ids of special tokens."""
        present = {token for start, group in self._groups.items() if start in text for token in _present(start, group, text)}
        parts: list[str | int] = [text] if text else []
        if present:
            for token, token_id in self._ids.items():
                if token in present:
                    parts = _cut(parts, token, token_id)
        return parts


def _present(start: str, group: set[str], text: str) -> Iterator[str]:
    """Those of ``group``, which all begin with ``start``, that occur in the text."""
    if len(group) <= _SCANNED_GROUP:
        yield from (token for token in group if token in text)
        return
    lengths = sorted({len(token) for token in group})
    for match in re.finditer(f"(?={re.escape(start)})", text):
        at = match.start()
        yield from (text[at : at + length] for length in lengths if text[at : at + length] in group)


def _cut(parts: list[str | int], token: str, token_id: int) -> list[str | int]:
    result: list[str | int] = []
    for part in parts:
        if isinstance(part, int) or token not in part:
            result.append(part)
            continue
        head, *rest = part.split(token)
        if head:
            result.append(head)
        for text in rest:
            result.append(token_id)
            if text:
                result.append(text)
    return result
