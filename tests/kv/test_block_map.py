"""The map of blocks, by hand and against the block tables."""

from __future__ import annotations

import time
from collections import Counter

import numpy as np

from octavo.kv.block_map import CACHED, FREE
from octavo.kv.kv_cache_manager import KVCacheManager
from octavo.request import EngineCoreRequest, Request
from octavo.runner.interface import LayerGroup
from octavo.sampling_params import SamplingParams
from support.simulation import Simulation

PAGED = {"placement": "paged", "prefix_index": "hash", "eviction": "lru", "admission": "optimistic"}


def test_owners_cached_and_free_blocks() -> None:
    sim = Simulation(num_blocks=12, block_size=4, max_num_batched_tokens=64)
    sim.add("first", list(range(20)), max_tokens=1)
    sim.run()  # its four full blocks but the last token's stay cached
    sim.add("a", list(range(8)) + [49] * 4, max_tokens=9)
    sim.add("b", list(range(8)) + [48] * 4, max_tokens=9)
    sim.step()
    owners, (blocks,) = sim.kv.block_map()
    assert owners == ["a", "b"]
    tables = [sim.kv.block_ids(sim.requests[name])[0].tolist() for name in owners]
    shared = set(tables[0]) & set(tables[1])
    assert len(shared) == 2 and {int(blocks[block]) for block in shared} == {1}
    assert {int(blocks[block]) for block in set(tables[0]) - shared} == {0}
    assert Counter(blocks.tolist()) == {FREE: 5, CACHED: 3, 0: 1, 1: 3}


def test_a_reserved_block_is_its_requests() -> None:
    sim = Simulation(num_blocks=10, block_size=4, placement="contiguous", prefix_index="none", admission="guaranteed")
    sim.add("a", 5, max_tokens=8)  # stores 12 tokens at most: three blocks
    sim.add("b", 3, max_tokens=14)  # stores 16: four
    sim.step()
    owners, (blocks,) = sim.kv.block_map()
    assert owners == ["a", "b"] and blocks.tolist() == [0] * 3 + [1] * 4 + [FREE] * 3


def test_a_map_of_a_million_blocks_takes_milliseconds() -> None:
    kv = KVCacheManager([LayerGroup("all", 1, 64)], [1_000_000], 16, PAGED, "none")
    for i in range(100):
        request = Request(EngineCoreRequest(f"r{i}", [1] * 16_000, SamplingParams(max_tokens=10, seed=0)))
        growth = kv.allocate_slots(request, 16_000)
        assert growth is not None
        growth.commit()
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        _, (blocks,) = kv.block_map()
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.02
    assert np.array_equal(np.unique(blocks, return_counts=True)[1], [900_000, *[1000] * 100])


def test_a_block_behind_a_window_is_nobodys() -> None:
    sim = Simulation(num_blocks=12, window=6, window_blocks=10, block_size=4, max_num_batched_tokens=64, prefix_index="none")
    sim.add("a", 17, max_tokens=5)
    sim.step()  # reads from 12 on
    _, (full, window) = sim.kv.block_map()
    assert Counter(full.tolist()) == {0: 5, FREE: 7} and Counter(window.tolist()) == {0: 2, FREE: 8}
