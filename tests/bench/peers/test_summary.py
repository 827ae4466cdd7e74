"""Figures over rounds, by hand; and what the report says of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from octavo.bench.peers.document import compare_document
from octavo.bench.peers.result import LoadResult, PartStore
from octavo.bench.peers.summary import columns, summarize
from octavo.bench.peers.warnings import warnings_of
from support.compared import comparison, part, served, swept

PARTS = [
    part("A", 1, 100, 10, 50, kv_efficiency=0.8, peak_memory=2**30, peak_memory_upper=2**31, startup_s=1.0),
    part("B", 1, 200, 40, 25),
    part("B", 2, 240, 20, 25),
    part("A", 2, 300, 20, 60, kv_efficiency=0.6, peak_memory=2**30, peak_memory_upper=2**31, startup_s=3.0),
    part("A", 3, 200, 10, 70, kv_efficiency=0.7, peak_memory=2**31, peak_memory_upper=2**31, startup_s=2.0),
    part("B", 3, 400, 20, 25, failure="its server ended"),
    swept("A", {1.0: True, 4.0: False, 2.0: True}, (1.0, 4.0)),
    swept("B", {1.0: False, 0.5: False}, (None, 1.0)),
]
EFFICIENCY = ["roofline_percent", "cost_per_million_output", "cost_per_million_total", "joules_per_output_token"]


def test_medians_spreads_and_ratios() -> None:
    result = summarize(comparison(), PARTS)
    a, b = result.engines
    got = {key: (figure.median, figure.low, figure.high) for key, figure in a.figures.items() if figure.median is not None}
    assert got == {
        "load/ttft_p50_ms": (200, 100, 300),
        "load/itl_p99_ms": (20, 20, 40),
        "load/itl_max_ms": (30, 30, 60),
        "load/output_tok_s": (60, 50, 70),
        "load/decode_tok_s": (100, 50, 100),
        "load/prefill_tok_s": (500, pytest.approx(333.33, abs=0.01), 1000),
        "load/kv_efficiency": (0.7, 0.6, 0.8),
        "max_qps": (2, 2, 2),
        "max_qps_shown_kept": (1, 1, 1),
        "max_qps_shown_not_kept": (4, 4, 4),
        "kv_efficiency_at_slo": (0.9, 0.9, 0.9),
        "peak_memory_mib": (1024, 1024, 2048),
        "startup_s": (2, 1, 3),
    }
    assert a.figures["load/ttft_p50_ms"].values == [100, 300, 200]  # by round, whatever the order they ran in
    assert b.figures["load/ttft_p50_ms"].ratio == 240 / 200 and b.figures["load/decode_tok_s"].ratio == 50 / 100
    assert b.figures["load/kv_efficiency"].median is None and b.figures["load/kv_efficiency"].ratio is None
    assert b.figures["max_qps"].median == 0 and b.figures["kv_efficiency_at_slo"].median is None
    assert list(a.figures) == [column.key for column in columns(comparison())]
    assert set(a.figures) - set(got) == {key for name in EFFICIENCY for key in (f"load/{name}", f"{name}_at_slo")}


def test_the_highest_rates_and_their_ratio_stand_with_what_is_shown() -> None:
    """A's truth is in 3 to 5, B's in 1 to 2: so B's is 1/5 to 2/3 of A's."""
    parts = [swept("A", {4.0: True, 5.0: False}, (3.0, 5.0)), swept("B", {1.5: True, 2.0: False}, (1.0, 2.0))]
    result = summarize(comparison(), parts)
    ratios = [result.engines[1].figures[key].ratio for key in ("max_qps", "max_qps_shown_kept", "max_qps_shown_not_kept")]
    assert ratios == [1.5 / 4, 1.0 / 5, 2.0 / 3]
    assert [result.engines[0].figures[key].ratio for key in ("max_qps", "max_qps_shown_kept")] == [1, None]
    *_, headline = compare_document(comparison(), result, {}).summary
    assert "at 95 % confidence" in headline
    assert headline.endswith("A 4.00 [3.00, 5.00]; B 1.50 [1.00, 2.00], 0.375 times [0.200, 0.667].")


def test_a_rate_that_is_not_shown_is_told_as_such() -> None:
    *_, headline = compare_document(comparison(), summarize(comparison(), PARTS), {}).summary
    assert headline.endswith("A 2.00 [1.00, 4.00]; B 0 [–, 1.00], 0 times [–, 1.00].")


def test_an_unfinished_sweep_has_no_highest_rate() -> None:
    for broken in ({"partial": True}, {"valid": False}):
        result = summarize(comparison(), [swept("A", {1.0: True}, (1.0, None), **broken)])
        figures = result.engines[0].figures
        assert figures["max_qps"].values == figures["max_qps_shown_kept"].values == figures["kv_efficiency_at_slo"].values == [None]


def test_loads_that_were_stopped_or_whose_client_was_slow_are_kept_and_not_counted() -> None:
    partial = part("A", 1, 1000, 99, 1)
    partial.loads["load"].result |= {"partial": True, "interrupted": "stopped by SIGINT"}
    invalid = part("A", 2, 3000, 99, 1)
    invalid.loads["load"].result |= {"valid": False, "client": {"bottleneck": "late by 80 ms"}}
    result = summarize(comparison(), [partial, invalid, part("A", 3, 200, 10, 70)])
    assert result.engines[0].figures["load/ttft_p50_ms"].values == [None, None, 200]
    rows = compare_document(comparison(), result, {}).sections[1].tables[0].rows
    assert [(row[5], row[-1]) for row in rows] == [(1000, "stopped early"), (3000, "client too slow"), (200, None)]
    assert warnings_of(result)[-2:] == [
        "A, load, round 2: not counted, because the client was the bottleneck (late by 80 ms).",
        "A, load, round 1: not counted, because it was stopped early (stopped by SIGINT).",
    ]


def test_what_speaks_against_a_load_is_said_once_for_all_rounds() -> None:
    parts = [part("A", number, 100, 10, 50) for number in (1, 2, 3)]
    parts[0].loads["load"].result |= {"wrong_length": 2, "cached_prompt_tokens": 7}
    parts[2].loads["load"].result |= {"wrong_length": 1, "counted": {"text": 3, "usage": 1}}
    last = swept("A", {1.0: True}, warnings=["Sustained by the estimates of 27 requests."])
    last.at_answer = LoadResult(result=served(1, 1, 1, failed=1, completed=3))
    assert warnings_of(summarize(comparison(), [*parts, last]))[2:] == [
        "A, load, round 1, 3: 3 of 8 requests had a prompt or an answer of another length than planned.",
        "A, load, round 1: 7 prompt tokens came from the server's prefix cache.",
        "A, load, round 3: of 3 answers the server did not say which tokens came when: the gaps between them are by the text.",
        "A, the highest rate at the SLO: 1 of 4 requests did not complete.",
        "A, sweep: Sustained by the estimates of 27 requests.",
    ]


def test_what_a_server_does_not_take_is_shown() -> None:
    told = part("A", 1, 100, 10, 50, notes=("It takes no min_tokens.",))
    result = summarize(comparison(1), [told])
    assert result.engines[0].client_notes == ["It takes no min_tokens."]
    assert "It takes no min_tokens." in compare_document(comparison(1), result, {}).sections[-1].tables[0].rows[0]


def test_what_is_missing_is_said_first() -> None:
    result = summarize(comparison(), PARTS[:-1])
    document = compare_document(comparison(), result, {})
    assert result.partial
    assert document.summary[:3] == [
        "WARNING: Partial: the comparison was stopped before all its parts were done.",
        "WARNING: B: its server ended",
        "WARNING: B: its description was never tried.",
    ]


def test_the_document_has_the_table_the_loads_and_the_curves() -> None:
    document = compare_document(comparison(), summarize(comparison(), PARTS), {"date": "today"})
    side, load, sweep, engines = document.sections
    medians, spreads, ratios = side.tables
    assert list(medians.columns) == ["", "A", "B"] and len(medians.rows) == len(side.charts) + 2 == 13
    assert medians.rows[7:10] == [["max QPS at the SLO", 2, 0], ["… shown to be kept", 1, None], ["… shown not to be kept", 4, 1]]
    assert medians.rows[0] == ["TTFT p50, ms (load)", 200, 240]
    assert spreads.rows[0] == ["TTFT p50, ms (load)", "100 … 300", "200 … 400"]
    assert ratios.rows[0] == ["TTFT p50, ms (load)", 1, 1.2]
    assert ratios.rows[9] == ["… at most, by what is shown", None, 1.0]
    assert not any("QPS" in row[0] for row in spreads.rows)  # of one sweep there is no spread
    assert load.tables[0].rows[0][:5] == ["A", 1, 4, 0, 50]
    assert sweep.tables[0].rows == [["A", 2.0, 4.0, 1.0, 4.0, 0.9, 120, "n"], ["B", 0.0, 0.5, None, 1.0, None, 80, "n"]]
    assert "in this order: A, B" in sweep.text[0]
    curve = sweep.charts[1]
    assert curve.series[0].x == [1.0, 2.0, 4.0] and curve.series[0].labels == ["kept", "kept", "late"]
    assert [limit.value for limit in curve.limits] == [50] and not sweep.charts[0].limits
    assert engines.tables[1].rows[0] == ["A", 1024, 2048, 2.0]
    assert document.result["engines"][0]["figures"]["max_qps"]["median"] == 2
    assert document.facts == {"date": "today"}


def test_a_part_is_found_again_only_if_it_is_the_same(tmp_path: Path) -> None:
    store = PartStore(tmp_path / "parts")
    assert store.find("round-1-a", "x") is None
    PARTS[0].digest = "x"
    store.save("round-1-a", PARTS[0])
    assert store.find("round-1-a", "x") == PARTS[0]
    assert store.find("round-1-a", "y") is None
    (tmp_path / "parts" / "round-1-a.json").write_text("{")
    assert store.find("round-1-a", "x") is None
    failed = part("A", 1, 1, 1, 1, failure="its server ended")
    store.save("round-1-a", failed)
    assert store.find("round-1-a", "") is None and store.find("round-1-a", "", finished=False) == failed
    store.clear()
    assert not list((tmp_path / "parts").iterdir())
