from __future__ import annotations

import itertools
import math
from statistics import median

import msgspec
import numpy as np
import pytest

from octavo.bench.load.records import LoadRun
from octavo.bench.measures.slo import all_attained, parse_slos
from octavo.bench.report.data import as_data
from octavo.bench.sweep.document import sweep_document, sweep_sentences
from octavo.bench.sweep.result import SweepResult, json_schema
from octavo.bench.sweep.settings import SweepSettings
from octavo.bench.sweep.sweep import SweepError, sweep
from octavo.bench.sweep.verdict import HOPELESS, hopeless_rule
from support.load_runs import load_run, record
from support.queues import BatchServer, OneQueue, finished_run

CAREFUL = {"requests_per_verdict": 1000, "confirm": 4, "resolution": 0.02, "max_rate": 32.0}


def settings(slo, **changes):
    return SweepSettings(slos=parse_slos(slo), **changes)


def found(server, slo, seeds, **changes):
    """The highest rates that sweeps with different seeds find."""
    return [sweep(server, settings(slo, seed=seed, **changes)).max_rate for seed in seeds]


# The sojourn time of M/M/1 is exponential with rate mu - lambda: its p99 is ln(100) / (mu - lambda). So at 2 s, and 10 a second served,
# lambda = 10 - ln(100) / 2.
MM1 = 10 - math.log(100) / 2


def test_bm_09_the_highest_rate_of_mm1_is_found_within_5_percent():
    rates = found(OneQueue(10.0), "ttft:p99<2s", range(3), **CAREFUL)
    assert median(rates) == pytest.approx(MM1, rel=0.05)


def md1_late(rate, seconds):
    """P(sojourn > seconds) of M/D/1 with service times of 0.1 s. Source: Erlang 1909 (Iversen and Staalhagen 1999, eq. 1)."""
    wait, load = 10 * seconds - 1, 0.1 * rate
    terms = ((load * (k - wait)) ** k / math.factorial(k) * math.exp(-load * (k - wait)) for k in range(math.floor(wait) + 1))
    return 1 - (1 - load) * sum(terms)


def md1_rate(seconds):
    low, high = 0.1, 9.99
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if md1_late(middle, seconds) < 0.01 else (low, middle)
    return low


def test_bm_09_the_highest_rate_of_md1_is_found_within_5_percent():
    rates = found(OneQueue(10.0, exponential=False), "ttft:p99<1s", range(3), **CAREFUL)
    assert median(rates) == pytest.approx(md1_rate(1.0), rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("server", "slo", "truth"),
    [(OneQueue(10.0), "ttft:p99<2s", MM1), (OneQueue(10.0, exponential=False), "ttft:p99<1s", md1_rate(1.0))],
)
def test_bm_09_over_many_seeds_neither_bias_nor_spread_is_large(server, slo, truth):
    rates = found(server, slo, range(40), **CAREFUL)
    errors = [rate / truth - 1 for rate in rates]
    assert abs(median(errors)) < 0.05
    assert sum(abs(error) < 0.12 for error in errors) >= 36


@pytest.mark.slow
def test_what_is_called_decided_is_true_as_often_as_it_says():
    server, wrong = OneQueue(10.0), 0
    for seed in range(40):
        result = sweep(server, settings("ttft:p99<2s", seed=seed, requests_per_verdict=300, max_rate=32.0))
        wrong += (result.shown_sustained or 0) > MM1
        wrong += (result.shown_not_sustained or math.inf) < MM1
    assert wrong <= 6  # several verdicts a sweep, each at 95 %


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_highest_rate_of_a_batching_server_is_found_within_5_percent():
    server = BatchServer(fixed=0.008, each=0.002, prefill=0.004, seats=16, tokens=64)
    slo = "itl:p99<45ms,ttft:p99<2.5s"
    slos = parse_slos(slo)

    def sustained(rate):
        """By six runs far longer than any of a sweep."""
        records = [record for seed in range(94, 100) for record in server(rate, 20_000, seed).records[2000:]]
        return sum(not all_attained(record, slos) for record in records) <= 0.01 * len(records)

    low, high = 3.5, 5.0
    assert sustained(low) and not sustained(high)
    for _ in range(5):
        middle = (low + high) / 2
        low, high = (middle, high) if sustained(middle) else (low, middle)
    rates = found(server, slo, range(5), **CAREFUL | {"requests_per_verdict": 2000})
    assert median(rates) == pytest.approx(low, rel=0.05)


