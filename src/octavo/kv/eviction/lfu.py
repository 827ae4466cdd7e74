"""Least frequently used: the block that requests have found least often goes first."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from octavo.kv.eviction.levels import LevelQueues
from octavo.kv.interfaces import BlockIds, PoolSpec


class LFUEviction:
    """Finds are compared by powers of two, level = ⌊log2(1 + finds)⌋, and in a level the longest idle goes first.

    So a block that was popular once gives way to one that is found as often, to a factor of two. A block's count starts
    with its life in the prefix index.
    """

    def __init__(self, spec: PoolSpec) -> None:
        self._queues = LevelQueues(spec)
        self._num_found: npt.NDArray[np.int32] = np.zeros(spec.num_blocks, np.int32)

    def cached(self, blocks: BlockIds, positions: npt.NDArray[np.int64]) -> None:
        self._num_found[blocks] = 0

    def found(self, blocks: BlockIds) -> None:
        self._num_found[blocks] += 1

    def add(self, blocks: BlockIds) -> None:
        self._queues.add(blocks, np.log2(1 + self._num_found[blocks]).astype(np.int64))

    def remove(self, blocks: BlockIds) -> None:
        self._queues.remove(blocks)

    def evict(self, count: int) -> BlockIds:
        blocks = self._queues.oldest(count)[:count]
        self._queues.evict(blocks)
        return blocks

    def idle_blocks(self) -> BlockIds:
        return self._queues.blocks()

    def __len__(self) -> int:
        return len(self._queues)

    def check_integrity(self) -> None:
        self._queues.check_integrity()
