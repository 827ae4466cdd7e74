"""What a chart is drawn with: lines, steps, bands and points, each as SVG markup of few bytes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from octavo.bench.report.document import Series
from octavo.bench.report.palette import DASHES, SHAPES
from octavo.bench.report.scales import Scale

COLOURS = 8
_TRIANGLE = "m0 -4l3.8 6.6h-7.6z"
_DIAMOND = "m0 -4l4 4l-4 4l-4 -4z"


def tag(name: str, content: str = "", /, **attributes: str | float | None) -> str:
    """An element. ``content`` is markup; attributes are escaped, and None leaves one out. In a name ``_`` stands for ``-``."""
    given = "".join(f' {key.rstrip("_").replace("_", "-")}="{_attribute(value)}"' for key, value in attributes.items() if value is not None)
    return f"<{name}{given}>{content}</{name}>" if content else f"<{name}{given}/>"


def words(content: str, x: float, y: float, **attributes: str | float | None) -> str:
    """A text element; ``content`` is escaped."""
    return tag("text", escape(content), x=x, y=y, **attributes)


def _attribute(value: str | float) -> str:
    return escape(value) if isinstance(value, str) else place(value)


def place(value: float) -> str:
    """A coordinate, to a tenth of a pixel."""
    shown = f"{value:.1f}".removesuffix(".0")
    return "0" if shown == "-0" else shown


def colour(index: int, series: Series) -> str:
    """The class that gives the ``index``-th series its colour."""
    return "rest" if series.quiet else f"s{index % COLOURS}"


def runs(series: Series) -> Iterator[list[int]]:
    """Indices of points between gaps (y None or not finite), each run at least one long."""
    run: list[int] = []
    for i, y in enumerate(series.y):
        if y is not None and math.isfinite(y) and math.isfinite(series.x[i]):
            run.append(i)
        elif run:
            yield run
            run = []
    if run:
        yield run


def line(index: int, series: Series, x: Scale, y: Scale, steps: bool, many: bool) -> str:
    """A line through the points, or steps that hold each y until the next x; behind it the band of low and high."""
    parts, bands = [], []
    for run in runs(series):
        points = [(x.place(series.x[i]), y.place(series.y[i] or 0.0)) for i in run]
        parts.append(_path(points, steps) if len(points) > 1 else f"M{place(points[0][0])} {place(points[0][1])}h.1")
        if series.low is not None and series.high is not None:
            above = [(x.place(series.x[i]), y.place(series.high[i])) for i in run]
            below = [(x.place(series.x[i]), y.place(series.low[i])) for i in reversed(run)]
            bands.append(_path(above, False) + _path(below, False).replace("M", "L", 1) + "z")
    dash = DASHES[index % len(DASHES)] if many and not series.quiet else ""
    band = tag("path", d="".join(bands), class_="band") if bands else ""
    return band + tag("path", d="".join(parts), class_="line", stroke_dasharray=dash or None)


def _path(points: Sequence[tuple[float, float]], steps: bool) -> str:
    (x, y), *rest = points
    parts = [f"M{place(x)} {place(y)}"]
    parts += [f"H{place(x)}V{place(y)}" if steps else f"L{place(x)} {place(y)}" for x, y in rest]
    return "".join(parts)


def key(index: int, series: Series, kind: str) -> str:
    """A legend's sample of a series, 26 by 10: its colour, and its dashes or its shape."""
    if kind == "bars":
        return tag("rect", x=6.0, y=0.0, width=14.0, height=10.0, rx=2.0, class_="bar")
    sample = Series(
        name="", x=[13.0] if kind == "scatter" else [0.0, 26.0], y=[5.0] if kind == "scatter" else [5.0, 5.0], quiet=series.quiet
    )
    same = Scale(0, 26, 0, 26)
    return points(index, sample, same, same) if kind == "scatter" else line(index, sample, same, same, steps=False, many=True)


def points(index: int, series: Series, x: Scale, y: Scale) -> str:
    """A mark a point, of the series' own shape, all in one path; upright lines from low to high."""
    at = [(i, x.place(series.x[i]), y.place(series.y[i] or 0.0)) for run in runs(series) for i in run]
    name, mark = (("round", "h0"), ("square", "h.01"), ("shape", _TRIANGLE), ("shape", _DIAMOND))[index % SHAPES]
    bars = ""
    if series.low is not None and series.high is not None:
        low, high = series.low, series.high
        bars = tag("path", d="".join(f"M{place(px)} {place(y.place(low[i]))}V{place(y.place(high[i]))}" for i, px, _ in at), class_="error")
    return bars + tag("path", d="".join(f"M{place(px)} {place(py)}{mark}" for _, px, py in at), class_=name)
