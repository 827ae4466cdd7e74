"""Who has which block: a picture of the pools, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from octavo.kv.block_pool import BlockPool
from octavo.kv.interfaces import BlockIds
from octavo.kv.request_blocks import RequestBlocks

FREE, CACHED = -1, -2


def map_blocks(pools: Sequence[BlockPool], records: Mapping[str, RequestBlocks]) -> tuple[list[str], list[BlockIds]]:
    """The requests that hold blocks, and for each pool an array [num_blocks].

    An entry is the place of a block's owner among the requests, FREE, or CACHED for one that only the prefix index keeps. A block that
    several requests share is the last one's of them; one that is reserved for a request is that request's.
    """
    owners = list(records)
    maps = []
    for i, pool in enumerate(pools):
        blocks = np.full(pool.num_blocks, FREE, np.int32)
        blocks[pool.eviction.idle_blocks()] = CACHED
        for place, (request_id, record) in enumerate(records.items()):
            blocks[record.tables[i].held()] = place
            blocks[pool.placement.reserved_blocks(request_id)] = place
        maps.append(blocks)
    return owners, maps
