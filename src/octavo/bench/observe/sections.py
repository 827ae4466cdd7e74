"""The section of the report that lays the server's side beside the client's."""

from __future__ import annotations

from octavo.bench.load.records import LoadRun
from octavo.bench.observe.observation import Observation
from octavo.bench.observe.timeline import Line, in_flight, per_second, server_line, thinned
from octavo.bench.report.document import Chart, Section, Series
from octavo.bench.stats import median

GROUP = "time"
SECONDS = "seconds after the start"


def observation_section(run: LoadRun, seen: Observation) -> Section:
    """Charts over one axis of time; where the server tells nothing, the client's own."""
    charts = [_first_tokens(run), _between_tokens(run), _requests(run, seen), *_pool(run, seen)]
    return Section(heading="The server's side", text=_words(seen), charts=[chart for chart in charts if chart.series])


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


def _first_tokens(run: LoadRun) -> Chart:
    records = [record for record in run.records if record.chunks]
    labels = [f"request {record.index}: {1000 * record.ttft:.0f} ms" for record in records]
    x, y = [record.scheduled for record in records], [1000 * record.ttft for record in records]
    series = [Series(name="request", x=x, y=y, labels=labels)] if records else []
    return Chart(
        title="Time to first token, by when it was to be sent", kind="scatter", x_label=SECONDS, y_label="ms", series=series, group=GROUP
    )


def _between_tokens(run: LoadRun) -> Chart:
    ends, gaps = [], []
    for record in run.records:
        for before, chunk in zip(record.chunks, record.chunks[1:], strict=False):
            ends.append(chunk.time)
            gaps.append(1000 * (chunk.time - before.time))
    lines = {"max": per_second(ends, gaps, run.seconds, max), "p50": per_second(ends, gaps, run.seconds, median)}
    series = [_series(name, line) for name, line in lines.items() if line.told]
    return Chart(title="Between tokens, of each second", kind="line", x_label=SECONDS, y_label="ms", series=series, group=GROUP)


def _requests(run: LoadRun, seen: Observation) -> Chart:
    lines = {
        "running": server_line(seen, run.seconds, "running"),
        "waiting": server_line(seen, run.seconds, "waiting"),
        "in flight, by the client": in_flight(run),
    }
    series = [_series(name, thinned(line, run.seconds)) for name, line in lines.items() if line.told]
    return Chart(title="Requests", kind="steps", x_label=SECONDS, y_label="requests", series=series, group=GROUP)


def _pool(run: LoadRun, seen: Observation) -> list[Chart]:
    names = {"in use": "kv_usage", "efficiency (live / held)": "kv_efficiency", "fragmentation": "fragmentation"}
    lines = {name: server_line(seen, run.seconds, field) for name, field in names.items()}
    series = [_series(name, thinned(line, run.seconds)) for name, line in lines.items() if line.told]
    return [Chart(title="KV pool", kind="steps", x_label=SECONDS, y_label="share", series=series, group=GROUP)]


def _series(name: str, line: Line) -> Series:
    return Series(name=name, x=line.times, y=line.values)
