"""Spikes on made-up logs whose causes are known."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.bench.load.records import LoadRun, RequestRecord
from octavo.bench.observe.attribution import Attribution, Spike, attribute
from octavo.bench.observe.causes import CAUSES
from octavo.bench.observe.observation import Observation
from octavo.engine.step_log import StepRecord
from support.load_runs import load_run, record

STEP, WIRE = 0.010, 0.001
"""Seconds of a plain decode step, and from its end to the client."""


class Log:
    """A step log as it grows: steps follow each other with nothing between, unless said."""

    def __init__(self) -> None:
        self.steps: list[StepRecord] = []
        self.now = 0.0
        self.read = math.inf
        self._number = 0

    def step(self, seconds: float = STEP, *, after: float = 0.0, **fields: Any) -> StepRecord:
        """One step, ``after`` so many seconds; by default one row decodes."""
        self.now += after + seconds
        self._number += 1
        given = {"tokens": 1, "decodes": 1, "sampled": 1} | fields
        self.steps.append(StepRecord(step=self._number, time=self.now, seconds=seconds, **given))
        return self.steps[-1]

    def decode(self, count: int) -> list[StepRecord]:
        return [self.step() for _ in range(count)]


def arrivals(steps: Sequence[StepRecord], wire: float = WIRE) -> list[float]:
    return [step.time + wire for step in steps]


def judge(log: Log, *records: RequestRecord, loop_lag: Sequence[tuple[float, float]] = (), limit: float = 2 * STEP) -> Attribution:
    run = load_run(records)
    run.client.loop_lag = list(loop_lag)
    return attribute(run, Observation(engine="octavo", steps=log.steps, steps_until=log.read), itl_limits=[limit])


def only(attribution: Attribution) -> Spike:
    (spike,) = attribution.spikes
    assert sum(spike.shares) == pytest.approx(spike.seconds)
    return spike


def ms(spike: Spike) -> dict[str, float]:
    """Shares of at least a hundredth of a millisecond."""
    return {cause: round(1000 * share, 2) for cause, share in zip(CAUSES, spike.shares, strict=True) if share > 1e-5}


def test_a_prefill_chunk_takes_what_decoding_does_not_usually_take() -> None:
    log = Log()
    steps = [*log.decode(5), log.step(0.060, tokens=33, prefill_tokens=32, prefills=1), *log.decode(5)]
    spike = only(judge(log, record(arrivals(steps))))
    assert (spike.cause, spike.steps, spike.seconds) == ("prefill chunk", (6, 6), pytest.approx(0.060))
    # The wire's millisecond at its start lies in the step; the one at its end is delivery.
    assert ms(spike) == {
        "prefill chunk": pytest.approx(50 * 59 / 60, abs=0.01),
        "decode step": pytest.approx(10 * 59 / 60, abs=0.01),
        "delivery": 1,
    }


def test_what_is_computed_again_is_the_preemption_of_others() -> None:
    log = Log()
    again = {"tokens": 41, "prefill_tokens": 40, "prefills": 1, "recomputed_tokens": 30}
    steps = [*log.decode(5), log.step(0.050, **again), *log.decode(5)]
    shares = ms(only(judge(log, record(arrivals(steps, 0)))))
    assert shares == {"preemption": 30, "prefill chunk": 10, "decode step": 10}


def test_steps_without_the_request_are_its_preemption_or_queueing() -> None:
    for preemptions, cause in ((1, "preemption"), (0, "queueing")):
        log = Log()
        mine = log.decode(4)
        log.step(preemptions=preemptions)
        log.decode(5)
        mine += [log.step(tokens=21, prefill_tokens=20, prefills=1, recomputed_tokens=20 * preemptions), *log.decode(3)]
        spike = only(judge(log, record(arrivals(mine, 0))))
        assert spike.cause == cause
        assert spike.shares[CAUSES.index(cause)] == pytest.approx(0.060)


def test_a_step_says_itself_where_its_time_went() -> None:
    log = Log()
    busy = {"transfer_seconds": 0.020, "gc_seconds": 0.030, "schedule_seconds": 0.004, "moved_blocks": 3, "saved_blocks": 1}
    steps = [*log.decode(5), log.step(0.070, **busy), *log.decode(5)]
    expected = {"compaction": 15, "transfers": 5, "garbage collection": 30, "between steps": 4, "decode step": 10, "unexplained": 6}
    spike = only(judge(log, record(arrivals(steps, 0))))
    assert spike.cause == "garbage collection" and ms(spike) == expected


def test_between_steps_is_told_apart_from_idle_and_garbage() -> None:
    log = Log()
    steps = [*log.decode(5), log.step(after=0.050, gc_before=0.010, idle_before=0.005), *log.decode(5)]
    expected = {"between steps": 35, "garbage collection": 10, "unexplained": 5, "decode step": 10}
    assert ms(only(judge(log, record(arrivals(steps, 0))))) == expected


def test_a_full_batch_is_a_decode_step() -> None:
    log = Log()
    steps = [log.step(0.060, tokens=64, decodes=64, sampled=64) for _ in range(6)]
    found = judge(log, record(arrivals(steps)), limit=0.050)
    assert len(found.spikes) == 5 and {spike.cause for spike in found.spikes} == {"decode step"}


def test_tokens_that_come_in_a_burst_were_held_up_on_their_way() -> None:
    """The engine goes on; the server's loop stands still for 0.5 s; then all comes at once, as chunks of one token or as one chunk."""
    log = Log()
    steps = log.decode(100)
    due = arrivals(steps)
    freeze, over = due[20], due[20] + 0.5
    apart = [over + 1e-5 * i if freeze < at < over else at for i, at in enumerate(due)]
    merged, counts = [at for at in due if at <= freeze or at >= over], [1] * 100
    late = len(due) - len(merged)
    merged.insert(21, over)
    counts = [1] * 21 + [late] + [1] * (len(merged) - 22)
    for times, tokens in ((apart, 1), (merged, counts)):
        spike = only(judge(log, record(times, tokens_per_chunk=tokens)))
        assert spike.cause == "delivery"
        assert spike.shares[CAUSES.index("delivery")] == pytest.approx(0.491, abs=0.001)  # all but the 9 ms to the next token's step


