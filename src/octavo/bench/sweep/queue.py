"""Whether the queue grows: more requests in flight towards the end of the arrivals than chance explains."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from octavo.bench.load.records import RequestRecord

FIRST_SHARE = 0.1
"""Of the requests: those by which the time is known that it takes to fill the server."""
FIRST_LEAST = 5
FILLED_AFTER = 1.25
"""Times what the slow ones of them took."""


@dataclass(frozen=True)
class Growth:
    """Of the number in flight, from the first third to the last of the arrivals after the server has filled."""

    requests: float
    """Mean of the last third less mean of the first."""
    variance: float
    """Of that number, where the arrivals' chance alone moves it: under load that just can be served, it is a random walk."""
    known: bool = True
    """False: the arrivals were over before the server had filled, or soon after. Then growth is what an empty server shows."""

    def limit(self, confidence: float) -> float:
        """More than this grows, at this one-sided confidence."""
        return float(NormalDist().inv_cdf(confidence) * self.variance**0.5)

    def __add__(self, other: Growth) -> Growth:
        """Of two runs together: of those of which it is known."""
        if self.known != other.known:
            return self if self.known else other
        return Growth(self.requests + other.requests, self.variance + other.variance, self.known)


NO_GROWTH = Growth(0.0, 0.0, known=False)


def queue_growth(records: Sequence[RequestRecord]) -> Growth:
    """Of the requests of one run. Until the first ones end, the number in flight rises on any server: that is left out.

    A server has filled when 1.25 times the 90th percentile of the times has passed that its first requests took (a tenth, and at least
    five): in an overloaded one they do not wait yet for as long as later ones. At least half of the arrivals must come after that.

    The number in flight is that of requests scheduled and not ended. Its difference between the thirds, if it walks at random by 1 at each
    of n Poisson arrivals, has variance 5 n / 9: n / 3 from the third between them, and n / 9 from each of the two means.
    """
    scheduled = np.array([record.scheduled for record in records])
    if len(scheduled) < 3 or scheduled.max() <= 0:
        return NO_GROWTH
    ended = np.array([np.inf if record.ended is None else record.ended for record in records])
    end = float(scheduled.max())
    first = max(FIRST_LEAST, math.ceil(FIRST_SHARE * len(scheduled)))
    took = np.sort((ended - scheduled)[:first])
    start = FILLED_AFTER * float(took[math.ceil(0.9 * len(took)) - 1])
    if start > end / 2:
        return NO_GROWTH
    third = (end - start) / 3
    growth = _in_flight(scheduled, ended, end - third, end) - _in_flight(scheduled, ended, start, start + third)
    return Growth(growth, 5 * int((scheduled > start).sum()) / 9)


def _in_flight(scheduled: np.ndarray, ended: np.ndarray, start: float, end: float) -> float:
    """Mean number in flight between two times."""
    return float(np.clip(np.minimum(ended, end) - np.maximum(scheduled, start), 0, None).sum() / (end - start))
