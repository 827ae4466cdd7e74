"""What placements have in common that reserve one run of blocks for a request at its start, and hand it out bit by bit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection

import numpy as np

from octavo.kv.interfaces import NO_BLOCKS, BlockIds


class Run:
    """``length`` blocks for one owner, which has been given the first ``num_given``.

    A run lies in one piece from ``start`` on. While it moves down by ``gap`` blocks, it is in two:

        | 0 … num_moved - 1 | gap: free, and nobody's | num_moved … length - 1 |
        start
    """

    __slots__ = ("gap", "length", "num_given", "num_moved", "owner", "start")

    def __init__(self, owner: str, start: int, length: int) -> None:
        self.owner = owner
        self.start = start
        self.length = length
        self.num_given = 0
        self.gap = 0
        self.num_moved = length

    @property
    def span(self) -> int:
        """Blocks from its first to its last, the gap included."""
        return self.length + self.gap

    def blocks(self, first: int, end: int) -> BlockIds:
        """Those of positions [first, end)."""
        positions = np.arange(first, end, dtype=np.int32)
        ids: BlockIds = self.start + positions + np.int32(self.gap) * (positions >= self.num_moved)
        return ids

    def gap_blocks(self) -> BlockIds:
        first = self.start + self.num_moved
        return np.arange(first, first + self.gap, dtype=np.int32)


class ReservedRunPlacement(ABC):
    """A run an owner, from its first block to its last.

    A run is reserved with the first ``allocate`` and given back as a whole when its owner has returned all that it was given, so it
    cannot hold blocks that outlive their owner: such a placement works without a prefix index only (octavo.kv.policies).
    """

    def __init__(self) -> None:
        self._runs: dict[str, Run] = {}
        self._num_reserved = 0

    @property
    def num_reserved(self) -> int:
        return self._num_reserved

    @property
    def reserves(self) -> bool:
        return True

    def allocate(self, owner: str, count: int, reserve: int) -> BlockIds | None:
        run = self._runs.get(owner)
        if run is None:
            run = self._reserve(owner, max(count, reserve))
            if run is None:
                return None
            self._runs[owner] = run
            self._num_reserved += run.length
        if run.num_given + count > run.length:
            return None
        first = run.num_given
        run.num_given += count
        self._num_reserved -= count
        return run.blocks(first, first + count)

    def free(self, owner: str, blocks: BlockIds) -> None:
        if not len(blocks):
            return
        run = self._runs[owner]
        run.num_given -= len(blocks)
        self._num_reserved += len(blocks)
        if not run.num_given:
            del self._runs[owner]
            self._num_reserved -= run.length
            self._give_back(run)

    def reserved_blocks(self, owner: str) -> BlockIds:
        run = self._runs.get(owner)
        return NO_BLOCKS if run is None else run.blocks(run.num_given, run.length)

    @abstractmethod
    def _reserve(self, owner: str, num_blocks: int) -> Run | None:
        """A run of at least ``num_blocks`` free blocks, or None (and nothing changed) if there is none."""

    @abstractmethod
    def _give_back(self, run: Run) -> None:
        """A run's blocks are free again."""

    def _runs_of(self, owners: Collection[str]) -> list[tuple[int, int]]:
        """(start, span) of each."""
        runs = [self._runs[owner] for owner in owners]
        return [(run.start, run.span) for run in runs]

    def _check_runs(self, free: BlockIds, num_blocks: int) -> None:
        """Each block is free or in one run, and what is reserved adds up."""
        runs = self._runs.values()
        taken = [run.blocks(0, run.length) for run in runs]
        blocks = np.sort(np.concatenate([free, *taken]))
        assert np.array_equal(blocks, np.arange(num_blocks)), "a block is in two runs, or in none"
        assert all(0 < run.num_given <= run.length for run in runs), "an owner was given more than its run, or nothing"
        assert self._num_reserved == sum(run.length - run.num_given for run in runs), "reserved blocks are miscounted"
