"""The size of the KV pool, by arithmetic."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.config import EngineArgs
from octavo.engine.pool import plan_pool
from octavo.errors import InvalidRequestError
from octavo.runner.interface import LayerGroup, RunnerInfo


def info(available: int = 10**9, max_model_len: int = 1000, block_bytes: tuple[int, ...] = (300, 100)) -> RunnerInfo:
    groups = [LayerGroup(str(i), 1, nbytes) for i, nbytes in enumerate(block_bytes)]
    return RunnerInfo(max_model_len, 10, (0,), "", groups, available)


@given(st.integers(64 * 400, 10**9), st.integers(0, 10**9))
def test_kv_20_bytes_give_exactly_the_blocks_they_hold(nbytes, available):
    plan = plan_pool(EngineArgs(kv_cache_memory_bytes=nbytes), info(available))
    assert plan.num_blocks == nbytes // 400 and plan.nbytes == plan.num_blocks * 400 and plan.tokens == plan.num_blocks * 16


def test_blocks_override_bytes_and_share():
    args = EngineArgs(num_gpu_blocks_override=77, kv_cache_memory_bytes=10**6)
    assert plan_pool(args, info()).num_blocks == 77


def test_the_share_is_never_more_than_all_sequences_need():
    assert plan_pool(EngineArgs(max_num_seqs=4), info()).num_blocks == 4 * 63  # ceil(1000 / 16) = 63
    assert plan_pool(EngineArgs(max_num_seqs=4), info(available=100 * 400 + 399)).num_blocks == 100


def test_a_small_pool_lowers_the_model_length_and_says_so(caplog):
    with caplog.at_level(logging.WARNING):
        plan = plan_pool(EngineArgs(), info(available=10 * 400))
    assert (plan.max_model_len, plan.num_blocks) == (160, 10)
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
