"""The limit on the time between tokens, in virtual time: what a step costs is known, with noise."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.engine.calibration import calibrate
from octavo.scheduler.pacer import MANY, MIN_PREFILL_TOKENS, SHORT, Pacer
from octavo.scheduler.step import WaitReason
from octavo.scheduler.step_cost import FRESH, StepCostModel, StepWork
from support.simulation import Simulation

LIMIT = 0.05


@dataclass
class Timed(Simulation):
    """Each step takes as long as ``costs`` say: seconds of a step, a token, a pair, a row."""

    costs: tuple[float, float, float, float] = (3e-3, 3e-4, 1e-7, 3e-4)
    decode_pair: float | None = None
    """Seconds of a pair in a decode, if it differs."""
    noise: float = 0.05
    stop: float = 0.0
    """Seconds by which each 300th step is longer."""
    seed: int = 0
    calibrated: bool = True
    arrivals: list[tuple[float, str, int, int]] = field(default_factory=list)
    """When, which, prompt, max_tokens."""
    times: dict[str, list[float]] = field(default_factory=dict)
    """Of each request's tokens."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.random = np.random.default_rng(self.seed)
        if self.calibrated:
            self.scheduler.pacer.cost.coefficients = np.array(self.costs)
            self.scheduler.pacer.cost.num_observed = 1

    def step(self) -> list[Any]:
        planned_at = self.now
        outputs = super().step()
        work = self.scheduled[-1].work
        if work.tokens:
            seconds = float(np.array(self.costs) @ work.features())
            if self.decode_pair is not None:
                counts = self.scheduled[-1].num_scheduled_tokens
                alone = [each.num_computed_tokens + 1 for each in self.scheduled[-1].running if counts[each.request_id] == 1]
                seconds += (self.decode_pair - self.costs[2]) * sum(alone)
            self.now += seconds * (1 + self.noise * self.random.standard_normal()) + self.stop * (len(self.scheduled) % 300 == 0)
            self.scheduler.pacer.observe(work, self.now - planned_at)
        for output in outputs:
            self.times.setdefault(output.request_id, []).extend([self.now] * len(output.new_token_ids))
        return outputs

    def serve(self, most_steps: int = 20_000) -> None:
        """Until all arrivals are done."""
        waiting = sorted(self.arrivals)
        for _ in range(most_steps):
            while waiting and (waiting[0][0] <= self.now or not self.scheduler.has_work()):
                at, name, prompt, max_tokens = waiting.pop(0)
                self.now = max(self.now, at)
                self.add(name, prompt, max_tokens)
            if not self.scheduler.has_work():
                return
            self.step()
        raise AssertionError("not finished")

    def gaps(self, names: set[str]) -> np.ndarray:
        return np.concatenate([np.diff(self.times[name]) for name in names])


def among_streams(limit: float | None, **changes: Any) -> Timed:
    """Eight decode; a prompt of 4,096 arrives. Under ``limit``, or with a budget of 512 tokens alone."""
    fields: dict[str, Any] = {"num_blocks": 900, "max_num_seqs": 16, "max_num_batched_tokens": 512, "max_model_len": 5000}
    sim = Timed(**(fields | changes), prefix_index="none", itl_limit=limit)
    sim.arrivals = [(1000.0, f"stream{i}", 16, 250) for i in range(8)] + [(1000.5, "attacker", 4096, 4)]
    sim.serve()
    return sim


STREAMS = {f"stream{i}" for i in range(8)}


def test_lt_01_a_long_prompt_among_streams_keeps_the_limit() -> None:
    paced, unpaced = among_streams(LIMIT), among_streams(None)
    gaps = paced.gaps(STREAMS)
    assert np.percentile(gaps, 99) < LIMIT
    assert gaps.max() < 1.3 * LIMIT
    assert unpaced.gaps(STREAMS).max() > 2 * LIMIT  # so it was the limit that did it
    first = [sim.times["attacker"][0] - 1000.5 for sim in (paced, unpaced)]
    assert first[0] < 1.5 * first[1]
    for name in (*STREAMS, "attacker"):
        assert paced.tokens(name) == unpaced.tokens(name)


