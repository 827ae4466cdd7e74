"""Least recently used: the block that has been idle longest goes first."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from octavo.kv.interfaces import BlockIds, PoolSpec

_LEAST_WINDOW = 32
"""Entries looked at together by evict: fewer cost as much."""


class LRUEviction:
    """A queue in an array, oldest first, with holes where a block came into use again.

    An entry counts if ``_place`` of its block points back at it. add appends, remove unsets ``_place``, evict skips holes from the
    head. The array has twice the pool's size and is compacted when its end is reached, so each operation is array work that costs
    O(blocks passed), amortized.

        _queue   [ . hole . | 7 | hole | 3 | 9 | hole | 4 | … ]
                             ▲ _head                    ▲ _tail
    """

    def __init__(self, spec: PoolSpec) -> None:
        self._queue: BlockIds = np.zeros(2 * spec.num_blocks, np.int32)
        self._place: BlockIds = np.full(spec.num_blocks, -1, np.int32)
        self._head = 0
        self._tail = 0
        self._num_idle = 0

    def cached(self, blocks: BlockIds, positions: npt.NDArray[np.int64]) -> None: ...

    def found(self, blocks: BlockIds) -> None: ...

    def add(self, blocks: BlockIds) -> None:
        count = len(blocks)
        if self._tail + count > len(self._queue):
            self._compact()
        tail = self._tail + count
        newest_last = blocks[::-1]
        self._queue[self._tail : tail] = newest_last
        self._place[newest_last] = np.arange(self._tail, tail, dtype=np.int32)
        self._tail = tail
        self._num_idle += count

    def remove(self, blocks: BlockIds) -> None:
        self._place[blocks] = -1
        self._num_idle -= len(blocks)

    def oldest(self, count: int) -> BlockIds:
        """The ``count`` blocks that evict would take; at least as many are idle."""
        return self._queue[self._oldest_entries(count)]

    def evict(self, count: int) -> BlockIds:
        taken = self._oldest_entries(count)
        blocks = self._queue[taken]
        if count:
            self._head = int(taken[-1]) + 1
        self._place[blocks] = -1
        self._num_idle -= count
        return blocks

    def idle_blocks(self) -> BlockIds:
        return self._queue[self._entries(self._tail)]

    def __len__(self) -> int:
        return self._num_idle

    def check_integrity(self) -> None:
        idle = self.idle_blocks()
        assert len(idle) == self._num_idle == np.count_nonzero(self._place >= 0), "the number of idle blocks is wrong"
        assert len(np.unique(idle)) == len(idle), "a block is idle twice"

    def _oldest_entries(self, count: int) -> BlockIds:
        assert count <= self._num_idle
        window = max(count, _LEAST_WINDOW)
        while len(found := self._entries(self._head + window)) < count:
            window *= 2
        return found[:count]

    def _entries(self, end: int) -> BlockIds:
        """Places in [head, end) that count, in order."""
        end = min(end, self._tail)
        places: BlockIds = np.arange(self._head, end, dtype=np.int32)
        counting: BlockIds = places[self._place[self._queue[self._head : end]] == places]
        return counting

    def _compact(self) -> None:
        idle = self.idle_blocks()
        self._queue[: len(idle)] = idle
        self._place[idle] = np.arange(len(idle), dtype=np.int32)
        self._head, self._tail = 0, len(idle)
