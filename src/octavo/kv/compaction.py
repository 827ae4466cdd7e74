"""Compaction: blocks move between steps, a bounded number a step, so that a waiting request gets a run of free blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from octavo.kv.block_pool import BlockPool
from octavo.kv.interfaces import Compacting, Move
from octavo.kv.request_blocks import RequestBlocks


def compact(pools: Sequence[BlockPool], records: Mapping[str, RequestBlocks], wanted: int, most: int) -> Iterator[tuple[int, Move]]:
    """Move up to ``most`` blocks towards a run of ``wanted`` in every pool whose placement compacts: tables and pools are changed, and
    what the blocks hold is to be copied, in this order. Gives (group, move).
    """
    for group, pool in enumerate(pools):
        if not most or not isinstance(pool.placement, Compacting):
            continue
        for move in pool.placement.compact(wanted, most):
            pool.move(move.src, move.dst)
            records[move.owner].tables[group].put(move.first, move.dst)
            most -= len(move.src)
            yield group, move
