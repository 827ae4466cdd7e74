"""The pool's memory is there before a step needs it, and what it holds stays."""

from __future__ import annotations

import resource

import numpy as np
import pytest

from octavo import _native
from octavo.runner.prefault import Prefault

NUM_BLOCKS = 600


def storage() -> _native.KVStorage:
    """24 MB in blocks of 40 kB."""
    return _native.KVStorage("generic", 5, NUM_BLOCKS, 16, 4, 32, "bf16")


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
    prefault = Prefault([touched], [NUM_BLOCKS])
    assert prefault.wait(60)
    assert write_all(untouched) >= untouched.nbytes // 2**21
    assert write_all(touched) <= 2
    prefault.stop()


def test_what_is_written_meanwhile_stays() -> None:
    pool = storage()
    random = np.random.default_rng(0)
    data = random.integers(0, 256, (NUM_BLOCKS, pool.block_bytes), np.uint8)
    blocks = np.arange(NUM_BLOCKS, dtype=np.int32)
    prefault = Prefault([pool], [NUM_BLOCKS])
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
    prefault = Prefault([storage() for _ in range(20)], [NUM_BLOCKS] * 20)
    prefault.stop()
    assert prefault.wait(0)
    prefault.stop()
