"""Host memory for what preempted requests have computed, so that it need not be computed again."""

from __future__ import annotations

from collections.abc import Sequence, Set

import numpy as np

from octavo.kv.interfaces import BlockIds, KVGroup
from octavo.kv.transfers import HostBlocks, SaveBlocks, StoredPrefix


class SwapSpace:
    """The saved blocks of requests that wait, up to ``capacity`` bytes in all.

    Every block of a request is saved, those it shares with others too: whether these will still be cached when it resumes nobody knows.
    """

    def __init__(self, groups: Sequence[KVGroup], capacity: int) -> None:
        self.capacity = capacity
        self.nbytes = 0
        """Held now."""
        self.blocks_out = 0
        """Blocks saved since the start, and (below) loaded again."""
        self.blocks_in = 0
        self._bytes_per_block = [group.bytes_per_block for group in groups]
        self._stored: dict[str, tuple[StoredPrefix, int]] = {}

    def stats(self) -> dict[str, int]:
        """Fields of EngineStats."""
        return {"swapped_out_blocks": self.blocks_out, "swapped_in_blocks": self.blocks_in, "swap_bytes": self.nbytes}

    def save(self, request_id: str, num_tokens: int, tables: Sequence[BlockIds]) -> list[SaveBlocks]:
        """What to save of a request with ``num_tokens`` computed tokens in ``tables`` (per group; negative ids are behind a window).

        Nothing if there is no room for all of it.
        """
        firsts = [int(np.count_nonzero(table < 0)) for table in tables]
        blocks = [table[first:].copy() for table, first in zip(tables, firsts, strict=True)]
        nbytes = sum(len(kept) * size for kept, size in zip(blocks, self._bytes_per_block, strict=True))
        if not num_tokens or self.nbytes + nbytes > self.capacity:
            return []
        parts = tuple((first, HostBlocks()) for first in firsts)
        self._stored[request_id] = StoredPrefix(num_tokens, parts), nbytes
        self.nbytes += nbytes
        self.blocks_out += sum(map(len, blocks))
        return [SaveBlocks(group, kept, source) for group, (kept, (_, source)) in enumerate(zip(blocks, parts, strict=True))]

    def find(self, request_id: str) -> StoredPrefix | None:
        """What is kept of a request."""
        stored, _ = self._stored.get(request_id, (None, 0))
        return None if stored is None or stored.failed else stored

    def drop(self, request_id: str) -> None:
        """Forget what is kept of a request, which may be nothing."""
        _, nbytes = self._stored.pop(request_id, (None, 0))
        self.nbytes -= nbytes

    @property
    def request_ids(self) -> Set[str]:
        """Of whom something is kept."""
        return self._stored.keys()

    def check_integrity(self) -> None:
        """Raise AssertionError if the bytes are miscounted."""
        assert self.nbytes == sum(nbytes for _, nbytes in self._stored.values()) <= self.capacity, "swapped bytes are miscounted"
