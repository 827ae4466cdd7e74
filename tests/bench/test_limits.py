from __future__ import annotations

import pytest

from octavo.bench.limits import AttentionCosts, ModelCosts, percent_of_bandwidth, percent_of_compute
from octavo.bench.machine import MachineRates
from octavo.config import EngineArgs
from octavo.engine.info import EngineInfo

RATES = MachineRates(read_bytes_s=1000.0, int8_ops_s=400.0, bf16_flops_s=200.0, fp32_flops_s=100.0, cpus=(0,))
COSTS = ModelCosts(
    weight_bytes=90,
    matmul_params={"q8": 50},
    head_params={"q8": 10, "f32": 3},
    attention=(AttentionCosts(kv_bytes_per_token=2.0, flops_per_pair=4.0, window=0), AttentionCosts(1.0, 8.0, window=3)),
    attention_arithmetic="bf16",
)


def test_decode_bytes_by_hand():
    # Position 4 attends to 5 positions of the full group and to 3 of the windowed one.
    assert COSTS.decode_bytes(4) == 90 + 2 * 5 + 1 * 3
    assert COSTS.decode_bytes(0) == 90 + 2 + 1


def test_prefill_ops_by_hand():
    # 4 tokens: 1 + 2 + 3 + 4 = 10 pairs in full, 1 + 2 + 3 + 3 = 9 behind the window of 3.
    assert COSTS.prefill_ops(4) == {"q8": 2 * 50 * 4 + 2 * 10, "f32": 6, "bf16": 4 * 10 + 8 * 9}


def test_percents_by_hand():
    # Positions 4 and 5: 103 and 105 bytes; in 0.5 s memory could have given 500.
    assert percent_of_bandwidth(COSTS, RATES, 4, 2, 0.5) == pytest.approx(100 * 208 / 500)
    least = 420 / 400 + 6 / 100 + 112 / 200
    assert percent_of_compute(COSTS, RATES, 4, 10.0) == pytest.approx(100 * least / 10)


@pytest.mark.parametrize(
    ("settings", "arithmetic"),
    [
        ({}, "bf16"),
        ({"dtype": "float32"}, "f32"),
        ({"kv_cache_dtype": "fp16"}, "f32"),
        ({"dtype": "float32", "kv_cache_dtype": "bf16"}, "f32"),  # products of bf16 belong to arithmetic as served
        ({"kv_cache_dtype": "int8"}, "bf16"),
    ],
)
def test_costs_from_what_the_runner_says(settings, arithmetic):
    info = EngineInfo(
        **dict.fromkeys(("model", "numerics_id"), ""),
        **dict.fromkeys(("max_model_len", "max_num_seqs", "max_logprobs", "vocab_size", "block_size"), 1),
        eos_token_ids=[],
        num_blocks=[1],
        pool_tokens=1000,
        pool_bytes=3000,
        kv_bytes_per_token=3,  # 4 of 6 elements are the full layers'
        details={
            "weight_bytes_per_step": 90,
            "matmul_params": {"q8": 50},
            "head_params": {"q8": 10, "f32": 3},
            "attention": [
                {"window": 0, "flops_per_pair": 4, "kv_elements_per_token": 4},
                {"window": 3, "flops_per_pair": 8, "kv_elements_per_token": 2},
            ],
        },
    )
    costs = ModelCosts.from_info(info, EngineArgs(**settings))
    assert costs == ModelCosts(90, {"q8": 50}, {"q8": 10, "f32": 3}, COSTS.attention, arithmetic)