def test_the_first_rate_is_that_of_one_request_after_another():
    result = sweep(BatchServer(fixed=0.008, each=0.002, prefill=0.05, seats=16, tokens=45), settings("itl:p99<1s", max_rate=4.0))
    assert result.start_rate == pytest.approx(2.0, rel=0.05)  # 0.05 + 45 * 0.01 = 0.5 s
    assert result.verdicts[0].rate == result.start_rate


def test_the_same_seed_gives_the_same_result_and_another_another():
    one, same, other = (sweep(OneQueue(10.0), settings("ttft:p99<1s", seed=seed)) for seed in (1, 1, 2))
    assert msgspec.json.encode(one) == msgspec.json.encode(same)
    assert one.verdicts[0].measures != other.verdicts[0].measures


def test_the_answer_is_judged_by_requests_of_its_own_until_decided_or_the_largest_number():
    chosen = settings("ttft:p99<1s")
    result = sweep(OneQueue(10.0), chosen)
    at = next(verdict for verdict in result.verdicts if verdict.rate == result.max_rate)
    assert result.confirmed and at.near_limit
    assert result.bracket[0] == result.max_rate < result.bracket[1]
    near = [verdict for verdict in result.verdicts if verdict.near_limit]
    assert len(near) >= 2
    for verdict in near:
        totals = [look.total for look in chosen.looks(verdict.rate, near_limit=True)]
        assert verdict.requests in totals or verdict.stopped_early  # none of the search's run
        assert verdict.decided or verdict.requests == totals[-1]
    undecided = [verdict for verdict in result.verdicts if not verdict.decided and verdict.rate in result.bracket]
    for verdict in undecided:
        assert any(f"ustained at {verdict.rate:g}/s by the estimates" in warning for warning in result.warnings)


def test_the_answer_lies_in_the_interval_that_is_shown():
    for seed in range(6):
        result = sweep(OneQueue(10.0), settings("ttft:p99<2s", seed=seed, requests_per_verdict=300, max_rate=32.0))
        assert (result.shown_sustained or 0) <= result.max_rate < (result.shown_not_sustained or math.inf)
        assert result.shown_not_sustained is not None
        first = next(line for line in sweep_sentences(result, {}) if line)
        assert f"{result.shown_not_sustained:.3g}"[:3] in first and "95 % confidence" in first


class LongAnswers:
    """A server without a queue: however many come, each answer takes 8 s alone and ``loaded`` times as long among others."""

    def __init__(self, loaded=1.0):
        self.loaded = loaded

    def __call__(self, rate, num_requests, seed, stop_when=None):
        gap = 0.5 * (self.loaded if rate is not None else 1)
        random = np.random.default_rng(seed)
        starts = np.cumsum(random.exponential(size=num_requests)) / rate if rate is not None else np.arange(num_requests) * 9.0
        return finished_run(starts, [start + 0.1 + gap * np.arange(17) for start in starts], stop_when=stop_when)


def test_answers_longer_than_a_run_of_few_requests_are_no_growing_queue():
    result = sweep(LongAnswers(), settings("itl:p99<900ms", max_rate=8.0))
    assert result.max_rate == pytest.approx(8.0, rel=0.05)
    assert all(verdict.sustained and verdict.runs == 1 for verdict in result.verdicts if not verdict.near_limit)
    # What one may take is 6 * 0.1 + 16 * 0.9 s, and a run lasts three times that.
    assert next(verdict for verdict in result.verdicts if verdict.rate > 7.6).requests >= 3 * 15 * 7.6


def test_a_run_that_turns_out_too_short_for_the_answers_is_followed_by_longer_ones():
    chosen = settings("ttft:p99<1s", min_rate=1.0, max_rate=4.0)
    # 80 s an answer: of the 146 s that six times the idle server's 8.1 s make, the first 100 s fill the server.
    result = sweep(LongAnswers(loaded=10.0), chosen)
    assert result.max_rate == pytest.approx(4.0, rel=0.05)
    assert {verdict.runs for verdict in result.verdicts if not verdict.near_limit} == {2}


