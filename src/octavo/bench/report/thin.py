"""Fewer points for a picture, with every extreme kept."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from octavo.bench.report.document import Series

MOST_POINTS = 2000
"""Of a series in a page; report.json has all."""


def thinned(series: Series, most: int = MOST_POINTS) -> Series:
    """At most ``most`` points (4 at least) in the order of x: of each of ``most`` / 2 equal runs of points, those of least and greatest y.

    So no maximum is lost, and a line drawn through them covers what the line through all covers. A run with a gap (y None) and nothing
    else keeps one gap. The first and the last point stay.
    """
    order = sorted(range(len(series.x)), key=lambda i: series.x[i])
    if len(order) > most:
        order = _extremes(order, [_finite(y) for y in series.y], most)
    elif order == list(range(len(series.x))):
        return series
    return dataclasses.replace(
        series,
        x=[series.x[i] for i in order],
        y=[series.y[i] for i in order],
        low=None if series.low is None else [series.low[i] for i in order],
        high=None if series.high is None else [series.high[i] for i in order],
        labels=None if series.labels is None else [series.labels[i] for i in order],
    )


def _finite(y: float | None) -> float | None:
    return y if y is not None and math.isfinite(y) else None


def _extremes(order: Sequence[int], y: Sequence[float | None], most: int) -> list[int]:
    inner, buckets = order[1:-1], max((most - 2) // 2, 1)
    kept = [order[0]]
    for bucket in range(buckets):
        run = inner[bucket * len(inner) // buckets : (bucket + 1) * len(inner) // buckets]
        valued = [(value, i) for i in run if (value := y[i]) is not None]
        chosen = {min(valued)[1], max(valued)[1]} if valued else set(run[:1])
        kept += [i for i in run if i in chosen]
    return [*kept, order[-1]]
