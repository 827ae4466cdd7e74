"""What one running request holds: a block table per layer group, and how much of it is filled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from octavo.kv.interfaces import BlockIds
from octavo.kv.reach import Reach

_LEAST_CAPACITY = 16


class BlockTable:
    """Block ids in order of position; grows by doubling, so appending costs O(blocks appended), amortized."""

    __slots__ = ("_ids", "_length", "first", "num_filled", "num_stale")

    def __init__(self) -> None:
        self._ids: BlockIds = np.zeros(_LEAST_CAPACITY, np.int32)
        self._length = 0
        self.first = 0
        """Position of the first block that is held; entries before it are -1: a sliding window left them behind."""
        self.num_filled = 0
        """Of a group with a window: slots with a computed token, and (below) those of them behind the window. WindowSlots keeps them."""
        self.num_stale = 0

    def __len__(self) -> int:
        return self._length

    @property
    def num_held(self) -> int:
        return self._length - self.first

    @property
    def first_id(self) -> int:
        """The first block that is held."""
        return int(self._ids[self.first])

    def view(self, start: int = 0, stop: int | None = None) -> BlockIds:
        """The ids of positions [start, stop); valid until the next change."""
        return self._ids[start : self._length if stop is None else stop]

    def held(self, start: int = 0) -> BlockIds:
        """The ids that are held of positions from ``start`` on; valid until the next change."""
        return self._ids[max(start, self.first) : self._length]

    def append(self, blocks: BlockIds) -> None:
        length = self._length + len(blocks)
        if length > len(self._ids):
            self._ids = np.concatenate([self._ids, np.zeros(max(length, len(self._ids)), np.int32)])
        self._ids[self._length : length] = blocks
        self._length = length

    def put(self, start: int, blocks: BlockIds) -> None:
        """Replace those from position ``start`` on."""
        self._ids[start : start + len(blocks)] = blocks

    def skip(self, count: int) -> None:
        """Let an empty table begin with ``count`` positions that it has no blocks for."""
        self.append(np.full(count, -1, np.int32))
        self.first = count

    def give_back(self, first: int) -> BlockIds:
        """Hold no block before position ``first`` any more; those that were, in order."""
        given = self._ids[self.first : first].copy()
        self._ids[self.first : first] = -1
        self.first = first
        return given

    def truncate(self, length: int) -> None:
        self._length = length
        self.first = min(self.first, length)


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
        """Blocks for all its tokens, if it runs to its limit."""

    def needs(self, group: int, reach: Reach) -> tuple[int, int]:
        """Blocks of a group that it needs now, and may need later: see Reach.needs."""
        return reach.needs(self.tables[group].first, self.num_blocks, self.prefill_blocks, self.max_blocks)


class GroupLedger:
    """Sums of one group over all records."""

    __slots__ = ("promised", "unfilled")

    def __init__(self) -> None:
        self.unfilled = 0
        """Blocks that requests need for the rest of their prefills."""
        self.promised = 0
        """Blocks that they may need besides."""

    def add(self, record: RequestBlocks, group: int, reach: Reach, sign: int = 1) -> None:
        now, later = record.needs(group, reach)
        self.unfilled += sign * (now - record.tables[group].num_held)
        self.promised += sign * later


class Ledger:
    """Sums over all records, so that reading them costs O(1). A record that changes is taken out before and put back after."""

    __slots__ = ("_reaches", "block_size", "groups", "num_computed", "tail")

    def __init__(self, block_size: int, reaches: Sequence[Reach]) -> None:
        self.block_size, self._reaches = block_size, reaches
        self.num_computed = 0
        self.tail = 0
        """Unfilled slots of each request's last filled block."""
        self.groups = [GroupLedger() for _ in reaches]

    def add(self, record: RequestBlocks, sign: int = 1) -> None:
        self.num_computed += sign * record.num_computed
        self.tail += sign * (-record.num_computed % self.block_size)
        for i, (ledger, reach) in enumerate(zip(self.groups, self._reaches, strict=True)):
            ledger.add(record, i, reach, sign)

    def remove(self, record: RequestBlocks) -> None:
        self.add(record, sign=-1)

    def as_tuples(self) -> list[tuple[int, int]]:
        return [(self.num_computed, self.tail), *((ledger.unfilled, ledger.promised) for ledger in self.groups)]