@pytest.mark.parametrize("slo", ["ttft:p99<700ms", "ttft:p99<2s"])
def test_no_rate_that_failed_is_below_the_answer_without_a_word(slo):
    for seed in range(12):
        result = sweep(OneQueue(10.0), settings(slo, seed=seed, requests_per_verdict=50, max_rate=32.0))
        if result.max_rate is not None:
            near = [verdict for verdict in result.verdicts if verdict.near_limit]
            failed = [verdict.rate for verdict in near if not verdict.sustained and verdict.rate <= result.max_rate]
            assert all(any(f"{rate:g}/s, below it" in warning for warning in result.warnings) for rate in failed)
            assert result.confirmed


def test_a_server_that_does_more_than_max_rate_is_told():
    result = sweep(OneQueue(1000.0), settings("ttft:p99<1s", max_rate=4.0))
    assert result.max_rate == pytest.approx(4.0, rel=0.06)
    assert result.bracket[1] is None
    assert any("--max-rate" in warning for warning in result.warnings)


def test_a_server_that_does_not_even_min_rate_is_told():
    result = sweep(OneQueue(10.0), settings("ttft:p99<1ms", min_rate=1.0))
    assert result.max_rate is None
    assert any("--min-rate" in warning for warning in result.warnings)


class Fails:
    """A server that goes away in the n-th run, or whose client is too slow there."""

    def __init__(self, at, times=1000, **what):
        self.server, self.at, self.until, self.what, self.runs = OneQueue(10.0), at, at + times, what, 0

    def __call__(self, rate, num_requests, seed, stop_when=None) -> LoadRun:
        run = self.server(rate, num_requests, seed, stop_when)
        self.runs += 1
        return run if not self.at <= self.runs < self.until else load_run(run.records[:5], **self.what)


def test_a_server_that_dies_leaves_a_partial_result():
    result = sweep(Fails(3, interrupted="the server is gone"), settings("ttft:p99<2s"))
    assert result.partial and result.interrupted == "the server is gone"
    assert len(result.verdicts) == 1
    assert result.warnings[0].startswith("Partial")


def test_a_client_that_cannot_keep_up_makes_it_invalid():
    result = sweep(Fails(3, bottleneck="it used 97 % of a core"), settings("ttft:p99<2s"))
    assert result.partial and not result.valid
    assert "97 %" in result.interrupted
    once = sweep(Fails(3, times=1, bottleneck="it used 97 % of a core"), settings("ttft:p99<2s"))
    assert once.valid and not once.partial


class Breaks(OneQueue):
    """Raises ``error`` in the n-th run: while requests are drawn, or tokens are credited."""

    def __init__(self, at, error):
        super().__init__(10.0)
        self.at, self.error, self.runs = at, error, 0

    def __call__(self, rate, num_requests, seed, stop_when=None):
        self.runs += 1
        if self.runs >= self.at:
            raise self.error
        return super().__call__(rate, num_requests, seed, stop_when)


@pytest.mark.parametrize(("error", "why"), [(KeyboardInterrupt(), "stopped by Ctrl-C"), (ValueError("odd"), "ValueError: odd")])
def test_whatever_ends_a_sweep_leaves_what_was_reached(error, why):
    result = sweep(Breaks(5, error), settings("ttft:p99<2s"))
    assert result.partial and result.interrupted == why
    assert result.verdicts
    assert why in result.warnings[0]


def test_an_error_before_the_first_verdict_is_raised():
    with pytest.raises(ValueError, match="odd"):
        sweep(Breaks(2, ValueError("odd")), settings("ttft:p99<2s"))


def test_a_server_that_goes_while_one_request_waits_for_what_is_left_ends_the_sweep():
    class Gone(OneQueue):
        def __call__(self, rate, num_requests, seed, stop_when=None):
            run = super().__call__(rate, num_requests, seed, stop_when)
            if rate is None and num_requests == 1:
                run.interrupted = "stopped by SIGINT"
            return run

    result = sweep(Gone(10.0), settings("ttft:p99<2s", requests_per_verdict=400))
    assert result.interrupted == "stopped by SIGINT"


