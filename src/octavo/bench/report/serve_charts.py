"""Charts of one load run: how latencies are distributed, and what happened when."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.bench.load.records import LoadRun, RequestRecord
from octavo.bench.observe.timeline import Line, in_flight, open_spans, per_second
from octavo.bench.report.document import Chart, Limit, Series
from octavo.bench.stats import percentile

TIME = "time"
"""The group of all charts over the time of a run, those of the server's side too."""
SECONDS = "seconds after the start"
_CURVE = 500
_MOST_KINDS = 4


def latency_charts(run: LoadRun, result: Mapping[str, Any]) -> list[Chart]:
    """What share of requests and of gaps took longer than so many milliseconds."""
    done = [record for record in run.records if record.completed]
    values = {
        "TTFT": [record.ttft for record in done],
        "ITL": [gap for record in done for gap in record.gaps],
        "end to end": [record.e2e for record in done],
    }
    series = [_took_longer(name, np.array(seconds)) for name, seconds in values.items() if len(seconds)]
    return [
        Chart(
            title="Share that took longer",
            kind="line",
            x_label="ms",
            y_label="share of requests, or of gaps between tokens",
            x_log=True,
            y_log=True,
            series=series,
            limits=[Limit(value=each["limit_ms"], label=each["slo"], axis="x") for each in result["slos"]],
            note="How to read it: where a curve crosses 0.01, there is its p99. Gaps of 0 ms, within a chunk, are left of the axis.",
        )
    ]


def _took_longer(name: str, seconds: npt.NDArray[np.float64]) -> Series:
    """The share of values that are at least x, at ranks spread evenly over the logarithm of the share, so that the tail is whole."""
    ordered = np.sort(1000 * seconds)
    count = len(ordered)
    above = np.unique(np.round(np.geomspace(1, count, min(_CURVE, count))).astype(int))[::-1]  # how many are at least x
    x = ordered[count - above]
    shown = x > 0
    return Series(name=name, x=x[shown].tolist(), y=(above[shown] / count).tolist())


def time_charts(run: LoadRun, result: Mapping[str, Any]) -> list[Chart]:
    """TTFT of each request, gaps and tokens by the second, requests in flight, on one axis of time."""
    return [_ttft_chart(run, result), _itl_chart(run, result), _in_flight_chart(run), _tokens_chart(run)]


def _ttft_chart(run: LoadRun, result: Mapping[str, Any]) -> Chart:
    kinds: dict[str, list[RequestRecord]] = defaultdict(list)
    names = {record.kind for record in run.records}
    for record in run.records:
        if record.completed:
            kinds[record.kind if len(names) <= _MOST_KINDS else "requests"].append(record)
    series = [
        Series(
            name=kind,
            x=[record.scheduled for record in records],
            y=[1000 * record.ttft for record in records],
            labels=[f"request {record.index}: {record.prompt_tokens:,} tokens in, {record.received_tokens:,} out" for record in records],
        )
        for kind, records in sorted(kinds.items())
    ]
    limits = [Limit(value=each["limit_ms"], label=each["slo"]) for each in result["slos"] if each["metric"] == "ttft"]
    return Chart(
        title="Time to first token",
        kind="scatter",
        x_label=SECONDS,
        y_label="ms from the scheduled send",
        series=[*series, *_not_completed(run)],
        limits=limits,
        group=TIME,
    )


def _not_completed(run: LoadRun) -> list[Series]:
    """When requests that did not complete were over."""
    failed = [record for record in run.records if not record.completed and record.ended is not None]
    if not failed:
        return []
    y = [1000 * (record.ended - record.scheduled) if record.ended is not None else None for record in failed]
    labels = [f"request {record.index}: {record.failure or 'failed'}: {record.message[:200]}" for record in failed]
    return [Series(name="did not complete", x=[record.scheduled for record in failed], y=y, labels=labels)]


def _itl_chart(run: LoadRun, result: Mapping[str, Any]) -> Chart:
    times: list[float] = []
    gaps: list[float] = []
    for record in run.records:
        times += [chunk.time for chunk in record.chunks for _ in range(chunk.tokens)][1:]
        gaps += [1000 * gap for gap in record.gaps]
    picks: dict[str, Callable[[list[float]], float]] = {
        "median": lambda cell: percentile(cell, 50),
        "p99": lambda cell: percentile(cell, 99),
        "longest": max,
    }
    limits = [Limit(value=each["limit_ms"], label=each["slo"]) for each in result["slos"] if each["metric"] == "itl"]
    return Chart(
        title="Time between tokens, by the second",
        kind="line",
        x_label=SECONDS,
        y_label="ms",
        series=[_middles(name, per_second(times, gaps, run.seconds, pick)) for name, pick in picks.items()],
        limits=limits,
        group=TIME,
    )


def _middles(name: str, line: Line) -> Series:
    """A value for each interval, at its middle."""
    half = line.times[1] / 2 if len(line.times) > 1 else 0.5
    return Series(name=name, x=[time + half for time in line.times], y=line.values)


def _in_flight_chart(run: LoadRun) -> Chart:
    waiting = [(record.scheduled, run.seconds if record.sent is None else record.sent) for record in run.records]
    lines = {"sent, not over": in_flight(run)}
    if run.open_loop and any(sent - scheduled > 0.05 for scheduled, sent in waiting):
        lines["due, not sent yet"] = open_spans(waiting)
    series = [Series(name=name, x=line.times, y=line.values) for name, line in lines.items()]
    return Chart(title="Requests in flight", kind="steps", x_label=SECONDS, y_label="requests", series=series, group=TIME)


def _tokens_chart(run: LoadRun) -> Chart:
    chunks = [chunk for record in run.records for chunk in record.chunks]
    line = per_second([chunk.time for chunk in chunks], [float(chunk.tokens) for chunk in chunks], run.seconds, sum)
    width = line.times[1] if len(line.times) > 1 else 1.0
    rates = Line(line.times, [0.0 if count is None else count / width for count in line.values])
    series = [_middles("output tokens", rates)]
    return Chart(title="Output tokens by the second", kind="line", x_label=SECONDS, y_label="tokens / s", series=series, group=TIME)
