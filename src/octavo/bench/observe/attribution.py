"""Why tokens came late: each spike of the inter-token latency is laid against the steps of the engine."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from octavo.bench.load.records import LoadRun, RequestRecord
from octavo.bench.observe.alignment import I64, Makers, Stalls
from octavo.bench.observe.causes import CAUSES, F64, PLACE, ROUNDING, Cause, StepTime
from octavo.bench.observe.observation import Observation
from octavo.bench.stats import median

MULTIPLE = 3.0
"""Of the median gap: beyond it a gap is a spike, where no SLO says otherwise."""
WORST = 3
"""Examples of each cause."""


class Spike(NamedTuple):
    """A gap that was too long."""

    request: int
    """Its index."""
    time: float
    """When the token came that ended it, in seconds after the run's start."""
    seconds: float
    shares: tuple[float, ...]
    """Seconds by cause, in the order of CAUSES; they add up to ``seconds``."""
    steps: tuple[int, int] | None
    """Numbers of the first and the last step in it, up to the one that made its token; None: there is none, or no log of them."""

    @property
    def cause(self) -> Cause:
        """The largest share names it."""
        return CAUSES[self.shares.index(max(self.shares))]

    def as_dict(self) -> dict[str, Any]:
        shares = {cause: 1000 * share for cause, share in zip(CAUSES, self.shares, strict=True) if share > 0}
        steps = list(self.steps) if self.steps else None
        return {"request": self.request, "at_s": self.time, "ms": 1000 * self.seconds, "steps": steps, "shares_ms": shares}


class CauseTotal(NamedTuple):
    """One cause over the run."""

    cause: Cause
    spikes: int
    """That it names."""
    seconds: float
    """Its share of all spikes' time, whatever they are named."""
    share: float
    """Of all spikes' seconds, 0 to 1."""
    worst: list[Spike]
    """The longest of those it names, one of each step."""


@dataclass(frozen=True, kw_only=True)
class Attribution:
    """The spikes of a run."""

    limit: float
    """Seconds; a longer gap is a spike."""
    rule: str
    """Where the limit comes from, in words."""
    gaps: int
    """Between two chunks that brought tokens, in all."""
    spikes: list[Spike]

    @cached_property
    def named(self) -> dict[Cause, list[Spike]]:
        """The spikes that each cause names, if it names any."""
        found: dict[Cause, list[Spike]] = {}
        for spike in self.spikes:
            found.setdefault(spike.cause, []).append(spike)
        return found

    @cached_property
    def by_cause(self) -> list[CauseTotal]:
        """Causes that have a part in it, the largest first."""
        totals = [sum(column) for column in zip(*(spike.shares for spike in self.spikes), strict=True)]
        total, found = sum(totals), []
        for cause, seconds in zip(CAUSES, totals, strict=False):
            named = self.named.get(cause, [])
            if named or seconds > 0:
                found.append(CauseTotal(cause, len(named), seconds, seconds / total if total else 0.0, _worst(named)))
        return sorted(found, key=lambda each: -each.seconds)

    def as_dict(self) -> dict[str, Any]:
        """For the result's JSON."""
        causes = [each._asdict() | {"worst": [spike.as_dict() for spike in each.worst]} for each in self.by_cause]
        seconds = sum(spike.seconds for spike in self.spikes)
        return {
            "limit_ms": 1000 * self.limit,
            "rule": self.rule,
            "gaps": self.gaps,
            "count": len(self.spikes),
            "seconds": seconds,
            "causes": causes,
        }


def attribute(run: LoadRun, seen: Observation, *, itl_limits: Sequence[float] = ()) -> Attribution:
    """Divide each spike's time among the causes.

    A spike is a gap between two chunks over the least of ``itl_limits`` (seconds), or else over MULTIPLE times the median gap. Which step
    made a token: see octavo.bench.observe.alignment, Makers. Of a gap, in this order:

    - from the end of the step that made its token on, it is the client's for as long as its heartbeat was late, and else delivery: the
      server's event loop, or the network;
    - if steps ran in it that gave the request no token, all before the step that made it is preemption, if they preempted anybody, and else
      queueing;
    - the rest is divided as the steps divide it (octavo.bench.observe.causes, StepTime).

    Without a step log the client's part is told, and the rest is unexplained.
    """
    records = [record for record in run.records if len(record.chunks) > 1]
    lengths = [after.time - before.time for record in records for before, after in itertools.pairwise(record.chunks)]
    limit, rule = _limit(lengths, itl_limits)
    divider = _Divider(run, seen)
    spikes = [spike for record in records for spike in divider.spikes(record, limit)]
    return Attribution(limit=limit, rule=rule, gaps=len(lengths), spikes=sorted(spikes, key=lambda spike: spike.time))


