"""What a sweep is to find, and how carefully."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from octavo.bench.load.records import LoadRun, StopWhen
from octavo.bench.measures.slo import Slo
from octavo.errors import InvalidRequestError

SETTLING = 0.1
"""The first part of a run's arrivals: they fill the queue, and are not judged."""
WINDOW_LIMITS = 10
"""A run's arrivals last at least as many times the longest limit on TTFT or end-to-end time: a queue needs time to grow past it."""
CONFIRMING_STEPS = (0, 1, 2, 4, 8, 16, 32)
"""Places below the search's answer that are run longer, in turn, until one of them is confirmed."""
REQUIRED_SHARE = 0.99
"""Of the offered requests, which must complete inside the SLOs."""
HOPELESS_SHARE = 0.05
"""Of all requests to be judged: when more have missed already, the run is stopped."""


class Offer(Protocol):
    """Sends ``num_requests`` at a Poisson ``rate``, or one after another where it is None, and returns when all have ended."""

    def __call__(self, rate: float | None, num_requests: int, seed: int, stop_when: StopWhen | None = None) -> LoadRun: ...


@dataclass(frozen=True, kw_only=True)
class SweepSettings:
    """Raises InvalidRequestError for what is out of range."""

    slos: tuple[Slo, ...]
    confidence: float = 0.95
    requests_per_verdict: int = 100
    """Sent in one run; the first tenth is not judged. More where they would last less than ten times the longest limit."""
    confirm: int = 3
    """The rate that the search ends at is run again with so many times the requests; 0: not at all."""
    min_rate: float = 0.25
    max_rate: float = 64.0
    resolution: float = 0.05
    """Rates tried are min_rate * (1 + resolution) ** i."""
    seed: int = 0
    warmup: int = 4
    """Requests sent one after another before the first verdict; how long they take says where to begin."""

    def __post_init__(self) -> None:
        _check("slo", len(self.slos), 1, 16, "it must have 1 to 16 objectives")
        _check("confidence", self.confidence, 0.5, 0.9999, "it must be 0.5 to 0.9999")
        _check("requests_per_verdict", self.requests_per_verdict, 20, 1_000_000, "it must be 20 to 1000000")
        _check("confirm", self.confirm, 0, 100, "it must be 0 to 100")
        _check("min_rate", self.min_rate, 1e-3, 1e5, "it must be 0.001 to 100000 a second")
        _check("max_rate", self.max_rate, self.min_rate, 1e5, f"it must be min_rate = {self.min_rate:g} to 100000 a second")
        _check("resolution", self.resolution, 0.002, 1.0, "it must be 0.002 to 1")
        _check("warmup", self.warmup, 1, 10_000, "it must be 1 to 10000")

    @property
    def last(self) -> int:
        """The highest place on the grid of rates."""
        return math.floor(math.log(self.max_rate / self.min_rate) / math.log1p(self.resolution) + 1e-9)

    @property
    def doubling(self) -> int:
        """Places on the grid from a rate to about twice that."""
        return max(1, round(math.log(2) / math.log1p(self.resolution)))

    def rate(self, place: int) -> float:
        return float(f"{self.min_rate * (1 + self.resolution) ** place:.4g}")

    def place(self, rate: float) -> int:
        """Of the highest rate on the grid that is not above ``rate``."""
        if rate <= self.min_rate:
            return 0
        return min(self.last, math.floor(math.log(rate / self.min_rate) / math.log1p(self.resolution) + 1e-9))

    def requests(self, rate: float, confirming: bool = False) -> int:
        """To be sent in one run at ``rate``, of the search or to confirm its answer."""
        longest = max((slo.limit for slo in self.slos if slo.metric in ("ttft", "e2e")), default=0.0)
        once = max(self.requests_per_verdict, math.ceil(WINDOW_LIMITS * longest * rate))
        return once * self.confirm if confirming else once

    def run_seed(self, rate: float, confirming: bool = False) -> int:
        """Of a run: the same for every server."""
        state = np.random.SeedSequence([self.seed, round(rate * 1e6), confirming]).generate_state(1, np.uint32)
        return int(state[0])


def _check(field: str, value: float, low: float, high: float, limit: str) -> None:
    if not low <= value <= high:
        raise InvalidRequestError(f"{field} = {value:g}: {limit}", field=field)
