"""What all kinds of chart share: size, margins, grid, names of the axes, limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from octavo.bench.report import marks
from octavo.bench.report.document import Limit, Series
from octavo.bench.report.marks import tag, words
from octavo.bench.report.scales import Scale

WIDE, NARROW = 860, 420
"""Widths, in pixels, at which each chart of a page is drawn."""
LEFT, RIGHT, TOP, BOTTOM = 64, 18, 28, 44
LETTER = 7.2
"""About the width of one at 13 px."""
FAR = 2.5
"""A limit more than this many times beyond the data does not stretch the axis: it is named at the edge."""


@dataclass(frozen=True)
class Drawing:
    """A chart at one size."""

    body: str
    """Markup inside <svg>."""
    width: int
    height: int
    plot: dict[str, Any]
    """For the script: ``box`` of the plot (left, top, right, bottom), ``x``, ``y`` as [low, high, log]; ``across``: of bars."""


def near(limits: Sequence[Limit], values: Sequence[float]) -> list[float]:
    """Values of limits that the axis should reach."""
    most = max(values, default=0.0)
    return [limit.value for limit in limits if limit.value <= FAR * most or not values]


def some_width(domain: tuple[float, float]) -> tuple[float, float]:
    low, high = domain
    return (low, high) if high > low else (low, low + (abs(low) or 1.0))


def grid(scale: Scale, horizontal: bool, span: tuple[float, float]) -> str:
    """Lines across the plot and the numbers beside them; the axis itself a little stronger."""
    count = max(2, round(abs(scale.end - scale.start) / (48 if horizontal else 96)))
    parts, d = [], []
    for value, label in scale.ticks(count):
        at = scale.place(value)
        d.append(
            f"M{marks.place(span[0])} {marks.place(at)}H{marks.place(span[1])}"
            if horizontal
            else f"M{marks.place(at)} {marks.place(span[0])}V{marks.place(span[1])}"
        )
        x, y = (span[0] - 8, at + 4.5) if horizontal else (at, span[1] + 18)
        parts.append(words(label, x, y, text_anchor="end" if horizontal else "middle", class_="label"))
    lines = tag("path", d="".join(d), class_="grid")
    at = scale.start if horizontal else span[1]
    return (
        lines
        + (tag("path", d=f"M{marks.place(span[0])} {marks.place(at)}H{marks.place(span[1])}", class_="axis") if horizontal else "")
        + "".join(parts)
    )


def group(index: int, series: Series, content: str) -> str:
    return tag("g", content or " ", class_=marks.colour(index, series), data_series=float(index))


def axis_names(x_label: str, y_label: str, width: int, height: int) -> str:
    """The y axis' name stands above it, the x axis' below at its end: both can be read without turning the head."""
    parts = [words(y_label, 0, 14, class_="label")] if y_label else []
    if x_label:
        parts.append(words(x_label, width - RIGHT, height - 6, text_anchor="end", class_="label"))
    return "".join(parts)


def limit(each: Limit, x: Scale, y: Scale, row: int = 0) -> str:
    """A dashed line with its name; beyond the axis, an arrow and the name at its end. ``row``: of the name, where several stand on top."""
    return _across(each, x, y) if each.axis == "y" else _upright(each, x, y, row)


def _across(each: Limit, x: Scale, y: Scale) -> str:
    if not y.low <= each.value <= y.high:
        arrow, at = ("↑", y.end - 6) if each.value > y.high else ("↓", y.start - 6)
        return words(f"{arrow} {each.label}", x.end, at, text_anchor="end", class_="limit-label")
    at = y.place(each.value)
    line = tag("path", d=f"M{marks.place(x.start)} {marks.place(at)}H{marks.place(x.end)}", class_="limit")
    return line + words(each.label, x.end - 2, at - 5 if at > y.end + 14 else at + 15, text_anchor="end", class_="limit-label")


def _upright(each: Limit, x: Scale, y: Scale, row: int) -> str:
    if not x.low <= each.value <= x.high:
        named = f"{each.label} →" if each.value > x.high else f"← {each.label}"
        return words(named, x.end, y.end - 6, text_anchor="end", class_="limit-label")
    at, top = x.place(each.value), min(y.start, y.end)
    line = tag("path", d=f"M{marks.place(at)} {marks.place(y.start)}V{marks.place(y.end)}", class_="limit")
    after = at + LETTER * len(each.label) < x.end
    return line + words(
        each.label, at + (5 if after else -5), top + 12 + 15 * row, text_anchor="start" if after else "end", class_="limit-label"
    )
