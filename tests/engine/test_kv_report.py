"""What an engine tells of its KV pool."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time

import pytest

from octavo import LLM
from octavo.engine.async_llm import AsyncLLMEngine
from octavo.engine.client import InProcessClient
from octavo.engine.remote import EngineProcess
from octavo.engine.step_log import LENGTH
from octavo.errors import EngineDeadError, EngineTimeoutError
from octavo.request import EngineCoreRequest
from octavo.sampling_params import SamplingParams

PARAMS = SamplingParams(max_tokens=20, seed=0, ignore_eos=True)


def run(engine: InProcessClient) -> None:
    while engine.has_unfinished_requests:
        engine.step()


def test_every_part_is_there_and_adds_up(make_args) -> None:
    engine = InProcessClient(make_args(num_gpu_blocks_override=32))
    engine.add(EngineCoreRequest("a", [5] * 40, PARAMS))
    engine.step()
    report = engine.kv_usage()
    assert report["version"] == 1
    assert report["policy"] == {"placement": "paged", "prefix_index": "hash", "eviction": "lru", "admission": "optimistic"}
    assert report["owners"] == ["a"]
    (group,) = report["groups"]
    assert (group["name"], group["block_size"], group["efficiency"]) == ("all", 16, 40 / 48)
    assert group["slots"] == dict(total=512, held=48, live=40, tail=8, reserved=0, stale=0, cached=0, free=464, external=0)
    assert sorted(group["blocks"]) == [-1] * 29 + [0] * 3
    (step,) = report["steps"]
    assert (step["step"], step["tokens"], step["running"], step["waiting"], step["preemptions"]) == (1, 40, 1, 0, 0)
    assert step["kv_bytes"]["held"] == group["bytes"]["held"] and step["kv_bytes"]["live"] == group["bytes"]["live"]
    assert abs(step["time"] - time.time()) < 5 and 0 < step["seconds"] < 5


def test_the_last_steps_are_kept_and_preemptions_are_each_steps_own(make_args) -> None:
    engine = InProcessClient(make_args(num_gpu_blocks_override=8, enable_prefix_caching=False))
    for name in "ab":
        engine.add(EngineCoreRequest(name, [5] * 30, SamplingParams(max_tokens=90, seed=0, ignore_eos=True)))
    run(engine)
    steps = engine.kv_usage()["steps"]
    assert [step["step"] for step in steps] == list(range(1, len(steps) + 1))
    assert sum(step["preemptions"] for step in steps) == engine.stats().preemptions > 0
    engine.add(EngineCoreRequest("long", [5], SamplingParams(max_tokens=LENGTH // 8, seed=0, ignore_eos=True)))
    for _ in range(12):
        run(engine)
        engine.add(EngineCoreRequest("long", [5], SamplingParams(max_tokens=LENGTH // 8, seed=0, ignore_eos=True)))
    steps = engine.kv_usage()["steps"]
    assert len(steps) == LENGTH and steps[-1]["step"] - steps[0]["step"] == LENGTH - 1


def test_a_reset_forgets_what_is_cached(make_args) -> None:
    engine = InProcessClient(make_args(num_gpu_blocks_override=32))
    for name in "ab":
        engine.add(EngineCoreRequest(name, [5] * 40, PARAMS))
        run(engine)
    assert engine.stats().prefix_hits == 32
    assert engine.kv_usage()["groups"][0]["blocks"].count(-2) == 3
    assert engine.reset_prefix_cache() == 3
    assert set(engine.kv_usage()["groups"][0]["blocks"]) == {-1}
    engine.add(EngineCoreRequest("c", [5] * 40, PARAMS))
    run(engine)
    assert engine.stats().prefix_hits == 32
    assert engine.reset_prefix_cache() == 3 and engine.reset_prefix_cache() == 0


def test_llm_has_the_same_under_vllms_name(make_args) -> None:
    args = make_args(num_gpu_blocks_override=32)
    with LLM(args.model, runner_cls=args.runner_cls, max_model_len=256, num_gpu_blocks_override=32) as llm:
        llm.generate([[5] * 40], PARAMS, use_tqdm=False)
        report = llm.kv_usage()
        assert report["groups"][0]["blocks"].count(-2) == llm.reset_prefix_cache() == 3
        assert json.loads(json.dumps(report)) == report
        assert llm.reset_prefix_cache() == 0


@pytest.fixture
async def engine(make_args):
    """Steps of 20 ms."""
    found = AsyncLLMEngine(EngineProcess.launch(make_args(script={"step_seconds": 0.02}, num_gpu_blocks_override=32)))
    yield found
    found.shutdown()


async def test_an_idle_engine_answers_and_does_not_step(engine: AsyncLLMEngine) -> None:
    assert (await engine.kv_usage())["groups"][0]["blocks"] == [-1] * 32
    assert await engine.reset_prefix_cache() == 0
    assert engine.stats.steps == 0
    await asyncio.sleep(0.7)  # it sleeps now
    assert (await engine.kv_usage())["owners"] == []


async def test_answers_come_between_steps_and_leave_the_stream_alone(engine: AsyncLLMEngine) -> None:
    async def watch() -> list[dict]:
        reports = []
        while not reports or engine.stats.running:
            reports.append(await engine.kv_usage())
        return reports

    async def generate() -> list[int]:
        async for output in engine.generate({"prompt_token_ids": [5] * 40}, PARAMS, output_kind="final"):
            return output.outputs[0].token_ids
        return []

    task = asyncio.create_task(generate())
    await asyncio.sleep(0.1)
    reports = await watch()
    assert len(await task) == 20
    assert any(report["owners"] for report in reports)
    assert [step["step"] for step in reports[-1]["steps"]] == list(range(1, 21))
    assert engine.stats.kv["groups"][0]["slots"]["cached"] == 3 * 16
    assert await engine.reset_prefix_cache() == 3
    assert engine.stats.kv["groups"][0]["slots"]["cached"] == 0  # what /metrics reads


async def test_a_dead_or_stuck_engine_does_not_keep_anybody_waiting(engine: AsyncLLMEngine) -> None:
    await engine.kv_usage()
    process = engine._process
    os.kill(process.pid, signal.SIGSTOP)
    with pytest.raises(EngineTimeoutError, match=r"not answered within 0.2 s"):
        await process.ask("kv_usage", timeout=0.2)
    asking = asyncio.create_task(process.ask("kv_usage"))
    await asyncio.sleep(0)
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(EngineDeadError, match="signal 9"):
        await asyncio.wait_for(asking, 5)
    with pytest.raises(EngineDeadError, match="signal 9"):
        await engine.reset_prefix_cache()