def test_an_engine_that_was_not_calibrated_learns_the_cost() -> None:
    sim = among_streams(LIMIT, calibrated=False)
    assert np.percentile(sim.gaps(STREAMS), 99) < 1.2 * LIMIT


@pytest.mark.parametrize("change", [0.6, 1.6])
def test_single_streams_leave_the_limit_to_those_who_come_after(change: float) -> None:
    """Calibrated while the machine was slower, or faster; then one stream alone, which cannot tell a token's cost from a step's."""
    sim = Timed(num_blocks=900, max_num_seqs=16, max_num_batched_tokens=512, max_model_len=5000, prefix_index="none", itl_limit=LIMIT)
    sim.scheduler.pacer.cost.coefficients = np.array(sim.costs) / change
    sim.arrivals = [(1000.0, "before", 16, 400), (1010.0, "stream0", 16, 250), (1010.2, "attacker", 4096, 4)]
    sim.serve()
    assert sim.gaps({"stream0"}).max() < 1.3 * LIMIT


@pytest.mark.parametrize("decode_pair", [1e-6, 2e-6, 8e-6])
def test_a_position_may_cost_a_decode_more_than_a_prefill(decode_pair: float) -> None:
    """A decode reads K and V for one token, a chunk for many: one coefficient has to do for both."""
    fields: dict[str, Any] = {"num_blocks": 400, "max_num_seqs": 16, "max_num_batched_tokens": 512, "max_model_len": 1000}
    sim = Timed(**fields, prefix_index="none", itl_limit=LIMIT, costs=(3e-3, 3e-4, 1e-6, 3e-4), decode_pair=decode_pair, noise=0.02)
    sim.arrivals = [(1000.0, f"stream{i}", 200, 200) for i in range(4)] + [(1001.0, "attacker", 800, 4)]
    sim.serve()
    assert sim.times["stream0"][-1] > sim.times["attacker"][0]
    assert sim.gaps({f"stream{i}" for i in range(4)}).max() < 1.3 * LIMIT


def test_spikes_of_the_machine_widen_the_margin() -> None:
    """Every twentieth step takes 10 ms more: chunks become smaller, so that p99 still holds."""
    sim = Timed(num_blocks=700, max_num_batched_tokens=512, max_model_len=600, max_num_seqs=64, prefix_index="none", itl_limit=LIMIT)
    plain = sim.random.standard_normal
    sim.random = type("Spiky", (), {"standard_normal": lambda self: plain() + (5 if sim.runner.computed_tokens % 20 == 0 else 0)})()
    sim.arrivals = [(1000 + 0.2 * i, f"r{i}", 256, 64) for i in range(40)]
    sim.serve()
    assert np.percentile(sim.gaps(set(sim.times)), 99) < LIMIT


def test_while_little_prefill_waits_steps_leave_room_for_a_stop_of_the_machine() -> None:
    """One step in 300 takes 15 ms more, too seldom for the margin: planned up to the limit they would be late."""
    fields: dict[str, Any] = {"num_blocks": 700, "max_num_seqs": 64, "max_num_batched_tokens": 512, "max_model_len": 600}
    sim = Timed(**fields, prefix_index="none", itl_limit=LIMIT, noise=0.01, stop=0.015)
    sim.arrivals = [(1000 + 0.25 * i, f"r{i}", 256, 64) for i in range(100)]
    sim.serve()
    stopped = [scheduled.work for scheduled in sim.scheduled[299::300]]
    chunks = [work.tokens - work.waiting_decodes for work in stopped if work.waiting_decodes]
    assert sum(chunk > MIN_PREFILL_TOKENS for chunk in chunks) > 2  # the stops did hit such steps
    assert sim.gaps(set(sim.times)).max() < LIMIT


