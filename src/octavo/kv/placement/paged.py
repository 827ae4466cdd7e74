"""Paged placement: any free block serves any request (PagedAttention, Kwon et al. 2023, section 4.3)."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from octavo.kv.interfaces import NO_BLOCKS, BlockIds, PoolSpec


class PagedPlacement:
    """A stack of free blocks: those freed last are given out first, while their memory is still warm."""

    def __init__(self, spec: PoolSpec, free: BlockIds | None = None) -> None:
        """``free``: the free blocks, if these are not all."""
        self._stack: BlockIds = np.arange(spec.num_blocks - 1, -1, -1, dtype=np.int32)
        self._num_free = spec.num_blocks
        if free is not None:
            self._num_free = len(free)
            self._stack[: len(free)] = free[::-1]

    @property
    def num_free(self) -> int:
        return self._num_free

    @property
    def largest_free_run(self) -> int:
        return self._num_free

    @property
    def num_reserved(self) -> int:
        return 0

    @property
    def reserves(self) -> bool:
        return False

    @property
    def max_request_blocks(self) -> int:
        return len(self._stack)

    def has_room(self, reserve: int, without: Collection[str] = ()) -> bool:
        return True

    def allocate(self, owner: str, count: int, reserve: int) -> BlockIds | None:
        if count > self._num_free:
            return None
        top = self._num_free
        self._num_free = top - count
        return self._stack[self._num_free : top][::-1].copy()

    def free(self, owner: str, blocks: BlockIds) -> None:
        top = self._num_free + len(blocks)
        self._stack[self._num_free : top] = blocks[::-1]
        self._num_free = top

    def reserved_blocks(self, owner: str) -> BlockIds:
        return NO_BLOCKS

    def free_blocks(self) -> BlockIds:
        return self._stack[: self._num_free].copy()

    def check_integrity(self) -> None:
        free = self.free_blocks()
        assert len(np.unique(free)) == len(free), "a block is free twice"
        assert not len(free) or (free.min() >= 0 and free.max() < len(self._stack)), "a free block is outside the pool"
