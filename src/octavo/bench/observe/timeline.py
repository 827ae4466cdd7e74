"""Lines over a run's time: of the server where it tells, of the client always."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from octavo.bench.load.records import LoadRun
from octavo.bench.observe.observation import Observation
from octavo.bench.stats import TimeAverage

POINTS = 400
"""Most points of a line: what lies between two is averaged over time."""


class Line(NamedTuple):
    """One quantity: (seconds after the run's start, its value from then on); None: not told."""

    times: list[float]
    values: list[float | None]

    @property
    def told(self) -> bool:
        return any(value is not None for value in self.values)


def server_line(seen: Observation, seconds: float, name: str) -> Line:
    """A gauge of the server: from the step log where there is one (after each step), else from /metrics.

    ``name``: running, waiting, kv_usage, kv_efficiency or fragmentation.
    """
    points: list[tuple[float, float | None]]
    steps = seen.steps_within(seconds)
    if steps:
        points = [(step.time, getattr(step, name)) for step in steps if name != "kv_efficiency"]
        if name == "kv_efficiency":
            points = [(step.time, step.kv_live_bytes / step.kv_held_bytes if step.kv_held_bytes else None) for step in steps]
    else:
        points = [(sample.time, getattr(sample, name)) for sample in seen.within(seconds)]
    return Line([time for time, _ in points], [value for _, value in points])


def in_flight(run: LoadRun) -> Line:
    """Requests that the client had sent, and whose answer was not over."""
    spans = [(record.sent, run.seconds if record.ended is None else record.ended) for record in run.records if record.sent is not None]
    return open_spans(spans)


def open_spans(spans: Sequence[tuple[float, float]]) -> Line:
    """How many of these (from, to) are open, at each moment at which that changes."""
    changes = sorted([(start, 1) for start, _ in spans] + [(end, -1) for _, end in spans])
    line, count = Line([0.0], [0]), 0
    for time, change in changes:
        count += change
        if time > line.times[-1]:
            line.times.append(time)
            line.values.append(count)
        else:
            line.values[-1] = count
    return line


def held(line: Line, end: float) -> Iterable[tuple[float, float, float]]:
    """(value, from, to) of every told value, which holds until the next one is told, or to ``end``."""
    ends = [*line.times[1:], end][: len(line.times)]
    return ((value, start, stop) for start, stop, value in zip(line.times, ends, line.values, strict=True) if value is not None)


def time_average(line: Line, end: float) -> float | None:
    """Mean over the time for which a value was told; None for none."""
    average, known = TimeAverage(), False
    for value, start, stop in held(line, end):
        average.add(value, max(stop - start, 0.0))
        known = True
    return average.value if known else None


def thinned(line: Line, end: float, points: int = POINTS) -> Line:
    """The same with no more than ``points`` points, each the mean over its part of the time."""
    if len(line.times) <= points or end <= 0:
        return line
    width = end / points
    cells = [TimeAverage() for _ in range(points)]
    filled = [False] * points
    for value, start, stop in held(line, end):
        start, stop = max(start, 0.0), min(stop, end)
        cell = min(int(start / width), points - 1)
        while cell < points and cell * width < stop:
            last = end if cell == points - 1 else (cell + 1) * width
            if (seconds := min(stop, last) - max(start, cell * width)) > 0:
                cells[cell].add(value, seconds)
                filled[cell] = True
            cell += 1
    values = [cell.value if full else None for cell, full in zip(cells, filled, strict=True)]
    return Line([i * width for i in range(points)], values)


def per_second(times: Sequence[float], values: Sequence[float], seconds: float, pick: Callable[[list[float]], float]) -> Line:
    """``pick`` of the values whose time lies in each second; None where there are none. A long run's intervals are longer than a second."""
    width = max(1.0, seconds / POINTS)
    cells: list[list[float]] = [[] for _ in range(int(seconds / width) + 1)]
    for time, value in zip(times, values, strict=True):
        if 0 <= time <= seconds:
            cells[int(time / width)].append(value)
    return Line([i * width for i in range(len(cells))], [pick(cell) if cell else None for cell in cells])
