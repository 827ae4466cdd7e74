"""What must hold for a rate to be sustained, each with an estimate and bounds on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from octavo.bench.load.records import RequestRecord
from octavo.bench.measures.confidence import Floats, correlation_time, resampled_percentiles, share_bounds
from octavo.bench.measures.measures import gaps_and_times, one_second_windows, pooled_statistic, pooled_values
from octavo.bench.measures.slo import Slo
from octavo.bench.sweep.queue import Growth
from octavo.bench.sweep.result import Condition, Unit
from octavo.bench.sweep.settings import REQUIRED_SHARE


def judge(records: Sequence[RequestRecord], slos: Sequence[Slo], growth: Growth, confidence: float) -> list[Condition]:
    """All conditions on a rate, from the judged requests at it and the growth of its queue.

    Lower bounds are at the confidence that all of them together need: one outside is enough for a rate not to be sustained.
    """
    against = 1 - (1 - confidence) / (len(slos) + 2)
    misses = [_misses(record, slos) for record in records]
    return [
        _share(f"requests that do not complete inside {_all(slos)}", records, misses, slos, (1 - REQUIRED_SHARE, confidence, against)),
        *(_pooled(slo, records, confidence, against) for slo in slos),
        _queue(growth, confidence),
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
    what: str, records: Sequence[RequestRecord], misses: Sequence[bool], slos: Sequence[Slo], limits: tuple[float, float, float]
) -> Condition:
    """The share of requests that miss is to be at most a limit. ``limits``: that, the confidence of the upper and of the lower bound."""
    limit, confidence, against = limits
    count, hits = len(records), sum(misses)
    share = hits / count if count else 1.0
    trials = max(1, math.floor(independent(records, slos))) if count else 1
    low = share_bounds(math.floor(share * trials + 1e-9), trials, against)[0]
    high = share_bounds(math.ceil(share * trials - 1e-9), trials, confidence)[1]
    inside = hits <= limit * count + 1e-9 and count > 0
    return _condition(what, "share", limit, (share, min(low, share), max(high, share)), inside, at_limit=True)


def _pooled(slo: Slo, records: Sequence[RequestRecord], confidence: float, against: float) -> Condition:
    """An SLO's statistic over all requests or gaps together."""
    if slo.metric != "itl" and slo.per_mille is not None:
        late = [not slo.attained(record) for record in records]
        return _share(f"requests with {slo.metric} of {_limit(slo)} or more", records, late, [slo], (slo.may_be_over, confidence, against))
    if slo.metric == "itl":
        values, times = gaps_and_times(records, missing=True)
        clusters = one_second_windows(times)
    else:
        values = pooled_values(records, slo.metric)
        clusters = np.arange(len(values))
    estimate = pooled_statistic(values, slo)
    low, high = _bounds(values, clusters, slo, estimate, confidence, against)
    return _condition(f"{slo.metric} {slo.statistic}", "s", slo.limit, (estimate, low, high), estimate < slo.limit, at_limit=False)


def _bounds(
    values: Floats, clusters: np.ndarray, slo: Slo, estimate: float, confidence: float, against: float
) -> tuple[float | None, float | None]:
    """A percentile's from the bootstrap over clusters, a mean's from its standard error over them; of a maximum only that it is reached."""
    if slo.statistic == "max":
        return estimate, None
    names, places = np.unique(clusters, return_inverse=True)
    if len(names) < 10 or not math.isfinite(estimate):
        return (estimate if math.isinf(estimate) else None), None
    if slo.per_mille is not None:
        found = resampled_percentiles(values, clusters, slo.per_mille / 10)
        low, high = (float(np.percentile(found, 100 * p, method="nearest")) for p in (1 - against, confidence))
        return low, high
    sums, sizes = np.bincount(places, weights=values), np.bincount(places)
    worth = 1.0 if slo.metric == "itl" else correlation_time(values)
    error = float(np.sqrt(worth * ((sums - estimate * sizes) ** 2).sum()) / len(values))
    return estimate - NormalDist().inv_cdf(against) * error, estimate + NormalDist().inv_cdf(confidence) * error


def _queue(growth: Growth, confidence: float) -> Condition:
    """The queue's growth is to be no more than chance explains: a test, and what it does not find does not stand in the way."""
    limit = growth.limit(confidence)
    inside = growth.requests <= limit
    return Condition(
        what="growth of the number in flight from the first third to the last",
        unit="requests",
        limit=limit,
        estimate=growth.requests if math.isfinite(growth.requests) else None,
        low=None,
        high=None,
        inside=inside,
        shown_inside=inside,
        shown_outside=not inside,
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
