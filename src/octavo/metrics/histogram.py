"""A histogram that is cheap to feed: some observations come with every token."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry
from prometheus_client.utils import floatToGoString


class Histogram(Collector):
    """One series, fed by one thread: prometheus_client's takes two locks an observation, and a walk along its buckets."""

    def __init__(self, name: str, doc: str, labels: dict[str, str], bounds: Sequence[float], registry: CollectorRegistry) -> None:
        """``bounds``: the buckets' upper ones, rising; one more holds the rest."""
        self._family = (name, doc)
        self._labels = labels
        self._bounds = list(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0
        registry.register(self)

    def observe(self, amount: float, times: int = 1) -> None:
        """Count ``amount``, so many times."""
        self._counts[bisect_left(self._bounds, amount)] += times
        self._sum += amount * times

    def describe(self) -> list[Metric]:
        return [HistogramMetricFamily(*self._family)]

    def collect(self) -> Iterator[Metric]:
        family = HistogramMetricFamily(*self._family, labels=list(self._labels))
        names = map(floatToGoString, (*self._bounds, float("inf")))
        family.add_metric(list(self._labels.values()), list(zip(names, accumulate(self._counts), strict=True)), self._sum)
        yield family
