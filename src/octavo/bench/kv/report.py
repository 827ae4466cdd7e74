"""The report of ``octavo bench kv``, from its result alone: what a file holds can be drawn again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from octavo.bench.kv.plan import BLOCK_SIZE
from octavo.bench.kv.result import figures, notes, run_name, title
from octavo.bench.report.document import Cell, Chart, Document, Section, Series, Table

Result = Mapping[str, Any]


def kv_document(result: dict[str, Any], facts: Mapping[str, Any] | None = None) -> Document:
    """``facts``: see octavo.bench.report.facts."""
    charts = [slots_chart(result), efficiency_chart(result), *fragmentation_charts(result), *service_charts(result)]
    return Document(
        benchmark="kv",
        title=title(result),
        summary=sorted(notes(result), key=lambda note: not note.startswith("WARNING")),
        sections=[
            Section(heading="Policies", tables=[figures(result)], charts=charts),
            Section(heading="How it was measured", tables=[_settings(result), _windows(result)]),
        ],
        result=result,
        facts=dict(facts or {}),
    )


def slots_chart(result: Result) -> Chart:
    """Where the pool's slots are."""
    shares: dict[str, list[float]] = {name: [] for name in ("live", "tail", "reserved", "stale", "cached", "external", "free")}
    for run, window in zip(result["runs"], result["meta"]["windows"], strict=True):
        external = run["waste"]["external"]
        parts = {**run["waste"], "live": run["live_of_total"], "cached": window["cached"], "free": max(window["free"] - external, 0.0)}
        for name, values in shares.items():
            values.append(100 * parts[name])
    shown = {name: values for name, values in shares.items() if name != "stale" or any(values)}  # there may be no sliding windows
    return Chart(
        title="Where the pool's slots are, on average",
        kind="bars",
        stacked=True,
        x_label="",
        y_label="share of the pool's slots, %",
        y_range=(0, 100),
        categories=_names(result),
        series=[Series(name=name, x=range(len(values)), y=values, quiet=name == "free") for name, values in shown.items()],
        note="Live slots hold a token that a running request attends to; tail, reserved and stale slots are held and hold none; cached "
        "ones are kept for later requests only, and go when room is needed; external is what is free, but not in one run as long as the "
        "request that waits for it.",
    )


def efficiency_chart(result: Result) -> Chart:
    """Of what is held, and of the whole pool, what holds tokens."""
    return Chart(
        title="How much of the memory holds tokens",
        kind="bars",
        x_label="",
        y_label="%",
        y_range=(0, 100),
        categories=_names(result),
        series=[_percent(result, "kv_efficiency", "efficiency: live / held"), _percent(result, "live_of_total", "live / total")],
        note="Efficiency is of what requests hold; live / total, of the whole pool, is the measure of the PagedAttention paper.",
    )


def fragmentation_charts(result: Result) -> list[Chart]:
    """Over time, of the runs with blocks of one size; none for a result that was written without it."""
    windows = [window for window in result["meta"]["windows"] if "fragmentation_over_time" in window]
    chosen = [window for window in windows if window["block_size"] == BLOCK_SIZE] or windows
    series = [
        Series(
            name=window["policy"],
            x=window["fragmentation_over_time"]["seconds"],
            y=[100 * share for share in window["fragmentation_over_time"]["fragmentation"]],
        )
        for window in chosen
        if any(window["fragmentation_over_time"]["fragmentation"])
    ]
    if not windows:
        return []
    return [
        Chart(
            title="How scattered the free slots are, over time",
            kind="line",
            x_label="seconds since the start",
            y_label="fragmentation, %: 1 − largest free run / free",
            y_range=(0, 100),
            series=series,
            note="For a request that needs one run of slots. It is 0 under every policy that is not drawn: any block will do there.",
        )
    ]


def service_charts(result: Result) -> list[Chart]:
    """What it comes to."""
    measures = {"concurrent": "requests running", "output_tok_s": "output tokens a second"}
    return [
        Chart(
            title=name.capitalize(),
            kind="bars",
            x_label="",
            y_label=name,
            categories=_names(result),
            series=[Series(name=name, x=range(len(result["runs"])), y=[run[key] for run in result["runs"]])],
        )
        for key, name in measures.items()
    ]


def _names(result: Result) -> list[str]:
    return [run_name(run) for run in result["runs"]]


def _percent(result: Result, key: str, name: str) -> Series:
    return Series(name=name, x=range(len(result["runs"])), y=[100 * run[key] for run in result["runs"]])


def _settings(result: Result) -> Table:
    meta = result["meta"]
    workload = meta["workload"]
    rows: list[list[Cell]] = [
        ["workload", f"{workload['name']}: {workload['description']}; {workload['num_requests']} requests, seed {workload['seed']}"],
        ["pool", f"{meta['pool_tokens']:,} tokens, {meta['pool_bytes'] / 1e6:,.0f} MB; requests of up to {meta['max_model_len']:,} tokens"],
        ["model", f"{meta['model']}, KV in {meta['kv_cache_dtype'] or 'no storage'}, numerics_id {meta['numerics_id'][:16]}"],
        ["machine", ", ".join(f"{name} {value}" for name, value in meta["machine"].items() if value)],
    ]
    return Table(columns=["", "setting"], rows=rows, detail=True)


def _windows(result: Result) -> Table:
    columns = ["policy, block", "from, s", "to, s", "steps", "requests ended", "mean length", "efficiency while steps run, %"]
    rows: list[list[Cell]] = [
        [
            run_name(window),
            window["from_s"],
            window["to_s"],
            window["steps"],
            window["ended"],
            window["mean_length"],
            100 * window["kv_efficiency_while_steps_run"],
        ]
        for window in result["meta"]["windows"]
    ]
    return Table(title="The time that counts", columns=columns, rows=rows, detail=True)