@given(st.lists(st.integers(0, 10**6), min_size=2), st.integers(1, 200), st.floats(1e-5, 1e-2), st.floats(0.01, 1.0))
def test_the_more_prefill_is_at_hand_the_longer_are_steps_within_the_limit(
    tokens: list[int], rows: int, token_seconds: float, limit: float
) -> None:
    pacer = Pacer(limit)
    pacer.cost.coefficients = np.array((0.0, token_seconds, 0.0, 0.0))
    decodes = StepWork(tokens=rows, rows=rows)
    left = max(pacer.target - pacer.cost.predict(decodes), 0.0)
    targets = [pacer.target_with(decodes, StepWork(tokens=count)) for count in [0, *sorted(tokens)]]
    assert targets == sorted(targets)
    assert targets[0] == pytest.approx(pacer.target - (1 - SHORT) * left)
    assert targets[-1] <= pacer.target < limit
    enough = StepWork(tokens=int(MANY * limit / token_seconds) + 1)
    assert pacer.target_with(decodes, enough) == pytest.approx(pacer.target)


@pytest.mark.parametrize(("decodes", "ahead", "own"), [(30, 0, 1000), (44, 0, 1000), (44, 400, 300), (44, 600, 300)])
def test_what_short_steps_cost_a_prompt_is_foreseen(decodes: int, ahead: int, own: int) -> None:
    """Beside decodes that take most of a step."""
    fields: dict[str, Any] = {"num_blocks": 9000, "max_num_seqs": 256, "max_num_batched_tokens": 512, "max_model_len": 5000}
    sim = Timed(**fields, prefix_index="none", itl_limit=LIMIT, ttft_limit=1.0, noise=0.01)
    for i in range(decodes):
        sim.add(f"stream{i}", 16, 1500)
    while len(sim.scheduler.running) < decodes:
        sim.step()
    for i in range(8):  # the margin is of steps that were met
        sim.add(f"before{i}", 400, 2)
        while f"before{i}" not in sim.times:
            sim.step()
    if ahead:
        sim.add("ahead", ahead, 2)
    stats, since = sim.scheduler.stats(), sim.now
    foreseen = (ahead + own) / stats.prefill_tokens_per_s
    sim.add("prompt", own, 2)
    while "prompt" not in sim.times:
        sim.step()
    assert 0.6 * foreseen < sim.times["prompt"][0] - since < 1.35 * foreseen
    chunks = [scheduled.work.tokens - scheduled.work.waiting_decodes for scheduled in sim.scheduled[-5:-1]]
    assert min(chunks) > MIN_PREFILL_TOKENS


def test_prefill_goes_on_however_slow_the_decodes_are() -> None:
    sim = Timed(num_blocks=80, itl_limit=0.001, max_num_batched_tokens=64)
    sim.add("decodes", 8, max_tokens=60)
    sim.step()
    sim.scheduler.pacer.cost.coefficients[:] = 0  # it seems to fit, and does not
    sim.add("prefills", 120, max_tokens=2)
    sim.step()
    sim.scheduler.pacer.cost.coefficients[:] = sim.costs
    before = len(sim.scheduled)
    while "prefills" not in sim.times:
        sim.step()
    counts = [scheduled.num_scheduled_tokens for scheduled in sim.scheduled[before:]]
    assert all(count["decodes"] == 1 for count in counts)
    assert all(count["prefills"] == MIN_PREFILL_TOKENS for count in counts[:-1])


def test_the_queue_grows_and_not_the_time_between_tokens() -> None:
    """A row costs 4 ms, so about ten decode inside 50 ms; forty come at once."""
    sim = Timed(
        num_blocks=400, max_num_seqs=64, max_num_batched_tokens=256, itl_limit=LIMIT, costs=(3e-3, 1e-4, 1e-8, 4e-3), prefix_index="none"
    )
    sim.arrivals = [(1000.0, f"r{i}", 32, 40) for i in range(40)]
    most = 0
    reasons = set()
    for _, name, prompt, max_tokens in sim.arrivals:
        sim.add(name, prompt, max_tokens)
    while sim.scheduler.has_work():
        sim.step()
        most = max(most, len(sim.scheduler.running))
        reasons.add(sim.scheduler.stats().waiting_reason)
    assert 6 <= most <= 11
    assert WaitReason.PACE in reasons
    assert np.percentile(sim.gaps(set(sim.times)), 99) < LIMIT
    for name in sim.times:
        sim.check_output(name)


