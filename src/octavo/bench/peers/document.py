"""The report of a comparison: one table of all engines, then what it was taken from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from octavo.bench.measures.slo import parse_slos
from octavo.bench.peers.plan import Comparison, Load
from octavo.bench.peers.result import CompareResult, EngineResult, FigureResult, PartResult
from octavo.bench.peers.summary import KEPT, LOST, Column, columns, parts_of, uncounted
from octavo.bench.peers.warnings import warnings_of
from octavo.bench.report.document import Cell, Chart, Document, Limit, Section, Series, Table
from octavo.bench.report.numbers import text
from octavo.bench.report.summary import warning
from octavo.bench.stats import median


def compare_document(comparison: Comparison, result: CompareResult, facts: dict[str, Any]) -> Document:
    """All that a reader needs to believe the table, or not to."""
    shown = columns(comparison)
    sections = [
        _side_by_side(result, shown),
        *(_load_section(load, result) for load in comparison.loads),
        *([_sweep_section(result)] if comparison.sweep else []),
        *_efficiency_section(result, shown),
        _engines_section(result),
    ]
    data: dict[str, Any] = msgspec.to_builtins(result)
    title = comparison.description or comparison.name
    return Document(benchmark="compare", title=title, summary=_summary(result, shown), sections=sections, result=data, facts=facts)


def _summary(result: CompareResult, shown: Sequence[Column]) -> list[str]:
    said = [warning(sentence) for sentence in warnings_of(result)]
    said.append(
        f"{len(result.engines)} engines, one at a time on one machine, under the same arrivals and prompts from one client; "
        f"{'one round' if result.rounds == 1 else f'medians of {result.rounds} rounds in alternating order'}."
    )
    first = result.engines[0]
    for column in (column for column in shown if column.told):
        others = [(engine.figures[column.key].ratio, engine.label) for engine in result.engines[1:]]
        told = [f"{label} {text(ratio)} times" for ratio, label in others if ratio is not None]
        if told:
            said.append(f"{column.title}: {first.label} {text(first.figures[column.key].median)}; {', '.join(told)} that.")
    return said + _highest_rates(result)


def _highest_rates(result: CompareResult) -> list[str]:
    """Each engine's with its bounds: an estimate from few requests flatters, and says less than what is shown."""
    if result.slo is None or all(engine.figures["max_qps"].median is None for engine in result.engines):
        return []
    rates = "; ".join(_highest_rate(engine) for engine in result.engines if engine.figures["max_qps"].median is not None)
    bounds = f"[highest shown to be kept, lowest shown not to be kept{_confidence(result)}; –: none is shown]"
    return [f"max QPS at {result.slo}, by the estimate {bounds}: {rates}."]


def _highest_rate(engine: EngineResult) -> str:
    rate, kept, lost = (engine.figures[key] for key in ("max_qps", KEPT, LOST))
    said = f"{engine.label} {text(rate.median)} [{text(kept.median)}, {text(lost.median)}]"
    if rate.ratio is None or rate.ratio == 1:
        return said
    return f"{said}, {text(rate.ratio)} times [{text(kept.ratio)}, {text(lost.ratio)}]"


def _confidence(result: CompareResult) -> str:
    found = next((part.sweep["confidence"] for part in result.parts if part.sweep is not None), None)
    return "" if found is None else f", each at {100 * found:g} % confidence"


def _side_by_side(result: CompareResult, shown: Sequence[Column]) -> Section:
    titles = ["", *(engine.label for engine in result.engines)]
    own = [column for column in shown if not column.table]

    def rows(chosen: Sequence[Column], cell: Callable[[FigureResult], Cell], ratios: bool = False) -> list[list[Cell]]:
        return [
            [(ratios and column.ratio_title) or column.title, *(cell(engine.figures[column.key]) for engine in result.engines)]
            for column in chosen
        ]

    tables = [
        Table(
            columns=titles,
            rows=rows(own, lambda figure: figure.median),
            title="Medians over rounds",
            note="–: the engine does not say, or has no such figure. The highest rate is of one sweep; shown: at its confidence.",
        ),
        Table(columns=titles, rows=rows(own, lambda figure: figure.ratio, ratios=True), title=f"Over {result.engines[0].label}'s"),
    ]
    if result.rounds > 1:
        of_rounds = [column for column in own if column.kind == "round"]
        tables.insert(1, Table(columns=titles, rows=rows(of_rounds, _spread), title="Lowest and highest round"))
    return Section(heading="Side by side", tables=tables, charts=[_bars(column, result) for column in own if _drawn(column, result)])


