"""The report of a load run whose every moment is known."""

from __future__ import annotations

import io

import jsonschema
import pytest
from rich.console import Console

from octavo.bench.measures.measures import measure
from octavo.bench.measures.slo import parse_slos
from octavo.bench.report.cost import cost_data
from octavo.bench.report.data import as_data
from octavo.bench.report.document import Chart, Document, Series
from octavo.bench.report.schema import stored_schema
from octavo.bench.report.serve import serve_document
from octavo.bench.report.terminal import show_document
from support.load_runs import load_run, record

RECORDS = [
    record([1.0, 1.1, 1.2], index=0, scheduled=0.5, kind="chat"),
    record([2.0, 2.5], index=1, scheduled=1.0, kind="rag", tokens_per_chunk=2),
    record([], index=2, scheduled=1.5, kind="chat", failure="refused", status=503, message="queue is full", ended=1.6, usage=None),
]


@pytest.fixture
def document() -> Document:
    run = load_run(RECORDS, seconds=2.5)
    result = measure(run, parse_slos("ttft:p99<600ms"))
    result |= {"cost": cost_data(3.6, result), "energy": {"joules": 70.0, "watts": 28.0, "joules_per_output_token": 10.0, "domains": {}}}
    result["warnings"].append("The machine was not quiet.")
    facts = {"date": "today", "software": {"octavo": "0.1.0", "git_commit": "abc"}, "model": {"sha256": "12ab"}, "seeds": {"all": 3}}
    return serve_document(run, result, title="A run", facts=facts)


def chart(document: Document, title: str) -> Chart:
    (found,) = (chart for section in document.sections for chart in section.charts if chart.title == title)
    return found


def points(series: Series) -> list[tuple[float, float | None]]:
    return [(round(x, 6), None if y is None else round(y, 6)) for x, y in zip(series.x, series.y, strict=True)]


def test_warnings_come_first_and_the_rest_in_plain_sentences(document: Document) -> None:
    warnings = [said for said in document.summary if said.startswith("WARNING: ")]
    assert list(document.summary[: len(warnings)]) == warnings
    assert warnings[-1] == "WARNING: The machine was not quiet." and "1 of 3 requests did not complete" in warnings[0]
    said = " ".join(document.summary)
    assert "3 requests were offered at 2.00 a second (open loop): 2 completed, 1 failed, in 2.50 s." in said
    assert "Under ttft:p99<600ms: 33.3 % of the requests kept every SLO, a goodput of 0.400 requests a second." in said
    assert "At 3.60 a machine-hour, a million output tokens cost 357, and 833 if only requests that kept every SLO count." in said


def test_the_share_that_took_longer_is_the_complement_of_the_distribution(document: Document) -> None:
    by_name = {series.name: points(series) for series in chart(document, "Share that took longer").series}
    assert by_name["TTFT"] == [(500, 1.0), (1000, 0.5)]
    assert by_name["ITL"] == [(100, 0.6), (100, 0.4), (500, 0.2)]  # and two gaps of 0 ms, which a log axis has not
    assert by_name["end to end"] == [(700, 1.0), (1500, 0.5)]
    (limit,) = chart(document, "Share that took longer").limits
    assert (limit.value, limit.axis, limit.label) == (600, "x", "ttft:p99<600ms")


def test_time_to_first_token_stands_at_the_scheduled_send(document: Document) -> None:
    by_name = {series.name: points(series) for series in chart(document, "Time to first token").series}
    assert by_name["chat"] == [(0.5, 500)]
    assert by_name["rag"] == [(1.0, 1000)]
    assert by_name["did not complete"] == [(1.5, 100)]


def test_in_flight_counts_each_moment(document: Document) -> None:
    (series,) = chart(document, "Requests in flight").series
    assert points(series) == [(0, 0), (0.5, 1), (1.0, 2), (1.2, 1), (1.5, 2), (1.6, 1), (2.5, 0)]


def test_tokens_by_the_second_add_up(document: Document) -> None:
    (series,) = chart(document, "Output tokens by the second").series
    assert points(series) == [(0.5, 0), (1.5, 3), (2.5, 4)]


def test_all_charts_over_time_share_one_axis(document: Document) -> None:
    (section,) = (section for section in document.sections if section.heading == "Over time")
    assert {chart.group for chart in section.charts} == {"time"} and len(section.charts) == 4


def test_tables_say_what_failed_and_each_kinds_share(document: Document) -> None:
    tables = [table for section in document.sections for table in section.tables]
    (failures,) = (table for table in tables if "HTTP status" in table.columns)
    assert failures.rows == [["refused", 503, 1, "queue is full"]]
    (kinds,) = (table for table in tables if table.title == "By kind")
    assert [row[:3] for row in kinds.rows] == [["chat", 2, 1], ["rag", 1, 1]]
    (rates,) = (table for table in tables if "Rates are means" in table.note)
    assert ["joules an output token", 10.0] in rates.rows and ["output tokens", 7] in rates.rows


def test_a_terminal_gets_the_warnings_and_the_tables(document: Document) -> None:
    out = io.StringIO()
    show_document(document, Console(file=out, width=120))
    shown = out.getvalue()
    assert shown.startswith("A run\nWARNING: ")
    assert "end to end" in shown and "queue is full" in shown and "joules" in shown
    assert "software: octavo 0.1.0, git commit abc\nmodel: sha256 12ab\nseeds: all 3\n" in shown


def test_result_and_report_validate(document: Document) -> None:
    data = as_data(document)
    jsonschema.validate(data, stored_schema("report"))
    jsonschema.validate(data["result"], stored_schema("serve"))


def test_a_run_in_which_nothing_completed_is_reported_too() -> None:
    run = load_run([record([], scheduled=0.0, failure="failed", message="connection refused", ended=0.1, usage=None)])
    document = serve_document(run, measure(run, parse_slos("itl:p99<50ms")), title="t", facts={})
    assert "0 completed, 1 failed" in " ".join(document.summary)
    assert not any(series.y and series.name == "TTFT" for series in chart(document, "Share that took longer").series)
    jsonschema.validate(as_data(document), stored_schema("report"))
