from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from octavo.bench.measures.slo import parse_slos
from octavo.bench.sweep.plan import allowed, plan_lines, plan_sweep, rule
from octavo.bench.sweep.search import find_highest, find_nearby
from octavo.bench.sweep.settings import SweepSettings
from octavo.errors import InvalidRequestError
from support.load_runs import record

SLOS = parse_slos("itl:p99<50ms,ttft:p99<2.5s")


def settings(**changes):
    return SweepSettings(slos=SLOS, **changes)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("confidence", 1.0),
        ("confidence", math.nan),
        ("requests_per_verdict", 19),
        ("confirm", -1),
        ("min_rate", 0.0),
        ("max_rate", 0.1),
        ("resolution", 0.0),
        ("warmup", 0),
    ],
)
def test_a_bad_setting_is_refused_by_name_value_and_limit(field, value):
    with pytest.raises(InvalidRequestError, match=rf"^{field} = .*: it must be") as caught:
        settings(**{field: value})
    assert caught.value.field == field


def test_rates_lie_on_a_grid_of_the_resolution():
    chosen = settings(min_rate=1.0, max_rate=10.0, resolution=0.05)
    rates = [chosen.rate(place) for place in range(chosen.last + 1)]
    assert rates[0] == 1.0
    assert 10 / 1.05 < rates[-1] <= 10.0
    assert all(after / before == pytest.approx(1.05, rel=2e-3) for before, after in itertools.pairwise(rates))
    assert [chosen.place(rate) for rate in (0.1, 1.0, 1.049, 1.051, 99)] == [0, 0, 0, 1, chosen.last]
    assert chosen.rate(chosen.doubling) == pytest.approx(2.0, rel=0.05)


def test_a_run_lasts_ten_times_the_longest_limit():
    chosen = settings(requests_per_verdict=100)
    assert chosen.requests(2.0) == 100
    assert chosen.requests(20.0) == 500  # 25 s


def test_a_run_lasts_three_times_what_an_answer_may_take():
    def after(slo, *times):
        return SweepSettings(slos=parse_slos(slo)).after([record(times)])

    assert after("itl:p99<9s", 0.1, 0.11).answer_seconds == pytest.approx(6 * 0.11)  # six times what it took, if that is less
    assert after("itl:p99<50ms", 1.0, 1.5, 2.0).answer_seconds == pytest.approx(6 * 1.0 + 2 * 0.05)
    assert after("itl:p99<50ms,ttft:p99<2s", 1.0, 1.5, 2.0).answer_seconds == pytest.approx(2.0 + 2 * 0.05)
    assert after("e2e:p99<3s", 1.0, 2.0).answer_seconds == 3.0
    assert after("ttft:p99<1s", 0.5, 4.0).requests(10.0) == 3 * 6 * 4 * 10
    assert after("ttft:p99<1s", 0.5).answer_seconds == 1.0  # of one token


def test_looks_are_at_half_and_all():
    chosen = settings(requests_per_verdict=100)
    assert [look.total for look in chosen.looks(1.0, near_limit=True)] == [250, 500]
    assert [look.size for look in chosen.looks(1.0, near_limit=True)] == [250, 250]
    assert [look.size for look in chosen.looks(1.0, near_limit=False)] == [100, 200, 200]
    assert [look.total for look in settings(requests_per_verdict=100, confirm=1).looks(1.0, near_limit=True)] == [100]
    assert [look.total for look in settings(requests_per_verdict=100, confirm=0).looks(1.0, near_limit=False)] == [100]


def test_every_run_has_a_seed_of_its_own_that_depends_on_the_rate_alone():
    one, other = settings(seed=3), settings(seed=3, min_rate=1.0, requests_per_verdict=50)
    assert one.run_seed(2.0) == other.run_seed(2.0)
    seeds = {chosen.run_seed(rate, part) for chosen in (one, settings(seed=4)) for rate in (2.0, 2.1) for part in (0, 1)}
    assert len(seeds) == 8
    assert one.run_seed(2.0, 1, attempt=1) not in seeds


def test_the_plan_bounds_what_any_search_takes():
    chosen = settings(min_rate=0.5, max_rate=32.0)
    random = np.random.default_rng(0)

    def seconds(places, near_limit):
        return sum(chosen.looks(chosen.rate(place), near_limit)[-1].total / chosen.rate(place) for place in places)

    for start in range(0, chosen.last + 1, 7):
        plan = plan_sweep(chosen, start)
        for truth in range(-1, chosen.last + 1, 5):
            asked, near = [], []
            find_highest(lambda place: asked.append(place) or place <= truth, chosen.last, start, chosen.doubling)  # noqa: B023
            find_nearby(lambda place: near.append(place) or random.random() < 0.2, chosen.last, max(truth, 0))  # noqa: B023
            assert len(asked) <= plan.max_verdicts
            assert (seconds(asked, False) + seconds(near[: plan.max_near_limit], True)) / 60 < 1.001 * plan.max_minutes
    assert plan_sweep(chosen, 0).max_verdicts == 11  # at most 6 doublings, and 4 halvings of the 14 places of a doubling; and the start


def test_the_plan_says_how_sharp_one_run_is():
    chosen = settings(requests_per_verdict=100)
    plan = plan_sweep(chosen, 0)
    chances = {each.missing: each.passes for each in plan.passes}
    assert allowed(90) == 0 and allowed(100) == 1 and allowed(299) == 2
    assert chances[0.01] == pytest.approx(0.99**90)
    assert chances[0.05] == pytest.approx(0.95**90)
    text = " ".join(plan_lines(chosen, plan))
    for said in ("at most", "verdicts of 100 requests", "up to 500 requests", "Minutes of sending", "299 independent requests"):
        assert said in text
    assert "cannot show it" not in text
    assert "225 cannot show it" in " ".join(plan_lines(settings(), plan_sweep(settings(), 0)))


def test_a_rate_of_two_a_second_takes_minutes():
    chosen = settings().after([record([0.1, *np.linspace(0.12, 0.9, 63).tolist()])])  # a small model on a CPU
    at_two = next(each for each in plan_sweep(chosen, chosen.place(1 / 0.9)).minutes if each.rate == pytest.approx(2, rel=0.05))
    assert 7 < at_two.minutes < 9
    assert at_two.max_minutes < 17


def test_the_rule_is_told_with_its_numbers():
    said = " ".join(rule(settings()))
    for number in ("99 %", "95 %", "sqrt(5 n / 9)", "10 times", "3 times", "5 times", "1.25 times"):
        assert number in said
    assert "judged anew" not in " ".join(rule(settings(confirm=0)))