def _drawn(column: Column, result: CompareResult) -> bool:
    return column.drawn and any(engine.figures[column.key].median is not None for engine in result.engines)


def _spread(figure: FigureResult) -> Cell:
    return None if figure.median is None else f"{text(figure.low)} … {text(figure.high)}"


def _bars(column: Column, result: CompareResult) -> Chart:
    found = [engine.figures[column.key] for engine in result.engines]
    lows, highs = [figure.low for figure in found], [figure.high for figure in found]
    if column.key == "max_qps":
        lows = [engine.figures[KEPT].median or 0.0 for engine in result.engines]
        highs = [engine.figures[LOST].median for engine in result.engines]
    known = all(value is not None for value in (*lows, *highs))
    series = Series(
        name="by the estimate" if column.key == "max_qps" else "median",
        x=list(range(len(found))),
        y=[figure.median for figure in found],
        low=[low or 0.0 for low in lows] if known else None,
        high=[high or 0.0 for high in highs] if known else None,
    )
    return Chart(
        title=column.title,
        kind="bars",
        x_label="",
        y_label=column.title.partition(" (")[0],
        series=[series],
        categories=[engine.label for engine in result.engines],
        note="Lines: from the highest rate shown to be kept to the lowest shown not to be." if column.key == "max_qps" and known else "",
    )


def _load_section(load: Load, result: CompareResult) -> Section:
    how = f"{load.concurrency} at a time" if load.concurrency else f"Poisson arrivals at {load.rate:g} requests a second"
    lengths = f"{load.num_prompts} requests of {load.input_len} tokens in and {load.output_len} out, {how}. Latencies in ms."
    titles = [
        "engine",
        "round",
        "completed",
        "failed",
        "output tok/s",
        "TTFT p50",
        "TTFT p99",
        "ITL p50",
        "ITL p99",
        "ITL max",
        "TPOT p50",
        "e2e p50",
        "not counted",
    ]
    rows = [
        [engine.label, part.round, *_row(part.loads[load.name].result)]
        for engine in result.engines
        for part in parts_of(result.parts, engine.label, "round")
        if load.name in part.loads
    ]
    return Section(heading=f"Load: {load.name}", text=[lengths], tables=[Table(columns=titles, rows=rows)])


def _row(found: dict[str, Any]) -> list[Cell]:
    def of(name: str, statistic: str) -> Cell:
        return found[name][statistic] if found[name] is not None else None

    latencies = [of("ttft_ms", "p50"), of("ttft_ms", "p99"), of("itl_ms", "p50"), of("itl_ms", "p99"), of("itl_ms", "max")]
    whole = [of("tpot_ms", "p50"), of("e2e_ms", "p50")]
    return [found["completed"], found["failed"], found["output_tok_s"], *latencies, *whole, uncounted(found)]


