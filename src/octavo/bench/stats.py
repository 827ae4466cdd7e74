"""Summaries of what was measured: percentiles, medians, averages over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class Summary(TypedDict):
    """Of a series of durations in milliseconds."""

    p50: float
    p90: float
    p95: float
    p99: float
    max: float
    mean: float


def percentile(values: Sequence[float], percent: float) -> float:
    """The value under which ``percent`` (0 to 100) of ``values`` lie, interpolated linearly between neighbours.

    Source: Hyndman and Fan 1996, Sample Quantiles in Statistical Packages, definition 7 (numpy's default).
    Raises ValueError for no values or a percent out of range.
    """
    if not values:
        raise ValueError("percentile of no values")
    if not 0 <= percent <= 100:
        raise ValueError(f"percent = {percent}: it must be 0 to 100")
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def median(values: Sequence[float]) -> float:
    """The 50th percentile."""
    return percentile(values, 50)


def summary_ms(seconds: Sequence[float]) -> Summary:
    """Summary, in milliseconds, of durations in seconds. Raises ValueError for none."""
    values = [1000 * s for s in seconds]
    return Summary(
        p50=percentile(values, 50),
        p90=percentile(values, 90),
        p95=percentile(values, 95),
        p99=percentile(values, 99),
        max=max(values),
        mean=sum(values) / len(values),
    )


class TimeAverage:
    """Mean of a quantity over time: each value counts for as long as it held."""

    def __init__(self) -> None:
        self._area = 0.0
        self._seconds = 0.0

    def add(self, value: float, seconds: float) -> None:
        """``value`` held for ``seconds``."""
        self._area += value * seconds
        self._seconds += seconds

    @property
    def value(self) -> float:
        """0 when nothing was added."""
        return self._area / self._seconds if self._seconds > 0 else 0.0
