"""What a request that starts need not compute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from octavo.kv.interfaces import BlockHash, BlockIds
from octavo.kv.reach import Reach
from octavo.kv.transfers import LoadBlocks, StoredPrefix


@dataclass(frozen=True, slots=True)
class PrefixHit:
    """The first ``num_tokens`` tokens of a request need not be computed: found, not yet taken.

    Valid until blocks are allocated or the cache is reset.
    """

    blocks: list[BlockIds]
    """Per group, the cached blocks that hold the first of these tokens, from position ``firsts`` on."""
    firsts: list[int]
    """Per group, the first block that a query behind these tokens reads; more than 0 only behind a sliding window."""
    num_tokens: int
    num_loaded: int = 0
    """Of these tokens the last, which are not in ``blocks`` but in ``stored``."""
    stored: StoredPrefix | None = None

    @property
    def num_shared(self) -> int:
        """Tokens found in the prefix index."""
        return self.num_tokens - self.num_loaded

    def loaded_blocks(self, block_size: int) -> list[tuple[int, int]]:
        """Per group, the positions [start, end) of the blocks to be loaded."""
        shared, end = self.num_shared // block_size, -(-self.num_tokens // block_size)
        return [] if self.stored is None else [(max(shared, first), end) for first in self.firsts]

    def loads(self, request_id: str, tables: Sequence[BlockIds], block_size: int) -> list[LoadBlocks]:
        """What to load into a request's blocks (per group, in order of position) behind the shared ones."""
        assert self.stored is not None
        parts = zip(tables, self.loaded_blocks(block_size), self.stored.parts, strict=True)
        return [
            LoadBlocks(group, table[start:end].copy(), source, start - first, request_id)
            for group, (table, (start, end), (first, source)) in enumerate(parts)
        ]

    def extended(self, stored: StoredPrefix, reaches: Sequence[Reach]) -> PrefixHit:
        """This hit and what is stored of the tokens after it: blocks that the later query does not read are left out."""
        firsts = [reach.first_block(stored.num_tokens) for reach in reaches]
        pairs = zip(self.blocks, self.firsts, firsts, strict=True)
        blocks = [blocks[max(first - before, 0) :] for blocks, before, first in pairs]
        return PrefixHit(blocks, firsts, stored.num_tokens, stored.num_tokens - self.num_tokens, stored)


class Lookup(Protocol):
    """What finding a prefix needs of a prefix index, or of what stands for one."""

    def lookup(self, hashes: list[BlockHash]) -> BlockIds:
        """See octavo.kv.interfaces.PrefixIndex, here and below."""

    def find(self, hashes: list[BlockHash]) -> BlockIds: ...


def find_prefix(indexes: Sequence[Lookup], reaches: Sequence[Reach], hashes: list[BlockHash], block_size: int) -> PrefixHit:
    """The longest prefix, of blocks with these hashes, of which every group holds all that a query behind it reads."""
    found = {i: index.lookup(hashes) for i, index in enumerate(indexes) if not reaches[i].slides}
    count = min(map(len, found.values()), default=len(hashes))
    covered = np.ones(count, np.bool_)
    for i, reach in enumerate(reaches):
        if reach.slides:
            found[i] = indexes[i].find(hashes[:count])
            covered &= reach.covered(found[i])
    if count and not covered[-1]:
        count = int(np.flatnonzero(covered)[-1]) + 1 if covered.any() else 0
    firsts = [reach.first_block(count * block_size) for reach in reaches]
    return PrefixHit([found[i][first:count] for i, first in enumerate(firsts)], firsts, count * block_size)
