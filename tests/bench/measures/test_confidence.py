from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.bench.measures.confidence import percentile_interval, resampled_percentiles


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
    draws = np.random.default_rng(5).multinomial(len(names), np.full(len(names), 1 / len(names)), size=20)
    for result, drawn in zip(found, draws, strict=True):
        whole = np.concatenate([np.repeat(values[clusters == name], count) for name, count in zip(names, drawn, strict=True)])
        assert result == np.percentile(whole, percent, method="inverted_cdf")


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
    # Exponential values of mean 1: the 90th percentile is ln 10. 200 samples each, 80 times.
    random = np.random.default_rng(2)
    truth = np.log(10)
    held = 0
    for _ in range(80):
        low, high = percentile_interval(random.exponential(size=200), np.arange(200), 90)
        held += low <= truth <= high
    assert 0.87 <= held / 80 <= 0.999


def test_a_hundred_thousand_gaps_take_well_under_two_seconds():
    random = np.random.default_rng(0)
    values, seconds = random.exponential(size=100_000), random.integers(0, 60, 100_000)
    start = time.process_time()
    percentile_interval(values, seconds)
    assert time.process_time() - start < 2


def test_no_percent_is_lost_to_rounding():
    values = np.arange(1.0, 1001.0)
    assert resampled_percentiles(values, np.zeros(1000, dtype=int), 99.9, resamples=1)[0] == pytest.approx(999.0)
