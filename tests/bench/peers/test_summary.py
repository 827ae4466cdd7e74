"""Figures over rounds, by hand; and what the report says of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from octavo.bench.measures.slo import parse_slos
from octavo.bench.peers.description import ServerDescription
from octavo.bench.peers.document import compare_document
from octavo.bench.peers.plan import Comparison, Entrant, Load, SweepPlan
from octavo.bench.peers.result import LoadResult, PartResult, PartStore
from octavo.bench.peers.summary import columns, summarize


def server(name: str) -> ServerDescription:
    return ServerDescription(
        name=name,
        variant="",
        tested=name != "B",
        command=(name,),
        env={},
        shown_command=(name,),
        shown_env={},
        url="http://127.0.0.1:1",
        ready_url="http://127.0.0.1:1/",
        version_command=(),
        release="",
        served_model="m",
        endpoint="/v1/completions",
        prompts="tokens",
        weights="w",
        notes="n",
        startup_seconds=1,
    )


LOAD = Load(
    name="load",
    input_len=100,
    output_len=10,
    num_prompts=4,
    concurrency=1,
    rate=0,
    shows=("ttft_ms", "itl_ms", "output_tok_s", "decode_tok_s", "prefill_tok_s", "kv_efficiency"),
    expected_seconds=1,
)
SWEEP = SweepPlan(slos=parse_slos("itl:p99<50ms"), input_len=1, output_len=1, options={}, expected_seconds=1)


def comparison(rounds: int = 3) -> Comparison:
    entrants = tuple(Entrant(label=name, server=server(name), sweep_server=server(name)) for name in "AB")
    return Comparison(
        name="c", description="", model="m", tokenizer="t", seed=0, rounds=rounds, entrants=entrants, loads=(LOAD,), sweep=SWEEP
    )


def served(ttft: float, itl: float, tok_s: float) -> dict:
    def statistics(p50: float) -> dict:
        return {"p50": p50, "p99": 2 * p50, "max": 3 * p50}

    latencies = {"ttft_ms": statistics(ttft), "itl_ms": statistics(itl), "tpot_ms": statistics(itl), "e2e_ms": statistics(9 * itl)}
    counts = {"requests": 4, "completed": 4, "failed": 0, "valid": True, "output_tok_s": tok_s, "client": {"bottleneck": None}}
    return counts | latencies


def part(engine: str, number: int, ttft: float, itl: float, tok_s: float, **fields) -> PartResult:
    loads = {"load": LoadResult(result=served(ttft, itl, tok_s), kv_efficiency=fields.pop("kv_efficiency", None))}
    return PartResult(kind="round", engine=engine, round=number, digest="", started=0.0, loads=loads, **fields)


def swept(engine: str, rates: dict[float, bool]) -> PartResult:
    measures = {"ttft_ms": {"p99": 7.0}, "itl_ms": {"p99": 8.0}, "goodput_rps": 1.0}
    verdicts = [{"rate": rate, "sustained": kept, "requests": 40, "reason": "late", "measures": measures} for rate, kept in rates.items()]
    best = max((rate for rate, kept in rates.items() if kept), default=None)
    lost = min((rate for rate, kept in rates.items() if not kept), default=None)
    found = {
        "max_rate": best,
        "partial": False,
        "bracket": [best, lost],
        "verdicts": verdicts,
        "rule": ["A rule."],
        "confidence": 0.95,
        "shown_sustained": None,
        "interrupted": None,
    }
    return PartResult(kind="sweep", engine=engine, round=0, digest="", started=0.0, sweep=found, kv_efficiency=0.9 if best else None)


PARTS = [
    part("A", 1, 100, 10, 50, kv_efficiency=0.8, peak_memory=2**30, peak_memory_upper=2**31, startup_s=1.0),
    part("B", 1, 200, 40, 25),
    part("B", 2, 240, 20, 25),
    part("A", 2, 300, 20, 60, kv_efficiency=0.6, peak_memory=2**30, peak_memory_upper=2**31, startup_s=3.0),
    part("A", 3, 200, 10, 70, kv_efficiency=0.7, peak_memory=2**31, peak_memory_upper=2**31, startup_s=2.0),
    part("B", 3, 400, 20, 25, failure="its server ended"),
    swept("A", {1.0: True, 4.0: False, 2.0: True}),
    swept("B", {1.0: False, 0.5: False}),
]


def test_medians_spreads_and_ratios() -> None:
    result = summarize(comparison(), PARTS)
    a, b = result.engines
    got = {key: (figure.median, figure.low, figure.high) for key, figure in a.figures.items()}
    assert got == {
        "load/ttft_p50_ms": (200, 100, 300),
        "load/itl_p99_ms": (20, 20, 40),
        "load/itl_max_ms": (30, 30, 60),
        "load/output_tok_s": (60, 50, 70),
        "load/decode_tok_s": (100, 50, 100),
        "load/prefill_tok_s": (500, pytest.approx(333.33, abs=0.01), 1000),
        "load/kv_efficiency": (0.7, 0.6, 0.8),
        "max_qps": (2, 2, 2),
        "kv_efficiency_at_slo": (0.9, 0.9, 0.9),
        "peak_memory_mib": (1024, 1024, 2048),
        "startup_s": (2, 1, 3),
    }
    assert a.figures["load/ttft_p50_ms"].values == [100, 300, 200]  # by round, whatever the order they ran in
    assert b.figures["load/ttft_p50_ms"].ratio == 240 / 200 and b.figures["load/decode_tok_s"].ratio == 50 / 100
    assert b.figures["load/kv_efficiency"].median is None and b.figures["load/kv_efficiency"].ratio is None
    assert b.figures["max_qps"].median == 0 and b.figures["kv_efficiency_at_slo"].median is None
    assert list(got) == [column.key for column in columns(comparison())]


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
    assert list(medians.columns) == ["", "A", "B"] and len(medians.rows) == len(side.charts) == 11
    assert medians.rows[0] == ["TTFT p50, ms (load)", 200, 240]
    assert spreads.rows[0] == ["TTFT p50, ms (load)", "100 … 300", "200 … 400"]
    assert ratios.rows[0] == ["TTFT p50, ms (load)", 1, 1.2]
    assert load.tables[0].rows[0][:5] == ["A", 1, 4, 0, 50]
    assert sweep.tables[0].rows == [["A", 2.0, 4.0, None, 0.9, 120, "n"], ["B", 0.0, 0.5, None, None, 80, "n"]]
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
    store.clear()
    assert not list((tmp_path / "parts").iterdir())
