"""The size of the KV pool, by arithmetic."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.config import EngineArgs
from octavo.engine.pool import PoolPlan, plan_pool
from octavo.errors import InvalidRequestError
from octavo.runner.interface import LayerGroup, RunnerInfo


def info(
    available: int = 10**9, max_model_len: int = 1000, block_bytes: tuple[int, ...] = (300, 100), windows: tuple[int, ...] = (0, 0)
) -> RunnerInfo:
    groups = [LayerGroup(str(i), 1, nbytes, window) for i, (nbytes, window) in enumerate(zip(block_bytes, windows, strict=True))]
    return RunnerInfo(max_model_len, 10, (0,), "", groups, available)


@given(st.integers(64 * 400, 10**9), st.integers(0, 10**9))
def test_kv_20_bytes_give_exactly_the_blocks_they_hold(nbytes, available):
    plan = plan_pool(EngineArgs(kv_cache_memory_bytes=nbytes), info(available))
    count = nbytes // 400
    assert plan.num_blocks == [count, count] and plan.nbytes == count * 400 and plan.tokens == count * 16


def test_blocks_override_bytes_and_share():
    args = EngineArgs(num_gpu_blocks_override=77, kv_cache_memory_bytes=10**6)
    assert plan_pool(args, info()).num_blocks == [77, 77]


def test_the_share_is_never_more_than_all_sequences_need():
    assert plan_pool(EngineArgs(max_num_seqs=4), info()).num_blocks == [4 * 63] * 2  # ceil(1000 / 16) = 63
    assert plan_pool(EngineArgs(max_num_seqs=4), info(available=100 * 400 + 399)).num_blocks == [100] * 2


def test_a_small_pool_lowers_the_model_length_and_says_so(caplog):
    with caplog.at_level(logging.WARNING):
        plan = plan_pool(EngineArgs(), info(available=10 * 400))
    assert (plan.max_model_len, plan.num_blocks) == (160, [10, 10])
    assert "160" in caplog.text and "1000" in caplog.text


def test_a_small_pool_refuses_a_model_length_that_was_asked_for():
    with pytest.raises(InvalidRequestError, match=r"max_model_len = 500.*160") as error:
        plan_pool(EngineArgs(max_model_len=500), info(available=10 * 400))
    assert error.value.field == "max_model_len"
    with pytest.raises(InvalidRequestError, match="max_model_len = 500"):
        plan_pool(EngineArgs(max_model_len=500, kv_cache_memory_bytes=4000), info())


def test_overridden_blocks_limit_requests_instead(caplog):
    with caplog.at_level(logging.WARNING):
        plan = plan_pool(EngineArgs(max_model_len=500, num_gpu_blocks_override=10), info())
    assert (plan.max_model_len, plan.tokens) == (500, 160) and "refused" in caplog.text


def test_no_room_for_a_single_block():
    with pytest.raises(InvalidRequestError, match=r"kv_cache_memory_bytes = 399: .*400 bytes") as error:
        plan_pool(EngineArgs(kv_cache_memory_bytes=399), info())
    assert error.value.field == "kv_cache_memory_bytes"
    with pytest.raises(InvalidRequestError, match="gpu_memory_utilization"):
        plan_pool(EngineArgs(), info(available=0))


def test_more_than_the_model_was_made_for():
    with pytest.raises(InvalidRequestError, match=r"max_model_len = 1001: .* 1000"):
        plan_pool(EngineArgs(max_model_len=1001), info())


FULL, WINDOW = 3 * 16384, 15 * 16384  # a block of gemma3-270m in bf16: three full layers, fifteen with a window of 512


def gemma(available: int = 0) -> RunnerInfo:
    return info(available, max_model_len=32768, block_bytes=(FULL, WINDOW), windows=(0, 512))


def nbytes_of(plan: PoolPlan) -> int:
    return plan.num_blocks[0] * FULL + plan.num_blocks[1] * WINDOW


def fits(blocks: int, counts: list[int]) -> int:
    """Sequences of so many blocks that can decode at once."""
    return min(counts[0] // blocks, counts[1] // min(blocks, 34))


@given(st.integers(2**27, 2**33), st.integers(1, 2048))
@settings(deadline=None)
def test_layer_groups_use_all_bytes_and_no_length_is_served_badly(nbytes: int, blocks: int) -> None:
    plan = plan_pool(EngineArgs(kv_cache_memory_bytes=nbytes), gemma())
    assert plan.nbytes == nbytes_of(plan) and nbytes - FULL < plan.nbytes <= nbytes  # no room for another block of the full layers
    assert plan.max_model_len == 32768 <= plan.tokens == plan.num_blocks[0] * 16
    # At least half as many as if all bytes were split for this length, but for what rounding and one whole sequence take.
    left = nbytes - 2048 * FULL - 65 * WINDOW
    best = left // (blocks * FULL + min(blocks, 34) * WINDOW)
    assert fits(blocks, plan.num_blocks) >= min(best // 2, 256)


def test_a_window_gets_no_more_than_all_sequences_need() -> None:
    for nbytes in (2**33, 2**35):
        plan = plan_pool(EngineArgs(kv_cache_memory_bytes=nbytes, max_num_seqs=100), gemma())
        # 511 positions behind a query and 16 in flight lie in 34 blocks at most; 511 and a step's 512 in 65.
        assert plan.num_blocks[1] == 100 * 34 + 2 * (65 - 34)
    shared = plan_pool(EngineArgs(max_num_seqs=2), gemma(available=2**40))
    assert shared.num_blocks == [2 * 2048, 2 * 65]


def test_a_long_sequence_needs_only_a_window_of_most_layers() -> None:
    one = 2048 * FULL + 65 * WINDOW
    plan = plan_pool(EngineArgs(max_model_len=32768, kv_cache_memory_bytes=one), gemma())
    assert (plan.num_blocks, plan.max_model_len) == ([2048, 65], 32768)
    with pytest.raises(InvalidRequestError, match=rf"such a sequence needs {one} bytes .* max_model_len to 32752"):
        plan_pool(EngineArgs(max_model_len=32768, kv_cache_memory_bytes=one - 1), gemma())


def test_a_model_length_that_nobody_asked_for_gives_way_to_more_windows() -> None:
    plan = plan_pool(EngineArgs(kv_cache_memory_bytes=2048 * FULL), gemma())
    full, window = plan.num_blocks
    assert plan.max_model_len == plan.tokens == full * 16 < 32768 and window > 3 * 65


def test_a_placement_that_reserves_keeps_what_is_behind_the_window() -> None:
    plan = plan_pool(EngineArgs(kv_cache_memory_bytes=1000 * (FULL + WINDOW), kv_policy="static"), gemma())
    assert plan.num_blocks == [1000, 1000] and plan.max_model_len == 16000


def test_a_model_of_windows_alone_takes_any_length() -> None:
    windows = info(max_model_len=32768, block_bytes=(WINDOW,), windows=(512,))
    plan = plan_pool(EngineArgs(kv_cache_memory_bytes=100 * WINDOW + 5), windows)
    assert (plan.num_blocks, plan.tokens, plan.max_model_len) == ([100], 32768, 32768)
    small = plan_pool(EngineArgs(kv_cache_memory_bytes=64 * WINDOW), windows)  # a window and a step's tokens: 65 blocks
    assert (small.num_blocks, small.tokens, small.max_model_len) == ([64], 1024, 1024)


def test_an_exact_number_of_blocks_is_of_each_group() -> None:
    assert plan_pool(EngineArgs(num_gpu_blocks_override=500, max_num_seqs=4), gemma()).num_blocks == [500, 4 * 34 + 2 * 31]
    assert plan_pool(EngineArgs(num_gpu_blocks_override=500), info(block_bytes=(9,), windows=(512,))).num_blocks == [500]
