"""When requests come: rates, spreads and ramps against their formulas."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.bench.workload.arrivals import Arrivals


def draw(arrivals: Arrivals, count: int, seed: int = 0) -> np.ndarray:
    return arrivals.draw(np.random.default_rng(seed), count)


@pytest.mark.parametrize(
    ("process", "burstiness", "variation"), [("poisson", 1.0, 1.0), ("gamma", 0.25, 2.0), ("gamma", 4.0, 0.5), ("constant", 1.0, 0.0)]
)
def test_gaps_have_the_rate_and_the_spread_asked_for(process: str, burstiness: float, variation: float) -> None:
    """Gamma gaps of shape k have a coefficient of variation of 1 / sqrt(k); a Poisson process is k = 1."""
    gaps = np.diff(draw(Arrivals(process=process, rate=5.0, burstiness=burstiness), 20_000), prepend=0.0)
    assert gaps.mean() == pytest.approx(1 / 5, rel=0.05)
    assert gaps.std() / gaps.mean() == pytest.approx(variation, rel=0.05, abs=1e-9)


def test_poisson_counts_vary_as_much_as_they_are() -> None:
    """Requests in windows of 2 s: of a Poisson process mean and variance are both 20; of gamma gaps of shape 1/4 the variance is 80."""
    for burstiness, dispersion in ((1.0, 1.0), (0.25, 4.0)):
        times = draw(Arrivals(process="gamma", rate=10.0, burstiness=burstiness), 60_000)
        counts = np.bincount((times / 2).astype(int))[:-1]
        assert counts.mean() == pytest.approx(20, rel=0.05)
        assert counts.var() / counts.mean() == pytest.approx(dispersion, rel=0.15)


def test_at_once_and_in_a_closed_loop_no_time_is_set() -> None:
    for arrivals in (Arrivals(process="at_once"), Arrivals(process="closed", concurrency=3)):
        assert arrivals.as_soon_as_possible
        assert draw(arrivals, 4).tolist() == [0, 0, 0, 0]
    assert Arrivals(process="closed", concurrency=3).in_flight == 3
    assert Arrivals(process="poisson", rate=1, max_concurrency=7).in_flight == 7
    assert Arrivals(process="poisson", rate=1).in_flight is None


def test_the_expected_requests_of_a_ramp_by_hand() -> None:
    """From 2 a second to 6 in 10 s: 40 in all, 15 in the first half (its mean rate is 3), 6 in each second after it."""
    ramp = Arrivals(process="ramp", rate=2, end_rate=6, duration=10)
    assert ramp.expected(5, 1000) == pytest.approx(15)
    assert ramp.expected(10, 1000) == pytest.approx(40)
    assert ramp.expected(12, 1000) == pytest.approx(52)


@pytest.mark.parametrize(("rate", "end_rate"), [(0.0, 40.0), (5.0, 35.0), (30.0, 10.0), (20.0, 20.0)])
def test_a_ramp_brings_as_many_as_its_cumulated_rate_says(rate: float, end_rate: float) -> None:
    """In each tenth of the ramp, and after it, over 200 seeds: the mean is the integral of the rate, the variance its equal."""
    ramp = Arrivals(process="ramp", rate=rate, end_rate=end_rate, duration=10)
    edges = np.arange(0, 12.5)
    counts = np.array([np.histogram(draw(ramp, 700, seed), edges)[0] for seed in range(200)])
    rates = rate + (end_rate - rate) * np.minimum(edges, 10) / 10
    means = (rates[:-1] + rates[1:]) / 2
    error = np.sqrt(means / 200)
    assert np.all(np.abs(counts.mean(axis=0) - means) < 5 * error)
    assert counts.var(axis=0).sum() == pytest.approx(means.sum(), rel=0.12)


def test_a_ramp_without_a_duration_ends_with_its_last_requests() -> None:
    """Of 400 from 1 to 7 a second, mean 4: it lasts 100 s; half of the time a quarter plus its share has come, (1 + 4) / 2 × 50 = 125."""
    times = np.array([draw(Arrivals(process="ramp", rate=1, end_rate=7), 400, seed) for seed in range(100)])
    assert times[:, -1].mean() == pytest.approx(100, rel=0.02)
    assert (times < 50).sum(axis=1).mean() == pytest.approx(125, rel=0.03)


rates = st.floats(0.001, 1000)


@settings(max_examples=200, deadline=None)
@given(st.just(0.0) | rates, rates, st.none() | st.floats(0.01, 1000), st.integers(1, 200), st.integers(0, 2**32))
def test_a_ramps_times_are_the_inverse_of_its_cumulated_rate(
    rate: float, end_rate: float, duration: float | None, count: int, seed: int
) -> None:
    """Put back into the integral of the rate, they are the unit process that they were drawn from."""
    ramp = Arrivals(process="ramp", rate=rate, end_rate=end_rate, duration=duration)
    times = draw(ramp, count, seed)
    assert np.all(np.isfinite(times)) and np.all(np.diff(times, prepend=0.0) >= 0)
    unit = np.cumsum(np.random.default_rng(seed).exponential(size=count))
    assert [ramp.expected(time, count) for time in times.tolist()] == pytest.approx(unit.tolist(), rel=1e-6)