def _limit(lengths: Sequence[float], itl_limits: Sequence[float]) -> tuple[float, str]:
    if itl_limits:
        return min(itl_limits), f"over the SLO of {1000 * min(itl_limits):g} ms"
    limit = MULTIPLE * median(lengths) if lengths else 0.0
    return limit, f"over {MULTIPLE:g} times the median gap, {1000 * limit:.1f} ms"


def _worst(spikes: Sequence[Spike]) -> list[Spike]:
    """One step makes many requests wait: of those that it ended, the longest stands for all."""
    longest: dict[object, Spike] = {}
    for spike in sorted(spikes, key=lambda spike: -spike.seconds):
        longest.setdefault(spike.steps[1] if spike.steps else spike, spike)
    return list(longest.values())[:WORST]


class _Divider:
    """Divides gaps, given the run's steps and the client's stalls."""

    def __init__(self, run: LoadRun, seen: Observation) -> None:
        self._steps = seen.steps
        self._stalls = Stalls(run.client.loop_lag)
        self._makers = Makers(seen.steps, seen.steps_until, slack=seen.clock_error)
        if seen.steps:
            self._time = StepTime(seen.steps)
            self._preemptions = np.cumsum([step.preemptions for step in seen.steps])

    def spikes(self, record: RequestRecord, limit: float) -> list[Spike]:
        """The gaps of one request over ``limit`` seconds, divided."""
        times = np.array([chunk.time for chunk in record.chunks], np.float64)
        counts = np.array([chunk.tokens for chunk in record.chunks])
        long = np.flatnonzero(np.diff(times) > limit)
        if not len(long):
            return []
        start, end = times[long], times[long + 1]
        shares = np.zeros((len(long), len(CAUSES)))
        if self._steps:
            maker, first = self._makers.of(np.repeat(times, counts)), np.cumsum(counts)[long]
            ready = self._divide(start, end, maker[first - 1], maker[first], shares)
            numbers = self._numbers(start, ready)
        else:
            shares[:, PLACE["client"]] = self._stalls.within(start, end)
            shares[:, PLACE["unexplained"]] = end - start - shares[:, PLACE["client"]]
            numbers = [None] * len(long)
        found = zip(start, end, shares, numbers, strict=True)
        return [Spike(record.index, float(b), float(b - a), tuple(share.tolist()), steps) for a, b, share, steps in found]

    def _divide(self, start: F64, end: F64, before: I64, maker: I64, shares: F64) -> F64:
        """``before``, ``maker``: places of the steps that made the tokens round each gap; -1: unknown. Returns when its token was made."""
        known, passed = maker >= 0, (before >= 0) & (maker - before > 1)
        ready = np.where(known, np.clip(self._time.ends[maker], start, end), end)
        turn = np.where(passed, np.clip(self._time.starts[maker], start, ready), start)
        preempted = self._preemptions[maker] > self._preemptions[before]
        shares += self._time.spent(turn, ready)
        shares[:, PLACE["preemption"]] += np.where(preempted, turn - start, 0)
        shares[:, PLACE["queueing"]] += np.where(preempted, 0, turn - start)
        late = self._stalls.within(ready, end)
        shares[:, PLACE["client"]] += late
        shares[:, PLACE["delivery"]] += end - ready - late
        return ready

    def _numbers(self, start: F64, ready: F64) -> list[tuple[int, int] | None]:
        """Of the first and the last step in each gap, until its token was made."""
        first = np.searchsorted(self._time.ends, start + ROUNDING, "right")
        last = np.searchsorted(self._time.starts, ready - ROUNDING, "left") - 1
        return [(self._steps[a].step, self._steps[b].step) if a <= b else None for a, b in zip(first, last, strict=True)]
