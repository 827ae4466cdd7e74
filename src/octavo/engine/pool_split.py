"""How layer groups of different need share the KV pool's bytes.

A group of full attention needs a block for every ``block_size`` tokens of a sequence; a group with a sliding window no more than the window
takes, however long the sequence is (and, in prefill, the step's tokens). So the best split depends on the lengths to come, which nobody
knows at the start. The rule:

1. One sequence of max_model_len fits. If the bytes do not allow it, but max_model_len may be lowered, one of a window and a step's tokens
   fits. If that does not either, every group gets what the longest sequence that fits needs.
2. What is left is divided so that sequences of one length exhaust all groups together: of c (F + W) / F blocks, or of max_model_len if that
   is less. F and W are the bytes of a block in the full groups and in those with a window, and c is the blocks that a window takes. If all
   sequences have another length, short or long, at least (F + W) / (F + 2 W) as many fit as with the best split for that length: more
   than half.
3. A group with a window gets no more than max_num_seqs sequences need at once, and the chunks of two prefills. The full groups get
   the rest.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from octavo.kv.reach import Reach


@dataclass(frozen=True)
class PoolSplit:
    """Blocks per layer group, for a pool of so many bytes or blocks."""

    block_bytes: Sequence[int]
    """Of one block of each group."""
    reaches: Sequence[Reach]
    max_num_seqs: int
    max_blocks: int
    """Of a sequence of max_model_len."""

    def nbytes(self, num_blocks: Sequence[int]) -> int:
        """Of so many blocks of each group."""
        return sum(count * size for count, size in zip(num_blocks, self.block_bytes, strict=True))

    def bytes_for_one(self, blocks: int) -> int:
        """What a sequence of so many blocks needs, alone."""
        return self.nbytes(self._for_one(blocks))

    def longest(self, num_blocks: Sequence[int]) -> int | None:
        """Blocks of the longest sequence that fits; None: any does."""
        limits = (count for count, reach in zip(num_blocks, self.reaches, strict=True) if count < reach.most_in_prefill)
        return min(limits, default=None)

    def by_blocks(self, count: int) -> list[int]:
        """``count`` blocks of each group, but beside full groups of a window no more than can be of use."""
        mixed = not all(reach.slides for reach in self.reaches)
        return [min(count, most) if reach.slides and mixed else count for reach, most in zip(self.reaches, self._most(), strict=True)]

    def by_bytes(self, nbytes: int, may_lower: bool) -> list[int]:
        """As many blocks as fit into so many bytes; ``may_lower``: max_model_len, if there are too few for it."""
        window = max((reach.most_in_prefill for reach in self.reaches if reach.slides), default=0)
        for blocks in (self.max_blocks, window) if may_lower and window else (self.max_blocks,):
            if self.bytes_for_one(blocks) <= nbytes:
                return self._divide(nbytes, blocks)
        return self._for_one(bisect_right(range(1, self.max_blocks + 1), nbytes, key=self.bytes_for_one))

    def at_most_needed(self, nbytes: int, may_lower: bool) -> list[int]:
        """The same, but no more than max_num_seqs sequences of max_model_len need."""
        return [min(count, most) for count, most in zip(self.by_bytes(nbytes, may_lower), self._most(), strict=True)]

    def _for_one(self, blocks: int) -> list[int]:
        return [reach.most(blocks) for reach in self.reaches]

    def _decoding(self) -> list[int]:
        """What a sequence of max_model_len holds of each group once its prefill is done."""
        return [min(self.max_blocks, reach.most_in_decode) for reach in self.reaches]

    def _most(self) -> list[int]:
        """What all sequences together can need of each group: with a window, two in prefill at a time."""
        pairs = zip(self._for_one(self.max_blocks), self._decoding(), strict=True)
        return [self.max_num_seqs * decoding + min(2, self.max_num_seqs) * (one - decoding) for one, decoding in pairs]

    def _divide(self, nbytes: int, blocks: int) -> list[int]:
        """By rules 2 and 3, when one sequence of so many ``blocks`` fits."""
        least, decoding, most = self._for_one(blocks), self._decoding(), self._most()
        sizes = self.block_bytes
        sliding = [i for i, reach in enumerate(self.reaches) if reach.slides]
        full = sum(size for i, size in enumerate(sizes) if i not in sliding)
        window = max((decoding[i] for i in sliding), default=0)
        length = min(self.max_blocks, window * sum(sizes) // full) if full else 0
        spare = nbytes - self.nbytes(least)
        unit = full * length + sum(sizes[i] * decoding[i] for i in sliding)
        counts = list(least)
        for i in sliding:
            share = spare * decoding[i] // unit
            counts[i] = least[i] + (min(share, most[i] - least[i]) if full else share)
        rest = nbytes - sum(sizes[i] * counts[i] for i in sliding)
        return [counts[i] if i in sliding else rest // full for i in range(len(sizes))]
