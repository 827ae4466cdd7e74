"""Contiguous placement, first fit: a request gets one run of blocks for its prompt and max_tokens, the first that is long enough.

So servers placed KV before PagedAttention (Kwon et al. 2023, section 3.1, figure 3); first fit is from Knuth
(TAOCP volume 1, 2.5, algorithm A).
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from octavo.kv.interfaces import BlockIds, PoolSpec
from octavo.kv.placement.free_runs import FreeRuns, Lengths
from octavo.kv.placement.reserved_run import ReservedRunPlacement, Run


class ContiguousPlacement(ReservedRunPlacement):
    """What lies behind a request's tokens, up to its limit, is reserved: nobody else can use it until the request ends."""

    def __init__(self, spec: PoolSpec) -> None:
        super().__init__()
        self._num_blocks = spec.num_blocks
        self._free = FreeRuns(spec.num_blocks)

    @property
    def num_free(self) -> int:
        return self._free.num_free

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
        return self._free.blocks()

    def check_integrity(self) -> None:
        self._free.check_integrity(self._num_blocks)
        self._check_runs(self.free_blocks(), self._num_blocks)

    def _reserve(self, num_blocks: int) -> Run | None:
        if num_blocks > self._free.largest:
            return None
        return Run(self._free.take(self._fit(self._free.lengths, num_blocks), num_blocks), num_blocks)

    def _give_back(self, run: Run) -> None:
        self._free.give(run.start, run.length)

    def _fit(self, lengths: Lengths, num_blocks: int) -> int:
        """Which of the free runs, one of which is long enough, to cut ``num_blocks`` from."""
        return int(np.argmax(lengths >= num_blocks))
