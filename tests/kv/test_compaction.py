"""Compaction: which blocks move, how many, and that nobody notices."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.errors import InvalidRequestError
from octavo.kv.interfaces import PoolSpec
from octavo.kv.placement.contiguous import ContiguousPlacement
from octavo.kv.placement.contiguous_best import BestFitPlacement
from octavo.kv.policies import choose
from support.simulation import Simulation

NUM_BLOCKS = 40
POLICIES = {"placement": "contiguous", "prefix_index": "none", "eviction": "lru", "admission": "guaranteed"}


def test_runs_by_hand() -> None:
    placement = ContiguousPlacement(PoolSpec(12, 16))
    for owner in "abcd":
        placement.allocate(owner, 2, 3)
    placement.free("a", np.arange(2, dtype=np.int32))
    placement.free("c", np.arange(6, 8, dtype=np.int32))  # . . . b b - . . . d d -
    assert (placement.num_free, placement.largest_free_run) == (6, 3)
    (move,) = placement.compact(wanted=5, most=1)
    assert (move.owner, move.first, move.src.tolist(), move.dst.tolist()) == ("b", 0, [3], [0])
    assert (placement.num_free, placement.largest_free_run) == (6, 3)  # what b leaves is nobody's until it has arrived
    assert sorted(placement.free_blocks().tolist()) == [1, 2, 3, 6, 7, 8]
    placement.check_integrity()
    (move,) = placement.compact(wanted=5, most=1)
    assert (move.first, move.src.tolist(), move.dst.tolist()) == (1, [4], [1])
    assert placement.reserved_blocks("b").tolist() == [2] and placement.largest_free_run == 6
    assert placement.compact(wanted=5, most=9) == []
    blocks = placement.allocate("b", 1, 3)
    assert blocks is not None and blocks.tolist() == [2]


def test_the_stretch_with_the_fewest_blocks_to_move_is_chosen() -> None:
    placement = ContiguousPlacement(PoolSpec(20, 16))
    for owner, count in (("a", 2), ("long", 5), ("b", 2), ("short", 1), ("c", 2), ("last", 8)):
        placement.allocate(owner, count, count)
    for owner, first in (("a", 0), ("b", 7), ("c", 10)):
        placement.free(owner, np.arange(first, first + 2, dtype=np.int32))
    (move,) = placement.compact(wanted=4, most=8)
    assert (move.owner, move.src.tolist(), move.dst.tolist()) == ("short", [9], [7])
    assert placement.largest_free_run == 4


@pytest.mark.parametrize("kind", [ContiguousPlacement, BestFitPlacement])
@settings(deadline=None)
@given(data=st.data())
def test_any_run_that_fits_in_all_comes_about_within_bounds(kind: type[ContiguousPlacement], data: st.DataObject) -> None:
    """Owners' tables are followed as a manager follows them, and what blocks hold as a runner does."""
    placement = kind(PoolSpec(NUM_BLOCKS, 16))
    tables: dict[str, list[int]] = {}
    content = [""] * NUM_BLOCKS
    most = data.draw(st.integers(1, 6))

    def grow(owner: str, count: int, reserve: int) -> bool:
        blocks = placement.allocate(owner, count, reserve)
        for block in [] if blocks is None else blocks.tolist():
            tables.setdefault(owner, []).append(block)
            content[block] = f"{owner} {len(tables[owner]) - 1}"
        return blocks is not None

    def compact(wanted: int) -> int:
        moves = placement.compact(wanted, most)
        for move in moves:
            held = [content[block] for block in move.src.tolist()]
            assert tables[move.owner][move.first : move.first + len(held)] == move.src.tolist()
            for block, text in zip(move.dst.tolist(), held, strict=True):
                content[block] = text
            tables[move.owner][move.first : move.first + len(held)] = move.dst.tolist()
        return sum(len(move.src) for move in moves)

    def check() -> None:
        placement.check_integrity()
        assert all(content[block] == f"{owner} {i}" for owner, table in tables.items() for i, block in enumerate(table))
        taken = [block for owner, table in tables.items() for block in [*table, *placement.reserved_blocks(owner).tolist()]]
        assert sorted([*taken, *placement.free_blocks().tolist()]) == list(range(NUM_BLOCKS))

    for i in range(data.draw(st.integers(1, 30))):
        action = data.draw(st.sampled_from(["start", "grow", "end", "compact"]))
        if action == "start":
            reserve = data.draw(st.integers(1, 9))
            grow(f"owner{i}", data.draw(st.integers(1, reserve)), reserve)
        elif action == "compact":
            assert compact(data.draw(st.integers(0, NUM_BLOCKS))) <= most
        elif tables:
            owner = data.draw(st.sampled_from(sorted(tables)))
            if action == "grow" and len(placement.reserved_blocks(owner)):
                assert grow(owner, 1, 0)
            elif action == "end":
                placement.free(owner, np.array(tables.pop(owner), np.int32))
        check()
    wanted, in_use = placement.num_free, sum(map(len, tables.values()))
    moved = steps = 0
    while placement.largest_free_run < wanted:
        moved += compact(wanted)
        steps += 1
        assert steps <= 2 * in_use + 1  # each run once, after the one that was on its way has arrived
        check()
    assert moved <= 2 * in_use
    if wanted:
        assert grow("head", 1, wanted)
    for owner, table in tables.items():
        assert owner == "head" or np.array_equal(table, range(table[0], table[0] + len(table))), "a run did not arrive in one piece"


