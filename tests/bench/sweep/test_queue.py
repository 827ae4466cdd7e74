from __future__ import annotations

import numpy as np
import pytest

from octavo.bench.sweep.queue import Growth, queue_growth
from support.load_runs import record
from support.queues import OneQueue


def grows(server, rate, count, seed):
    growth = queue_growth(server(rate, count, seed).records)
    return growth.requests > growth.limit(0.95)


def test_growth_by_hand():
    # One request a second from 1 s to 30 s, each in flight until the end: from 10 s on (a third in) the number in flight rises by one a
    # second. The thirds of 10 to 30 s are centred 13.33 s apart.
    records = [record([100.0], scheduled=float(i)) for i in range(1, 31)]
    growth = queue_growth(records)
    assert growth.requests == pytest.approx(40 / 3, rel=0.02)
    assert growth.variance == pytest.approx(5 * 20 / 9)


def test_an_overloaded_queue_grows_with_few_requests_and_with_many():
    server = OneQueue(10.0, exponential=False)
    assert sum(grows(server, 30.0, 40, seed) for seed in range(20)) >= 17
    assert sum(grows(server, 12.0, 2000, seed) for seed in range(5)) == 5


def test_a_queue_that_is_served_is_seldom_taken_to_grow():
    for exponential in (False, True):
        server = OneQueue(10.0, exponential)
        for rate, count in ((3.0, 40), (7.0, 100), (8.0, 400), (8.0, 2000)):
            assert sum(grows(server, rate, count, seed) for seed in range(15)) <= 2


def test_long_answers_that_fill_an_idle_server_are_no_growth():
    # 20 requests a second of 5 s each: 100 are in flight, all the time but the first 5 s.
    random = np.random.default_rng(0)
    arrivals = np.cumsum(random.exponential(size=600)) / 20
    growth = queue_growth([record([t + 5.0], scheduled=float(t)) for t in arrivals])
    assert growth.requests < growth.limit(0.95)


def test_what_has_not_ended_stays_in_flight():
    records = [record([], scheduled=float(i), ended=None) for i in range(1, 31)]
    assert queue_growth(records).requests == pytest.approx(40 / 3, rel=0.02)


def test_runs_add_up():
    total = Growth(3.0, 4.0) + Growth(1.0, 5.0)
    assert total == Growth(4.0, 9.0)
    assert total.limit(0.975) == pytest.approx(1.96 * 3, rel=1e-3)
