"""SentencePiece-style merging with scores, as GGUF files of the kind "llama" ask for it.

The text is cut into characters; of all neighbours that make a token together, the pair whose token has the highest score (the
leftmost of equals) is merged, until no pair is left. What is then no token becomes bytes. (Kudo and Richardson, SentencePiece, 2018,
section 3.1; the order of merges is llama.cpp's.)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from heapq import heapify, heappop, heappush

import numpy as np

from octavo.tokenizer.pieces import SPACE_MARK

_CACHED_SEGMENT = 48
"""Longest segment, in characters, whose ids are remembered."""
_CACHE_SIZE = 1 << 16


class ScoreMerger:
    """Merges characters into tokens by score; n characters take O(n log n)."""

    def __init__(self, ids: dict[str, int], scores: Sequence[float]) -> None:
        """``ids``: token to id, of all kinds. ``scores``: by id."""
        self._ids = ids
        order = np.unique(-np.asarray(scores, np.float32), return_inverse=True)[1]
        self._rank: list[int] = order.tolist()
        """By id: 0 for the highest score; equal scores have equal ranks."""
        self._longest = max(map(len, ids), default=1)
        self._byte_ids = [ids.get(f"<0x{byte:02X}>", ids.get(chr(byte))) for byte in range(256)]
        self._segments = _segment_pattern(ids)
        self._cache: dict[str, list[int]] = {}

    def encode(self, text: str) -> list[int]:
        """Ids of a text in which spaces are written "▁"."""
        output: list[int] = []
        cache = self._cache
        for segment in self._segments.findall(text):
            ids = cache.get(segment)
            if ids is None:
                ids = self._encode_segment(segment)
                if len(segment) <= _CACHED_SEGMENT:
                    if len(cache) >= _CACHE_SIZE:
                        cache.clear()
                    cache[segment] = ids
            output += ids
        return output

    def _encode_segment(self, text: str) -> list[int]:
        output: list[int] = []
        start = 0
        for size in self._merge(text):
            if size:
                piece = text[start : start + size]
                token = self._ids.get(piece)
                output += self._as_bytes(piece) if token is None else [token]
                start += size
        return output

    def _as_bytes(self, piece: str) -> list[int]:
        return [token for byte in piece.encode() if (token := self._byte_ids[byte]) is not None]

    def _merge(self, text: str) -> list[int]:
        """For each character the length of the symbol that starts there, 0 if none does."""
        ids, rank, longest, n = self._ids, self._rank, self._longest, len(text)
        sizes = [1] * n
        previous = list(range(-1, n - 1))
        # A heap entry packs (rank of the merged token, left symbol, merged length) into one integer.
        size_bits, left_bits = longest.bit_length(), n.bit_length()
        size_mask, left_mask = (1 << size_bits) - 1, (1 << left_bits) - 1
        heap: list[int] = []
        for left in range(n - 1):
            token = ids.get(text[left : left + 2])
            if token is not None:
                heap.append((rank[token] << left_bits | left) << size_bits | 2)
        heapify(heap)
        while heap:
            entry = heappop(heap)
            total, left = entry & size_mask, entry >> size_bits & left_mask
            right = left + sizes[left]
            if right == left or right >= n or right + sizes[right] != left + total:
                continue  # One of the two was merged with another since.
            sizes[left], sizes[right] = total, 0
            after, before = left + total, previous[left]
            if after < n:
                previous[after] = left
                wider = total + sizes[after]
                if wider <= longest and (token := ids.get(text[left : left + wider])) is not None:
                    heappush(heap, (rank[token] << left_bits | left) << size_bits | wider)
            if before >= 0:
                wider = after - before
                if wider <= longest and (token := ids.get(text[before:after])) is not None:
                    heappush(heap, (rank[token] << left_bits | before) << size_bits | wider)
        return sizes


def _segment_pattern(ids: dict[str, int]) -> re.Pattern[str]:
    """Cuts a text where no token can reach across: before a "▁" after any character that no token has before a "▁".

    Merging each segment by itself gives the ids of the whole, since every step makes a token.
    """
    bridging = {SPACE_MARK, *re.findall(f"(?s)(.){SPACE_MARK}", "\0".join(ids))}
    inside = "".join(map(re.escape, sorted(bridging)))
    return re.compile(f"(?s).(?:[^{SPACE_MARK}]|(?<=[{inside}]){SPACE_MARK})*")
