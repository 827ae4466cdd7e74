"""Whether the queue grows: more requests in flight towards the end of the arrivals than chance explains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, median

import numpy as np

from octavo.bench.load.records import RequestRecord


@dataclass(frozen=True)
class Growth:
    """Of the number in flight, from the first third of the arrival window to the last."""

    requests: float
    """Mean of the last third less mean of the first."""
    variance: float
    """Of that number, where the arrivals' chance alone moves it: under load that just can be served, it is a random walk."""

    def limit(self, confidence: float) -> float:
        """More than this grows, at this one-sided confidence."""
        return float(NormalDist().inv_cdf(confidence) * self.variance**0.5)

    def __add__(self, other: Growth) -> Growth:
        """Of two runs together."""
        return Growth(self.requests + other.requests, self.variance + other.variance)


def queue_growth(records: Sequence[RequestRecord]) -> Growth:
    """Over the window from when the first requests have had time to end, at the latest a third in, to the last scheduled send.

    The number in flight is that of requests scheduled and not ended. Its difference between the thirds, if it walks at random by 1 at each
    of n Poisson arrivals, has variance 5 n / 9: n / 3 from the third between them, and n / 9 from each of the two means.
    """
    scheduled = np.array([record.scheduled for record in records])
    if len(scheduled) < 3 or scheduled.max() <= 0:
        return Growth(0.0, 0.0)
    ended = np.array([np.inf if record.ended is None else record.ended for record in records])
    end = float(scheduled.max())
    early = [e - s for s, e in zip(scheduled, ended, strict=True) if s <= end / 3]
    start = min(end / 3, median(early)) if early else 0.0
    third = (end - start) / 3
    growth = _in_flight(scheduled, ended, end - third, end) - _in_flight(scheduled, ended, start, start + third)
    return Growth(growth, 5 * int((scheduled > start).sum()) / 9)


def _in_flight(scheduled: np.ndarray, ended: np.ndarray, start: float, end: float) -> float:
    """Mean number in flight between two times."""
    return float(np.clip(np.minimum(ended, end) - np.maximum(scheduled, start), 0, None).sum() / (end - start))