def test_kv_18_a_waiting_request_gets_its_run_and_outputs_are_the_same() -> None:
    """Runs of 5, 2, 5 and 2 blocks; once those of 2 have ended, 2 and 8 blocks are free, and one comes that wants 10."""
    started = {}
    for most in (0, 1):
        sim = Simulation(num_blocks=20, block_size=4, max_num_batched_tokens=64, compaction_blocks=most, **POLICIES)
        for name, max_tokens in (("a", 18), ("b", 4), ("c", 18), ("d", 4)):
            sim.add(name, 2, max_tokens=max_tokens)
        while not sim.requests["d"].finished:
            sim.step()
        sim.add("big", 10, max_tokens=30)
        sim.step()
        if most == 0:
            assert sim.scheduler.stats().waiting_reason == "run"
            assert sim.kv.usage(sim.requests["big"]).groups[0].external == 10 * 4
        while sim.requests["big"].scheduled_time is None:
            assert sim.scheduled[-1].num_moved_blocks <= most
            sim.step()
        assert sim.kv.usage().groups[0].external == 0
        started[most] = len(sim.scheduled)
        sim.run()
        sim.check_idle()
        assert sim.scheduler.stats().kv_moved_blocks == 2 * most  # c had two blocks by then
        for name in sim.requests:
            sim.check_output(name)
    assert (started[1], started[0]) == (7, 19)


def test_kv_18_random_schedules_with_many_moves() -> None:
    """Steps in flight, preemption by swap, aborts, drafts: outputs are the scripted ones, and the books balance after each step."""
    rng = random.Random(18)
    moved = split = 0
    for _ in range(25):
        most = rng.choice([1, 3, 100])
        sim = Simulation(
            num_blocks=rng.randrange(8, 24),
            block_size=rng.choice([1, 4]),
            max_num_seqs=5,
            max_num_batched_tokens=24,
            max_model_len=60,
            scheduling_policy=rng.choice(["fcfs", "priority"]),
            swap_blocks=rng.choice([0, 1000]),
            compaction_blocks=most,
            max_drafts=rng.randrange(1, 4),
            lag=rng.randrange(3),
            **POLICIES | {"placement": rng.choice(["contiguous", "contiguous-best"])},
        )
        longest = min(60, sim.kv.capacity)
        for i in range(25):
            length = rng.randrange(1, min(20, longest))
            sim.add(f"r{i}", length, max_tokens=rng.randrange(1, min(20, longest - length + 1) + 1), priority=rng.randrange(3))
            sim.step()
            split += any(run.gap for run in sim.kv.pools[0].placement._runs.values())
            if rng.random() < 0.1:
                sim.scheduler.abort([f"r{rng.randrange(i + 1)}"])
        sim.run()
        sim.check_idle()
        for name, request in sim.requests.items():
            if request.finish_reason != "abort":
                sim.check_output(name)
        assert max(scheduled.num_moved_blocks for scheduled in sim.scheduled) <= most
        moved += sim.scheduler.stats().kv_moved_blocks
    assert moved > 50 and split > 5


@pytest.mark.parametrize("placement", ["paged", "static"])
def test_elsewhere_it_is_refused_with_the_reason(placement: str) -> None:
    told = f"kv_compaction = on: compaction=on and placement={placement} do not go together: it makes long runs"
    with pytest.raises(InvalidRequestError, match=told):
        choose(POLICIES | {"placement": placement}, compaction=True)
