"""Charts as SVG: values where they belong, gaps left open, everything inside the picture, text escaped."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET

import pytest

from octavo.bench.report.axes import NARROW, WIDE
from octavo.bench.report.charts import describe, draw, group_range
from octavo.bench.report.document import Chart, Limit, Series
from octavo.bench.report.standalone import standalone
from support.documents import EVIL, document

CHARTS = document().sections[0].charts


def parsed(chart: Chart, width: int = WIDE) -> ET.Element:
    return ET.fromstring(f"<svg>{draw(chart, width).body}</svg>")


def line(*y: float | None, kind: str = "line", **fields: object) -> Chart:
    series = [Series(name="s", x=list(range(len(y))), y=y)]
    return Chart(title="t", kind=kind, x_label="x", y_label="y", **{"series": series, **fields})  # type: ignore[arg-type]


def path_of(chart: Chart) -> str:
    return next(each.get("d", "") for each in parsed(chart).iter("path") if each.get("class") == "line")


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: f"{chart.kind}-{len(chart.series)}-{chart.stacked}")
@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_every_kind_is_well_formed_and_within_its_size(chart: Chart, width: int) -> None:
    drawing = draw(chart, width)
    root = parsed(chart, width)
    for each in root.iter("rect"):
        x, y, w, h = (float(each.get(name, "nan")) for name in ("x", "y", "width", "height"))
        assert x >= 0 and y >= 0 and x + w <= width + 0.1 and y + h <= drawing.height + 0.1
    for each in root.iter("text"):
        assert -1 <= float(each.get("x", "nan")) <= width and 0 <= float(each.get("y", "nan")) <= drawing.height
    assert "nan" not in drawing.body and "inf" not in re.sub(r">[^<]*<", "", drawing.body)


def test_a_line_goes_through_its_points() -> None:
    plot = draw(line(0.0, 10.0, 5.0)).plot
    left, top, right, bottom = plot["box"]
    found = [tuple(map(float, pair)) for pair in re.findall(r"[ML]([\d.]+) ([\d.]+)", path_of(line(0.0, 10.0, 5.0)))]
    middle = (left + right) / 2
    assert found == [pytest.approx(p, abs=0.06) for p in ((left, bottom), (middle, top), (right, (top + bottom) / 2))]


def test_steps_hold_each_value_until_the_next() -> None:
    assert re.sub(r"[\d. ]", "", path_of(line(0.0, 1.0, 2.0, kind="steps"))) == "MHVHV"


def test_gaps_are_left_open() -> None:
    assert re.sub(r"[\d. ]", "", path_of(line(0.0, 1.0, None, 2.0, math.nan, 3.0, 4.0))) == "MLMhML"


def test_stacked_bars_stand_on_each_other() -> None:
    series = [Series(name=name, x=[0], y=[y]) for name, y in (("a", 30.0), ("b", 50.0))]
    chart = Chart(title="t", kind="bars", x_label="", y_label="%", series=series, categories=["c"], stacked=True, y_range=(0, 100))
    first, second = (each for each in parsed(chart).iter("rect"))
    assert float(first.get("height", 0)) / float(second.get("height", 0)) == pytest.approx(30 / 50, rel=0.01)
    assert float(second.get("y", 0)) + float(second.get("height", 0)) == pytest.approx(float(first.get("y", 0)), abs=0.11)


def test_bars_run_across_where_names_are_long() -> None:
    series = [Series(name="a", x=[0, 1], y=[1.0, 2.0])]
    short = Chart(title="t", kind="bars", x_label="", y_label="", series=series, categories=["a", "b"])
    long = Chart(
        title="t", kind="bars", x_label="", y_label="", series=series, categories=["llama.cpp b11434, Q4_0, chunks of 32" * 2, "b"]
    )
    assert not draw(short).plot["across"] and draw(long).plot["across"]


@pytest.mark.parametrize(("value", "shown"), [(5.0, "SLO"), (500.0, "↑ SLO")])
def test_a_limit_is_a_line_or_named_at_the_edge(value: float, shown: str) -> None:
    """One far beyond the data does not squash them."""
    chart = line(0.0, 10.0, limits=[Limit(value=value, label="SLO")])
    assert shown in [each.text for each in parsed(chart).iter("text")]
    assert draw(chart).plot["y"][1] == 10


def test_log_axes_leave_out_what_is_not_positive() -> None:
    plot = draw(line(0.0, 1.0, 1000.0, y_log=True)).plot
    assert plot["y"] == [1, 1000, True]


def test_no_data_is_said() -> None:
    for chart in (line(), line(None, None), Chart(title="t", kind="line", x_label="", y_label="", series=[])):
        assert "no data" in [each.text for each in parsed(chart).iter("text")]


def test_charts_of_a_group_share_their_axis() -> None:
    shared = group_range([line(1.0, 2.0), line(1.0, 2.0, 3.0, 4.0)])
    assert shared == (0, 3)
    assert draw(line(1.0, 2.0), WIDE, shared).plot["x"][:2] == [0, 3]


def test_a_description_says_kind_axes_extremes_and_limits() -> None:
    said = describe(line(1.0, None, 400.0, limits=[Limit(value=50, label="SLO 50 ms")]))
    assert said == "Line chart: y by x. s: 2 points from 1.00 to 400. Limit SLO 50 ms at 50."


def test_a_file_of_its_own_has_both_themes_and_a_legend() -> None:
    text = standalone(CHARTS[4])
    root = ET.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "prefers-color-scheme: dark" in text
    said = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"Stack", "p50", "p99"} <= set(said)


def test_text_is_escaped() -> None:
    for chart in CHARTS:
        assert "<b" not in standalone(chart) and "</script" not in standalone(chart)
    assert EVIL in [each.text for each in parsed(CHARTS[0]).iter("text")]