def test_a_run_made_again_has_other_prompts():
    class TooSlow(OneQueue):
        def __init__(self):
            super().__init__(10.0)
            self.seeds = []

        def __call__(self, rate, num_requests, seed, stop_when=None):
            run = super().__call__(rate, num_requests, seed, stop_when)
            self.seeds.append(seed)
            if len(self.seeds) == 2:
                run.client.bottleneck = "late"
            return run

    server = TooSlow()
    sweep(server, settings("ttft:p99<2s"))
    assert server.seeds[1] != server.seeds[2]  # same rate
    assert server.offered[0] == server.offered[1]


def test_a_warm_up_that_fails_is_one_line():
    def refuses(rate, num_requests, seed, stop_when=None):
        return load_run([record([], failure="refused", message="no such model")] * num_requests)

    with pytest.raises(SweepError, match=r"4 of 4 requests did not complete \(no such model\)"):
        sweep(refuses, settings("ttft:p99<2s"))


def test_refusals_are_misses():
    class Refuses(OneQueue):
        def __call__(self, rate, num_requests, seed, stop_when=None):
            run = super().__call__(rate, num_requests, seed)
            if rate is not None and rate > 3:
                for each in run.records[::20]:
                    each.failure = "refused"
            return run

    result = sweep(Refuses(1000.0), settings("ttft:p99<2s"))
    assert result.max_rate < 3.0 <= result.bracket[1]


def test_hopeless_is_only_what_can_no_longer_be_saved():
    stop = hopeless_rule(parse_slos("ttft:p99<1s"), 100, 100)
    waiting = [record([], index=i, scheduled=i / 10, ended=None) for i in range(100)]
    assert stop(waiting, 2.0) is None  # of the 90 judged, those scheduled by 1.0 s are overdue: one
    assert stop(waiting, 2.3) is None  # four
    assert stop(waiting, 2.5) == HOPELESS  # more than 4.5
    answered = [record([i / 10 + 0.2], index=i, scheduled=i / 10, first_text=i / 10 + 0.2) for i in range(100)]
    assert stop(answered, 12.0) is None
    assert hopeless_rule(parse_slos("ttft:p99<1s"), 100, 400)(waiting, 2.5) is None  # of a verdict by 360, 18 may
    lenient = hopeless_rule(parse_slos("ttft:p50<1s"), 100, 100)
    assert lenient(waiting, 5.0) is None


def test_stopping_early_changes_no_answer():
    class NeverStops(OneQueue):
        def __call__(self, rate, num_requests, seed, stop_when=None):
            return super().__call__(rate, num_requests, seed)

    for seed in range(5):
        stops, runs_on = (sweep(kind(10.0), settings("ttft:p99<1s", seed=seed)) for kind in (OneQueue, NeverStops))
        assert stops.max_rate == runs_on.max_rate
        assert stops.seconds <= runs_on.seconds


def test_results_are_valid_by_their_type_and_their_schema_and_have_a_report():
    chosen = settings("ttft:p99<1s,itl:p99<50ms")
    result = sweep(BatchServer(fixed=0.008, each=0.002, prefill=0.005, seats=16, tokens=20), chosen)
    encoded = msgspec.json.encode(result)
    assert msgspec.json.encode(msgspec.json.decode(encoded, type=SweepResult)) == encoded
    assert set(json_schema()["$defs"]["SweepResult"]["properties"]) == set(msgspec.json.decode(encoded))
    document = sweep_document(result, msgspec.to_builtins(result), chosen.slos, title="a sweep", facts={})
    assert any(line.startswith(f"{result.max_rate:.3g}"[:3]) for line in document.summary)
    titles = [chart.title for section in document.sections for chart in section.charts]
    assert titles == ["TTFT by rate", "ITL by rate", "Goodput by rate"]
    assert as_data(document)


def test_after_a_run_that_was_stopped_one_request_waits_for_what_it_left():
    class Remembers(OneQueue):
        def __init__(self):
            super().__init__(10.0)
            self.calls = []

        def __call__(self, rate, num_requests, seed, stop_when=None):
            run = super().__call__(rate, num_requests, seed, stop_when)
            self.calls.append((rate, num_requests, run.interrupted))
            return run

    server = Remembers()
    sweep(server, settings("ttft:p99<2s", requests_per_verdict=400))
    for (_, _, stopped), (rate, count, _) in itertools.pairwise(server.calls):
        assert (rate is None and count == 1) == (stopped is not None)
    assert any(stopped for _, _, stopped in server.calls)
