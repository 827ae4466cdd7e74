"""The section of the report that lays the server's side beside the client's."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import Any

from octavo.bench.load.records import LoadRun
from octavo.bench.observe.attribution import Attribution, Spike
from octavo.bench.observe.causes import CAUSES
from octavo.bench.observe.observation import Observation
from octavo.bench.observe.timeline import Line, server_line, thinned
from octavo.bench.report.document import Chart, Limit, Section, Series, Table
from octavo.bench.report.serve_charts import SECONDS, TIME

DRAWN = 1000
"""Most spikes of a cause that are drawn."""


def observation_section(run: LoadRun, seen: Observation, spikes: Attribution, result: Mapping[str, Any]) -> Section:
    """Charts over the axis of time of the client's own (octavo.bench.report.serve_charts), what caused the spikes, figures of all of it.

    ``result``: as octavo.bench.observe.server, server_result.
    """
    charts = [_spikes(spikes), _requests(run, seen), _pool(run, seen)]
    tables = [table for table in (_means(result), _causes(spikes)) if table.rows]
    return Section(heading="The server's side", text=_words(seen), tables=tables, charts=[chart for chart in charts if chart.series])


def _words(seen: Observation) -> list[str]:
    if seen.engine is None:
        return seen.notes or ["The server says nothing of itself."]
    name = f"{seen.engine} {seen.version}" if seen.version else seen.engine
    words = [f"As {name} tells it, on the clock of the client."]
    if seen.clock_error:
        words.append(
            f"The server's clock is {1000 * seen.clock_offset:+.1f} ms from the client's, give or take {1000 * seen.clock_error:.1f} ms."
        )
    return words + seen.notes


def _spikes(spikes: Attribution) -> Chart:
    """Each at the time when its late token came; of very many, the longest."""
    series = []
    for cause in CAUSES:
        found = heapq.nlargest(DRAWN, spikes.named.get(cause, []), key=lambda spike: spike.seconds)
        labels = [_place(spike) for spike in found]
        if found:
            series.append(Series(name=cause, x=[s.time for s in found], y=[1000 * s.seconds for s in found], labels=labels))
    limits = [Limit(value=1000 * spikes.limit, label=spikes.rule)] if series else []
    return Chart(
        title="Spikes between tokens, by cause", kind="scatter", x_label=SECONDS, y_label="ms", series=series, limits=limits, group=TIME
    )


def _requests(run: LoadRun, seen: Observation) -> Chart:
    lines = {name: server_line(seen, run.seconds, name) for name in ("running", "waiting")}
    series = [_series(name, thinned(line, run.seconds)) for name, line in lines.items() if line.told]
    return Chart(title="Requests at the server", kind="steps", x_label=SECONDS, y_label="requests", series=series, group=TIME)


def _pool(run: LoadRun, seen: Observation) -> Chart:
    names = {"in use": "kv_usage", "efficiency (live / held)": "kv_efficiency", "fragmentation": "fragmentation"}
    lines = {name: server_line(seen, run.seconds, field) for name, field in names.items()}
    series = [_series(name, thinned(line, run.seconds)) for name, line in lines.items() if line.told]
    return Chart(title="KV pool", kind="steps", x_label=SECONDS, y_label="share", series=series, group=TIME)


def _series(name: str, line: Line) -> Series:
    return Series(name=name, x=line.times, y=line.values)


MEANS = {
    "kv_efficiency": "KV efficiency (live / held)",
    "kv_usage": "KV pool in use",
    "fragmentation": "fragmentation",
    "running": "requests running",
    "waiting": "requests waiting",
    "preemptions": "preemptions",
    "cache_hit_rate": "prefix cache, share of prompt tokens found",
    "gc_seconds": "seconds in the garbage collector",
    "percent_of_roofline": "percent of the roofline",
}
"""Of the result, in words."""


def _means(result: Mapping[str, Any]) -> Table:
    rows = [(name, result[key]) for key, name in MEANS.items() if result[key] is not None]
    if (roofline := result["roofline"]) is not None:
        parts = {"decode_percent": "of steps that only decode", "prefill_percent": "of steps with a prefill chunk"}
        rows += [(f"percent of the roofline, {name}", roofline[key]) for key, name in parts.items() if roofline[key] is not None]
    return Table(columns=("the server, over the run", ""), rows=rows)


def _causes(spikes: Attribution) -> Table:
    rows = []
    for total in spikes.by_cause:
        worst = _place(total.worst[0]) if total.worst else None
        rows.append((total.cause, total.spikes, total.seconds, 100 * total.share, worst))
    note = (
        f"{len(spikes.spikes)} of {spikes.gaps} gaps are {spikes.rule}. A spike is named by the cause with the largest share of its time."
    )
    columns = ("cause", "spikes it names", "s of all spikes", "% of their time", "the longest it names")
    return Table(title="Why tokens came late", columns=columns, rows=rows, note=note)


def _place(spike: Spike) -> str:
    steps = (
        ""
        if spike.steps is None
        else f", step {spike.steps[0]}"
        if spike.steps[0] == spike.steps[1]
        else f", steps {spike.steps[0]} to {spike.steps[1]}"
    )
    return f"{1000 * spike.seconds:.0f} ms, request {spike.request} at {spike.time:.2f} s{steps}"
