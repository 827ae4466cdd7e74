"""The report of ``octavo bench serve``: what came out in sentences, tables and charts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from octavo.bench.load.records import LoadRun
from octavo.bench.report.document import Cell, Document, Section, Table
from octavo.bench.report.numbers import text
from octavo.bench.report.serve_charts import latency_charts, time_charts
from octavo.bench.report.summary import warning

Result = Mapping[str, Any]
"""Of octavo.bench.report.outputs.ServeOutput, as plain data."""

METRICS = {"ttft_ms": "TTFT", "itl_ms": "ITL", "tpot_ms": "TPOT", "e2e_ms": "end to end"}
_STATISTICS = ("p50", "p90", "p95", "p99", "max", "mean")


def serve_document(run: LoadRun, result: Result, *, title: str, facts: Mapping[str, Any], sections: Sequence[Section] = ()) -> Document:
    """``sections``: of the server's side, after those of the client's."""
    return Document(
        benchmark="serve",
        title=title,
        summary=[*map(warning, result["warnings"]), *serve_sentences(result)],
        sections=[
            Section(heading="Latency", text=[_HOW_LATENCY], tables=latency_tables(result), charts=latency_charts(run, result)),
            Section(heading="Throughput", tables=[throughput_table(result)]),
            Section(heading="Over time", text=[_HOW_TIME], charts=time_charts(run, result)),
            *_failures(result),
            *_groups(result),
            *sections,
        ],
        result=dict(result),
        facts=dict(facts),
    )


_HOW_LATENCY = (
    "Milliseconds. TTFT and end to end count from the scheduled send, so what a request waited in the client is part of them. ITL is per "
    "token: of k tokens in one chunk, k - 1 came 0 ms after the one before. Completed requests only."
)
_HOW_TIME = "Seconds since the start, on one clock. A request's point stands at its scheduled send."


def serve_sentences(result: Result) -> list[str]:
    """What came out, in a few plain sentences."""
    offered = f" at {text(result['offered_rate'])} a second" if result["offered_rate"] else ""
    loop = "open loop" if result["open_loop"] else "closed loop"
    failed = f"{result['failed']:,} failed" if result["failed"] else "none failed"
    said = [
        f"{result['requests']:,} requests were offered{offered} ({loop}): "
        f"{result['completed']:,} completed, {failed}, in {text(result['window_s'])} s."
    ]
    latencies = [_latency_words(name, result[key]) for key, name in METRICS.items() if key in ("ttft_ms", "itl_ms") and result[key]]
    said.append("; ".join([*latencies, f"{text(float(result['output_tok_s']))} output tokens a second"]) + ".")
    if result["goodput_rps"] is not None:
        slos = ", ".join(each["slo"] for each in result["slos"])
        share = f"{text(100 * result['slo_attainment'])} % of the requests"
        said.append(f"Under {slos}: {share} kept every SLO, a goodput of {text(result['goodput_rps'])} requests a second.")
    return said + _cost_words(result.get("cost"))


def _latency_words(name: str, values: Mapping[str, Any]) -> str:
    interval = values["p99_ci95"]
    confidence = f" (95 % confidence {text(interval[0])} to {text(interval[1])})" if interval else ""
    return f"{name} p50 {text(values['p50'])} ms, p99 {text(values['p99'])} ms{confidence}"


def _cost_words(cost: Mapping[str, Any] | None) -> list[str]:
    if not cost or cost["per_million_output_tokens"] is None:
        return []
    said = f"At {text(cost['price_per_hour'])} a machine-hour, a million output tokens cost {text(cost['per_million_output_tokens'])}"
    kept = cost["per_million_output_tokens_at_goodput"]
    return [said + (f", and {text(kept)} if only requests that kept every SLO count." if kept is not None else ".")]


def latency_tables(result: Result) -> list[Table]:
    """The statistics, and each SLO."""
    rows: list[list[Cell]] = [latency_row(name, result[key]) for key, name in METRICS.items()]
    waited = result["client"]["queueing_ms"]
    if waited is not None:
        rows.append(latency_row("… in the client", waited))
        rows.append(latency_row("TTFT from the send", result["client"]["ttft_from_send_ms"]))
    columns = ["ms", *_STATISTICS, "p99, 95 % confidence", "samples"]
    few = any(result[key] and result[key]["few"] for key in METRICS)
    note = "Fewer than 100 requests, or fewer than 100 that are independent of each other: p99 is all but the maximum." if few else ""
    return [Table(columns=columns, rows=rows, note=note), *_slo_table(result)]


def latency_row(name: str, values: Mapping[str, Any] | None) -> list[Cell]:
    """A row of the latency table; dashes where nothing completed."""
    if values is None:
        return [name, *[None] * (len(_STATISTICS) + 2)]
    interval = values["p99_ci95"]
    return [name, *(values[each] for each in _STATISTICS), _between(interval), values["samples"]]


def _between(interval: Sequence[float] | None) -> str:
    return f"{text(interval[0])} – {text(interval[1])}" if interval else "–"


def _slo_table(result: Result) -> list[Table]:
    rows: list[list[Cell]] = [
        [
            each["slo"],
            100 * each["attainment"],
            math.inf if each["pooled_ms"] is None else each["pooled_ms"],
            "inside" if each["pooled_inside"] else "outside",
        ]
        for each in result["slos"]
    ]
    if not rows:
        return []
    note = (
        "Left: requests that kept it, each for itself, of all that were offered. Right: the statistic over all requests or gaps together."
    )
    return [Table(title="SLOs", columns=["SLO", "kept by, %", "over all, ms", ""], rows=rows, note=note)]


def throughput_table(result: Result) -> Table:
    """Rates and counts; cost and energy where they are there."""
    rows: list[list[Cell]] = [
        ["requests offered", result["requests"]],
        ["completed", result["completed"]],
        ["failed", result["failed"]],
        ["offered requests / s", result["offered_rate"]],
        ["completed requests / s", result["completed_rate"]],
        ["goodput, requests / s", result["goodput_rps"]],
        ["output tokens / s", result["output_tok_s"]],
        ["prompt and output tokens / s", result["total_tok_s"]],
        ["output tokens", result["output_tokens"]],
        ["prompt tokens", result["prompt_tokens"]],
        ["… found in the prefix cache", result["cached_prompt_tokens"]],
        ["most in flight", result["client"]["peak_in_flight"]],
        ["window, s", result["window_s"]],
        ["client, share of a core", result["client"]["cpu_share"]],
        ["client, late in sending, p99 ms", result["client"]["send_lag_p99_ms"]],
        ["client, late by its heartbeat, p99 ms", result["client"]["loop_lag_p99_ms"]],
    ]
    rows += _cost_rows(result.get("cost")) + _energy_rows(result.get("energy"))
    note = "Rates are means over the window, from time 0 to the end of the last request."
    if (energy := result.get("energy")) and energy["joules"] is None:
        note += f" No joules: {energy['why']}."
    return Table(columns=["", "value"], rows=[row for row in rows if row[1] is not None], note=note)


def _cost_rows(cost: Mapping[str, Any] | None) -> list[list[Cell]]:
    names = {
        "per_million_output_tokens": "cost of a million output tokens",
        "per_million_total_tokens": "… of a million prompt and output tokens",
        "per_million_output_tokens_at_goodput": "… of a million output tokens that kept every SLO",
    }
    return [[name, cost[key]] for key, name in names.items()] if cost else []


def _energy_rows(energy: Mapping[str, Any] | None) -> list[list[Cell]]:
    if not energy or energy["joules"] is None:
        return []
    return [["joules", energy["joules"]], ["watts", energy["watts"]], ["joules an output token", energy["joules_per_output_token"]]]


def _failures(result: Result) -> list[Section]:
    rows: list[list[Cell]] = [[each["kind"], each["status"], each["count"], each["message"][:300]] for each in result["failures"]]
    if not rows:
        return []
    return [
        Section(heading="Requests that did not complete", tables=[Table(columns=["kind", "HTTP status", "requests", "said"], rows=rows)])
    ]


def _groups(result: Result) -> list[Section]:
    tables = [_group_table(name, result[key]) for key, name in (("by_kind", "kind"), ("by_tenant", "tenant")) if result[key]]
    return [Section(heading="By kind and tenant", tables=tables)] if tables else []


def _group_table(name: str, groups: Mapping[str, Mapping[str, Any]]) -> Table:
    columns = [
        name,
        "requests",
        "completed",
        "TTFT p50",
        "TTFT p99",
        "ITL p50",
        "ITL p99",
        "e2e p50",
        "output tok/s",
        "cached tokens",
        "kept SLOs, %",
    ]
    rows: list[list[Cell]] = []
    for key, group in groups.items():
        latencies = [group[metric] and group[metric][each] for metric in ("ttft_ms", "itl_ms") for each in ("p50", "p99")]
        end = group["e2e_ms"] and group["e2e_ms"]["p50"]
        kept = None if group["slo_attainment"] is None else 100 * group["slo_attainment"]
        rows.append(
            [key, group["requests"], group["completed"], *latencies, end, group["output_tok_s"], group["cached_prompt_tokens"], kept]
        )
    return Table(title=f"By {name}", columns=columns, rows=rows, note="Latencies in ms.")
