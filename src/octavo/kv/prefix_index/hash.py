"""Hash index: a table from a block's chained hash to the block.

A hash stands for the block's tokens and for all that comes before them (octavo.kv.block_hash), so the longest shared
prefix is found by looking hashes up in order until one is unknown.
"""

from __future__ import annotations

import itertools

import numpy as np

from octavo.kv.interfaces import NO_BLOCKS, BlockHash, BlockIds, PoolSpec

_UNKNOWN = -1


class HashPrefixIndex:
    """One entry a block, in both directions."""

    def __init__(self, spec: PoolSpec) -> None:
        self._block_of: dict[BlockHash, int] = {}
        self._hash_of: list[BlockHash | None] = [None] * spec.num_blocks

    def lookup(self, hashes: list[BlockHash]) -> BlockIds:
        if not hashes or hashes[0] not in self._block_of:
            return NO_BLOCKS
        # All at once, past an unknown one too: a loop in C over 8,192 hashes costs less than one in Python over a third of them.
        blocks = self.find(hashes)
        unknown = np.flatnonzero(blocks == _UNKNOWN)
        return blocks[: unknown[0]] if len(unknown) else blocks

    def find(self, hashes: list[BlockHash]) -> BlockIds:
        return np.fromiter(map(self._block_of.get, hashes, itertools.repeat(_UNKNOWN)), np.int32, len(hashes))

    def insert(self, chain: list[BlockHash], first: int, blocks: BlockIds) -> BlockIds:
        hashes = chain[first + 1 : first + 1 + len(blocks)]
        remembered = []
        for block_hash, block in zip(hashes, blocks.tolist(), strict=True):
            if self._block_of.setdefault(block_hash, block) == block:
                self._hash_of[block] = block_hash
                remembered.append(block)
        return np.array(remembered, np.int32)

    def remove(self, blocks: BlockIds) -> None:
        for block in blocks.tolist():
            block_hash = self._hash_of[block]
            assert block_hash is not None
            del self._block_of[block_hash]
            self._hash_of[block] = None

    def clear(self) -> None:
        self.remove(np.fromiter(self._block_of.values(), np.int32, len(self._block_of)))

    def __len__(self) -> int:
        return len(self._block_of)

    def check_integrity(self) -> None:
        known = {block: block_hash for block, block_hash in enumerate(self._hash_of) if block_hash is not None}
        assert known == {block: block_hash for block_hash, block in self._block_of.items()}, "the two directions differ"