def test_one_request_alone_runs_whatever_the_limit() -> None:
    sim = Timed(itl_limit=1e-4)
    sim.add("a", 100, max_tokens=10)
    sim.run()
    sim.check_output("a")


def test_lt_14_a_pool_at_half_the_demand_serves_all_of_a_hundred() -> None:
    random = np.random.default_rng(4)
    sim = Timed(num_blocks=60, max_num_seqs=32, max_num_batched_tokens=128, max_model_len=400, itl_limit=LIMIT)
    at = 1000 + np.cumsum(random.exponential(0.05, 100))
    sim.arrivals = [(float(t), f"r{i}", int(random.integers(20, 200)), int(random.integers(4, 60))) for i, t in enumerate(at)]
    sim.serve()
    assert len(sim.times) == 100
    for name in sim.times:
        sim.check_output(name)
    sim.check_idle()


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_whatever_things_cost_everybody_is_served_the_same_tokens(data: st.DataObject) -> None:
    costs = tuple(data.draw(st.floats(0, high)) for high in (1e-2, 1e-3, 1e-5, 1e-2))
    sim = Timed(
        num_blocks=data.draw(st.integers(32, 60)),
        itl_limit=data.draw(st.floats(1e-3, 0.2)),
        costs=costs,  # type: ignore[arg-type]
        calibrated=data.draw(st.booleans()),
        lag=data.draw(st.integers(0, 1)),
        scheduling_policy=data.draw(st.sampled_from(["fcfs", "priority"])),
    )
    for i in range(data.draw(st.integers(1, 8))):
        sim.add(f"r{i}", data.draw(st.integers(1, 80)), data.draw(st.integers(1, 12)), priority=data.draw(st.integers(0, 2)))
    sim.run()
    for name in sim.outputs:
        sim.check_output(name)
    sim.check_idle()


@pytest.mark.parametrize("limit", [LIMIT, None])
def test_what_a_newcomer_would_wait_is_foreseen(limit: float | None) -> None:
    """Ten prompts wait beside four streams: the estimate for one more, against when its first token comes."""
    sim = Timed(
        num_blocks=700,
        max_num_seqs=32,
        max_num_batched_tokens=512,
        max_model_len=1000,
        prefix_index="none",
        itl_limit=LIMIT,
        ttft_limit=1.0,
    )
    for i in range(4):
        sim.add(f"stream{i}", 16, 400)
    for _ in range(5):
        sim.step()
    for i in range(10):
        sim.add(f"prompt{i}", 400, 4)
    sim.step()
    stats = sim.scheduler.stats()
    foreseen = (stats.prefill_backlog + 400) / stats.prefill_tokens_per_s + stats.seat_wait_s
    at = sim.now
    sim.add("newcomer", 400, 4)
    while "newcomer" not in sim.times:
        sim.step()
    assert foreseen == pytest.approx(sim.times["newcomer"][0] - at, rel=0.25)


def test_lt_04_a_class_that_is_served_first_is_not_held_up_by_the_pace_of_a_later_one() -> None:
    """Those of a later class fill the steps; one of a class before starts at once, in the place of some of them."""
    fields: dict[str, Any] = {"num_blocks": 400, "max_num_seqs": 64, "max_num_batched_tokens": 256, "prefix_index": "none"}
    sim = Timed(**fields, itl_limit=LIMIT, costs=(3e-3, 1e-4, 1e-8, 4e-3), scheduling_policy="priority")
    for i in range(20):
        sim.add(f"low{i}", 16, 60, priority=1)
    for _ in range(12):
        sim.step()
    sim.add("high", 16, 4, priority=0)
    at = sim.now
    while "high" not in sim.times:
        sim.step()
    assert sim.times["high"][0] - at < 3 * LIMIT
    sim.run()
    for name in sim.times:
        sim.check_output(name)


