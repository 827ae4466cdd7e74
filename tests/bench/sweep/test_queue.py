from __future__ import annotations

import math

import numpy as np
import pytest

from octavo.bench.measures.slo import parse_slos
from octavo.bench.sweep.queue import NO_GROWTH, Growth, queue_growth
from octavo.bench.sweep.settings import SweepSettings
from support.load_runs import record
from support.queues import OneQueue


def grows(server, rate, count, seed):
    growth = queue_growth(server(rate, count, seed).records)
    return growth.requests > growth.limit(0.95)


def piling_up(ended):
    """One request a second from 1 s to 30 s: the first five take 0.5 s each, the others are in flight until the end."""
    return [record([i + 0.5], scheduled=float(i)) if i <= 5 else record([], scheduled=float(i), ended=ended) for i in range(1, 31)]


# Filled at 1.25 * 0.5 = 0.625 s. Thirds of the 29.375 s from there to 30 s are 9.79 s. In the last, from 20.21 s on, 15 are in flight for
# 0.79 s and then 16 to 24 for one second each; in the first, up to 10.42 s, the first five for 0.5 s each, from 6 s on 1 to 4 for one
# second each, and 5 for 0.42 s.
GROWTH_BY_HAND = ((15 * 0.7917 + sum(range(16, 25))) - (5 * 0.5 + sum(range(1, 5)) + 5 * 0.4167)) / 9.7917


def test_growth_by_hand():
    growth = queue_growth(piling_up(ended=100.0))
    assert growth.known
    assert growth.requests == pytest.approx(GROWTH_BY_HAND, rel=1e-3)
    assert growth.variance == pytest.approx(5 * 30 / 9)


def test_an_overloaded_queue_grows_with_few_requests_and_with_many():
    server = OneQueue(10.0, exponential=False)
    assert sum(grows(server, 30.0, 40, seed) for seed in range(20)) >= 17
    assert sum(grows(server, 12.0, 2000, seed) for seed in range(5)) == 5


def test_a_queue_that_is_served_is_seldom_taken_to_grow():
    for exponential in (False, True):
        server = OneQueue(10.0, exponential)
        for rate, count in ((3.0, 40), (7.0, 100), (8.0, 400), (8.0, 2000)):
            assert sum(grows(server, rate, count, seed) for seed in range(15)) <= 2


def endless(rate, count, seconds):
    """A server that takes all at once: Poisson arrivals, answers of so many seconds each."""
    arrivals = np.cumsum(np.random.default_rng(0).exponential(size=count)) / rate
    return [record([t + seconds], scheduled=float(t)) for t in arrivals]


def test_long_answers_that_fill_an_idle_server_are_no_growth():
    # 20 requests a second of 5 s each: 100 are in flight, all the time but the first 5 s.
    growth = queue_growth(endless(20, 600, 5.0))
    assert growth.known and growth.requests < growth.limit(0.95)


def test_a_run_that_is_over_before_the_server_has_filled_says_nothing_of_growth():
    # 60 requests a second of 8 s each: from the first second to the last third of 1.7 s, 44 more are in flight, and nothing waits.
    assert not queue_growth(endless(60, 100, 8.0)).known


def test_runs_are_long_enough_for_long_answers():
    # 256 tokens 31.4 ms apart; with gaps of up to 50 ms, and six times the TTFT, 13.4 s.
    warm = record(np.linspace(0.1, 8.1, 256).tolist())
    chosen = SweepSettings(slos=parse_slos("itl:p99<50ms")).after([warm])
    assert chosen.answer_seconds == pytest.approx(6 * 0.1 + 255 * 0.05)
    count = chosen.requests(60.0)
    assert count == math.ceil(60 * 3 * chosen.answer_seconds)
    for seconds in (8.0, 12.0):
        growth = queue_growth(endless(60, count, seconds))
        assert growth.known and growth.requests < growth.limit(0.95)


def test_what_has_not_ended_stays_in_flight():
    assert queue_growth(piling_up(ended=None)).requests == pytest.approx(GROWTH_BY_HAND, rel=1e-3)


def test_runs_add_up():
    total = Growth(3.0, 4.0) + Growth(1.0, 5.0)
    assert total == Growth(4.0, 9.0)
    assert total.limit(0.975) == pytest.approx(1.96 * 3, rel=1e-3)
    assert total + NO_GROWTH == NO_GROWTH + total == total
    assert not (NO_GROWTH + NO_GROWTH).known
