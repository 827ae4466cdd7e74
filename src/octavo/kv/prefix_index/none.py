"""No prefix index: nothing is shared, and no block outlives its request."""

from __future__ import annotations

import numpy as np

from octavo.kv.interfaces import NO_BLOCKS, BlockHash, BlockIds, PoolSpec


class NoPrefixIndex:
    """Knows nothing."""

    def __init__(self, spec: PoolSpec) -> None: ...

    def lookup(self, hashes: list[BlockHash]) -> BlockIds:
        return NO_BLOCKS

    def find(self, hashes: list[BlockHash]) -> BlockIds:
        return np.full(len(hashes), -1, np.int32)

    def insert(self, chain: list[BlockHash], first: int, blocks: BlockIds) -> BlockIds:
        return NO_BLOCKS

    def remove(self, blocks: BlockIds) -> None: ...

    def clear(self) -> None: ...

    def __len__(self) -> int:
        return 0

    def check_integrity(self) -> None: ...
