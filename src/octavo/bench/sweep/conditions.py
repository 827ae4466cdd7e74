"""What must hold for a rate to be sustained, each with an estimate and bounds on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from octavo.bench.load.records import RequestRecord
from octavo.bench.measures.confidence import Floats, correlation_time, resampled_percentiles, share_bounds
from octavo.bench.measures.measures import gaps_and_times, one_second_windows, pooled_statistic, pooled_values
from octavo.bench.measures.slo import Slo
from octavo.bench.sweep.queue import Growth
from octavo.bench.sweep.result import Condition, Unit
from octavo.bench.sweep.settings import REQUIRED_SHARE


class Levels(NamedTuple):
    """How sure each single bound has to be, so that a verdict is as sure as is asked for."""

    inside: float
    """Upper bounds: all conditions must be shown to hold, at any one of the looks at which they can be."""
    outside: float
    """Lower bounds: any one condition shown not to hold is enough, at any look."""

    @classmethod
    def of(cls, confidence: float, conditions: int, judged: Sequence[int] = (0,)) -> Levels:
        """``judged``: how many requests are, at each look. Each bound may err as often as all of them may, over their number."""
        can_show = max(1, sum(each >= needed(confidence) for each in judged))
        return cls(1 - (1 - confidence) / can_show, 1 - (1 - confidence) / (len(judged) * conditions))


def needed(confidence: float) -> int:
    """Independent requests of which none misses, to show that no more than 1 % do."""
    return math.ceil(math.log(1 - confidence) / math.log(REQUIRED_SHARE))


def judge(records: Sequence[RequestRecord], slos: Sequence[Slo], growth: Growth, levels: Levels) -> list[Condition]:
    """All conditions on a rate, from the judged requests at it and the growth of its queue, which is the last."""
    misses = [_misses(record, slos) for record in records]
    what = f"requests that do not complete inside {_all(slos)}"
    return [
        _share(what, records, misses, slos, 1 - REQUIRED_SHARE, levels),
        *(_pooled(slo, records, levels) for slo in slos),
        _queue(growth, levels),
    ]


def _misses(record: RequestRecord, slos: Sequence[Slo]) -> bool:
    """Whether a request is one of those that at most 1 % may be."""
    return not (record.completed and all(slo.attained(record) for slo in slos if asks_of_each(slo)))


def asks_of_each(slo: Slo) -> bool:
    """Whether at least 99 % of the requests must keep this SLO, each for itself.

    A mean, or a percentile below p99, of ttft, tpot or e2e allows more than 1 % to be late: of single requests it asks that they complete.
    """
    return slo.metric == "itl" or slo.may_be_over <= 1 - REQUIRED_SHARE + 1e-12


def independent(records: Sequence[RequestRecord], slos: Sequence[Slo]) -> float:
    """How many independent requests these, in order of their sends, are worth: their number over the correlation time of their latencies.

    Requests in one queue wait for the same things: near capacity hundreds of them in a row are late, or are not, for one cause. To count
    each as a sample of its own would feign a certainty that there is not.
    """
    metrics = {"tpot" if slo.metric == "itl" else slo.metric for slo in slos}
    return len(records) / max(correlation_time(np.array([_latency(record, metric) for record in records])) for metric in metrics)


def _latency(record: RequestRecord, metric: str) -> float:
    value: float | None = getattr(record, metric) if record.completed else math.inf
    return 0.0 if value is None else value


def _share(
    what: str, records: Sequence[RequestRecord], misses: Sequence[bool], slos: Sequence[Slo], limit: float, levels: Levels
) -> Condition:
    """The share of requests that miss is to be at most ``limit``."""
    count, hits = len(records), sum(misses)
    share = hits / count if count else 1.0
    trials = max(1, math.floor(independent(records, slos))) if count else 1
    low = share_bounds(math.floor(share * trials + 1e-9), trials, levels.outside)[0]
    high = share_bounds(math.ceil(share * trials - 1e-9), trials, levels.inside)[1]
    inside = hits <= limit * count + 1e-9 and count > 0
    return _condition(what, "share", limit, (share, min(low, share), max(high, share)), inside, at_limit=True)


def _pooled(slo: Slo, records: Sequence[RequestRecord], levels: Levels) -> Condition:
    """An SLO's statistic over all requests or gaps together."""
    if slo.metric != "itl" and slo.per_mille is not None:
        late = [not slo.attained(record) for record in records]
        return _share(f"requests with {slo.metric} of {_limit(slo)} or more", records, late, [slo], slo.may_be_over, levels)
    if slo.metric == "itl":
        values, times = gaps_and_times(records, missing=True)
        clusters = one_second_windows(times)
    else:
        values = pooled_values(records, slo.metric)
        clusters = np.arange(len(values))
    estimate = pooled_statistic(values, slo)
    low, high = _bounds(values, clusters, slo, estimate, levels)
    return _condition(f"{slo.metric} {slo.statistic}", "s", slo.limit, (estimate, low, high), estimate < slo.limit, at_limit=False)


def _bounds(values: Floats, clusters: np.ndarray, slo: Slo, estimate: float, levels: Levels) -> tuple[float | None, float | None]:
    """A percentile's from the bootstrap over clusters, a mean's from its standard error over them; of a maximum only that it is reached."""
    if slo.statistic == "max":
        return estimate, None
    names, places = np.unique(clusters, return_inverse=True)
    if len(names) < 10 or not math.isfinite(estimate):
        return (estimate if math.isinf(estimate) else None), None
    if slo.per_mille is not None:
        found = resampled_percentiles(values, clusters, slo.per_mille / 10)
        low, high = (float(np.percentile(found, 100 * p, method="nearest")) for p in (1 - levels.outside, levels.inside))
        return low, high
    sums, sizes = np.bincount(places, weights=values), np.bincount(places)
    worth = 1.0 if slo.metric == "itl" else correlation_time(values)
    error = float(np.sqrt(worth * ((sums - estimate * sizes) ** 2).sum()) / len(values))
    return estimate - NormalDist().inv_cdf(levels.outside) * error, estimate + NormalDist().inv_cdf(levels.inside) * error


def _queue(growth: Growth, levels: Levels) -> Condition:
    """The queue's growth is to be no more than chance explains: a test, and what it does not find does not stand in the way.

    Where it is not known the condition is not met, and neither is that shown.
    """
    limit = growth.limit(levels.outside)
    inside = growth.known and growth.requests <= limit
    return Condition(
        what="growth of the number in flight from the first third to the last",
        unit="requests",
        limit=limit,
        estimate=growth.requests if growth.known else None,
        low=None,
        high=None,
        inside=inside,
        shown_inside=inside,
        shown_outside=growth.known and not inside,
    )


def _condition(
    what: str, unit: Unit, limit: float, values: tuple[float, float | None, float | None], inside: bool, *, at_limit: bool
) -> Condition:
    """``values``: estimate, lower and upper bound. ``at_limit``: the limit itself is inside."""
    estimate, low, high = values
    below = high is not None and (high <= limit if at_limit else high < limit)
    above = low is not None and (low > limit if at_limit else low >= limit)
    return Condition(
        what=what,
        unit=unit,
        limit=limit,
        estimate=_finite(estimate),
        low=_finite(low),
        high=_finite(high),
        inside=inside,
        shown_inside=inside and below,
        shown_outside=not inside and above,
    )


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _limit(slo: Slo) -> str:
    return str(slo).partition("<")[2]


def _all(slos: Sequence[Slo]) -> str:
    return "the SLO" if len(slos) == 1 else "all SLOs"
