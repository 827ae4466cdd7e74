"""Latency and throughput on an engine whose every step lasts exactly as long as the test says."""

from __future__ import annotations

import copy

import pytest

from octavo.bench.drive import Driver, StepError
from octavo.bench.latency import LatencyPlan, measure_latency
from octavo.bench.limits import ModelCosts
from octavo.bench.machine import MachineRates
from octavo.bench.throughput import measure_throughput
from octavo.bench.workload.flags import WorkloadFlags
from octavo.bench.workload.requests import random_requests
from octavo.bench.workload.tokens import Tokens
from octavo.engine.step_log import StepRecord
from octavo.outputs import EngineCoreOutput, EngineCoreOutputs, EngineStats


class SteadyEngine:
    """A whole prompt takes a step of ``prefill`` seconds alone, then each step of ``decode`` seconds gives every request a token."""

    def __init__(self, prefill: float = 2.0, decode: float = 0.25, native: float = 0.75) -> None:
        self.now = 0.0
        self.most_running = 0
        self._prefill, self._decode, self._native = prefill, decode, native
        self._waiting: list = []
        self._left: dict[str, int] = {}
        self._stats = EngineStats()
        self._steps: list[StepRecord] = []

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def add(self, request) -> None:
        self._waiting.append(request)

    def step(self) -> EngineCoreOutputs:
        if self._waiting:
            request = self._waiting.pop(0)
            self._left[request.request_id] = request.sampling_params.max_tokens
            due, seconds = [request.request_id], self._prefill
        else:
            due, seconds = list(self._left), self._decode
        self.most_running = max(self.most_running, len(self._left))
        outputs = [self._token(request_id) for request_id in due]
        self.now += seconds
        self._stats.step_seconds += seconds
        self._stats.native_seconds += seconds * self._native
        held, live = 4 * len(due), 3 * len(due)
        number = len(self._steps) + 1
        self._steps.append(
            StepRecord(step=number, time=self.now, seconds=seconds, kv_held_bytes=held, kv_live_bytes=live, kv_usage=held / 100)
        )
        return EngineCoreOutputs(outputs)

    def stats(self) -> EngineStats:
        return copy.copy(self._stats)

    def steps(self, after: int | None) -> dict:
        return {"last": len(self._steps), "steps": [] if after is None else self._steps[after:]}

    def _token(self, request_id: str) -> EngineCoreOutput:
        self._left[request_id] -= 1
        done = self._left[request_id] == 0
        if done:
            del self._left[request_id]
        return EngineCoreOutput(request_id, [1], finish_reason="length" if done else None)


COSTS = ModelCosts(weight_bytes=100, matmul_params={"q8": 10}, head_params={}, attention=(), attention_arithmetic="bf16")
RATES = MachineRates(read_bytes_s=1000.0, int8_ops_s=100.0, bf16_flops_s=1.0, fp32_flops_s=1.0, cpus=(0,))


def test_latency_by_hand():
    engine = SteadyEngine()
    plan = LatencyPlan(prefill_len=8, decode_prompt_len=4, decode_len=5, repeats=3)
    result = measure_latency(Driver(engine, engine.clock), plan, COSTS, lambda: RATES, vocab_size=100)
    assert result.prefill_tok_s == pytest.approx(8 / 2.0)
    assert result.decode_tok_s == pytest.approx(1 / 0.25)
    assert result.ttft_ms["p50"] == pytest.approx(2000)
    assert result.itl_ms["max"] == pytest.approx(250)
    assert result.percent_of_bandwidth == pytest.approx(100 * 100 / (1000 * 0.25))
    assert result.percent_of_compute == pytest.approx(100 * (2 * 10 * 8 / 100) / 2.0)
    assert result.python_share == pytest.approx(0.25)


def test_throughput_by_hand():
    engine = SteadyEngine()
    load = WorkloadFlags(num_prompts=3, input_len=10, output_len=5).build()
    result = measure_throughput(Driver(engine, engine.clock), load, Tokens.of_size(100))
    seconds = 3 * 2.0 + 4 * 0.25  # three prefills bring each its first token, four steps the rest
    assert result.duration_s == pytest.approx(seconds)
    assert result.output_tok_s == pytest.approx(15 / seconds)
    assert result.total_tok_s == pytest.approx(45 / seconds)
    assert result.kv_efficiency == pytest.approx(0.75)
    assert result.kv_peak == pytest.approx(0.09)
    assert result.ttft_ms["max"] == pytest.approx(6000)
    assert result.itl_ms is not None
    # Request 0 waits 4 s for the other two prefills, request 1 waits 2 s; every other gap is one step.
    assert result.itl_ms["max"] == pytest.approx(4250)
    assert result.itl_ms["mean"] == pytest.approx(1000 * (12 * 0.25 + 4.0 + 2.0) / 12)


def test_concurrency_is_kept():
    engine = SteadyEngine()
    driver = Driver(engine, engine.clock)
    run = driver.run(random_requests(6, 4, 3, 100, seed=0), max_concurrency=2)
    assert engine.most_running == 2
    assert [len(t.tokens) for t in run.timelines] == [3] * 6


def test_in_open_loop_times_count_from_the_arrival():
    engine = SteadyEngine()
    run = Driver(engine, engine.clock, engine.sleep).run(random_requests(3, 4, 2, 100, seed=0), arrivals=[1.0, 1.5, 20.0])
    # 1 s: nothing to do. Request 0's prefill ends at 3; request 1 came meanwhile, its own ends at 5; a step brings both their last token.
    assert [timeline.tokens for timeline in run.timelines] == [[3.0, 5.25], [5.0, 5.25], [22.0, 22.25]]
    assert [timeline.ttft for timeline in run.timelines] == [2.0, 3.5, 2.0]
    assert run.seconds == 22.25


def test_in_open_loop_a_cap_counts_as_waiting():
    engine = SteadyEngine()
    run = Driver(engine, engine.clock, engine.sleep).run(random_requests(2, 4, 2, 100, seed=0), max_concurrency=1, arrivals=[0.0, 0.5])
    assert engine.most_running == 1
    assert [timeline.ttft for timeline in run.timelines] == [2.0, 3.75]  # from 0.5 to 2.25, when the first has ended, and a prefill


def test_a_workload_is_its_seeds():
    first, again, other = (list(random_requests(2, 16, 1, 50, seed)) for seed in (1, 1, 2))
    assert [r.prompt_token_ids for r in first] == [r.prompt_token_ids for r in again]
    assert first[0].prompt_token_ids != other[0].prompt_token_ids
    assert all(0 <= token < 50 for request in first for token in request.prompt_token_ids)


def test_a_failed_request_ends_the_benchmark():
    class Failing(SteadyEngine):
        def _token(self, request_id):
            return EngineCoreOutput(request_id, [], finish_reason="error", error="out of memory")

    engine = Failing()
    with pytest.raises(StepError, match="out of memory"):
        Driver(engine, engine.clock).run(random_requests(1, 4, 3, 100, seed=0))
