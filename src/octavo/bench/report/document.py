"""A report before it is drawn: sections of text, tables and charts, and the result as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Cell = str | bool | int | float | None
"""Numbers are shown with the digits that matter, None as a dash, a bool as yes or no."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows under headers; text to the left, numbers to the right."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    title: str = ""
    note: str = ""
    detail: bool = False
    """Not worth its room at a terminal."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """Points of one name. ``low`` and ``high``, where given, bound each y."""

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    labels: Sequence[str] | None = None
    """Said of each point when it is hovered."""
    quiet: bool = False
    """Drawn in grey: what is left over."""


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A line across a chart, such as an SLO."""

    value: float
    label: str
    axis: Literal["x", "y"] = "y"


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One picture.

    ``steps``: each y holds until the next x. ``bars``: x counts categories, which ``categories`` names; ``stacked`` bars add up.
    """

    title: str
    kind: Literal["line", "steps", "scatter", "bars"]
    x_label: str
    y_label: str
    series: Sequence[Series]
    categories: Sequence[str] = ()
    stacked: bool = False
    x_log: bool = False
    y_log: bool = False
    x_range: tuple[float, float] | None = None
    """By default as far as the points go."""
    y_range: tuple[float, float] | None = None
    limits: Sequence[Limit] = ()
    group: str = ""
    """Charts of one group share their x axis, and the hover line runs through all of them."""
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Section:
    heading: str
    text: Sequence[str] = ()
    """Paragraphs."""
    tables: Sequence[Table] = ()
    charts: Sequence[Chart] = ()


@dataclass(frozen=True, kw_only=True)
class Document:
    """A whole report."""

    benchmark: str
    """serve, sweep, compare, kv."""
    title: str
    summary: Sequence[str]
    """What came out, in a few plain sentences; a warning (partial, client too slow, machine not quiet) comes first."""
    sections: Sequence[Section]
    result: dict[str, Any]
    """What --output writes, there with ``facts`` in it."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What makes it checkable (octavo.bench.report.facts)."""
