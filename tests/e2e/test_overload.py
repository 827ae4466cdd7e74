"""Decoding after an overload, under the real model."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import pytest

from octavo import EngineArgs, SamplingParams
from octavo.engine.core import EngineCore
from octavo.request import EngineCoreRequest


def add(core: EngineCore, names: list[str], prompt: int, max_tokens: int) -> None:
    for i, name in enumerate(names):
        params = SamplingParams(max_tokens=max_tokens, temperature=0.0, seed=i, ignore_eos=True)
        core.add_request(EngineCoreRequest(name, [1000 + 7 * j * (i + 1) for j in range(prompt)], params))


def decode_step_s(core: EngineCore, turn: str) -> float:
    """Six requests of 20 tokens in and 40 out: the time of a step in which all six decode."""
    add(core, [f"{turn} {i}" for i in range(6)], 20, 40)
    seconds = []
    while core.has_unfinished_requests:
        start = time.perf_counter()
        core.step()
        seconds.append(time.perf_counter() - start)
    assert len(seconds) <= 42
    return statistics.median(seconds)


@pytest.mark.slow
def test_kv_05_decoding_is_as_fast_after_an_overload_as_before(smollm2_path: Path) -> None:
    """A pool of 32 blocks and requests that want 12 each, for seconds; elsewhere decoding was 14 times slower afterwards."""
    core = EngineCore(EngineArgs(model=str(smollm2_path), max_model_len=256, num_gpu_blocks_override=32))
    try:
        before = min(decode_step_s(core, f"before {i}") for i in range(2))
        add(core, [f"load {i}" for i in range(24)], 60, 120)
        for _ in range(200):
            core.step()
        assert core.stats().preemptions >= 5
        core.abort([f"load {i}" for i in range(24)])
        after = min(decode_step_s(core, f"after {i}") for i in range(2))
        core.check_integrity()
    finally:
        core.close()
    assert after < 2 * before
