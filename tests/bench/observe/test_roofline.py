"""Percent of the roofline, by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from octavo.bench.limits import AttentionCosts, ModelCosts
from octavo.bench.load.records import LoadRun, Usage
from octavo.bench.machine import MachineRates
from octavo.bench.observe.observation import Observation
from octavo.bench.observe.roofline import model_costs, roofline
from octavo.engine.info import EngineInfo
from octavo.engine.step_log import StepRecord
from support.load_runs import load_run, record

RATES = MachineRates(read_bytes_s=1000.0, int8_ops_s=400.0, bf16_flops_s=200.0, fp32_flops_s=100.0, cpus=(0,))
COSTS = ModelCosts(
    weight_bytes=90,
    matmul_params={"q8": 50},
    head_params={"q8": 10},
    attention=(AttentionCosts(kv_bytes_per_token=2.0, flops_per_pair=4.0, window=0), AttentionCosts(1.0, 8.0, window=3)),
    attention_arithmetic="bf16",
)


def facts() -> dict[str, Any]:
    """What GET /admin/engine says of such a model; its layer groups stand the other way round."""
    info = EngineInfo(
        model="m", max_model_len=1, max_num_seqs=1, max_logprobs=1, vocab_size=1, eos_token_ids=[], numerics_id="", block_size=1,
        num_blocks=[1, 1], pool_tokens=1, pool_bytes=1, kv_windows=[3, 0], kv_bytes_per_token=3.0,
        details={
            "weight_bytes_per_step": 90,
            "matmul_params": {"q8": 50},
            "head_params": {"q8": 10},
            "attention": [
                {"window": 0, "flops_per_pair": 4, "kv_elements_per_token": 4},
                {"window": 3, "flops_per_pair": 8, "kv_elements_per_token": 2},
            ],
        },
    )  # fmt: skip
    return {"info": dataclasses.asdict(info), "settings": {"dtype": "auto", "kv_cache_dtype": "auto"}}


def run(seconds: float = 10.0) -> LoadRun:
    return load_run([record([1.0])], seconds=seconds)


def test_costs_are_read_from_what_the_engine_says() -> None:
    assert model_costs(facts()) == (COSTS, [3, 0])
    assert model_costs(None) is None and model_costs({"info": {}}) is None
    plain = facts()
    plain["info"]["details"] = {}
    assert model_costs(plain) is None


def test_each_step_has_its_own_limit() -> None:
    decode = StepRecord(step=1, time=1.0, seconds=0.5, tokens=1, decodes=1, sampled=1, attended=(3, 5), kv_reads=(3, 5))
    prefill = StepRecord(
        step=2, time=4.0, seconds=2.0, idle_before=0.4, tokens=4, prefills=1, prefill_tokens=4, sampled=1, attended=(9, 10), kv_reads=(4, 4)
    )
    after = StepRecord(step=3, time=99.0, seconds=1.0)
    found = roofline(run(), Observation(facts=facts(), steps=[decode, prefill, after]), RATES)
    assert found is not None
    # Decode: 90 + 2·5 + 1·3 = 103 bytes, 0.103 s; 2·(50 + 10) = 120 operations, 0.3 s, and (4·5 + 8·3) / 200 = 0.22 s.
    assert found.decode_percent == pytest.approx(100 * 0.52 / 0.5)
    # Prefill: 420 / 400 and (40 + 72) / 200 = 0.56.
    assert found.prefill_percent == pytest.approx(100 * 1.61 / 2.0)
    # 0.5 + 2 s of steps, and 1 s between them of which 0.4 idle; the third step is outside the run.
    assert (found.busy_s, found.percent, found.memory_share) == (pytest.approx(3.1), pytest.approx(100 * 2.13 / 3.1), 0)
    assert found.basis == "steps"


def test_memory_is_the_limit_where_bytes_take_longer() -> None:
    slow = dataclasses.replace(RATES, read_bytes_s=10.0)
    decode = StepRecord(step=1, time=1.0, seconds=20.0, tokens=1, decodes=1, sampled=1, attended=(3, 5), kv_reads=(3, 5))
    found = roofline(run(), Observation(facts=facts(), steps=[decode]), slow)
    assert found is not None and (found.percent, found.memory_share) == (pytest.approx(100 * 10.3 / 20), 1)
    assert found.prefill_percent is None


def test_without_steps_prompts_and_answers_are_reckoned() -> None:
    """Prompts of 4 (2 of them cached) and answers of 3, both in flight from 1 s to 5 s."""
    records = [record([3.0, 4.0, 5.0], index=i, sent=1.0, prompt_tokens=4, usage=Usage(4, 3, 2)) for i in range(2)]
    found = roofline(load_run(records, seconds=10.0), Observation(), RATES, COSTS)
    assert found is not None and (found.basis, found.busy_s, found.decode_percent) == ("tokens", 4, None)
    # Each: tokens 2 to 5 are computed. Pairs: 3 + 4 + 5 + 6 = 18, and 3 each behind the window, 12.
    ops = 2 * (4 * 2 * 50 + 3 * 2 * 10) / 400 + 2 * (18 * 4 + 12 * 8) / 200
    # Readings of the weights: 3, shared by both; K and V: 4 and then 5 + 6 positions, and behind the window 4, 3 + 3.
    nbytes = 3 * 90 + 2 * (2 * (4 + 11) + 1 * (4 + 6))
    assert found.percent == pytest.approx(100 * max(ops, nbytes / 1000) / 4)
    slow = dataclasses.replace(RATES, read_bytes_s=10.0)
    bound = roofline(load_run(records, seconds=10.0), Observation(), slow, COSTS)
    assert bound is not None and (bound.percent, bound.memory_share) == (pytest.approx(100 * nbytes / 10 / 4), 1)


def test_a_log_of_other_windows_is_reckoned_by_tokens() -> None:
    """Another version's steps tell one window where its model has two."""
    told = StepRecord(step=1, time=1.0, seconds=0.5, tokens=1, decodes=1, sampled=1, attended=(3,), kv_reads=(3,))
    found = roofline(run(), Observation(facts=facts(), steps=[told]), RATES)
    assert found is not None and found.basis == "tokens"


def test_nothing_is_made_up() -> None:
    assert roofline(run(), Observation(), RATES) is None
    assert roofline(load_run([record([], sent=None, ended=None)]), Observation(), RATES, COSTS) is None
