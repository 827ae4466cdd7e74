"""BlockPool as a state machine: after every step its states are recounted from who holds what."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from octavo.config import KV_POLICIES
from octavo.kv.block_pool import BlockPool
from octavo.kv.interfaces import PoolSpec
from octavo.kv.policies import EVICTIONS, choose

NUM_BLOCKS = 24


class PoolMachine(RuleBasedStateMachine):
    """Owners hold lists of blocks; ``known`` is what the index must find, by a model that never forgets too early."""

    @initialize(eviction=st.sampled_from(sorted(EVICTIONS)))
    def begin(self, eviction: str) -> None:
        policies = KV_POLICIES["paged"] | {"eviction": eviction}
        self.pool = BlockPool(PoolSpec(NUM_BLOCKS, 16), choose(policies))
        self.owners: dict[str, list[int]] = {}
        self.hash_of: dict[int, bytes] = {}
        self.count = 0

    def references(self) -> np.ndarray:
        return np.bincount([block for blocks in self.owners.values() for block in blocks], minlength=NUM_BLOCKS)

    @rule(count=st.integers(0, NUM_BLOCKS + 2))
    def allocate(self, count: int) -> None:
        held = self.references() > 0
        idle = [block for block in self.hash_of if not held[block]]
        num_free = NUM_BLOCKS - int(held.sum()) - len(idle)
        blocks = self.pool.allocate("owner", count, count)
        if count > num_free + len(idle):
            assert blocks is None
            return
        assert blocks is not None and len(blocks) == count
        assert not held[blocks].any()
        evicted = [block for block in idle if len(self.pool.index.lookup([self.hash_of[block]])) == 0]
        assert len(evicted) == max(count - num_free, 0)
        for block in evicted:
            del self.hash_of[block]
        self.count += 1
        self.owners[f"owner {self.count}"] = blocks.tolist()

    @precondition(lambda self: self.owners)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        owner = data.draw(st.sampled_from(sorted(self.owners)))
        self.pool.release("owner", np.array(self.owners.pop(owner), np.int32))

    @precondition(lambda self: any(self.owners.values()))
    @rule(data=st.data())
    def cache(self, data: st.DataObject) -> None:
        owner = data.draw(st.sampled_from(sorted(name for name, blocks in self.owners.items() if blocks)))
        block = data.draw(st.sampled_from(self.owners[owner]))
        block_hash = bytes([data.draw(st.integers(0, 30))])
        if block in self.hash_of:
            return
        self.pool.cache([b"root", block_hash], 0, np.array([block], np.int32))
        if block_hash not in self.hash_of.values():
            self.hash_of[block] = block_hash

    @precondition(lambda self: self.hash_of)
    @rule(data=st.data())
    def share(self, data: st.DataObject) -> None:
        blocks = data.draw(st.lists(st.sampled_from(sorted(self.hash_of)), unique=True))
        found = self.pool.index.lookup([self.hash_of[block] for block in blocks])
        assert found.tolist() == blocks
        idle = [block for block in blocks if not self.references()[block]]
        assert self.pool.count_idle(found) == len(idle)
        self.pool.share(found)
        self.count += 1
        self.owners[f"owner {self.count}"] = blocks

    @rule()
    def clear(self) -> None:
        self.pool.clear_cache()
        self.hash_of.clear()

    @invariant()
    def adds_up(self) -> None:
        if not hasattr(self, "pool"):
            return
        references = self.references()
        self.pool.check_integrity(references)
        idle = sum(references[block] == 0 for block in self.hash_of)
        assert self.pool.num_idle == idle
        assert self.pool.num_owned == np.count_nonzero(references)
        assert self.pool.num_free == NUM_BLOCKS - idle - np.count_nonzero(references)
        assert self.pool.num_available == self.pool.num_free + idle


PoolMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestPoolMachine = PoolMachine.TestCase


@pytest.mark.parametrize("eviction", EVICTIONS)
def test_a_prefix_loses_its_tail_before_its_head(eviction: str) -> None:
    pool = BlockPool(PoolSpec(8, 4096), choose(KV_POLICIES["paged"] | {"eviction": eviction}))
    hashes = [bytes([i]) for i in range(6)]
    blocks = pool.allocate("a", 6, 6)
    assert blocks is not None
    pool.cache([b"root", *hashes], 0, blocks)
    pool.release("a", blocks)
    pool.allocate("b", 5, 5)  # two are free: three are evicted
    assert pool.index.lookup(hashes).tolist() == blocks[:3].tolist()


def test_bulk_work_is_array_work() -> None:
    """8,192 blocks, the KV of a 128k context, in far less than a Python loop over them takes (about 1 ms)."""
    pool = BlockPool(PoolSpec(20_000, 16), choose(KV_POLICIES["paged"]))
    seconds = []
    for _ in range(20):
        start = time.perf_counter()
        blocks = pool.allocate("a", 8192, 8192)
        assert blocks is not None
        pool.release("a", blocks)
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.5e-3
