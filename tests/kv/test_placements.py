"""Placements of runs: against a list of blocks, by hand, and by the clock."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.errors import InvalidRequestError
from octavo.kv.interfaces import Placement, PoolSpec
from octavo.kv.placement.contiguous import ContiguousPlacement
from octavo.kv.placement.contiguous_best import BestFitPlacement
from octavo.kv.placement.free_runs import FreeRuns
from octavo.kv.placement.static import StaticPlacement

NUM_BLOCKS = 30


def free_runs(used: set[int], num_blocks: int = NUM_BLOCKS) -> list[tuple[int, int]]:
    """(start, length) of each run of neighbouring blocks that are not in ``used``."""
    runs: list[tuple[int, int]] = []
    for block in sorted(set(range(num_blocks)) - used):
        if runs and sum(runs[-1]) == block:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((block, 1))
    return runs


@pytest.mark.parametrize("kind", [ContiguousPlacement, BestFitPlacement])
@given(data=st.data())
def test_runs_are_those_of_a_plain_search(kind: type[ContiguousPlacement], data: st.DataObject) -> None:
    placement = kind(PoolSpec(NUM_BLOCKS, 16))
    owned: dict[str, tuple[set[int], int]] = {}  # all of its run, and how many it was given
    for i in range(data.draw(st.integers(1, 25))):
        used = set().union(*(run for run, _ in owned.values()))
        if owned and data.draw(st.booleans()):
            owner = data.draw(st.sampled_from(sorted(owned)))
            run, given = owned.pop(owner)
            placement.free(owner, np.array(sorted(run)[:given], np.int32))
        else:
            length = data.draw(st.integers(1, 12))
            given = data.draw(st.integers(1, length))
            fitting = [run for run in free_runs(used) if run[1] >= length]
            assert placement.has_room(length) == bool(fitting)
            without = data.draw(st.lists(st.sampled_from(sorted(owned)), unique=True)) if owned else []
            left = used - set().union(*(owned[owner][0] for owner in without))
            assert placement.has_room(length, without) == any(run[1] >= length for run in free_runs(left))
            blocks = placement.allocate(f"owner {i}", given, length)
            if not fitting:
                assert blocks is None
            else:
                start = min(fitting, key=lambda run: run[1])[0] if kind is BestFitPlacement else fitting[0][0]
                assert blocks is not None and blocks.tolist() == list(range(start, start + given))
                owned[f"owner {i}"] = set(range(start, start + length)), given
        used = set().union(*(run for run, _ in owned.values()))
        placement.check_integrity()
        assert placement.free_blocks().tolist() == sorted(set(range(NUM_BLOCKS)) - used)
        assert placement.largest_free_run == max((length for _, length in free_runs(used)), default=0)
        assert placement.num_reserved == sum(len(run) - given for run, given in owned.values())


def test_first_fit_and_best_fit_by_hand() -> None:
    for kind, expected in ((ContiguousPlacement, 0), (BestFitPlacement, 7)):
        placement = kind(PoolSpec(12, 16))
        for owner, count in (("a", 5), ("b", 2), ("c", 3), ("d", 2)):
            placement.allocate(owner, count, count)
        placement.free("a", np.arange(5, dtype=np.int32))  # free: 0 to 4, and 7 to 9
        placement.free("c", np.arange(7, 10, dtype=np.int32))
        assert (placement.num_free, placement.largest_free_run) == (8, 5)
        assert placement.allocate("e", 3, 6) is None
        blocks = placement.allocate("e", 1, 3)
        assert blocks is not None and blocks.tolist() == [expected]
        assert placement.num_reserved == 2


def test_a_run_is_handed_out_in_order_and_goes_back_as_a_whole() -> None:
    placement = ContiguousPlacement(PoolSpec(10, 16))
    first, second = placement.allocate("a", 2, 5), placement.allocate("a", 3, 5)
    assert first is not None and second is not None and [*first, *second] == [0, 1, 2, 3, 4]
    assert placement.allocate("a", 1, 5) is None
    placement.free("a", second)
    assert (placement.num_free, placement.num_reserved) == (5, 3)
    placement.free("a", first)
    assert (placement.num_free, placement.num_reserved, placement.largest_free_run) == (10, 0, 10)


def test_static_slots_by_hand() -> None:
    placement: Placement = StaticPlacement(
        PoolSpec(14, 16, max_num_seqs=8, max_model_len=50)
    )  # four blocks a slot: three slots, two blocks left
    assert (placement.num_free, placement.max_request_blocks) == (14, 4)
    for i, owner in enumerate("abc"):
        assert placement.has_room(4) and not placement.has_room(5)
        blocks = placement.allocate(owner, 1, 2)
        assert blocks is not None and blocks.tolist() == [4 * i]
    assert not placement.has_room(1) and placement.has_room(1, ["a"])
    assert placement.allocate("d", 1, 1) is None
    assert (placement.num_free, placement.num_reserved, placement.largest_free_run) == (2, 9, 0)
    assert placement.free_blocks().tolist() == [12, 13]
    placement.check_integrity()
    placement.free("b", np.array([4], np.int32))
    assert (placement.num_free, placement.num_reserved, placement.largest_free_run) == (6, 6, 6)
    assert StaticPlacement(PoolSpec(14, 16, max_num_seqs=2, max_model_len=50)).allocate("a", 4, 4) is not None


def test_a_pool_without_room_for_one_slot_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="a slot holds max_model_len = 50 tokens, and the whole KV pool 48"):
        StaticPlacement(PoolSpec(3, 16, max_num_seqs=2, max_model_len=50))


def test_a_shredded_pool_of_100_000_blocks_costs_well_under_a_millisecond() -> None:
    runs = FreeRuns(100_000)
    runs.starts = np.arange(0, 99_002, 2)  # each second block is free, and 1,000 at the end
    runs.lengths = np.concatenate([np.ones(49_500, np.int64), [1000]])
    runs.num_free, runs.largest = 50_500, 1000
    runs.check_integrity(100_000)
    seconds = []
    for _ in range(20):
        start = time.perf_counter()
        first = runs.take(int(np.argmax(runs.lengths >= 1000)), 1000)
        runs.give(first, 1000)
        runs.give(1, 1)
        assert runs.take(0, 3) == 0
        runs.give(0, 1)
        runs.give(2, 1)
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 1e-3
    runs.check_integrity(100_000)
