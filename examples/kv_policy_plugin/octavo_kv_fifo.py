"""First in, first out: the block that was cached first is evicted first, however often it was found since.

A whole KV policy of Octavo's in a package of its own. Once it is installed, ``--kv-eviction fifo`` chooses it. The contract, method by
method, is octavo.kv.interfaces.Eviction; Octavo checks what it can of it, and names this package if it breaks it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from octavo.kv.interfaces import BlockIds, PoolSpec


class FIFOEviction:
    """A number for each block, in the order in which they were cached, and whether the block is idle.

    ``evict`` costs O(pool), which is plain, and good for pools of some 10,000 blocks; octavo.kv.eviction.lru shows how to do better.
    """

    def __init__(self, spec: PoolSpec) -> None:
        self._order = np.zeros(spec.num_blocks, np.int64)
        self._idle = np.zeros(spec.num_blocks, np.bool_)
        self._num_cached = 0

    def cached(self, blocks: BlockIds, positions: npt.NDArray[np.int64]) -> None:
        """Blocks of one prefix become known together; without its head the rest could not be found, so the tail is to go first."""
        first, self._num_cached = self._num_cached, self._num_cached + len(blocks)
        self._order[blocks] = np.arange(first, self._num_cached)[::-1]

    def found(self, blocks: BlockIds) -> None:
        """That a block was found counts for nothing here."""

    def add(self, blocks: BlockIds) -> None:
        self._idle[blocks] = True

    def remove(self, blocks: BlockIds) -> None:
        self._idle[blocks] = False

    def evict(self, count: int) -> BlockIds:
        idle = self.idle_blocks()
        blocks = idle[np.argsort(self._order[idle])[:count]]
        self._idle[blocks] = False
        return blocks

    def idle_blocks(self) -> BlockIds:
        return np.flatnonzero(self._idle).astype(np.int32)

    def __len__(self) -> int:
        return int(np.count_nonzero(self._idle))

    def check_integrity(self) -> None:
        order = self._order[self._idle]
        assert len(np.unique(order)) == len(order), "two idle blocks were cached at the same time"
