"""The free blocks of a pool as maximal runs of neighbours."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from octavo.kv.interfaces import BlockIds

Lengths = npt.NDArray[np.int64]


class FreeRuns:
    """Runs in order of position: ``starts`` and ``lengths``, with a block in use between any two neighbours.

    Taking and giving back a run costs O(runs) of array work: 50,000 runs, the most that 100,000 blocks can have, take some 50 µs.
    Reading ``num_free`` and ``largest`` costs O(1).
    """

    def __init__(self, num_blocks: int) -> None:
        self.starts: Lengths = np.zeros(1, np.int64)
        self.lengths: Lengths = np.full(1, num_blocks, np.int64)
        self.num_free = num_blocks
        self.largest = num_blocks

    def take(self, index: int, count: int) -> int:
        """Take the first ``count`` blocks of run ``index``, which has as many; returns the first."""
        start, length = int(self.starts[index]), int(self.lengths[index])
        if count == length:
            self.starts, self.lengths = np.delete(self.starts, index), np.delete(self.lengths, index)
        else:
            self.starts[index] += count
            self.lengths[index] -= count
        self.num_free -= count
        if length == self.largest:
            self.largest = int(self.lengths.max(initial=0))
        return start

    def give(self, start: int, count: int) -> None:
        """Take back the run [start, start + count), and join it to free neighbours."""
        self.num_free += count
        right = int(np.searchsorted(self.starts, start))
        left = right - 1
        joins_left = left >= 0 and self.starts[left] + self.lengths[left] == start
        joins_right = right < len(self.starts) and self.starts[right] == start + count
        if joins_left:
            self.lengths[left] += count + (self.lengths[right] if joins_right else 0)
            if joins_right:
                self.starts, self.lengths = np.delete(self.starts, right), np.delete(self.lengths, right)
            joined = int(self.lengths[left])
        elif joins_right:
            self.starts[right] = start
            self.lengths[right] += count
            joined = int(self.lengths[right])
        else:
            self.starts, self.lengths = np.insert(self.starts, right, start), np.insert(self.lengths, right, count)
            joined = count
        self.largest = max(self.largest, joined)

    def largest_with(self, runs: Iterable[tuple[int, int]]) -> int:
        """What ``largest`` were, if these runs (start, length), now in use, were given back."""
        more = np.array([*runs, (0, 0)], np.int64)  # a run of no blocks changes nothing
        starts = np.concatenate([self.starts, more[:, 0]])
        lengths = np.concatenate([self.lengths, more[:, 1]])
        order = np.lexsort((lengths, starts))
        starts, lengths = starts[order], lengths[order]
        first = np.flatnonzero(np.concatenate([[True], starts[1:] != starts[:-1] + lengths[:-1]]))
        return int(np.add.reduceat(lengths, first).max())

    def blocks(self) -> BlockIds:
        """All free blocks, in order."""
        runs = [np.arange(start, start + length) for start, length in zip(self.starts, self.lengths, strict=True)]
        return np.concatenate([np.zeros(0), *runs]).astype(np.int32)

    def check_integrity(self, num_blocks: int) -> None:
        ends = self.starts + self.lengths
        assert (self.lengths > 0).all(), "an empty run"
        assert (self.starts[1:] > ends[:-1]).all(), "free runs overlap or touch"
        assert not len(ends) or (self.starts[0] >= 0 and ends[-1] <= num_blocks), "a free run is outside the pool"
        assert self.num_free == self.lengths.sum() and self.largest == self.lengths.max(initial=0), "free runs are miscounted"
