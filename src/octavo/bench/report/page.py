"""A document as one HTML file that needs nothing else."""

from __future__ import annotations

import functools
import itertools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from octavo.bench.report import marks, palette
from octavo.bench.report.axes import NARROW, WIDE
from octavo.bench.report.charts import describe, draw, group_range, svg
from octavo.bench.report.document import Cell, Chart, Document, Series, Table
from octavo.bench.report.facts_tables import facts_section
from octavo.bench.report.marks import colour
from octavo.bench.report.numbers import number_columns, text
from octavo.bench.report.summary import is_warning
from octavo.bench.report.thin import thinned

MOST_ROWS = 200
"""Of the table of data behind a chart; report.json has all."""
_FEW_BARS = 6
"""Two charts with no more than these stand beside each other."""


def html(document: Document) -> str:
    """The page. All text of the document is escaped."""
    shown = [*document.sections, facts_section(document.facts)] if document.facts else list(document.sections)
    ranges = _ranges([chart for section in shown for chart in section.charts])
    numbers = itertools.count()
    sections = [
        {
            "heading": section.heading,
            "text": _sentences(section.text),
            "tables": [_table(table) for table in section.tables],
            "charts": [_chart(chart, next(numbers), ranges.get(chart.group)) for chart in section.charts],
        }
        for section in shown
    ]
    template = _environment().get_template("report.html.j2")
    return template.render(
        title=document.title, summary=_sentences(document.summary), sections=sections, style=_style(), script=_asset("report.js")
    )


def _sentences(paragraphs: Sequence[str]) -> list[tuple[str, bool]]:
    """Each, and whether it is a warning."""
    return [(paragraph, is_warning(paragraph)) for paragraph in paragraphs]


@functools.cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("octavo.bench.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )


def _asset(name: str) -> Markup:
    """A file of ours, to be put into the page as it is."""
    return Markup((resources.files("octavo.bench.report") / "templates" / name).read_text(encoding="utf-8"))


def _style() -> Markup:
    light, dark = palette.variables("light"), palette.variables("dark")
    return Markup(
        f":root {{ color-scheme: light; {light} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root:not([data-theme=light]) {{ color-scheme: dark; {dark} }} }}\n"
        f":root[data-theme=dark] {{ color-scheme: dark; {dark} }}\n"
        f"@media print {{ :root:root:root {{ color-scheme: light; {light} }} }}\n"
        f"{palette.css()}\n{_asset('report.css')}"
    )


def _ranges(charts: Sequence[Chart]) -> dict[str, tuple[float, float] | None]:
    """By group, the x range of all its charts."""
    groups: dict[str, list[Chart]] = defaultdict(list)
    for chart in charts:
        if chart.group and chart.kind != "bars":
            groups[chart.group].append(chart)
    return {name: group_range(found) for name, found in groups.items()}


def _table(table: Table) -> Mapping[str, Any]:
    """Cells as text, and which columns are of numbers: these stand to the right."""
    numbers = number_columns(table)
    rows = [list(zip(map(text, row), numbers, strict=True)) for row in table.rows]
    return {"title": table.title, "note": table.note, "columns": list(zip(table.columns, numbers, strict=True)), "rows": rows}


def _chart(chart: Chart, number: int, x_range: tuple[float, float] | None) -> Mapping[str, Any]:
    drawings = {"wide": draw(chart, WIDE, x_range), "narrow": draw(chart, NARROW, x_range)}
    said = describe(chart)
    return {
        "id": f"chart-{number}",
        "title": chart.title,
        "note": chart.note,
        "small": chart.kind == "bars" and len(chart.categories) * len(chart.series) <= _FEW_BARS,
        "group": chart.group,
        "legend": [(series.name, colour(i, series), Markup(marks.key(i, series, chart.kind))) for i, series in enumerate(chart.series)]
        if len(chart.series) > 1
        else [],
        "svgs": [Markup(svg(drawing, chart.title, said, class_=f"chart {name}")) for name, drawing in drawings.items()],
        "data": {
            "kind": chart.kind,
            "x": chart.x_label,
            "categories": list(chart.categories),
            "series": [_points(thinned(series), colour(i, series)) for i, series in enumerate(chart.series)],
            "plots": [drawing.plot for drawing in drawings.values()],
        },
        "table": _table(data_table(chart)),
    }


def _points(series: Series, name: str) -> Mapping[str, Any]:
    """A series for the script: five digits are more than a picture shows."""
    y = [None if value is None or not math.isfinite(value) else _short(value) for value in series.y]
    labels = {} if series.labels is None else {"labels": list(series.labels)}
    return {"name": series.name, "class": name, "x": [_short(value) for value in series.x], "y": y, **labels}


def _short(value: float) -> float:
    return float(f"{value:.6g}")


def data_table(chart: Chart, most: int = MOST_ROWS) -> Table:
    """The numbers behind a chart: a column a series where all have the same x, else a row a point."""
    first = chart.x_label or "category"
    together = all(list(series.x) == list(chart.series[0].x) for series in chart.series)
    if chart.series and together:
        columns = [first, *(series.name for series in chart.series)]
        named: Sequence[Cell] = chart.categories or chart.series[0].x
        rows: list[list[Cell]] = [[x, *(series.y[i] for series in chart.series)] for i, x in enumerate(named[: len(chart.series[0].y)])]
    else:
        columns = ["series", first, chart.y_label]
        rows = [[series.name, x, y] for series in chart.series for x, y in zip(series.x, series.y, strict=True)]
    if len(rows) <= most:
        return Table(columns=columns, rows=rows)
    chosen = [rows[i * len(rows) // most] for i in range(most)]
    return Table(columns=columns, rows=chosen, note=f"{most} of {len(rows):,} rows, evenly chosen; report.json has all.")
