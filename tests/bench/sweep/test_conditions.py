from __future__ import annotations

import numpy as np
import pytest

from octavo.bench.measures.slo import parse_slos
from octavo.bench.sweep.conditions import Levels, independent, needed
from octavo.bench.sweep.conditions import judge as judge_at
from octavo.bench.sweep.queue import NO_GROWTH, Growth
from octavo.bench.sweep.verdict import said
from support.load_runs import record

CALM = Growth(0.0, 1.0)


def judge(records, slos, growth, confidence):
    """With one look."""
    return judge_at(records, slos, growth, Levels.of(confidence, len(slos) + 2))


def requests(ttfts, **fields):
    return [record([i + ttft, i + ttft + 0.01], index=i, scheduled=float(i), **fields) for i, ttft in enumerate(ttfts)]


def fast(count, late=0, seed=0):
    """TTFTs of about 0.1 s in no order, ``late`` of them, far from each other, of 3 s."""
    ttfts = np.random.default_rng(seed).uniform(0.05, 0.15, count)
    ttfts[: late * (count // max(late, 1)) : count // max(late, 1)] = 3.0
    return requests(ttfts)


def test_299_requests_of_which_none_misses_show_it_and_298_do_not():
    # 0.99 ** 299 < 0.05 < 0.99 ** 298. Ten identical latencies would be correlated by rank; distinct ones in no order are not.
    slos = parse_slos("ttft:p99<2s")
    for seed in range(20):
        records = fast(299, seed=seed)
        if independent(records, slos) == 299:
            break
    conditions = judge(records, slos, CALM, 0.95)
    assert all(condition.shown_inside for condition in conditions)
    conditions = judge(records[:298], slos, CALM, 0.95)
    assert all(condition.inside for condition in conditions)
    assert not conditions[0].shown_inside


def test_one_in_a_hundred_may_miss_and_two_may_not():
    slos = parse_slos("ttft:p99<2s")
    one, two = judge(fast(100, 1), slos, CALM, 0.95), judge(fast(100, 2), slos, CALM, 0.95)
    assert one[0].inside and one[0].estimate == 0.01
    assert not two[0].inside and not two[1].inside
    assert not two[0].shown_outside
    many = judge(fast(100, 10), slos, CALM, 0.95)
    assert many[0].shown_outside


def test_failures_miss_every_slo():
    slos = parse_slos("itl:p99<50ms,e2e:p99<10s")
    records = fast(200) + requests([0.1] * 5, failure="refused", output_tokens=64)
    conditions = judge(records, slos, CALM, 0.95)
    assert not any(condition.inside for condition in conditions[:3])
    assert conditions[1].estimate is None  # infinite: 5 * 62 of the 515 gaps never came


def test_an_slo_on_a_percentile_below_p99_lets_more_than_one_in_a_hundred_be_late():
    records = fast(200, 10)
    assert all(condition.inside for condition in judge(records, parse_slos("ttft:p90<2s"), CALM, 0.95))
    assert not all(condition.inside for condition in judge(records, parse_slos("ttft:p99<2s"), CALM, 0.95))
    late = fast(200, 40)
    assert not all(condition.inside for condition in judge(late, parse_slos("ttft:p90<2s"), CALM, 0.95))


def test_a_growing_queue_is_not_sustained():
    conditions = judge(fast(200), parse_slos("ttft:p99<2s"), Growth(3.0, 1.0), 0.95)
    assert not conditions[-1].inside and conditions[-1].shown_outside


def test_growth_that_is_not_known_is_neither_inside_nor_shown():
    growth = judge(fast(200), parse_slos("ttft:p99<2s"), NO_GROWTH, 0.95)[-1]
    assert not (growth.inside or growth.shown_inside or growth.shown_outside)
    assert "not known" in said(growth)


def test_what_may_err_is_shared_by_all_that_can():
    assert needed(0.95) == 299
    one = Levels.of(0.95, 3, [80, 160, 315])  # upper bounds can be low enough at the last look alone
    assert one.inside == 0.95
    assert one.outside == pytest.approx(1 - 0.05 / 9)
    assert Levels.of(0.95, 3, [200, 400, 800]).inside == pytest.approx(0.975)


def test_requests_that_wait_for_one_thing_are_worth_few():
    slos = parse_slos("ttft:p99<2s")
    random = np.random.default_rng(1)
    calm = requests(random.exponential(size=400) / 20)
    walk = np.abs(np.cumsum(random.normal(size=400))) / 20
    assert independent(calm, slos) > 250
    assert independent(requests(walk), slos) < 40


def test_gaps_are_judged_by_seconds_and_not_one_by_one():
    # 40 seconds of 50 gaps each; in four of them a pause makes 5 gaps late: 1 % of all, but of seconds rather than of gaps.
    records = []
    for second in range(40):
        gaps = [0.018] * 49 + [0.1] if second % 10 == 9 else [0.018] * 50
        times = second + np.cumsum(gaps)
        records += [record(list(times), index=second, scheduled=float(second))]
    slos = parse_slos("itl:p99.9<50ms")
    condition = judge(records, slos, CALM, 0.95)[1]
    assert condition.estimate == pytest.approx(0.1)
    assert condition.low == pytest.approx(0.018)  # so few seconds do not show it to be outside
    assert not condition.shown_outside


def test_means_have_bounds():
    records = requests(np.random.default_rng(0).uniform(0.9, 1.1, 400))
    inside, close = (judge(records, parse_slos(f"ttft:mean<{limit}s"), CALM, 0.95)[1] for limit in (1.05, 1.002))
    assert inside.shown_inside
    # Of 400 uniform values 0.2 wide the mean's standard error is 0.2 / sqrt(12) / 20; more if they happen to be correlated.
    assert 0.9 < (inside.high - inside.estimate) / (1.645 * 0.2 / 12**0.5 / 20) < 1.5
    assert not close.shown_inside or not close.inside
