"""Once it is ready, an engine of the real model makes nothing: no memory, no program, no thread."""

from __future__ import annotations

import gc
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from octavo import runner
from octavo.config import EngineArgs
from octavo.engine.core import EngineCore
from octavo.errors import InvalidRequestError
from octavo.outputs import FinishReason, ResourceCounts
from octavo.request import EngineCoreRequest
from octavo.sampling_params import SamplingParams

MAX_SEQS, MAX_TOKENS, MAX_LENGTH = 6, 96, 640
PARAMS = [
    {"temperature": 0.0, "logprobs": 5},
    {"temperature": 0.9, "top_p": 0.9, "repetition_penalty": 1.2},
    {"temperature": 0.8, "top_k": 40, "presence_penalty": 0.5, "frequency_penalty": 0.5, "logprobs": 20},
    {"temperature": 1.0, "min_p": 0.05, "logit_bias": {7: -5.0}},
    {"temperature": 0.0, "prompt_logprobs": 2},
    {"temperature": 1.0, "min_tokens": 5},
]


@pytest.fixture(scope="module")
def core(smollm2_path: Path) -> Iterator[EngineCore]:
    args = EngineArgs(
        model=str(smollm2_path),
        max_num_seqs=MAX_SEQS,
        max_num_batched_tokens=MAX_TOKENS,
        max_model_len=MAX_LENGTH,
        num_gpu_blocks_override=6 * MAX_LENGTH // 16,
        max_logprobs=20,
    )
    core = EngineCore(args)
    assert core.stats().resources == core.stats().resources_at_ready
    yield core
    core.close()


def add(core: EngineCore, number: int, prompt: int, output: int, **params: object) -> None:
    sampling = SamplingParams(**({"max_tokens": output, "seed": number, "ignore_eos": True} | params))
    core.add_request(EngineCoreRequest(f"r{number}", [100 + (number * 37 + i * 11) % 9000 for i in range(prompt)], sampling))


def run(core: EngineCore) -> None:
    while core.has_unfinished_requests:
        for output in core.step().outputs:
            assert output.finish_reason in (None, FinishReason.LENGTH), output


def threads() -> set[str]:
    return set(os.listdir("/proc/self/task"))


def test_a_mixed_load_makes_nothing(core: EngineCore) -> None:
    before, tasks = core.stats(), threads()
    assert before.resources.programs >= 1 and before.resources.allocated_bytes > 90e6  # the weights at least
    for number, params in enumerate(PARAMS * 2):  # twice as many as there are places; more tokens than a step takes
        add(core, number, 30 + 9 * number, 8, **params)
    add(core, 99, MAX_LENGTH - 8, 8, temperature=0.0)
    last = core.steps()["last"]
    run(core)
    steps = core.steps(last)["steps"]
    assert max(step.tokens for step in steps) == MAX_TOKENS
    assert max(step.decodes for step in steps) == MAX_SEQS
    assert core.stats().resources == before.resources
    assert threads() <= tasks
    assert [step.allocations for step in steps] == [0] * len(steps)


@pytest.mark.slow
def test_a_decode_that_goes_on_keeps_nothing_but_its_tokens(core: EngineCore) -> None:
    """In the runner: a batch that stays the same is not rebuilt, so memory that Python gave it does not grow."""
    resources = core.stats().resources
    for number in range(MAX_SEQS):
        add(core, 200 + number, 16, 320, temperature=0.0 if number % 2 else 0.8)
    for _ in range(60):
        core.step()
    folder = os.path.join(os.path.dirname(runner.__file__), "*")

    def held() -> int:
        gc.collect()
        snapshot = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(inclusive=True, filename_pattern=folder)])
        return sum(trace.size for trace in snapshot.traces)

    tracemalloc.start()
    try:
        for _ in range(20):
            core.step()
        before = held()
        for _ in range(200):
            core.step()
        grown = held() - before
    finally:
        tracemalloc.stop()
    tokens = 200 * MAX_SEQS
    assert grown < 48 * tokens + 8192  # an int and two places in a list for each token, and what lists keep free
    run(core)
    assert core.stats().resources == resources


def test_a_step_larger_than_what_was_reserved_is_counted(smollm2_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The counters can tell: with room for less than the engine schedules, serving makes more."""
    from octavo.ops.cpu import CpuExecutor

    reserve = CpuExecutor.reserve
    monkeypatch.setattr(CpuExecutor, "reserve", lambda self, tokens, seqs, length: reserve(self, tokens // 4, 1, length))
    core = EngineCore(EngineArgs(model=str(smollm2_path), max_num_batched_tokens=64, max_model_len=128, num_gpu_blocks_override=32))
    try:
        add(core, 0, 64, 2, temperature=0.0)
        run(core)
        made = core.stats()
        assert made.resources.allocations > made.resources_at_ready.allocations
        assert [step.allocations > 0 for step in core.steps(0)["steps"]] == [True, False]
        assert made.resources.programs == made.resources_at_ready.programs
        assert made.resources != ResourceCounts()
    finally:
        core.close()


@pytest.mark.parametrize(("part", "named"), [("allocate_kv", "num_gpu_blocks_override = 32"), ("reserve", "max_num_batched_tokens = 64")])
def test_memory_that_is_missing_is_told_under_the_setting_that_asked_for_it(
    smollm2_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, named: str
) -> None:
    from octavo.ops.cpu import CpuExecutor

    def fail(*_: object) -> None:
        raise MemoryError("std::bad_alloc")

    monkeypatch.setattr(CpuExecutor, part, fail)
    with pytest.raises(InvalidRequestError, match=named) as error:
        EngineCore(EngineArgs(model=str(smollm2_path), max_num_batched_tokens=64, max_model_len=128, num_gpu_blocks_override=32))
    assert error.value.field == named.split()[0]
