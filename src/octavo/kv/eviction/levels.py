"""Idle blocks in a few levels of worth, in each of them by how long they have been idle."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from octavo.kv.eviction.lru import LRUEviction
from octavo.kv.interfaces import NO_BLOCKS, BlockIds, PoolSpec

Levels = npt.NDArray[np.int64]

_NOT_IDLE = -1


class LevelQueues:
    """One LRU queue a level, made when it is first used: an operation costs O(blocks named × levels in use) of array work."""

    def __init__(self, spec: PoolSpec) -> None:
        self._spec = spec
        self._queues: dict[int, LRUEviction] = {}
        self._level: npt.NDArray[np.int8] = np.full(spec.num_blocks, _NOT_IDLE, np.int8)

    def add(self, blocks: BlockIds, levels: Levels) -> None:
        """These became idle, each at its level (0 … 127); the last of the array is to go before the others of its level."""
        self._level[blocks] = levels
        for level in np.flatnonzero(np.bincount(levels)).tolist():
            if level not in self._queues:
                self._queues[level] = LRUEviction(self._spec)
                self._queues = dict(sorted(self._queues.items()))
            self._queues[level].add(blocks[levels == level])

    def remove(self, blocks: BlockIds) -> None:
        levels = self._level[blocks]
        for level in np.flatnonzero(np.bincount(levels)).tolist():
            self._queues[level].remove(blocks[levels == level])
        self._level[blocks] = _NOT_IDLE

    def oldest(self, count: int) -> BlockIds:
        """The first ``count`` of each level, or all that it has; levels in rising order."""
        return np.concatenate([NO_BLOCKS, *(queue.oldest(min(count, len(queue))) for queue in self._queues.values())])

    def evict(self, blocks: BlockIds) -> None:
        """Take out blocks that are the oldest of their levels."""
        counts = np.bincount(self._level[blocks])
        for level in np.flatnonzero(counts).tolist():
            self._queues[level].evict(int(counts[level]))
        self._level[blocks] = _NOT_IDLE

    def blocks(self) -> BlockIds:
        """All idle blocks."""
        return np.concatenate([NO_BLOCKS, *(queue.idle_blocks() for queue in self._queues.values())])

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def check_integrity(self) -> None:
        for level, queue in self._queues.items():
            queue.check_integrity()
            assert np.array_equal(np.sort(queue.idle_blocks()), np.flatnonzero(self._level == level)), "a block is at two levels"
        assert len(self) == np.count_nonzero(self._level != _NOT_IDLE), "idle blocks are miscounted"