def _sweep_section(result: CompareResult) -> Section:
    swept = [(engine, part) for engine in result.engines for part in parts_of(result.parts, engine.label, "sweep") if part.sweep]
    there = {engine.label for engine, _ in swept}
    titles = [
        "engine",
        "highest rate kept",
        "lowest rate not kept",
        "highest shown to be kept",
        "lowest shown not to be kept",
        "KV efficiency there",
        "requests sent",
        "set up",
    ]
    rows: list[list[Cell]] = [_sweep_row(engine, part) for engine, part in swept]
    rows += [[engine.label, *[None] * (len(titles) - 2), "not swept"] for engine in result.engines if engine.label not in there]
    rules = swept[0][1].sweep["rule"] if swept and swept[0][1].sweep else []
    order = ", ".join(part.engine for _, part in sorted(swept, key=lambda each: each[1].started))
    words = [
        f"The highest Poisson rate that keeps {result.slo}, in requests a second. One sweep an engine, in this order: {order}; so what "
        "changes on the machine meanwhile falls on one engine, and there is no spread over rounds. What is shown is the safer figure.",
        *rules,
    ]
    note = (
        "0: not even the lowest rate that was tried. Kept, not kept: by the estimates, which flatter where requests are few. Shown: bounds "
        f"show it{_confidence(result)}. Search alone: no rate near the limit was judged anew, which "
        "flatters most. A sweep that did not end is not counted."
    )
    table = Table(columns=titles, rows=rows, note=note)
    return Section(heading="The highest rate at the SLO", text=words, tables=[table], charts=_curves(swept, result.slo or ""))


def _searched_alone(found: Mapping[str, Any]) -> bool:
    """Whether no rate near the limit was to be judged anew."""
    return bool(found.get("plan", {}).get("max_near_limit") == 0)


def _sweep_row(engine: EngineResult, part: PartResult) -> list[Cell]:
    found = part.sweep or {}
    kept, lost = found["bracket"]
    return [
        engine.label + (" (partial)" if found["partial"] else "") + (" (search alone)" if _searched_alone(found) else ""),
        kept or 0.0,
        lost,
        found["shown_sustained"],
        found["shown_not_sustained"],
        part.kv_efficiency,
        sum(verdict["requests"] for verdict in found["verdicts"]),
        engine.sweep_notes,
    ]


def _curves(swept: Sequence[tuple[EngineResult, PartResult]], slo: str) -> list[Chart]:
    limits = {(each.metric, each.statistic): 1000 * each.limit for each in parse_slos(slo)} if slo else {}

    def chart(title: str, y_label: str, name: str, statistic: str) -> Chart:
        series = [_curve(engine.label, part, name, statistic) for engine, part in swept]
        limit = limits.get((name.removesuffix("_ms"), statistic))
        lines = [Limit(value=limit, label=f"SLO {limit:g} ms")] if limit else []
        return Chart(
            title=title, kind="line", x_label="requests a second", y_label=y_label, series=series, y_log=name != "goodput_rps", limits=lines
        )

    if not swept:
        return []
    return [
        chart("TTFT p99 by rate", "ms", "ttft_ms", "p99"),
        chart("ITL p99 by rate", "ms", "itl_ms", "p99"),
        chart("Goodput by rate", "requests a second inside the SLO", "goodput_rps", ""),
    ]


def _curve(label: str, part: PartResult, name: str, statistic: str) -> Series:
    verdicts = sorted((part.sweep or {})["verdicts"], key=lambda verdict: verdict["rate"])
    found = [verdict["measures"][name] for verdict in verdicts]
    return Series(
        name=label,
        x=[verdict["rate"] for verdict in verdicts],
        y=[value[statistic] if isinstance(value, dict) else value for value in found],
        labels=["kept" if verdict["sustained"] else verdict["reason"] for verdict in verdicts],
    )


def _efficiency_section(result: CompareResult, shown: Sequence[Column]) -> list[Section]:
    """None where nothing of it is known."""
    own = [column for column in shown if column.table == "efficiency"]
    known = [column for column in own if any(engine.figures[column.key].median is not None for engine in result.engines)]
    why = _no_joules(result)
    if not known:
        return []
    rows: list[list[Cell]] = [[column.title, *(engine.figures[column.key].median for engine in result.engines)] for column in known]
    titles = ["", *(engine.label for engine in result.engines)]
    table = Table(columns=titles, rows=rows, note=f"Medians over rounds.{f' No joules: {why}.' if why else ''}")
    return [Section(heading="Roofline, cost and energy", text=_efficiency_words(result), tables=[table, *_by_steps(result)])]


