"""What a sweep is to find, and how carefully."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np

from octavo.bench.load.records import LoadRun, RequestRecord, StopWhen
from octavo.bench.measures.slo import Slo
from octavo.errors import InvalidRequestError

SETTLING = 0.1
"""The first part of a run's arrivals: they fill the queue, and are not judged."""
WINDOW_LIMITS = 10
"""A run's arrivals last at least as many times the longest limit on TTFT or end-to-end time: a queue needs time to grow past it."""
WINDOW_ANSWERS = 3
"""And as many times what one answer may take: until the first ones end, the number in flight only rises, however fast the server is."""
SLOWEST_ANSWER = 6
"""How many times as long an answer may take under load as on the idle server, to plan for. Where it takes longer, a verdict takes further
requests."""
MOST_LOOKS = 2
"""At a verdict near the limit: each may decide it wrongly, so each has to be the surer, the more there are."""
MOST_NEAR_LIMIT = 6
"""Such verdicts in a sweep."""
FURTHER = (4, 8, 16, 32)
"""Places from the answer, at which one is looked for that is shown not to be sustained, or to be."""
ENOUGH_TO_SHOW = 2
"""Times the independent requests that show a rate to be kept: with fewer judged it is not tried, as requests hang together."""
REQUIRED_SHARE = 0.99
"""Of the offered requests, which must complete inside the SLOs."""
HOPELESS_SHARE = 0.05
"""Of the requests to be judged: when more have missed already, the run is stopped."""


class Look(NamedTuple):
    """A point at which a verdict may be decided: after so many runs, each of a number of requests of its own."""

    size: int
    """Requests of the run that ends here."""
    total: int
    """Requests of all runs so far."""


class Offer(Protocol):
    """Sends ``num_requests`` at a Poisson ``rate``, or one after another where it is None, and returns when all have ended."""

    def __call__(self, rate: float | None, num_requests: int, seed: int, stop_when: StopWhen | None = None) -> LoadRun: ...


@dataclass(frozen=True, kw_only=True)
class SweepSettings:
    """Raises InvalidRequestError for what is out of range."""

    slos: tuple[Slo, ...]
    confidence: float = 0.95
    requests_per_verdict: int = 50
    """Sent in one run of the search; the first tenth of a run is not judged. More where they would be over too soon: see ``requests``."""
    confirm: int = 5
    """Rates near the limit are judged anew by up to so many times the requests, until decided; 0: not at all."""
    min_rate: float = 0.25
    max_rate: float = 64.0
    resolution: float = 0.05
    """Rates tried are min_rate * (1 + resolution) ** i."""
    seed: int = 0
    warmup: int = 4
    """Requests sent one after another before the first verdict; how long they take says where to begin, and how long a run must be."""
    answer_seconds: float = 0.0
    """What one answer may take; 0: not known before the warm-up, see ``after``."""

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

    def after(self, warm: Sequence[RequestRecord]) -> SweepSettings:
        """These, with what is known after the warm-up: how long an answer may take.

        As long as the SLOs let it, and no more than SLOWEST_ANSWER times what it took on the idle server.
        """
        idle = max(record.e2e for record in warm)
        allowed = [self._allowed_seconds(record) for record in warm]
        return replace(self, answer_seconds=min(SLOWEST_ANSWER * idle, max(allowed)))

    def _allowed_seconds(self, warm: RequestRecord) -> float:
        def least(*metrics: str) -> float:
            return min((slo.limit for slo in self.slos if slo.metric in metrics), default=math.inf)

        first = least("ttft")
        if math.isinf(first):
            first = SLOWEST_ANSWER * warm.ttft
        gaps = least("itl", "tpot") * (warm.output_tokens - 1) if warm.output_tokens > 1 else 0.0
        return min(least("e2e"), first + gaps)

    def requests(self, rate: float) -> int:
        """To be sent in one run of the search at ``rate``: at least as many as take ten times the longest limit on ttft or e2e, and three
        times one answer."""
        longest = max((slo.limit for slo in self.slos if slo.metric in ("ttft", "e2e")), default=0.0)
        seconds = max(WINDOW_LIMITS * longest, WINDOW_ANSWERS * self.answer_seconds)
        return max(self.requests_per_verdict, math.ceil(seconds * rate - 1e-9))

    def looks(self, rate: float, near_limit: bool) -> list[Look]:
        """When the verdict on a rate may be reached, in order; the last is after the largest number of requests.

        In the search after the first run, or, where that was too short, after longer ones, up to the largest number. ``near_limit``:
        after half and all of the largest number: each further run begins with an empty server, and is judged too kindly for a while.
        """
        once = self.requests(rate)
        most = once * max(1, self.confirm)
        if near_limit:
            totals = [most]
            while len(totals) < MOST_LOOKS and totals[0] >= 2 * once:
                totals.insert(0, math.ceil(totals[0] / 2))
        else:
            totals = [once]
            while totals[-1] < most:
                totals.append(min(most, 2 * totals[-1] + once))
        return [Look(size=after - before, total=after) for before, after in zip([0, *totals], totals, strict=False)]

    def run_seed(self, rate: float, part: int = 0, attempt: int = 0) -> int:
        """Of a run: the same for every server. ``attempt``: one that is made again has other prompts, and hits no cache of the first."""
        state = np.random.SeedSequence([self.seed, round(rate * 1e6), part, attempt]).generate_state(1, np.uint32)
        return int(state[0])


def _check(field: str, value: float, low: float, high: float, limit: str) -> None:
    if not low <= value <= high:
        raise InvalidRequestError(f"{field} = {value:g}: {limit}", field=field)
