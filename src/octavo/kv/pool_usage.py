"""Where one layer group's slots are, from counts that are kept all along."""

from __future__ import annotations

from octavo.kv.block_pool import BlockPool
from octavo.kv.interfaces import KVGroup
from octavo.kv.request_blocks import Ledger
from octavo.kv.usage import GroupUsage
from octavo.kv.window_slots import WindowSlots


def pool_usage(group: KVGroup, pool: BlockPool, ledger: Ledger, window: WindowSlots | None, wanted: int) -> GroupUsage:
    """In O(1). ``wanted``: blocks that the head of the queue wants in one run, if it does."""
    size, free, idle = ledger.block_size, pool.num_free, pool.num_idle
    largest_run = pool.placement.largest_free_run
    held = (pool.num_blocks - free - idle) * size
    stale = window.num_stale if window else 0
    filled = window.num_filled if window else ledger.num_computed
    live = filled - stale - (pool.num_references - pool.num_owned) * size  # a shared block is full, and counts once
    return GroupUsage(
        name=group.name,
        block_size=size,
        bytes_per_block=group.bytes_per_block,
        total=pool.num_blocks * size,
        held=held,
        live=live,
        tail=ledger.tail,
        reserved=held - live - stale - ledger.tail,
        stale=stale,
        cached=idle * size,
        free=free * size,
        external=free * size if largest_run < wanted <= free else 0,
        largest_free_run=largest_run * size,
    )