def _efficiency_words(result: CompareResult) -> list[str]:
    said = []
    if result.costs_of is not None:
        said.append(
            "% of the roofline: the least time that this machine needs for what was asked and answered, over the time with requests in "
            "flight. Each prompt and answer is reckoned as computed once, the weights as read once for as many requests as were ever in "
            f"flight. Engines that do not tell what a token costs are measured by what {result.costs_of} tells of its own form of the "
            "weights: for them it is no account of their own bytes and operations, but one yardstick for all. A load that leaves the "
            "machine idle between requests, as a low rate does, keeps all far below 100."
        )
    if result.price_per_hour is not None:
        said.append(f"Cost: at {text(result.price_per_hour)} a machine-hour, by the tokens of completed requests.")
    return said


def _by_steps(result: CompareResult) -> list[Table]:
    """Of engines that tell their steps, a better account: each step has its own least time."""
    rows: list[list[Cell]] = []
    for engine in result.engines:
        for part in parts_of(result.parts, engine.label, "round"):
            told = {name: load.steps_roofline for name, load in part.loads.items() if load.steps_roofline is not None}
            rows += [
                [engine.label, part.round, name, found["percent"], found["decode_percent"], found["prefill_percent"]]
                for name, found in told.items()
            ]
    titles = ["engine", "round", "load", "%", "% in decode steps", "% in steps with prefills"]
    note = "Of the time in which the engine had work."
    return [Table(columns=titles, rows=rows, title="By the engine's own steps", note=note, detail=True)] if rows else []


def _no_joules(result: CompareResult) -> str | None:
    seen = [load.energy for part in result.parts for load in part.loads.values() if load.energy is not None]
    return next((energy["why"] for energy in seen if energy["joules"] is None), None)


def _engines_section(result: CompareResult) -> Section:
    titles = ["engine", "version", "installed", "weights", "notes", "of its API", "description tried"]
    rows: list[list[Cell]] = [
        [
            engine.label,
            engine.version or None,
            engine.release or None,
            engine.weights,
            engine.notes,
            " ".join(engine.client_notes) or None,
            engine.tested,
        ]
        for engine in result.engines
    ]
    commands: list[list[Cell]] = []
    for engine in result.engines:
        env = [f"{name}={value}" for name, value in engine.env.items()]
        commands.append([engine.label, "loads", " ".join([*env, *engine.command])])
        if engine.sweep_command is not None and engine.sweep_command != engine.command:
            commands.append([engine.label, "SLO", " ".join([*env, *engine.sweep_command])])
    tables = [Table(columns=titles, rows=rows), *_weights(result), _memory(result)]
    return Section(heading="Engines", tables=[*tables, Table(columns=["engine", "for", "command"], rows=commands, title="Commands")])


def _weights(result: CompareResult) -> list[Table]:
    rows: list[list[Cell]] = [
        [engine.label, each.name, each.files, each.bytes / 2**20, each.sha256]
        for engine in result.engines
        if (each := engine.weights_files) is not None
    ]
    titles = ["engine", "file or folder", "files", "MiB", "SHA-256"]
    note = "Of a folder, of the names and digests of all its files. Who has the same digest read the same file."
    return [Table(columns=titles, rows=rows, title="Weights", note=note)] if rows else []


def _memory(result: CompareResult) -> Table:
    titles = ["engine", "peak, MiB", "shared pages counted in each process, MiB", "start-up, s"]
    note = "Medians over rounds. Peak: sum of VmHWM over the server's processes, less what Rss - Pss says is counted twice."
    rows = [_memory_row(engine, result.parts) for engine in result.engines]
    return Table(columns=titles, rows=rows, title="Memory and start-up", note=note)


def _memory_row(engine: EngineResult, parts: Sequence[PartResult]) -> list[Cell]:
    own = parts_of(parts, engine.label, "round")

    def middle(values: list[float | None]) -> float | None:
        there = [value for value in values if value is not None]
        return median(there) if there else None

    sizes = [middle([part.peak_memory for part in own]), middle([part.peak_memory_upper for part in own])]
    return [engine.label, *(None if size is None else size / 2**20 for size in sizes), middle([part.startup_s for part in own])]
