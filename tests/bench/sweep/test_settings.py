from __future__ import annotations

import itertools
import math

import pytest

from octavo.bench.measures.slo import parse_slos
from octavo.bench.sweep.plan import allowed, plan_lines, plan_sweep, rule
from octavo.bench.sweep.settings import SweepSettings
from octavo.errors import InvalidRequestError

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
    assert chosen.requests(2.0, confirming=True) == 300
    only_itl = SweepSettings(slos=parse_slos("itl:p99<50ms"))
    assert only_itl.requests(60.0) == 100


def test_every_run_has_a_seed_of_its_own_that_depends_on_the_rate_alone():
    one, other = settings(seed=3), settings(seed=3, min_rate=1.0, requests_per_verdict=50)
    assert one.run_seed(2.0) == other.run_seed(2.0)
    seeds = {chosen.run_seed(rate, part) for chosen in (one, settings(seed=4)) for rate in (2.0, 2.1) for part in (False, True)}
    assert len(seeds) == 8


def test_the_plan_bounds_what_any_search_takes():
    from octavo.bench.sweep.search import find_highest

    chosen = settings(min_rate=0.5, max_rate=32.0)
    plan = plan_sweep(chosen)
    for truth in range(-1, chosen.last + 1, 5):
        for start in range(0, chosen.last + 1, 7):
            asked = []
            find_highest(lambda place, truth=truth, asked=asked: asked.append(place) or place <= truth, chosen.last, start, chosen.doubling)
            assert len(asked) <= plan.max_verdicts
            assert sum(chosen.requests(chosen.rate(p)) / chosen.rate(p) for p in asked) / 60 < plan.max_minutes
    assert plan.max_verdicts == 11  # at most 6 doublings, and 4 halvings of the 14 places of a doubling; and the start


def test_the_plan_says_how_sharp_one_run_is():
    plan = plan_sweep(settings())
    chances = {each.missing: each.passes for each in plan.passes}
    assert allowed(90) == 0 and allowed(100) == 1 and allowed(299) == 2
    assert chances[0.01] == pytest.approx(0.99**90)
    assert chances[0.05] == pytest.approx(0.95**90)
    text = " ".join(plan_lines(settings(), plan))
    for said in ("At most", "verdicts of 100 requests", "Minutes of sending", "299 requests", "confirm"):
        assert said in text


def test_a_rate_of_two_a_second_takes_minutes():
    at_two = next(each for each in plan_sweep(settings(requests_per_verdict=50)).minutes if each.rate == pytest.approx(2, rel=0.05))
    assert at_two.minutes < 6


def test_the_rule_is_told_with_its_numbers():
    said = " ".join(rule(settings()))
    for number in ("99 %", "95 %", "sqrt(5 n / 9)", "10 times", "3 times"):
        assert number in said
    assert "run again" not in " ".join(rule(settings(confirm=0)))
