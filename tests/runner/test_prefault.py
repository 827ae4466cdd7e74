"""The pool's memory is there before a step needs it, and what it holds stays."""

from __future__ import annotations

import resource

import numpy as np
import pytest

from octavo import _native
from octavo.runner import prefault as prefault_module
from octavo.runner.prefault import CHUNK_BYTES, QUOTA_SHARE, Prefault, Region, rest_after

NUM_BLOCKS = 600


def storage() -> _native.KVStorage:
    """24 MB in blocks of 40 kB."""
    return _native.KVStorage("generic", 5, NUM_BLOCKS, 16, 4, 32, "bf16")


def region(pool: _native.KVStorage) -> Region:
    return Region(pool.touch_blocks, NUM_BLOCKS, pool.block_bytes)


def faults() -> int:
    """Pages that this process had to be given, so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def write_all(pool: _native.KVStorage) -> int:
    """How many pages it took to write every block."""
    data = np.ones((NUM_BLOCKS, pool.block_bytes), np.uint8)
    before = faults()
    pool.import_blocks(np.arange(NUM_BLOCKS, dtype=np.int32), data)
    return faults() - before


def test_writing_what_was_touched_takes_no_more_pages() -> None:
    untouched, touched = storage(), storage()
    prefault = Prefault([region(touched)])
    assert prefault.wait(60)
    assert write_all(untouched) >= untouched.nbytes // 2**21
    assert write_all(touched) <= 2
    prefault.stop()


def test_what_is_written_meanwhile_stays() -> None:
    pool = storage()
    random = np.random.default_rng(0)
    data = random.integers(0, 256, (NUM_BLOCKS, pool.block_bytes), np.uint8)
    blocks = np.arange(NUM_BLOCKS, dtype=np.int32)
    prefault = Prefault([region(pool)])
    for start in range(0, NUM_BLOCKS, 20):
        pool.import_blocks(blocks[start : start + 20], data[start : start + 20])
    for _ in range(3):  # and once more over all that is there
        pool.touch_blocks(0, NUM_BLOCKS)
    prefault.stop()
    np.testing.assert_array_equal(pool.export_blocks(blocks), data)


@pytest.mark.parametrize(("first", "count"), [(NUM_BLOCKS - 1, 100), (NUM_BLOCKS, 1), (10 * NUM_BLOCKS, 5), (0, 0)])
def test_blocks_that_do_not_exist_are_left_alone(first: int, count: int) -> None:
    pool = storage()
    pool.touch_blocks(first, count)
    assert not pool.export_blocks(np.array([NUM_BLOCKS - 1], np.int32)).any()


def test_stopping_ends_the_thread_whatever_is_left() -> None:
    prefault = Prefault([region(storage()) for _ in range(20)])
    prefault.stop()
    assert prefault.wait(0)
    prefault.stop()


@pytest.mark.parametrize(("busy", "share", "rest"), [(0.001, 0.05, 0.019), (0.004, 0.5, 0.004), (0.01, 1.0, 0.0), (0.01, 2.0, 0.0)])
def test_work_and_rest_are_in_proportion(busy: float, share: float, rest: float) -> None:
    assert rest_after(busy, share) == pytest.approx(rest)


def test_under_a_quota_it_rests_after_each_chunk_and_without_one_never(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quota of one CPU, where there are two: the thread takes a twentieth of it."""
    monkeypatch.setattr(prefault_module.os, "sched_getaffinity", lambda pid: {0, 1})
    times: list[tuple[float, float]] = []
    monkeypatch.setattr(prefault_module, "rest_after", lambda busy, share: times.append((busy, share)) or 0.0)
    chunks = 12
    for quota in (1.0, 2.0, float("inf")):
        touched: list[tuple[int, int]] = []
        done = Prefault([Region(lambda first, count, t=touched: t.append((first, count)), chunks, CHUNK_BYTES)], quota)
        assert done.wait(60)
        assert touched == [(i, 1) for i in range(chunks)]
    assert [share for _, share in times] == [QUOTA_SHARE * 1.0] * chunks  # of the first quota alone
    assert all(busy >= 0 for busy, _ in times)


def test_a_rest_does_not_hold_up_the_end() -> None:
    slow = Region(lambda first, count: None, 10**9, CHUNK_BYTES)
    resting = Prefault([slow], 1e-9)
    resting.stop()
    assert resting.wait(0)
