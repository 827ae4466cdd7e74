"""Contiguous placement, first fit: a request gets one run of blocks for its prompt and max_tokens, the first that is long enough.

So servers placed KV before PagedAttention (Kwon et al. 2023, section 3.1, figure 3); first fit is from Knuth
(TAOCP volume 1, 2.5, algorithm A).
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from octavo.kv.interfaces import NO_BLOCKS, BlockIds, Move, PoolSpec
from octavo.kv.placement.free_runs import FreeRuns, Lengths
from octavo.kv.placement.reserved_run import ReservedRunPlacement, Run


class ContiguousPlacement(ReservedRunPlacement):
    """What lies behind a request's tokens, up to its limit, is reserved: nobody else can use it until the request ends."""

    def __init__(self, spec: PoolSpec) -> None:
        super().__init__()
        self._num_blocks = spec.num_blocks
        self._free = FreeRuns(spec.num_blocks)
        self._moving: Run | None = None

    @property
    def num_free(self) -> int:
        return self._free.num_free + (self._moving.gap if self._moving else 0)

    @property
    def largest_free_run(self) -> int:
        return self._free.largest

    @property
    def max_request_blocks(self) -> int:
        return self._num_blocks

    def has_room(self, reserve: int, without: Collection[str] = ()) -> bool:
        largest = self._free.largest_with(self._runs_of(without)) if without else self._free.largest
        return reserve <= largest

    def free_blocks(self) -> BlockIds:
        gap = self._moving.gap_blocks() if self._moving else NO_BLOCKS
        return np.concatenate([self._free.blocks(), gap])

    def compact(self, wanted: int, most: int) -> list[Move]:
        """One run after the other moves down onto the gap below it, within the stretch of the pool where that costs the fewest moves.

        Each run in that stretch moves once, in ascending order of blocks, so it arrives in one piece. On its way it is in two, and takes
        the gap along: nobody else may have that. A run that has begun to move arrives, whoever waits by then.
        """
        moves: list[Move] = []
        while most and (run := self._moving or self._begin(wanted)):
            first, end = run.num_moved, max(min(run.num_moved + most, run.num_given), run.num_moved)
            src = run.blocks(first, end)
            run.num_moved = end
            if end > first:
                moves.append(Move(run.owner, first, src, run.blocks(first, end)))
                most -= end - first
            if end >= run.num_given:
                self._arrive(run)
        return moves

    def check_integrity(self) -> None:
        assert [run for run in self._runs.values() if run.gap] == [run for run in [self._moving] if run], (
            "not just the moving run has a gap"
        )
        self._free.check_integrity(self._num_blocks)
        self._check_runs(self.free_blocks(), self._num_blocks)

    def _reserve(self, owner: str, num_blocks: int) -> Run | None:
        if num_blocks > self._free.largest:
            return None
        return Run(owner, self._free.take(self._fit(self._free.lengths, num_blocks), num_blocks), num_blocks)

    def _give_back(self, run: Run) -> None:
        self._free.give(run.start, run.span)
        if run is self._moving:
            self._moving = None

    def _fit(self, lengths: Lengths, num_blocks: int) -> int:
        """Which of the free runs, one of which is long enough, to cut ``num_blocks`` from."""
        return int(np.argmax(lengths >= num_blocks))

    def _begin(self, wanted: int) -> Run | None:
        """Let the run move that should be next if ``wanted`` blocks are to be free in one piece; None if they are, or cannot be."""
        free = self._free
        if not free.largest < wanted <= free.num_free:
            return None
        runs = sorted(self._runs.values(), key=lambda run: run.start)
        starts = np.array([run.start for run in runs])
        given_before = np.cumsum([0, *(run.num_given for run in runs)])[np.searchsorted(starts, free.starts)]
        free_before = np.cumsum([0, *free.lengths])
        # For each gap as the last of a stretch: the nearest one as the first, such that the gaps from there on are enough.
        first = np.searchsorted(free_before, free_before[1:] - wanted, side="right") - 1
        moved = np.where(first >= 0, given_before - given_before[first], np.iinfo(np.int64).max)
        gap = int(first[np.argmin(moved)])
        run = runs[int(np.searchsorted(starts, free.starts[gap]))]
        run.gap, run.num_moved = int(free.lengths[gap]), 0
        run.start = free.take(gap, run.gap)
        self._moving = run
        return run

    def _arrive(self, run: Run) -> None:
        """All that it was given has moved; what is reserved behind has nothing to move."""
        gap, run.gap, run.num_moved = run.gap, 0, run.length
        self._free.give(run.start + run.length, gap)
        self._moving = None
