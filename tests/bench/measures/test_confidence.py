from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.bench.measures.confidence import (
    at_most,
    blocks_in_order,
    correlation_time,
    percentile_interval,
    resampled_percentiles,
    share_bounds,
)


def test_the_same_seed_is_the_same_interval():
    random = np.random.default_rng(3)
    values, clusters = random.exponential(size=2000), random.integers(0, 40, 2000)
    first = percentile_interval(values, clusters)
    assert first == percentile_interval(values, clusters)
    assert first != percentile_interval(values, clusters, seed=1)


def test_order_and_names_of_clusters_do_not_matter():
    values = np.arange(1000.0)
    clusters = np.arange(1000) // 20
    assert resampled_percentiles(values, clusters * 1000 - 7, 99).tolist() == resampled_percentiles(values, clusters, 99).tolist()


def test_too_few_clusters_have_no_interval():
    assert percentile_interval(np.arange(1000.0), np.arange(1000) % 9) is None
    assert percentile_interval(np.arange(1000.0), np.arange(1000) % 10) is not None


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.floats(0, 100)), min_size=1, max_size=60),
    st.sampled_from([50.0, 90.0, 99.0, 99.9]),
)
def test_every_resample_is_the_nearest_rank_percentile_of_what_was_drawn(pairs, percent):
    clusters = np.array([cluster for cluster, _ in pairs])
    values = np.array([value for _, value in pairs])
    found = resampled_percentiles(values, clusters, percent, resamples=20, seed=5)
    names = np.unique(clusters)
    if len(names) == len(values):
        assert set(found) <= set(values)
        return
    draws = np.random.default_rng(5).multinomial(len(names), np.full(len(names), 1 / len(names)), size=20)
    for result, drawn in zip(found, draws, strict=True):
        whole = np.concatenate([np.repeat(values[clusters == name], count) for name, count in zip(names, drawn, strict=True)])
        assert result == np.percentile(whole, percent, method="inverted_cdf")


def test_single_values_are_resampled_as_if_they_were_drawn():
    # The same values once as clusters of one, once as clusters of two equal ones, which really are drawn.
    values = np.random.default_rng(4).exponential(size=60)
    single = resampled_percentiles(values, np.arange(60), 90, resamples=20_000)
    double = resampled_percentiles(np.repeat(values, 2), np.repeat(np.arange(60), 2), 90, resamples=20_000)
    assert set(single) <= set(values)
    for percent in (5, 25, 50, 75, 95):
        one, two = (np.searchsorted(np.sort(values), np.percentile(found, percent, method="nearest")) for found in (single, double))
        assert abs(int(one) - int(two)) <= 1


def test_infinite_values_are_late_and_not_a_number_is_never_found():
    values = np.array([1.0] * 97 + [np.inf] * 3)
    low, high = percentile_interval(values, np.arange(100))
    assert (low, high) == (1.0, np.inf)


def test_clusters_make_the_interval_as_wide_as_it_is():
    # 50 seconds, and all of the 100 gaps of one second are alike: there are 50 samples, not 5,000.
    random = np.random.default_rng(1)
    values = np.repeat(random.exponential(size=50), 100)
    seconds = np.repeat(np.arange(50), 100)
    low, high = percentile_interval(values, seconds, 90)
    naive_low, naive_high = percentile_interval(values, np.arange(5000), 90)
    assert high - low > 3 * (naive_high - naive_low)


def test_the_interval_holds_the_truth_about_as_often_as_it_says():
    # Exponential values of mean 1: the 90th percentile is ln 10. 200 samples each, 400 times.
    random = np.random.default_rng(2)
    truth = np.log(10)
    held = 0
    for _ in range(400):
        low, high = percentile_interval(random.exponential(size=200), np.arange(200), 90)
        held += low <= truth <= high
    assert 0.89 <= held / 400 <= 0.98


def test_a_hundred_thousand_gaps_take_well_under_two_seconds():
    random = np.random.default_rng(0)
    values, seconds = random.exponential(size=100_000), random.integers(0, 60, 100_000)
    start = time.process_time()
    percentile_interval(values, seconds)
    assert time.process_time() - start < 2


def test_no_percent_is_lost_to_rounding():
    values = np.arange(1.0, 1001.0)
    assert resampled_percentiles(values, np.zeros(1000, dtype=int), 99.9, resamples=1)[0] == pytest.approx(999.0)


def test_bounds_on_a_share_are_clopper_and_pearsons():
    # 5 of 100: the 5th and 95th percentile of Beta(5, 96) and Beta(6, 95), by scipy. None of 299: (1 - p) ** 299 = 5 %.
    assert share_bounds(5, 100, 0.95) == pytest.approx((0.0199055637, 0.1022533776))
    assert share_bounds(0, 299, 0.95) == (0.0, pytest.approx(1 - 0.05 ** (1 / 299)))
    assert share_bounds(3, 3, 0.95) == (pytest.approx(0.05 ** (1 / 3)), 1.0)
    assert at_most(1, 3, 0.5) == pytest.approx(0.5)
    assert at_most(0, 10, 0.0) == at_most(10, 10, 0.7) == 1.0


@given(st.integers(0, 60), st.integers(1, 60), st.floats(0.5, 0.999))
def test_bounds_on_a_share_hold_it(hits, trials, confidence):
    hits = min(hits, trials)
    low, high = share_bounds(hits, trials, confidence)
    assert 0 <= low <= hits / trials <= high <= 1


@pytest.mark.parametrize("memory", [0.0, 0.5, 0.9])
def test_correlation_time_is_that_of_an_autoregression(memory):
    # x[i] = memory x[i - 1] + noise: 1 + 2 (memory + memory ** 2 + …) = (1 + memory) / (1 - memory).
    random = np.random.default_rng(0)
    values = np.zeros(20_000)
    for i in range(1, len(values)):
        values[i] = memory * values[i - 1] + random.normal()
    assert correlation_time(values) == pytest.approx((1 + memory) / (1 - memory), rel=0.2)


def test_blocks_are_as_long_as_the_correlation_and_in_order():
    random = np.random.default_rng(0)
    assert blocks_in_order(random.normal(size=500)).tolist() == list(range(500))
    runs = np.repeat(random.normal(size=100), 10)  # ten alike in a row
    blocks = blocks_in_order(runs)
    assert (np.diff(blocks) >= 0).all() and 60 <= blocks[-1] + 1 <= 160
    assert blocks_in_order(np.array([])).tolist() == []


def test_correlation_time_of_little_and_of_nothing():
    assert correlation_time(np.array([])) == correlation_time(np.ones(50)) == correlation_time(np.array([1.0, 2.0])) == 1.0
    assert correlation_time(np.array([np.inf] * 50 + [1.0] * 50)) > 20
