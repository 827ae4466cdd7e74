"""Preemption by swap: what a request had computed comes back from host memory, and nothing is computed twice."""

from __future__ import annotations

import random

import pytest

from octavo.kv.transfers import LoadBlocks, SaveBlocks
from octavo.request import RequestStatus
from support.simulation import Simulation


def small_pool(**settings: object) -> Simulation:
    """Fifty requests in a pool of a quarter of what they need together."""
    draw = random.Random(4)
    sizes = [(draw.randint(10, 60), draw.randint(20, 60)) for _ in range(50)]
    demand = sum(-(-(prompt + output) // 8) for prompt, output in sizes)
    sim = Simulation(**({"num_blocks": demand // 4, "max_num_seqs": 50, "max_num_batched_tokens": 128, "prefix_index": "none"} | settings))
    for i, (prompt, output) in enumerate(sizes):
        sim.add(f"r{i}", prompt, max_tokens=output)
    return sim


def useful_tokens(sim: Simulation) -> int:
    return sum(request.num_tokens - 1 for request in sim.requests.values())


def finish(sim: Simulation) -> None:
    sim.run(most_steps=5000)
    for name in sim.cores:
        sim.check_output(name)
    sim.check_idle()


def swapped_out_by_priority(**settings: object) -> Simulation:
    """Request low, with 30 tokens computed, has just lost its blocks to high."""
    sim = Simulation(**({"max_num_seqs": 1, "scheduling_policy": "priority", "swap_blocks": 100, "prefix_index": "none"} | settings))
    sim.add("low", 28, max_tokens=20, priority=1)
    for _ in range(3):
        sim.step()
    sim.add("high", 10, max_tokens=4)
    sim.step()
    assert sim.requests["low"].status is RequestStatus.PREEMPTED
    return sim


@pytest.mark.parametrize("lag", [0, 1, 2])
@pytest.mark.parametrize("victim", ["last", "cheapest"])
def test_kv_04_nothing_is_computed_twice(lag: int, victim: str) -> None:
    sim = small_pool(swap_blocks=10_000, lag=lag, victim=victim)
    finish(sim)
    stats = sim.scheduler.stats()
    assert stats.preemptions > 0 and stats.swapped_out_blocks == stats.swapped_in_blocks > 0
    assert stats.recomputed_tokens == 0 and sim.runner.computed_tokens == useful_tokens(sim)


def test_a_full_swap_space_falls_back_to_recomputing() -> None:
    sim = small_pool(swap_blocks=10)
    most = 0
    while sim.scheduler.has_work():
        sim.step()
        most = max(most, sim.kv.swap.nbytes)
    assert 0 < most <= 10 * 64
    stats = sim.scheduler.stats()
    assert 0 < stats.swapped_out_blocks == stats.swapped_in_blocks and stats.recomputed_tokens > 0
    assert stats.recomputed_tokens == sim.runner.computed_tokens - useful_tokens(sim)
    finish(sim)


def test_the_computed_blocks_are_saved_and_loaded_and_only_they() -> None:
    sim = swapped_out_by_priority()
    saves = [transfer for step in sim.scheduled for transfer in step.transfers]
    assert [type(transfer) for transfer in saves] == [SaveBlocks] and len(saves[0].blocks) == 4  # 30 tokens, in blocks of 8
    assert sim.scheduler.stats().swap_bytes == 4 * 64
    computed = sim.runner.computed_tokens
    finish(sim)
    loads = [transfer for step in sim.scheduled for transfer in step.transfers if isinstance(transfer, LoadBlocks)]
    assert [(load.request_id, len(load.blocks), load.first) for load in loads] == [("low", 4, 0)]
    assert sim.runner.computed_tokens - computed == 3 + (28 + 20 - 1 - 30)  # high's last tokens, and low's that were left
    assert sim.last("low").num_cached_tokens == 0


def test_what_others_have_cached_is_shared_rather_than_loaded() -> None:
    sim = swapped_out_by_priority(prefix_index="hash")
    finish(sim)
    (load,) = [transfer for step in sim.scheduled for transfer in step.transfers if isinstance(transfer, LoadBlocks)]
    assert (load.first, len(load.blocks)) == (3, 1)  # three full blocks are idle cached, the fourth was not full
    assert sim.scheduler.stats().recomputed_tokens == 0


@pytest.mark.parametrize("lag", [0, 2])
def test_host_memory_goes_back_when_a_swapped_request_is_aborted(lag: int) -> None:
    sim = swapped_out_by_priority(lag=lag)
    assert sim.kv.swap.nbytes
    sim.scheduler.abort(["low"])
    assert sim.kv.swap.nbytes == 0
    sim.run()
    sim.check_output("high")
    sim.check_idle()


def test_a_request_that_stops_while_swapped_out_frees_its_memory() -> None:
    sim = Simulation(max_num_seqs=1, scheduling_policy="priority", swap_blocks=100, lag=1)
    sim.add("low", 28, max_tokens=2, priority=1)
    sim.step()
    sim.step()  # its last token is in flight
    sim.add("high", 10, max_tokens=4)
    sim.step()
    assert sim.requests["low"].num_preemptions == 1
    finish(sim)
    assert sim.scheduler.stats().swapped_in_blocks == 0


def test_what_could_not_be_saved_is_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = small_pool(swap_blocks=10_000)

    def no_memory(*args: object) -> None:
        raise MemoryError

    monkeypatch.setattr(sim.runner, "export_blocks", no_memory)
    finish(sim)
    stats = sim.scheduler.stats()
    assert stats.swapped_out_blocks > 0 and stats.swapped_in_blocks == 0
    assert stats.recomputed_tokens == sim.runner.computed_tokens - useful_tokens(sim) > 0


def test_what_could_not_be_loaded_fails_its_request_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = swapped_out_by_priority()

    def broken(group: int, blocks: object, data: object) -> None:
        raise ValueError("no such bytes")

    monkeypatch.setattr(sim.runner, "import_blocks", broken)
    sim.add("other", 5, priority=2)
    sim.run()
    assert sim.last("low").finish_reason == "error"
    assert sim.last("low").error == "its KV blocks could not be loaded: no such bytes"
    for name in ("high", "other"):
        sim.check_output(name)
    sim.check_idle()


def test_a_step_that_is_rolled_back_loads_nothing_and_keeps_what_was_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = swapped_out_by_priority()
    while sim.scheduler.running:
        sim.step()
    monkeypatch.setattr(sim.scheduler, "_commit", lambda step: sim.scheduler._roll_back(step))
    assert sim.scheduler.schedule() is None
    assert not sim.kv.transfers and sim.kv.swap.nbytes == 4 * 64
    monkeypatch.undo()
    finish(sim)
    assert sim.scheduler.stats().recomputed_tokens == 0
