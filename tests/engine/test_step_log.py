"""What an engine tells of each of its steps."""

from __future__ import annotations

import gc
import itertools
import time
from collections.abc import Callable

import pytest

from octavo.config import EngineArgs
from octavo.engine import step_log
from octavo.engine.async_llm import AsyncLLMEngine
from octavo.engine.core import EngineCore
from octavo.engine.garbage import GarbageClock
from octavo.engine.remote import EngineProcess
from octavo.engine.step_log import StepRecord
from octavo.request import EngineCoreRequest
from octavo.sampling_params import SamplingParams

MakeArgs = Callable[..., EngineArgs]


def add(core: EngineCore, name: str, prompt: int, output: int) -> None:
    core.add_request(EngineCoreRequest(name, [5] * prompt, SamplingParams(max_tokens=output, seed=0, ignore_eos=True)))


def run(core: EngineCore) -> list[StepRecord]:
    while core.has_unfinished_requests:
        core.step()
    steps: list[StepRecord] = core.steps(0)["steps"]
    return steps


def test_each_step_says_what_it_did(make_args: MakeArgs) -> None:
    core = EngineCore(make_args(num_gpu_blocks_override=32, max_num_batched_tokens=24, enable_prefix_caching=False))
    add(core, "a", 10, 5)
    core.step()
    add(core, "b", 40, 2)
    steps = run(core)
    # a's prompt; then a decodes beside b's chunks of 23 and 17; b samples with the second of them.
    assert [step.tokens for step in steps] == [10, 24, 18, 2, 1]
    assert [(step.prefills, step.prefill_tokens, step.decodes) for step in steps] == [
        (1, 10, 0),
        (1, 23, 1),
        (1, 17, 1),
        (0, 0, 2),
        (0, 0, 1),
    ]
    assert [step.sampled for step in steps] == [1, 1, 2, 2, 1]
    # Pairs: a prompt of 10 has 55; a at position 10 sees 11, b's first 23 tokens 276; then 12, and b's next 17: 17 · 23 + 153.
    assert [step.attended for step in steps] == [(55,), (11 + 276,), (12 + 391 + 153,), (13 + 41,), (14,)]
    assert [step.kv_reads for step in steps] == [(10,), (11 + 23,), (12 + 40,), (13 + 41,), (14,)]
    assert [step.running for step in steps] == [1, 2, 2, 1, 0]
    held, live = (core.info.pool_bytes // (32 * 16) * slots for slots in (16, 10))
    assert (steps[0].kv_held_bytes, steps[0].kv_live_bytes, steps[0].kv_usage) == (held, live, 1 / 32)


def test_times_are_in_order_and_idle_time_is_told_apart(make_args: MakeArgs) -> None:
    core = EngineCore(make_args(script={"step_seconds": 0.02}, num_gpu_blocks_override=32))
    add(core, "a", 10, 3)
    run(core)
    time.sleep(0.1)
    add(core, "b", 10, 2)
    steps = run(core)
    assert all(step.seconds >= 0.02 and 0 < step.schedule_seconds < step.seconds for step in steps)
    for before, after in itertools.pairwise(steps):
        assert after.time - after.seconds >= before.time - 0.005  # two clocks: one tells the time, one measures
    assert steps[3].idle_before >= 0.1
    assert [step.idle_before for step in steps[1:3] + steps[4:]] == [0, 0, 0]
    stats = core.stats()
    assert stats.idle_seconds == pytest.approx(sum(step.idle_before for step in steps))
    assert stats.step_seconds == pytest.approx(sum(step.seconds + step.account_seconds for step in steps))
    assert stats.schedule_seconds == pytest.approx(sum(step.schedule_seconds for step in steps))


def test_the_garbage_collector_is_seen_in_a_step_and_between(make_args: MakeArgs, monkeypatch: pytest.MonkeyPatch) -> None:
    core = EngineCore(make_args(num_gpu_blocks_override=32))
    add(core, "a", 10, 3)
    core.step()
    gc.collect()
    core.step()
    execute = core.runner.execute

    def collect_too(scheduled):
        gc.collect()
        return execute(scheduled)

    monkeypatch.setattr(core.runner, "execute", collect_too)
    core.step()
    second, third = core.steps(1)["steps"]
    assert second.gc_before > 0.0005 and third.gc_seconds > 0.0005
    assert third.gc_seconds < third.seconds
    assert core.stats().gc_seconds >= second.gc_before + third.gc_seconds


def test_preemption_and_what_is_computed_again(make_args: MakeArgs) -> None:
    core = EngineCore(make_args(num_gpu_blocks_override=8, enable_prefix_caching=False))
    for name in "ab":
        add(core, name, 30, 90)
    steps = run(core)
    assert sum(step.preemptions for step in steps) == core.stats().preemptions > 0
    assert sum(step.recomputed_tokens for step in steps) == core.stats().recomputed_tokens > 0


def test_swapped_and_moved_blocks_are_counted(make_args: MakeArgs) -> None:
    core = EngineCore(make_args(num_gpu_blocks_override=8, enable_prefix_caching=False, preemption_mode="swap"))
    core.runner.execute = _without_transfers(core.runner.execute)
    for name in "ab":
        add(core, name, 30, 90)
    while not core.stats().swapped_out_blocks:
        core.step()
    steps = core.steps(0)["steps"]
    assert sum(step.saved_blocks for step in steps) == sum(step.swapped_blocks for step in steps) == core.stats().swapped_out_blocks


def _without_transfers(execute):
    """The scripted runner has no blocks' bytes to move."""

    def run(scheduled):
        scheduled.transfers, kept = [], scheduled.transfers
        output = execute(scheduled)
        scheduled.transfers = kept
        return output

    return run


def test_steps_come_in_pieces_and_lost_ones_are_told(make_args: MakeArgs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_log, "LONG_LENGTH", 6)
    monkeypatch.setattr(step_log, "MOST_AT_ONCE", 4)
    core = EngineCore(make_args(num_gpu_blocks_override=32))
    assert core.steps() | {"now": 0} == {"now": 0, "last": 0, "lost": 0, "steps": []}
    add(core, "a", 10, 10)
    run(core)
    assert abs(core.steps()["now"] - time.time()) < 5

    def numbers(after: int) -> tuple[int, int, list[int]]:
        found = core.steps(after)
        return found["last"], found["lost"], [step.step for step in found["steps"]]

    assert numbers(0) == (10, 4, [5, 6, 7, 8])
    assert numbers(4) == (10, 0, [5, 6, 7, 8])
    assert numbers(8) == (10, 0, [9, 10])
    assert numbers(10) == numbers(11) == (10, 0, [])


async def test_another_process_answers_too(make_args: MakeArgs) -> None:
    engine = AsyncLLMEngine(EngineProcess.launch(make_args(num_gpu_blocks_override=32)))
    try:
        async for _ in engine.generate({"prompt_token_ids": [5] * 20}, SamplingParams(max_tokens=3, seed=0, ignore_eos=True)):
            pass
        found = await engine.steps(1)
        assert [step["step"] for step in found["steps"]] == [2, 3] and found["last"] == 3
        assert [step["attended"] for step in found["steps"]] == [[21], [22]]
        peak = engine.peak_memory()
        assert peak is not None and peak > 10_000_000
    finally:
        engine.shutdown()


def test_the_collector_is_followed_once_and_let_go() -> None:
    clock = GarbageClock()
    clock.start()
    clock.start()
    gc.collect()
    seconds = clock.seconds
    clock.stop()
    gc.collect()
    assert clock.seconds == seconds > 0
    assert not any(getattr(callback, "__self__", None) is clock for callback in gc.callbacks)
