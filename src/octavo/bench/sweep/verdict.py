"""A verdict on one rate: run it, and judge it by all its runs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from octavo.bench.load.records import Chunk, LoadRun, RequestRecord, StopWhen
from octavo.bench.measures.measures import measures_of, offered_records
from octavo.bench.measures.slo import Slo
from octavo.bench.sweep.conditions import asks_of_each, judge
from octavo.bench.sweep.queue import Growth, queue_growth
from octavo.bench.sweep.result import Condition, Verdict
from octavo.bench.sweep.settings import HOPELESS_SHARE, SETTLING, Offer, SweepSettings

HOPELESS = "hopeless"


class RunFailed(Exception):
    """A run from which nothing follows about the server's capacity: it was cut short."""


class ClientTooSlow(RunFailed):
    """The client was the bottleneck."""


def decide(rate: float, runs: list[LoadRun], offer: Offer, settings: SweepSettings, *, confirming: bool) -> Verdict:
    """One more run at ``rate``, added to ``runs``, and the verdict by all of them. ``confirming``: a long one.

    A run in which the client was the bottleneck does not count, and is made once more.

    Raises:
        RunFailed: its message says why.
    """
    count = settings.requests(rate, confirming)
    for last_try in (False, True):
        run = offer(rate, count, settings.run_seed(rate, confirming), hopeless_rule(settings.slos, count))
        if run.interrupted is not None and run.interrupted != HOPELESS:
            raise RunFailed(run.interrupted)
        if run.client.bottleneck is None:
            break
        if last_try:
            raise ClientTooSlow(f"at {rate:g} requests a second the client was the bottleneck, twice: {run.client.bottleneck}")
    runs.append(run)
    return _judge(rate, runs, settings, confirming)


def _judge(rate: float, runs: Sequence[LoadRun], settings: SweepSettings, confirming: bool) -> Verdict:
    judged: list[RequestRecord] = []
    window = 0.0
    for run, records in zip(runs, joined(runs), strict=True):
        part = records[settled(len(run.records)) :]
        judged += [record for record in part if record.ended is not None]  # the others were on their way when the run was stopped
        window += run.seconds - part[0].scheduled + records[0].scheduled - run.records[0].scheduled if part else 0.0
    growth = sum((queue_growth(offered_records(run)) for run in runs), Growth(0.0, 0.0))
    conditions = judge(judged, settings.slos, growth, settings.confidence)
    sustained = all(condition.inside for condition in conditions)
    stopped = any(run.interrupted == HOPELESS for run in runs)
    shown = all(c.shown_inside for c in conditions) if sustained else any(c.shown_outside for c in conditions)
    seconds = sum(run.seconds for run in runs)
    return Verdict(
        rate=rate,
        sustained=sustained and not stopped,
        decided=shown or stopped,
        reason=_reason(conditions, sustained, stopped),
        requests=sum(len(offered_records(run)) for run in runs),
        judged=len(judged),
        confirming=confirming,
        seconds=seconds,
        stopped_early=stopped,
        conditions=conditions,
        measures=measures_of(judged, window, settings.slos),
    )


def _reason(conditions: Sequence[Condition], sustained: bool, stopped: bool) -> str:
    if stopped:
        return f"more than {100 * HOPELESS_SHARE:g} % of the requests missed, and the run was stopped"
    if not sustained:
        return "; ".join(said(condition) for condition in conditions if not condition.inside)
    open_ones = [said(condition) for condition in conditions if not condition.shown_inside]
    return "not shown: " + "; ".join(open_ones) if open_ones else "every condition is shown to hold"


def said(condition: Condition) -> str:
    """A condition in words."""
    scale, unit = {"share": (100, " %"), "s": (1000, " ms"), "requests": (1, "")}[condition.unit]

    def number(value: float | None) -> str:
        return "infinite" if value is None else f"{scale * value:.3g}{unit}"

    high = f", at most {number(condition.high)} by the upper bound" if condition.high is not None else ""
    return f"{condition.what}: {number(condition.estimate)} (limit {number(condition.limit)}{high})"


def hopeless_rule(slos: Sequence[Slo], count: int) -> StopWhen:
    """Ends a run of ``count`` requests when more than 5 % of those to be judged have missed already.

    The rest could no longer bring the share of misses down to what is allowed, so stopping changes no verdict by the run's estimates.
    While a run goes on a record has no chunks yet: what is known is when its first text came, when it ended, and whether it failed.
    """
    first = settled(count)
    most = HOPELESS_SHARE * (count - first)
    limits = {metric: _strictest(slos, metric) for metric in ("ttft", "e2e")}

    def stop(records: Sequence[RequestRecord], now: float) -> str | None:
        missed = sum(_missed_by(record, now, limits) for record in records[first:])
        return HOPELESS if missed > most else None

    return stop


def _strictest(slos: Sequence[Slo], metric: str) -> float:
    """The limit on a metric that at most 1 % of the requests may reach."""
    return min((slo.limit for slo in slos if slo.metric == metric and asks_of_each(slo)), default=math.inf)


def _missed_by(record: RequestRecord, now: float, limits: dict[str, float]) -> bool:
    """Whether it is already certain that this request misses."""
    if record.failure is not None:
        return True
    first = now if record.first_text is None else record.first_text
    last = now if record.ended is None else -math.inf  # the last text of an ended one is not known yet
    return first - record.scheduled >= limits["ttft"] or last - record.scheduled >= limits["e2e"]


def settled(count: int) -> int:
    """How many of a run's requests, the first, are not judged."""
    return math.floor(SETTLING * count)


def joined(runs: Sequence[LoadRun]) -> list[list[RequestRecord]]:
    """The offered records of each run, those of later ones moved to whole seconds after the earlier ones: no window holds two runs."""
    moved = []
    after = 0.0
    for run in runs:
        moved.append([_moved(record, after) for record in offered_records(run)] if after else offered_records(run))
        after = math.ceil(after + run.seconds) + 1.0
    return moved


def _moved(record: RequestRecord, seconds: float) -> RequestRecord:
    return dataclasses.replace(
        record,
        scheduled=record.scheduled + seconds,
        sent=None if record.sent is None else record.sent + seconds,
        chunks=[Chunk(chunk.time + seconds, chunk.tokens) for chunk in record.chunks],
        ended=None if record.ended is None else record.ended + seconds,
    )