def test_a_late_heartbeat_makes_it_the_clients() -> None:
    log = Log()
    due = arrivals(log.decode(60))
    over = due[20] + 0.2
    times = [max(at, over) if at > due[20] else at for at in due]
    beats = [(0.01 * i, 0.0002) for i in range(20)] + [(due[20] + 0.01 * i, 0.2 - 0.01 * i) for i in range(20)]
    spike = only(judge(log, record(times), loop_lag=beats))
    assert spike.cause == "client" and spike.shares[CAUSES.index("client")] == pytest.approx(0.191, abs=0.002)


def test_lost_steps_are_unexplained_and_shift_nothing() -> None:
    log = Log()
    steps = log.decode(80)
    times = arrivals(steps)
    times[10:] = [at + 0.040 for at in times[10:]]
    for step in steps[10:]:
        step.time += 0.040
    steps[10].seconds = 0.050
    del log.steps[40:60]
    found = judge(log, record(times))
    assert only(found).cause == "unexplained"  # a slow step with nothing in it that says why
    assert only(found).steps == (11, 11)


def test_a_log_that_ends_early_says_nothing_of_what_comes_after() -> None:
    log = Log()
    steps = [*log.decode(5), log.step(0.060, tokens=33, prefill_tokens=32, prefills=1), *log.decode(40)]
    times = arrivals(steps)
    times[30:] = [at + 0.1 for at in times[30:]]
    del log.steps[20:]
    log.read = log.steps[-1].time + 0.002
    early, late = judge(log, record(times)).spikes
    assert (early.cause, late.cause) == ("prefill chunk", "unexplained")


def test_without_steps_there_are_the_client_and_the_unexplained() -> None:
    run = load_run([record([0.0, 0.01, 0.02, 0.12, 0.13, 0.33])])
    run.client.loop_lag = [(0.03, 0.08)]
    found = attribute(run, Observation(), itl_limits=[0.05])
    assert [ms(spike) for spike in found.spikes] == [{"client": 80, "unexplained": 20}, {"unexplained": 200}]
    assert [spike.steps for spike in found.spikes] == [None, None]


def test_the_limit_is_the_slo_or_a_multiple_of_the_median() -> None:
    run = load_run([record([0.0, 0.1, 0.2, 0.3, 0.55, 0.95])])
    assert attribute(run, Observation()).limit == pytest.approx(0.3)
    assert "3 times the median" in attribute(run, Observation()).rule
    found = attribute(run, Observation(), itl_limits=[0.5, 0.2])
    assert (found.limit, len(found.spikes), found.gaps) == (0.2, 2, 5) and "200 ms" in found.rule
    empty = attribute(load_run([record([]), record([1.0])]), Observation())
    assert (empty.gaps, empty.spikes, empty.by_cause) == (0, [], [])


