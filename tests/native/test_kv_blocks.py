"""Blocks of the native KV storage as plain bytes: copied, saved and loaded, against numpy indexing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo import _native
from support.native_cases import ISAS

NUM_BLOCKS = 7


def storage(dtype: str = "bf16") -> _native.KVStorage:
    return _native.KVStorage(ISAS[0], 2, NUM_BLOCKS, 8, 2, 16, dtype)


def ids(*blocks: int) -> np.ndarray:
    return np.array(blocks, np.int32)


def filled(kv: _native.KVStorage) -> np.ndarray:
    data = np.random.default_rng(0).integers(0, 256, (NUM_BLOCKS, kv.block_bytes), np.uint8)
    kv.import_blocks(np.arange(NUM_BLOCKS, dtype=np.int32), data)
    return data


@pytest.mark.parametrize(("dtype", "width"), [("bf16", 2), ("fp16", 2), ("fp32", 4)])
def test_a_block_is_all_its_numbers(dtype: str, width: int) -> None:
    kv = storage(dtype)
    assert kv.block_bytes == kv.nbytes // NUM_BLOCKS == 2 * 2 * 8 * 2 * 16 * width
    filled(kv)
    other = storage(dtype)
    exported, room = kv.export_blocks(ids(1, 6)), np.zeros((2, kv.block_bytes), np.uint8)
    kv.export_into(ids(1, 6), room)
    np.testing.assert_array_equal(room, exported)
    other.import_blocks(ids(5, 0), exported)
    for layer in range(2):
        np.testing.assert_array_equal(other.read(layer, 5), kv.read(layer, 1))
        np.testing.assert_array_equal(other.read(layer, 0), kv.read(layer, 6))
        assert not np.any(other.read(layer, 1))


@given(st.lists(st.integers(0, NUM_BLOCKS - 1), max_size=NUM_BLOCKS), st.permutations(range(NUM_BLOCKS)))
@settings(max_examples=60, deadline=None)
def test_copies_read_what_was_there_before(src: list[int], order: list[int]) -> None:
    kv = storage()
    expected = filled(kv)
    dst = order[: len(src)]
    expected[dst] = expected[src]  # numpy, too, reads all before it writes
    kv.copy_blocks(ids(*src), ids(*dst))
    np.testing.assert_array_equal(kv.export_blocks(np.arange(NUM_BLOCKS, dtype=np.int32)), expected)


@pytest.mark.parametrize("bad", [-1, NUM_BLOCKS, 2**31 - 1])
def test_a_block_outside_is_refused_and_nothing_moved(bad: int) -> None:
    kv = storage()
    expected = filled(kv)
    data = np.zeros((2, kv.block_bytes), np.uint8)
    for call in (
        lambda: kv.export_blocks(ids(0, bad)),
        lambda: kv.import_blocks(ids(0, bad), data),
        lambda: kv.copy_blocks(ids(1, bad), ids(2, 3)),
        lambda: kv.copy_blocks(ids(1, 2), ids(3, bad)),
    ):
        with pytest.raises(IndexError, match=f"block = {bad}: the storage has {NUM_BLOCKS}"):
            call()
    np.testing.assert_array_equal(kv.export_blocks(np.arange(NUM_BLOCKS, dtype=np.int32)), expected)


def test_two_writes_to_a_block_and_misfits_are_refused() -> None:
    kv = storage()
    data = np.zeros((2, kv.block_bytes), np.uint8)
    with pytest.raises(ValueError, match="block = 3: it is to be written twice"):
        kv.copy_blocks(ids(1, 2), ids(3, 3))
    with pytest.raises(ValueError, match="block = 3: it is to be written twice"):
        kv.import_blocks(ids(3, 3), data)
    with pytest.raises(ValueError, match="differ in length"):
        kv.copy_blocks(ids(1, 2), ids(3))
    with pytest.raises(ValueError, match=r"data is \[2, 2048\]: it must be \[1, 2048\]"):
        kv.import_blocks(ids(3), data)
    with pytest.raises(ValueError, match="it must be"):
        kv.import_blocks(ids(3, 4), data[:, 1:].copy())
    with pytest.raises(ValueError, match=r"out is .* it must be"):
        kv.export_into(ids(3), data)
    assert kv.export_blocks(ids()).shape == (0, kv.block_bytes)
