"""Spikes between tokens on a real server: a long prompt among streams that decode."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from octavo.bench.load.run import offer
from octavo.bench.load.target import Target
from octavo.bench.machine import MachineRates
from octavo.bench.observe.observer import Observer
from octavo.bench.observe.server import server_side
from octavo.bench.workload.requests import DrawnRequest
from octavo.config import AsyncEngineArgs
from support.live_server import LiveServer

FAST = MachineRates(read_bytes_s=1e12, int8_ops_s=1e14, bf16_flops_s=1e14, fp32_flops_s=1e14, cpus=(0,))
"""More than any machine that runs this."""


def drawn(index: int, arrival: float, prompt: int, output: int) -> DrawnRequest:
    tokens = random.Random(index)
    ids = [tokens.randrange(1000, 40_000) for _ in range(prompt)]
    return DrawnRequest(
        index=index, arrival=arrival, kind="chat", tenant=None, prompt_token_ids=ids, max_tokens=output, output_tokens=output
    )  # fmt: skip


@pytest.mark.slow
def test_a_long_prompt_among_decoding_streams_is_told_from_the_engines_own_log(smollm2_path: Path) -> None:
    server = LiveServer(AsyncEngineArgs(model=str(smollm2_path), num_gpu_blocks_override=300, max_num_batched_tokens=512))
    try:
        observer = Observer(server.url, interval=0.2)
        observer.start()
        streams = [drawn(i, 0.2 * i, 20, 800) for i in range(3)]
        run = offer(Target(server.url, "scripted"), [*streams, drawn(3, 1.2, 1500, 3)], concurrency=None)
        seen = observer.stop(run.started)
    finally:
        server.close()
    assert all(record.completed for record in run.records)
    side = server_side(run, seen, rates=FAST)

    # The log: whole, on the run's clock, and of the same tokens that the client saw.
    assert (seen.engine, seen.lost_steps, seen.partial) == ("octavo", 0, False)
    assert sum(step.sampled for step in seen.steps) == 3 * 800 + 3
    assert sum(step.prefill_tokens for step in seen.steps) == 3 * 20 + 1500
    first = min(record.chunks[0].time for record in run.records)
    assert min(step.time for step in seen.steps) <= first

    # The prompt takes three steps or four; the streams wait for each.
    spikes = side.result["spikes"]
    assert spikes["causes"][0]["cause"] == "prefill chunk" and spikes["causes"][0]["spikes"] >= 3
    assert max(cause["worst"][0]["ms"] for cause in spikes["causes"] if cause["worst"]) == spikes["causes"][0]["worst"][0]["ms"]
    chunks = {step.step for step in seen.steps if step.prefill_tokens > 100}
    for worst in spikes["causes"][0]["worst"][:2]:
        assert chunks & set(range(worst["steps"][0], worst["steps"][1] + 1))

    result = side.result
    assert 0.8 < result["kv_efficiency"] <= 1 and 0 < result["kv_usage"] < 1 and result["preemptions"] == 0
    assert 0 < result["percent_of_roofline"] < 100 and result["roofline"]["basis"] == "steps"
    assert json.loads(json.dumps(result)) == result
