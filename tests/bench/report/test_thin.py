"""Fewer points: every extreme is still there."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from octavo.bench.report.document import Series
from octavo.bench.report.thin import MOST_POINTS, thinned

VALUES = st.one_of(st.none(), st.floats(-1e9, 1e9))


@given(st.lists(VALUES, min_size=1, max_size=400), st.integers(4, 50))
def test_maxima_and_minima_stay_and_points_are_few(y: list[float | None], most: int) -> None:
    few = thinned(Series(name="s", x=list(range(len(y))), y=y, labels=[str(i) for i in range(len(y))]), most)
    known, left = [v for v in y if v is not None], [v for v in few.y if v is not None]
    assert len(few.y) <= max(most, len(y) if len(y) <= most else most)
    if known:
        assert max(left) == max(known) and min(left) == min(known)
    assert few.x[0] == 0 and few.x[-1] == len(y) - 1
    assert list(few.x) == sorted(few.x)
    for x, value, label in zip(few.x, few.y, few.labels or (), strict=True):
        assert y[int(x)] == value and label == str(int(x))


def test_a_single_spike_in_a_million_stays() -> None:
    y = [1.0] * 1_000_000
    y[654_321] = 99.0
    few = thinned(Series(name="s", x=range(len(y)), y=y))
    assert len(few.y) <= MOST_POINTS
    assert few.x[list(few.y).index(99.0)] == 654_321


def test_points_are_put_in_order() -> None:
    few = thinned(Series(name="s", x=[3, 1, 2], y=[30.0, 10.0, 20.0], low=[3, 1, 2], high=[4, 2, 3]))
    assert (list(few.x), list(few.y), few.low, few.high) == ([1, 2, 3], [10.0, 20.0, 30.0], [1, 2, 3], [2, 3, 4])
