from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.bench.stats import TimeAverage, median, percentile, summary_ms


def test_percentiles_by_hand():
    values = [40.0, 10.0, 30.0, 20.0]
    # Places 0 … 3 hold 10, 20, 30, 40; the 90th percentile stands at 2.7: 30 + 0.7 * 10.
    assert percentile(values, 90) == pytest.approx(37.0)
    assert percentile(values, 0) == 10.0
    assert percentile(values, 100) == 40.0
    assert median(values) == 25.0
    assert median([7.0]) == 7.0


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50), st.floats(0, 100))
def test_percentile_is_numpys(values, percent):
    assert percentile(values, percent) == pytest.approx(float(np.percentile(values, percent)), rel=1e-9, abs=1e-6)


def test_percentile_refuses_nothing_and_nonsense():
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)
    with pytest.raises(ValueError, match="percent = 101"):
        percentile([1.0], 101)


def test_summary_in_milliseconds():
    # 0.1 s … 1.0 s: ten values, places 0 … 9.
    summary = summary_ms([i / 10 for i in range(1, 11)])
    assert summary == pytest.approx({"p50": 550.0, "p90": 910.0, "p95": 955.0, "p99": 991.0, "max": 1000.0, "mean": 550.0})


def test_average_counts_a_value_for_as_long_as_it_held():
    average = TimeAverage()
    assert average.value == 0.0
    average.add(1.0, 3.0)
    average.add(0.5, 1.0)
    assert average.value == pytest.approx((3.0 + 0.5) / 4)
