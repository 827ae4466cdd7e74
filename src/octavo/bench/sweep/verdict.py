"""A verdict on one rate: run it until the rule can decide, and judge it by all runs made for it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from octavo.bench.load.records import Chunk, LoadRun, RequestRecord, StopWhen
from octavo.bench.measures.measures import measures_of, offered_records
from octavo.bench.measures.slo import Slo
from octavo.bench.sweep.conditions import Levels, asks_of_each, judge
from octavo.bench.sweep.queue import NO_GROWTH, queue_growth
from octavo.bench.sweep.result import Condition, Verdict
from octavo.bench.sweep.settings import HOPELESS_SHARE, SETTLING, Look, Offer, SweepSettings

HOPELESS = "hopeless"


class RunFailed(Exception):
    """A run from which nothing follows about the server's capacity: it was cut short."""


class ClientTooSlow(RunFailed):
    """The client was the bottleneck."""


def decide(rate: float, offer: Offer, settings: SweepSettings, *, near_limit: bool) -> Verdict:
    """Runs at ``rate``, and the verdict by all of them: no run counts in two verdicts.

    ``near_limit``: until it is decided at the confidence asked for, or the largest number of requests is reached. In the search: until the
    estimates are there, which takes more than one run only where that was over before the server had filled.

    Raises:
        RunFailed: its message says why.
    """
    looks = settings.looks(rate, near_limit)
    runs: list[LoadRun] = []
    for number, look in enumerate(looks):
        most = looks[-1].total if near_limit else look.size
        runs.append(_run(rate, look.size, hopeless_rule(settings.slos, look.size, most), offer, settings, 2 * number + near_limit))
        verdict = _judge(rate, runs, settings, looks, near_limit)
        if verdict.stopped_early or (verdict.decided if near_limit else not _too_short(verdict)):
            break
    return verdict


def _run(rate: float, count: int, stop_when: StopWhen, offer: Offer, settings: SweepSettings, part: int) -> LoadRun:
    """One run. If the client was the bottleneck it does not count, and is made once more, with other prompts."""
    for attempt in (0, 1):
        run = offer(rate, count, settings.run_seed(rate, part, attempt), stop_when)
        if run.interrupted is not None and run.interrupted != HOPELESS:
            raise RunFailed(run.interrupted)
        if run.client.bottleneck is None:
            return run
    raise ClientTooSlow(f"at {rate:g} requests a second the client was the bottleneck, twice: {run.client.bottleneck}")


def _too_short(verdict: Verdict) -> bool:
    """Whether nothing stands in the way of a rate but that it is not known if its queue grows."""
    *others, growth = verdict.conditions
    return growth.estimate is None and all(condition.inside for condition in others)


def _judge(rate: float, runs: Sequence[LoadRun], settings: SweepSettings, looks: Sequence[Look], near_limit: bool) -> Verdict:
    judged: list[RequestRecord] = []
    window = 0.0
    for run, records in zip(runs, joined(runs), strict=True):
        part = records[settled(len(run.records)) :]
        judged += [record for record in part if record.ended is not None]  # the others were on their way when the run was stopped
        window += run.seconds - part[0].scheduled + records[0].scheduled - run.records[0].scheduled if part else 0.0
    growth = sum((queue_growth(offered_records(run)) for run in runs), NO_GROWTH)
    levels = Levels.of(settings.confidence, len(settings.slos) + 2, [look.total - settled(look.total) for look in looks])
    conditions = judge(judged, settings.slos, growth, levels)
    stopped = any(run.interrupted == HOPELESS for run in runs)
    sustained = all(condition.inside for condition in conditions) and not stopped
    shown = all(c.shown_inside for c in conditions) if sustained else any(c.shown_outside for c in conditions)
    return Verdict(
        rate=rate,
        sustained=sustained,
        decided=shown or (stopped and near_limit),
        reason=_reason(conditions, sustained, stopped),
        requests=sum(len(offered_records(run)) for run in runs),
        judged=len(judged),
        near_limit=near_limit,
        runs=len(runs),
        seconds=sum(run.seconds for run in runs),
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

    if condition.unit == "requests" and condition.estimate is None:
        return f"{condition.what}: not known, the arrivals were over before the server had filled, or soon after"
    high = f", at most {number(condition.high)} by the upper bound" if condition.high is not None else ""
    return f"{condition.what}: {number(condition.estimate)} (limit {number(condition.limit)}{high})"


def hopeless_rule(slos: Sequence[Slo], count: int, verdict_of: int) -> StopWhen:
    """Ends a run of ``count`` requests when more have missed than 5 % of those by which a verdict of ``verdict_of`` requests is judged.

    The rest could no longer bring the share of misses down to what is allowed, so stopping changes no verdict by the estimates. While a run
    goes on a record has no chunks yet: what is known is when its first text came, when it ended, and whether it failed.
    """
    first = settled(count)
    most = HOPELESS_SHARE * (verdict_of - settled(verdict_of))
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
