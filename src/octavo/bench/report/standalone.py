"""A chart as an SVG file of its own, for a document: title and legend in the picture, light or dark as the reader's system is."""

from __future__ import annotations

from html import escape

from octavo.bench.report import palette
from octavo.bench.report.axes import LETTER, WIDE
from octavo.bench.report.charts import describe, draw
from octavo.bench.report.document import Chart
from octavo.bench.report.marks import colour, key, tag, words

_MARGIN = 16
_LINE = 22


def standalone(chart: Chart, width: int = WIDE) -> str:
    """The text of an SVG file, ``width`` pixels wide and as high as it must be. It has a background of its own."""
    drawing = draw(chart, width)
    legend, rows = _legend(chart, width)
    top = _MARGIN + 28 + rows * _LINE
    full_width, full_height = drawing.width + 2 * _MARGIN, drawing.height + top + _MARGIN
    style = (
        f"svg {{ color-scheme: light dark; {palette.variables('light')} }}\n"
        f"@media (prefers-color-scheme: dark) {{ svg {{ {palette.variables('dark')} }} }}\n"
        f"{palette.css()}\n.page {{ fill: var(--page); }} "
        ".chart .title { font-weight: 600; font-size: 15px; }"
    )
    body = (
        tag("title", escape(chart.title))
        + tag("desc", escape(describe(chart)))
        + tag("style", style)
        + tag("rect", width=full_width, height=full_height, class_="page")
        + words(chart.title, _MARGIN, _MARGIN + 14, class_="title")
        + tag("g", legend, transform=f"translate({_MARGIN} {_MARGIN + 36})")
        + tag("g", drawing.body, transform=f"translate({_MARGIN} {top})")
    )
    box = f"0 0 {full_width} {full_height}"
    return (
        tag("svg", body, xmlns="http://www.w3.org/2000/svg", viewBox=box, width=full_width, height=full_height, class_="chart", role="img")
        + "\n"
    )


def _legend(chart: Chart, width: int) -> tuple[str, int]:
    """Names with their colours, in as many rows as they need; none for a single series."""
    if len(chart.series) < 2:
        return "", 0
    parts, x, row = [], 0.0, 0
    for i, series in enumerate(chart.series):
        needed = 34 + LETTER * len(series.name) + 18
        if x and x + needed > width:
            x, row = 0.0, row + 1
        y = row * _LINE
        parts.append(tag("g", key(i, series, chart.kind), class_=colour(i, series), transform=f"translate({x:g} {y - 9})"))
        parts.append(words(series.name, x + 34, float(y)))
        x += needed
    return "".join(parts), row + 1
