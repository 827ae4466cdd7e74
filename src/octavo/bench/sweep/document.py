"""The report of ``octavo bench sweep``: the answer, the curve of rate against latency and goodput, and each verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from octavo.bench.measures.result import Statistics
from octavo.bench.measures.slo import Slo
from octavo.bench.report.document import Cell, Chart, Document, Limit, Section, Series, Table
from octavo.bench.report.numbers import text
from octavo.bench.report.summary import warning
from octavo.bench.sweep.result import SweepResult, Verdict
from octavo.bench.sweep.verdict import said

_HOW = (
    "One point a rate that was tried. A rate whose run was stopped early, or that was run in overload, has latencies that would have grown "
    "further: the longer the run, the worse."
)


def sweep_document(
    result: SweepResult,
    data: Mapping[str, Any],
    slos: Sequence[Slo],
    *,
    title: str,
    facts: Mapping[str, Any],
    sections: Sequence[Section] = (),
) -> Document:
    """``data``: the result as it is written, with what stands beside it there."""
    curve = sorted(result.verdicts, key=lambda verdict: verdict.rate)
    return Document(
        benchmark="sweep",
        title=title,
        summary=[*map(warning, data["warnings"]), *sweep_sentences(result, data)],
        sections=[
            *(_curve_sections(curve, slos, _marks(result)) if curve else []),
            Section(heading="When a rate counts as sustained", text=result.rule),
            *sections,
        ],
        result=dict(data),
        facts=dict(facts),
    )


def _marks(result: SweepResult) -> list[Limit]:
    """The answer, and the ends of the interval it is shown to lie in."""
    named = {"highest sustained": result.max_rate, "shown kept": result.shown_sustained, "shown not kept": result.shown_not_sustained}
    marks: dict[float, str] = {}
    for label, rate in named.items():
        if rate is not None:
            marks[rate] = f"{marks[rate]}, {label}" if rate in marks else label
    return [Limit(value=rate, label=label, axis="x") for rate, label in marks.items()]


def _curve_sections(curve: Sequence[Verdict], slos: Sequence[Slo], marks: Sequence[Limit]) -> list[Section]:
    return [
        Section(heading="Rate against latency and goodput", text=[_HOW], charts=sweep_charts(curve, slos, marks)),
        Section(heading="Verdicts", tables=[verdict_table(curve), conditions_table(curve)]),
    ]


def sweep_sentences(result: SweepResult, data: Mapping[str, Any]) -> list[str]:
    """The answer and the interval it is shown to lie in, in a few plain sentences."""
    if result.max_rate is None:
        return [f"No rate is known to keep {result.slo}. {_interval(result)}"]
    above = result.bracket[1]
    upper = f"; {text(above)} was not sustained" if above is not None else "; no rate that was tried failed"
    how = "by requests of its own" if result.confirmed else "in the search alone"
    answer = f"{text(result.max_rate)} requests a second is the highest Poisson rate that keeps {result.slo}"
    lines = [f"{answer}. {_interval(result)}", f"{text(result.max_rate)} was sustained {how}{upper}."]
    at = next(verdict for verdict in result.verdicts if verdict.rate == result.max_rate)
    if (goodput := at.measures.goodput_rps) is not None:
        lines.append(f"There, goodput was {text(goodput)} requests a second and output {text(at.measures.output_tok_s)} tokens a second.")
    server = data.get("server") or {}
    if server.get("kv_efficiency") is not None:
        lines.append(f"KV efficiency at that rate was {text(server['kv_efficiency'])} (live / held, the mean over the run).")
    return lines


def _interval(result: SweepResult) -> str:
    """What is shown, and not only estimated."""
    kept, lost = result.shown_sustained, result.shown_not_sustained
    takes = f"that takes {result.plan.needed} independent requests of which none misses"
    low = f"{text(kept)} is shown to be kept" if kept is not None else f"no rate is shown to be kept ({takes})"
    high = f"{text(lost)} is shown not to be" if lost is not None else "none is shown not to be"
    return f"At {100 * result.confidence:g} % confidence, {low}, and {high}."


def sweep_charts(curve: Sequence[Verdict], slos: Sequence[Slo], marks: Sequence[Limit]) -> list[Chart]:
    """TTFT, ITL and goodput over the rates."""
    rates = [verdict.rate for verdict in curve]
    labels = [f"{verdict.rate:g}/s: {'sustained' if verdict.sustained else 'not sustained'}" for verdict in curve]

    def latency(metric: str, name: str) -> Chart:
        limits = [Limit(value=1000 * slo.limit, label=f"SLO {slo.statistic}") for slo in slos if slo.metric == metric]
        series = [
            Series(name="p50", x=rates, y=_values(curve, metric, lambda stats: stats.p50), labels=labels),
            Series(name="p99", x=rates, y=_values(curve, metric, lambda stats: stats.p99), labels=labels),
        ]
        return Chart(
            title=f"{name} by rate",
            kind="line",
            x_label="requests a second",
            y_label="ms",
            series=series,
            x_log=True,
            y_log=True,
            limits=[*marks, *limits],
            group="rate",
        )

    offered = Series(name="offered", x=rates, y=rates)
    goodput = Series(name="goodput", x=rates, y=[verdict.measures.goodput_rps for verdict in curve], labels=labels)
    done = Series(name="completed", x=rates, y=[verdict.measures.completed_rate for verdict in curve])
    rate_chart = Chart(
        title="Goodput by rate",
        kind="line",
        x_label="requests a second",
        y_label="requests a second",
        series=[offered, done, goodput],
        x_log=True,
        limits=list(marks),
        group="rate",
        note="Goodput and completed count to the last answer, so even a rate that is sustained ends a little under what was offered.",
    )
    return [latency("ttft", "TTFT"), latency("itl", "ITL"), rate_chart]


def _values(curve: Sequence[Verdict], metric: str, value: Callable[[Statistics], float]) -> list[float | None]:
    found = [getattr(verdict.measures, f"{metric}_ms") for verdict in curve]
    return [None if stats is None else value(stats) for stats in found]


def verdict_table(curve: Sequence[Verdict]) -> Table:
    """A row a rate."""
    rows: list[list[Cell]] = [
        [
            verdict.rate,
            ("sustained" if verdict.sustained else "not sustained") + ("" if verdict.decided else ", by the estimate"),
            "near the limit" if verdict.near_limit else "search",
            verdict.judged,
            _percent(verdict.measures.slo_attainment),
            _p99(verdict.measures.ttft_ms),
            _p99(verdict.measures.itl_ms),
            verdict.measures.goodput_rps,
            verdict.seconds,
        ]
        for verdict in curve
    ]
    columns = ("requests/s", "verdict", "by", "judged", "keep every SLO %", "TTFT p99 ms", "ITL p99 ms", "goodput/s", "seconds")
    return Table(columns=columns, rows=rows)


def conditions_table(curve: Sequence[Verdict]) -> Table:
    """What was found of each condition at each rate."""
    rows: list[list[Cell]] = [[verdict.rate, said(condition)] for verdict in curve for condition in verdict.conditions]
    return Table(columns=("requests/s", "condition"), rows=rows, title="What was found of each condition")


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _p99(stats: Statistics | None) -> float | None:
    return None if stats is None else stats.p99
