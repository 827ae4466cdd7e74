"""Charts as SVG: legible without a script, and with what the page's script needs to say the values under the pointer."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from html import escape

from octavo.bench.report import marks
from octavo.bench.report.axes import BOTTOM, LEFT, RIGHT, TOP, WIDE, Drawing, axis_names, grid, group, limit, near, some_width
from octavo.bench.report.bars import draw_bars
from octavo.bench.report.document import Chart, Series
from octavo.bench.report.marks import tag, words
from octavo.bench.report.numbers import text
from octavo.bench.report.scales import Scale, linear_domain, log_domain
from octavo.bench.report.thin import thinned

_FEW_POINTS = 24
"""A line with no more than these has a mark at each: so many were measured, and no others."""


def draw(chart: Chart, width: int = WIDE, x_range: tuple[float, float] | None = None) -> Drawing:
    """The chart, ``width`` pixels wide. ``x_range``: of all charts of its group."""
    if chart.kind == "bars":
        return draw_bars(chart, width)
    shown = [thinned(series, 2000 if width >= WIDE else 600) for series in chart.series]
    height = 300 if width >= WIDE else 260
    x, y = _x_scale(chart, shown, width, x_range), _y_scale(chart, shown, height)
    many = len(shown) > 1
    parts = [grid(y, horizontal=True, span=(x.start, x.end)), grid(x, horizontal=False, span=(y.end, y.start))]
    for index, series in enumerate(shown):
        if chart.kind == "scatter":
            content = marks.points(index, series, x, y)
        else:
            content = marks.line(index, series, x, y, chart.kind == "steps", many)
            if chart.kind == "line" and len(series.x) <= _FEW_POINTS:
                content += marks.points(index, dataclasses.replace(series, low=None, high=None), x, y)
        parts.append(group(index, series, content))
    parts += [limit(each, x, y, row) for row, each in enumerate(chart.limits)]
    if not any(next(marks.runs(series), None) for series in shown):
        parts.append(words("no data", (x.start + x.end) / 2, (y.start + y.end) / 2, text_anchor="middle", class_="label"))
    parts.append(axis_names(chart.x_label, chart.y_label, width, height))
    plot = {"box": [x.start, y.end, x.end, y.start], "x": [x.low, x.high, x.log], "y": [y.low, y.high, y.log]}
    return Drawing("".join(parts), width, height, plot)


def group_range(charts: Iterable[Chart]) -> tuple[float, float] | None:
    """The x range that holds all points of charts of one group."""
    values = [x for chart in charts for series in chart.series for x in series.x if math.isfinite(x)]
    return (min(values), max(values)) if values else None


def describe(chart: Chart) -> str:
    """A chart in a sentence or two, for those who cannot see it."""
    kind = {"line": "Line chart", "steps": "Step chart", "scatter": "Scatter plot", "bars": "Bar chart"}[chart.kind]
    said = [f"{kind}: {chart.y_label} by {chart.x_label or 'category'}."]
    for series in chart.series[:12]:
        values = [y for y in series.y if y is not None and math.isfinite(y)]
        if values:
            said.append(f"{series.name}: {len(values)} points from {text(min(values))} to {text(max(values))}.")
    said += [f"Limit {limit.label} at {text(limit.value)}." for limit in chart.limits]
    return " ".join(said)


def _x_scale(chart: Chart, shown: Sequence[Series], width: int, x_range: tuple[float, float] | None) -> Scale:
    values = list(x_range) if x_range else [x for series in shown for x in series.x if math.isfinite(x)]
    values += near([each for each in chart.limits if each.axis == "x"], values)
    domain = chart.x_range or (log_domain(values) if chart.x_log else _x_domain(values))
    return Scale(*some_width(domain), LEFT, width - RIGHT, chart.x_log)


def _x_domain(values: Sequence[float]) -> tuple[float, float]:
    """As far as the points go, and to 0 if that is not far."""
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    return (0.0 if 0 <= low < 0.3 * high else low, high)


def _y_scale(chart: Chart, shown: Sequence[Series], height: int) -> Scale:
    values = [y for series in shown for bound in (series.y, series.low or (), series.high or ()) for y in bound if y is not None]
    values = [y for y in values if math.isfinite(y)]
    values += near([each for each in chart.limits if each.axis == "y"], values)
    domain = chart.y_range or (log_domain(values) if chart.y_log else linear_domain(values))
    return Scale(*some_width(domain), height - BOTTOM, TOP, chart.y_log)


def svg(drawing: Drawing, name: str, description: str, **attributes: str) -> str:
    """An <svg> inside a page. ``name`` and ``description`` are for those who cannot see it."""
    body = tag("desc", escape(description)) + drawing.body
    return tag("svg", body, viewBox=f"0 0 {drawing.width} {drawing.height}", role="img", aria_label=name, **attributes)
