"""Bar charts: side by side or stacked; upright, or across where the categories' names are long."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

from octavo.bench.report import marks
from octavo.bench.report.axes import BOTTOM, LEFT, LETTER, RIGHT, TOP, WIDE, Drawing, axis_names, grid, group, limit, near, some_width
from octavo.bench.report.document import Chart, Series
from octavo.bench.report.marks import tag, words
from octavo.bench.report.numbers import NOTHING, text
from octavo.bench.report.scales import Scale, linear_domain

_MOST_LABELS = 24
"""Bars with numbers at their ends: with more there is no room."""


def draw_bars(chart: Chart, width: int) -> Drawing:
    """The chart, ``width`` pixels wide. Bars stand on 0, so that their lengths can be compared: there is no log axis."""
    names = _names(chart)
    filled = [_by_category(series, len(names)) for series in chart.series]
    longest = max(map(len, names), default=0) * LETTER
    across = bool(names) and longest + 10 > (width - LEFT - RIGHT) / len(names)
    bars = _Bars.lay_out(chart, names, filled, width, min(longest + 14, 0.45 * width) if across else None)
    x, y = (bars.value, bars.along) if across else (bars.along, bars.value)
    parts = [grid(bars.value, not across, (bars.along.start, bars.along.end))]
    parts += [bars.category(i, name) for i, name in enumerate(names)]
    parts += bars.groups(filled)
    parts += [limit(dataclasses.replace(each, axis="x" if across else "y"), x, y) for each in chart.limits if each.axis == "y"]
    below, above = (chart.y_label, chart.x_label) if across else (chart.x_label, chart.y_label)
    parts.append(axis_names(below, above, width, bars.height))
    box = [x.start, min(y.start, y.end), x.end, max(y.start, y.end)]
    plot = {"box": box, "x": [x.low, x.high, False], "y": [y.low, y.high, False], "across": across}
    return Drawing("".join(parts), width, bars.height, plot)


def _names(chart: Chart) -> list[str]:
    count = len(chart.categories) or max((len(series.y) for series in chart.series), default=0)
    return [*chart.categories, *(str(i + 1) for i in range(len(chart.categories), count))]


def _by_category(series: Series, count: int) -> Series:
    """One y for each category, None where the series has none."""
    found = {round(x): i for i, x in enumerate(series.x)}
    pick = [found.get(i) for i in range(count)]

    def bound(values: Sequence[float] | None) -> list[float] | None:
        return None if values is None else [math.nan if i is None else values[i] for i in pick]

    values = [None if i is None else series.y[i] for i in pick]
    finite = [y if y is not None and math.isfinite(y) else None for y in values]
    return dataclasses.replace(series, x=list(range(count)), y=finite, low=bound(series.low), high=bound(series.high), labels=None)


def _domain(chart: Chart, filled: Sequence[Series]) -> tuple[float, float]:
    if chart.y_range:
        return chart.y_range
    values = [y for series in filled for bound in (series.y, series.high or ()) for y in bound if y is not None and math.isfinite(y)]
    if chart.stacked:
        values = [sum(y or 0.0 for y in column) for column in zip(*(series.y for series in filled), strict=True)]
    return some_width(linear_domain([*values, *near([each for each in chart.limits if each.axis == "y"], values)]))


@dataclass(frozen=True)
class _Bars:
    """Where the bars go: categories along one axis, values on the other."""

    along: Scale
    value: Scale
    across: bool
    stacked: bool
    abreast: int
    """Bars side by side in a category."""
    labelled: bool
    height: int
    left: float

    @classmethod
    def lay_out(cls, chart: Chart, names: Sequence[str], filled: Sequence[Series], width: int, left: float | None) -> _Bars:
        """``left``: room for the categories' names of bars that run across; None for upright ones."""
        count, across = max(len(names), 1), left is not None
        abreast = 1 if chart.stacked else max(len(filled), 1)
        labelled = not chart.stacked and count * abreast <= _MOST_LABELS
        upright = 300 if width >= WIDE else 260
        top = TOP if (chart.x_label if across else chart.y_label) else 12
        height = top + BOTTOM + count * (abreast * (22 if abreast == 1 else 15) + 6) if across else upright
        margin = left if left is not None else float(LEFT)
        domain = _domain(chart, filled)
        if across:
            value = Scale(*domain, margin, width - RIGHT - (44 if labelled else 0))
            along = Scale(0, count, top, height - BOTTOM)
        else:
            value = Scale(*domain, height - BOTTOM, top + (14 if labelled else 0))
            along = Scale(0, count, margin, width - RIGHT)
        return cls(along, value, across, chart.stacked, abreast, labelled, height, margin)

    def category(self, index: int, name: str) -> str:
        at = self.along.place(index + 0.5)
        if not self.across:
            return words(name, at, self.height - BOTTOM + 18, text_anchor="middle")
        fits = int((self.left - 14) / LETTER)
        return words(name if len(name) <= fits + 2 else f"{name[: fits - 1]}…", self.left - 8, at + 4.5, text_anchor="end")

    def groups(self, filled: Sequence[Series]) -> list[str]:
        """The bars, one group of markup a series."""
        base, parts = [0.0] * int(self.along.high), []
        for index, series in enumerate(filled):
            parts.append(group(index, series, self._series(series, index, base)))
            if self.stacked:
                base = [under + (y or 0.0) for under, y in zip(base, series.y, strict=True)]
        return parts

    def _series(self, series: Series, index: int, base: Sequence[float]) -> str:
        slot = self.along.place(1) - self.along.place(0)
        thick = min(0.78 * slot, 90.0 * self.abreast) / self.abreast
        beside = 0 if self.stacked else index
        parts = []
        for i, amount in enumerate(series.y):
            if amount is None:
                parts.append("" if self.stacked else self._missing(self.along.place(i + 0.5) + (beside + 0.5 - self.abreast / 2) * thick))
                continue
            at = self.along.place(i + 0.5) + (beside - self.abreast / 2) * thick
            one, two = self.value.place(base[i]), self.value.place(base[i] + amount)
            parts.append(self._rectangle(one, two, at, thick * (0.92 if self.abreast > 1 else 1)))
            if series.low is not None and series.high is not None:
                parts.append(self._error(series.low[i], series.high[i], at + thick / 2))
            parts.append(self._label(series, i, amount, at + thick / 2, thick, (one, two)))
        return "".join(parts)

    def _rectangle(self, one: float, two: float, at: float, thick: float) -> str:
        low, length = min(one, two), abs(two - one)
        x, y, width, height = (low, at, length, thick) if self.across else (at, low, thick, length)
        return tag("rect", x=x, y=y, width=width, height=height, class_="bar")

    def _missing(self, middle: float) -> str:
        """A dash where a bar would stand."""
        x, y = (self.value.start + 6, middle + 4.5) if self.across else (middle, self.value.start - 5)
        return words(NOTHING, x, y, text_anchor="start" if self.across else "middle", class_="label")

    def _error(self, low: float, high: float, middle: float) -> str:
        if not (math.isfinite(low) and math.isfinite(high)):
            return ""
        ends, middle_ = [marks.place(self.value.place(v)) for v in (low, high)], marks.place(middle)
        d = f"M{ends[0]} {middle_}H{ends[1]}" if self.across else f"M{middle_} {ends[0]}V{ends[1]}"
        return tag("path", d=d, class_="error")

    def _label(self, series: Series, index: int, amount: float, middle: float, thick: float, span: tuple[float, float]) -> str:
        """The number at a bar's end; in a stack upon the bar, if it is large enough."""
        if self.stacked:
            if abs(span[1] - span[0]) < (32 if self.across else 18) or thick < 15:
                return ""
            half, name = (span[0] + span[1]) / 2, "rest-on" if series.quiet else "on"
            x, y = (half, middle) if self.across else (middle, half)
            return words(text(float(amount)), x, y + 4.5, text_anchor="middle", class_=name)
        if not self.labelled:
            return ""
        top = max(amount, series.high[index]) if series.high is not None and math.isfinite(series.high[index]) else amount
        end = self.value.place(top)
        return words(text(amount), end + 5, middle + 4.5) if self.across else words(text(amount), middle, end - 5, text_anchor="middle")