def test_a_step_that_many_wait_for_is_one_example() -> None:
    log = Log()
    chunk = {"tokens": 33, "prefill_tokens": 32, "prefills": 1, "sampled": 3}
    steps = [*log.decode(9), log.step(0.080, **chunk), *log.decode(9), log.step(0.050, **chunk), *log.decode(9)]
    found = judge(log, *[record(arrivals(steps, wire), index=i) for i, wire in enumerate((0, 0.001, 0.002))])
    (chunks,) = [total for total in found.by_cause if total.cause == "prefill chunk"]
    assert chunks.spikes == 6 and [round(spike.seconds, 3) for spike in chunks.worst] == [0.080, 0.050]


def test_totals_by_cause_with_the_worst_first() -> None:
    log = Log()
    chunk = {"tokens": 33, "prefill_tokens": 32, "prefills": 1}
    steps = [*log.decode(9), log.step(0.030, **chunk), *log.decode(9), log.step(0.080, **chunk), *log.decode(9)]
    steps += [log.step(after=0.100), *log.decode(9)]
    found = judge(log, record(arrivals(steps, 0), index=7))
    chunks, between, decoding = sorted(found.by_cause, key=lambda total: -total.spikes)[:3]
    assert (chunks.cause, chunks.spikes, chunks.seconds) == ("prefill chunk", 2, pytest.approx(0.090))
    assert [round(spike.seconds, 3) for spike in chunks.worst] == [0.080, 0.030] and chunks.worst[0].request == 7
    assert (between.cause, between.spikes) == ("between steps", 1)
    assert (decoding.cause, decoding.seconds) == ("decode step", pytest.approx(0.030))
    assert sum(total.share for total in found.by_cause) == pytest.approx(1)
    told = found.as_dict()
    assert told["count"] == 3 and told["causes"][0]["cause"] == "between steps"
    worst = told["causes"][1]["worst"][0]
    assert (worst["request"], worst["steps"]) == (7, [20, 20]) and sum(worst["shares_ms"].values()) == pytest.approx(80)


STEPS = st.lists(
    st.fixed_dictionaries(
        {
            "seconds": st.floats(0, 0.1),
            "after": st.floats(0, 0.05),
            "lost": st.integers(0, 2),
            "sampled": st.integers(0, 2),
            "decodes": st.integers(0, 3),
            "prefill_tokens": st.integers(0, 40),
            "recomputed_tokens": st.integers(0, 60),
            "preemptions": st.integers(0, 1),
            "moved_blocks": st.integers(0, 2),
            "saved_blocks": st.integers(0, 2),
            "transfer_seconds": st.floats(0, 0.2),
            "gc_seconds": st.floats(0, 0.2),
            "schedule_seconds": st.floats(0, 0.2),
            "idle_before": st.floats(0, 0.1),
            "gc_before": st.floats(0, 0.1),
        }
    ),
    max_size=12,
)


@settings(deadline=None)
@given(
    steps=STEPS,
    gaps=st.lists(st.floats(0, 0.2), min_size=1, max_size=12),
    tokens=st.lists(st.integers(1, 3), min_size=13, max_size=13),
    start=st.floats(-0.1, 0.3),
    loop_lag=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 0.3)), max_size=6),
    slack=st.floats(0, 0.05),
    until=st.floats(-0.1, 2),
)
def test_shares_are_never_negative_and_add_up_to_the_gap(steps, gaps, tokens, start, loop_lag, slack, until) -> None:
    log = Log()
    for fields in steps:
        log._number += fields.pop("lost")
        log.step(fields.pop("seconds"), after=fields.pop("after"), tokens=fields["decodes"] + fields["prefill_tokens"], **fields)
    times = [start]
    for gap in gaps:
        times.append(times[-1] + gap)
    run: LoadRun = load_run([record(times, tokens_per_chunk=tokens[: len(times)])])
    run.client.loop_lag = loop_lag
    found = attribute(run, Observation(steps=log.steps, clock_error=slack, steps_until=until), itl_limits=[0.01])
    assert len(found.spikes) == sum(b - a > 0.01 for a, b in itertools.pairwise(times))
    for spike in found.spikes:
        assert min(spike.shares) >= -1e-12
        assert math.isclose(sum(spike.shares), spike.seconds, abs_tol=1e-8)
