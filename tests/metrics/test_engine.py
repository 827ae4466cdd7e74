"""The engine's metrics are its last stats, no more and no less."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from octavo.kv.usage import GroupUsage, KVUsage
from octavo.metrics.engine import EngineCollector
from octavo.outputs import EngineStats, KVWrites, ResourceCounts
from support.simulation import Simulation

LABELS = {"model_name": "m"}


def test_gauges_and_counters_follow_the_stats() -> None:
    stats = EngineStats()
    registry = CollectorRegistry()
    registry.register(EngineCollector("m", lambda: stats, {"engine": {"isa": "avx2"}}, {"load": 0.5, "import": 0.25}))
    assert registry.get_sample_value("octavo_num_requests_running", LABELS) == 0
    assert registry.get_sample_value("octavo_kv_cache_usage_perc", LABELS) == 0

    stats = EngineStats(running=3, waiting=2, oldest_waiting_s=1.5, preemptions=4, prompt_tokens=100, generation_tokens=50)
    stats.prefix_queries, stats.prefix_hits, stats.recomputed_tokens = 90, 30, 7
    stats.swapped_out_blocks, stats.swapped_in_blocks, stats.swap_bytes = 8, 5, 300
    stats.disk_hits, stats.disk_spilled_blocks, stats.disk_dropped_blocks, stats.disk_corrupt_files, stats.disk_bytes = 16, 9, 2, 1, 900
    expected = {
        "num_requests_running": 3,
        "num_requests_waiting": 2,
        "num_preemptions_total": 4,
        "prompt_tokens_total": 100,
        "generation_tokens_total": 50,
        "prefix_cache_queries_total": 90,
        "prefix_cache_hits_total": 30,
        "recomputed_tokens_total": 7,
        "kv_swapped_out_blocks_total": 8,
        "kv_swapped_in_blocks_total": 5,
        "kv_swap_bytes": 300,
        "prefix_cache_disk_hits_total": 16,
        "prefix_cache_disk_spilled_blocks_total": 9,
        "prefix_cache_disk_dropped_blocks_total": 2,
        "prefix_cache_disk_corrupt_files_total": 1,
        "prefix_cache_disk_bytes": 900,
    }
    assert {name: registry.get_sample_value(f"octavo_{name}", LABELS) for name in expected} == expected
    assert registry.get_sample_value("octavo_oldest_waiting_seconds", LABELS | {"reason": "none"}) == 1.5
    assert registry.get_sample_value("octavo_engine_info", {"isa": "avx2"}) == 1
    assert registry.get_sample_value("octavo_startup_phase_seconds", LABELS | {"phase": "load"}) == 0.5


def test_what_was_made_before_and_while_serving_is_told_apart() -> None:
    stats = EngineStats(resources_at_ready=ResourceCounts(10, 5000, 1, 2), resources=ResourceCounts(13, 9000, 1, 2))
    registry = CollectorRegistry()
    registry.register(EngineCollector("m", lambda: stats, {}, {}))
    names = ("native_allocations", "native_allocated_bytes", "programs_built", "threads_started")

    def values(when: str) -> list[float | None]:
        return [registry.get_sample_value(f"octavo_{name}_total", LABELS | {"when": when}) for name in names]

    assert values("start") == [10, 5000, 1, 2]
    assert values("serving") == [3, 4000, 0, 0]


def uses(lengths: list[int], num_blocks: int) -> tuple[float, float]:
    """Block use and token use as /metrics shows them, with prompts of these lengths computed."""
    sim = Simulation(
        num_blocks=num_blocks, block_size=16, max_num_seqs=len(lengths), max_num_batched_tokens=sum(lengths), max_model_len=512
    )
    for i, length in enumerate(lengths):
        sim.add(f"r{i}", [i % 50, i // 50, *range(length - 2)], max_tokens=2)
    sim.step()
    registry = CollectorRegistry()
    registry.register(EngineCollector("m", lambda: EngineStats(kv=sim.kv.usage().as_dict()), {}, {}))
    names = ("octavo_kv_cache_usage_perc", "octavo_kv_cache_token_usage_perc")
    blocks, tokens = (registry.get_sample_value(name, LABELS) for name in names)
    assert blocks is not None and tokens is not None
    return blocks, tokens


def test_kv_16_waste_inside_blocks_shows_between_two_gauges() -> None:
    """Of prompts of 17 tokens 15 slots in 32 are waste, of prompts around 400 tokens 7.5 in 408 on average."""
    assert uses([17] * 32, num_blocks=64) == (1.0, 17 / 32)
    blocks, tokens = uses(list(range(393, 409)), num_blocks=425)
    assert blocks == (8 * 25 + 8 * 26) / 425
    assert blocks - tokens == pytest.approx(7.5 / 408 * blocks) and blocks - tokens < 0.02


def test_kv_16_block_use_and_token_use_are_two_gauges() -> None:
    """17 tokens in two blocks of 16: 32 slots are held, 17 live, 15 tail (47 %)."""
    unused = dict.fromkeys(("reserved", "stale", "cached", "external"), 0)
    group = GroupUsage("full", 16, 1600, total=64, held=32, live=17, tail=15, free=32, largest_free_run=2, **unused)
    stats = EngineStats(kv=KVUsage((group,)).as_dict())
    registry = CollectorRegistry()
    registry.register(EngineCollector("m", lambda: stats, {}, {}))
    assert registry.get_sample_value("octavo_kv_cache_usage_perc", LABELS) == 0.5
    assert registry.get_sample_value("octavo_kv_cache_token_usage_perc", LABELS) == 17 / 64
    expected = {"kv_slots": 64, "kv_slots_live": 17, "kv_slots_tail": 15, "kv_slots_free": 32, "kv_slots_external": 0}
    expected |= {"kv_blocks": 4, "kv_blocks_held": 2, "kv_blocks_live": 17 / 16, "kv_bytes": 6400, "kv_bytes_held": 3200}
    expected |= {"kv_efficiency": 17 / 32, "kv_fragmentation": 1 - 2 / 32}
    assert {name: registry.get_sample_value(f"octavo_{name}", LABELS | {"group": "full"}) for name in expected} == expected


def test_writes_of_8_bit_kv_are_counted_by_layer() -> None:
    writes = KVWrites([100, 100], [1, 0], [2, 0], [0, 30], [0, 40])
    registry = CollectorRegistry()
    registry.register(EngineCollector("m", lambda: EngineStats(kv_writes=writes), {}, {}))
    expected = {
        ("written_vectors", "0", "k"): 100,
        ("written_vectors", "1", "v"): 100,
        ("guarded_vectors", "0", "k"): 1,
        ("guarded_vectors", "0", "v"): 2,
        ("guarded_vectors", "1", "v"): 0,
        ("clipped_numbers", "1", "k"): 30,
        ("clipped_numbers", "1", "v"): 40,
    }
    for (name, layer, part), value in expected.items():
        assert registry.get_sample_value(f"octavo_kv_{name}_total", LABELS | {"layer": layer, "part": part}) == value


def test_wide_kv_has_no_such_metrics() -> None:
    registry = CollectorRegistry()
    registry.register(EngineCollector("m", EngineStats, {}, {}))
    assert not any("vectors" in family.name for family in registry.collect())
