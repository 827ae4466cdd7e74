"""LFU and cost eviction against models that look at every block, and by hand."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.kv.eviction.cost import CostEviction
from octavo.kv.eviction.lfu import LFUEviction
from octavo.kv.interfaces import Eviction, PoolSpec

NUM_BLOCKS = 20
BLOCK_SIZE = 4096  # a position is worth half a block more

blocks_strategy = st.lists(st.integers(0, NUM_BLOCKS - 1), unique=True)
operations = st.lists(
    st.one_of(st.tuples(st.sampled_from(["add", "find"]), blocks_strategy), st.tuples(st.just("evict"), st.integers(0, NUM_BLOCKS))),
    max_size=60,
)


class Model:
    """Keys by block: the least goes first."""

    def __init__(self, by_cost: bool) -> None:
        self.by_cost = by_cost
        self.keys: dict[int, tuple[float, int, int]] = {}
        self.found = [0] * NUM_BLOCKS
        self.clock = 0.0
        self.count = 0

    def add(self, blocks: list[int]) -> None:
        worth = 0.0
        for block in reversed(blocks):
            self.count += 1
            if self.by_cost:
                worth = max(worth, (1 + self.found[block]) * (1 + block * BLOCK_SIZE / 8192))
                level = math.floor(2 * math.log2(worth))
                self.keys[block] = self.clock + 2 ** (level / 2), level, self.count
            else:
                self.keys[block] = (1 + self.found[block]).bit_length(), 0, self.count

    def evict(self, count: int) -> list[int]:
        gone = sorted(self.keys, key=lambda block: self.keys[block])[:count]
        for block in gone:
            self.clock, _, _ = self.keys.pop(block)
            self.found[block] = 0
        return gone


@pytest.mark.parametrize("kind", [LFUEviction, CostEviction])
@given(steps=operations)
def test_like_a_model_that_looks_at_every_block(kind: type[LFUEviction | CostEviction], steps: list) -> None:
    eviction, model = kind(PoolSpec(NUM_BLOCKS, BLOCK_SIZE)), Model(kind is CostEviction)
    positions = np.arange(NUM_BLOCKS)  # each block has its number for its position
    eviction.cached(positions.astype(np.int32), positions)
    for name, argument in steps:
        if name == "add":
            blocks = [block for block in argument if block not in model.keys]
            eviction.add(np.array(blocks, np.int32))
            model.add(blocks)
        elif name == "find":
            eviction.found(np.array(argument, np.int32))
            idle = [block for block in argument if block in model.keys]
            eviction.remove(np.array(idle, np.int32))
            for block in argument:
                model.found[block] += 1
                model.keys.pop(block, None)
        else:
            count = min(argument, len(model.keys))
            gone = eviction.evict(count)
            assert gone.tolist() == model.evict(count)
            eviction.cached(gone, positions[gone])
        assert len(eviction) == len(model.keys)
        assert sorted(eviction.idle_blocks().tolist()) == sorted(model.keys)
        eviction.check_integrity()


def idle_of(eviction: Eviction, finds: dict[int, int], positions: dict[int, int]) -> None:
    for block, position in positions.items():
        eviction.cached(np.array([block], np.int32), np.array([position]))
        for _ in range(finds.get(block, 0)):
            eviction.found(np.array([block], np.int32))
        eviction.add(np.array([block], np.int32))


def test_lfu_by_hand() -> None:
    eviction = LFUEviction(PoolSpec(8, 16))
    idle_of(eviction, {0: 9, 1: 1, 2: 2, 4: 8}, dict.fromkeys(range(5), 0))
    assert eviction.evict(5).tolist() == [3, 1, 2, 0, 4]  # never found; once or twice; eight or nine times: in order of age


def test_cost_by_hand() -> None:
    eviction = CostEviction(PoolSpec(8, 8192))
    idle_of(eviction, {1: 3}, {0: 3, 1: 0, 2: 0, 3: 1})  # worth 4, 4, 1, 2
    assert eviction.evict(1).tolist() == [2]  # the clock is at 1
    idle_of(eviction, {}, {4: 0})  # 2, like block 3, whose level is higher
    assert eviction.evict(4).tolist() == [4, 3, 0, 1]


def test_what_nobody_finds_ages() -> None:
    eviction = CostEviction(PoolSpec(64, 16))
    idle_of(eviction, {0: 15}, {0: 0})  # found 15 times, and never again
    for turn in range(1, 40):
        idle_of(eviction, {}, {turn: 0})
        if eviction.evict(1).tolist() == [0]:
            break
    assert 10 < turn < 20


@pytest.mark.parametrize("kind", [LFUEviction, CostEviction])
def test_bulk_work_is_array_work(kind: type[LFUEviction | CostEviction]) -> None:
    eviction = kind(PoolSpec(100_000, 16))
    blocks = np.arange(100_000, dtype=np.int32)
    eviction.cached(blocks, np.arange(100_000) % 8192)
    seconds = []
    for _ in range(5):
        eviction.add(blocks)
        start = time.perf_counter()
        gone = eviction.evict(8192)
        seconds.append(time.perf_counter() - start)
        eviction.remove(np.setdiff1d(blocks, gone))
    assert min(seconds) < 10e-3