def test_the_budget_of_a_step_has_room_for_all_decodes() -> None:
    """A long prompt of a class before, and a small budget: those of the later class still get a token in every step."""
    fields: dict[str, Any] = {"num_blocks": 500, "max_num_seqs": 16, "max_num_batched_tokens": 64, "max_model_len": 4000}
    sim = Timed(**fields, prefix_index="none", itl_limit=LIMIT, scheduling_policy="priority")
    for i in range(8):
        sim.add(f"low{i}", 16, 120, priority=1)
    for _ in range(12):
        sim.step()
    sim.add("long", 2000, 2, priority=0)
    before = len(sim.scheduled)
    while "long" not in sim.times:
        sim.step()
    for scheduled in sim.scheduled[before:]:
        assert all(scheduled.num_scheduled_tokens[f"low{i}"] == 1 for i in range(8) if f"low{i}" in sim.scheduler.requests)


def test_an_engine_that_has_seen_single_requests_alone_learns_what_more_cost() -> None:
    """One request at a time cannot tell the cost of a row from that of a step. 60 ms and 1 ms: four of four fit into 200 ms."""
    sim = Timed(num_blocks=64, max_num_seqs=4, itl_limit=0.2, costs=(0.06, 1e-4, 0, 1e-3), noise=0.01, calibrated=False)
    sim.add("first", 16, 30)
    while sim.scheduler.has_work():
        sim.step()
    for i in range(8):
        sim.add(f"r{i}", 8, 20)
    most = 0
    while sim.scheduler.has_work():
        sim.step()
        most = max(most, len(sim.scheduler.running))
    assert most == 4


def test_the_margin_is_of_steps_that_somebody_waits_in() -> None:
    """Single prompts, with none to wait: their long steps, however noisy, leave the margin a guess."""
    sim = Timed(num_blocks=200, max_num_batched_tokens=512, max_model_len=600, itl_limit=LIMIT, noise=0.2, prefix_index="none")
    for i in range(100):
        sim.add(f"r{i}", 400, 3)
        while sim.scheduler.has_work():
            sim.step()
    assert sim.scheduler.pacer.cost.margin(0.045) == pytest.approx(0.15 * 0.045)


def test_a_margin_that_keeps_requests_apart_is_forgotten() -> None:
    """In a burst every twentieth step takes twice as long. Then the machine is well again, which nobody sees who runs alone."""
    fields: dict[str, Any] = {"num_blocks": 200, "max_num_seqs": 16, "max_num_batched_tokens": 512, "max_model_len": 600}
    sim = Timed(**fields, prefix_index="none", itl_limit=LIMIT, costs=(0.02, 3e-4, 1e-7, 1e-3))
    well = sim.random
    sim.random = type("Stalling", (), {"standard_normal": lambda self: 20.0 if len(sim.scheduled) % 20 == 0 else 0.0})()
    for i in range(40):
        sim.add(f"burst{i}", 100, 20)
    sim.run()
    pacer, pair = sim.scheduler.pacer, StepWork(tokens=MIN_PREFILL_TOKENS)
    for _ in range(2):
        pair.add(20, 1, True)
    assert pacer.cost.predict(pair) > pacer.target
    sim.random, sim.noise = well, 0.02
    for i in range(FRESH // 60 + 2):
        sim.add(f"single{i}", 16, 60)
        sim.run()
    sim.add("one", 16, 20)
    sim.add("other", 16, 20)
    sim.step()
    assert len(sim.scheduler.running) == 2


def test_calibrating_leaves_the_prefix_cache_as_it_was() -> None:
    sim = Timed(num_blocks=200, max_num_batched_tokens=512, max_model_len=400, itl_limit=LIMIT, calibrated=False)
    prompt = list(range(40))
    sim.add("before", prompt, 2)
    sim.run()
    sim.step()
    cost = StepCostModel()
    calibrate(cost, sim.runner, sim.kv, sim.scheduler.config, 50)
    assert cost.num_observed > 4
    request = sim.add("after", prompt, 2)
    sim.run()
    assert request.num_cached_tokens == 32
    sim.check_idle()
