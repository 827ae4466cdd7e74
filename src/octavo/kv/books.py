"""Whether the KV core's books balance: everything recounted from the block tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from octavo.kv.block_pool import BlockPool
from octavo.kv.interfaces import NO_BLOCKS
from octavo.kv.reach import Reach
from octavo.kv.request_blocks import Ledger, RequestBlocks
from octavo.kv.window_slots import WindowSlots


def check_records(records: Mapping[str, RequestBlocks], ledger: Ledger, reaches: Sequence[Reach], block_size: int) -> None:
    """Each record for itself, and ``ledger`` against their sums. Raises AssertionError."""
    recounted = Ledger(block_size, reaches)
    for record in records.values():
        recounted.add(record)
        for table, reach in zip(record.tables, reaches, strict=True):
            assert len(table) == record.num_blocks, "tables differ in length"
            assert (table.view(0, table.first) == -1).all() and table.num_held <= reach.most_in_prefill, "a window is too wide"
        assert record.num_computed <= record.num_blocks * block_size, "computed tokens without a slot"
        assert record.num_offered * block_size <= record.num_computed, "a block was shared before it was computed"
    assert recounted.as_tuples() == ledger.as_tuples(), "the ledger differs from the records"


def check_pools(records: Mapping[str, RequestBlocks], pools: Sequence[BlockPool], windows: Mapping[int, WindowSlots]) -> None:
    """Each group's pool against the tables that point into it. Raises AssertionError."""
    for i, pool in enumerate(pools):
        owned = [record.tables[i].held() for record in records.values()]
        assert all(len(np.unique(blocks)) == len(blocks) for blocks in owned), "a request holds a block twice"
        pool.check_integrity(np.bincount(np.concatenate([NO_BLOCKS, *owned]), minlength=pool.num_blocks))
        if i in windows:
            windows[i].check_integrity([(record.tables[i], record.num_computed) for record in records.values()])
        pool.check_reserved([pool.placement.reserved_blocks(request_id) for request_id in records])
