"""What one running request holds: a block table per layer group, and how much of it is filled."""

from __future__ import annotations

import numpy as np

from octavo.kv.interfaces import BlockIds

_LEAST_CAPACITY = 16


class BlockTable:
    """Block ids in order of position; grows by doubling, so appending costs O(blocks appended), amortized."""

    __slots__ = ("_ids", "_length")

    def __init__(self) -> None:
        self._ids: BlockIds = np.zeros(_LEAST_CAPACITY, np.int32)
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def view(self, start: int = 0, stop: int | None = None) -> BlockIds:
        """The ids of positions [start, stop); valid until the next change."""
        return self._ids[start : self._length if stop is None else stop]

    def append(self, blocks: BlockIds) -> None:
        length = self._length + len(blocks)
        if length > len(self._ids):
            self._ids = np.concatenate([self._ids, np.zeros(max(length, len(self._ids)), np.int32)])
        self._ids[self._length : length] = blocks
        self._length = length

    def put(self, start: int, blocks: BlockIds) -> None:
        """Replace those from position ``start`` on."""
        self._ids[start : start + len(blocks)] = blocks

    def truncate(self, length: int) -> None:
        self._length = length


class RequestBlocks:
    """The KV core's record of one running request. All tables have ``num_blocks`` entries."""

    __slots__ = ("max_blocks", "num_blocks", "num_computed", "num_offered", "prefill_blocks", "tables")

    def __init__(self, num_groups: int, prefill_blocks: int, max_blocks: int) -> None:
        self.tables = [BlockTable() for _ in range(num_groups)]
        self.num_blocks = 0
        self.num_computed = 0
        """Tokens whose K and V are in its blocks, by steps that have come back."""
        self.num_offered = 0
        """Full blocks that the prefix index has been told of."""
        self.prefill_blocks = prefill_blocks
        """Blocks for the tokens that it started with."""
        self.max_blocks = max_blocks
        """Blocks it holds at the end, if it runs to its limit."""

    @property
    def unfilled_prefill(self) -> int:
        """Blocks that the rest of its prefill needs."""
        return max(self.prefill_blocks - self.num_blocks, 0)

    @property
    def promised(self) -> int:
        """Blocks that it may take after its prefill."""
        return self.max_blocks - max(self.num_blocks, self.prefill_blocks)

    @property
    def lengths(self) -> tuple[int, int]:
        """Blocks it holds, with those for the rest of its prefill, and ``promised``."""
        return self.num_blocks + self.unfilled_prefill, self.promised


class Ledger:
    """Sums over all records, so that reading them costs O(1). A record that changes is taken out before and put back after."""

    __slots__ = ("num_computed", "promised", "tail", "unfilled_prefill")

    def __init__(self) -> None:
        self.num_computed = 0
        self.tail = 0
        """Unfilled slots of each request's last filled block."""
        self.unfilled_prefill = 0
        self.promised = 0

    def add(self, record: RequestBlocks, block_size: int, sign: int = 1) -> None:
        self.num_computed += sign * record.num_computed
        self.tail += sign * (-record.num_computed % block_size)
        self.unfilled_prefill += sign * record.unfilled_prefill
        self.promised += sign * record.promised

    def remove(self, record: RequestBlocks, block_size: int) -> None:
        self.add(record, block_size, sign=-1)

    def as_tuple(self) -> tuple[int, int, int, int]:
        return self.num_computed, self.tail, self.unfilled_prefill, self.promised
