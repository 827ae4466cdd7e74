"""The report of a comparison: one table of all engines, then what it was taken from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from octavo.bench.measures.slo import parse_slos
from octavo.bench.peers.plan import Comparison, Load
from octavo.bench.peers.result import CompareResult, EngineResult, FigureResult, PartResult
from octavo.bench.peers.summary import Column, columns, parts_of
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
        _engines_section(result),
    ]
    data: dict[str, Any] = msgspec.to_builtins(result)
    title = comparison.description or comparison.name
    return Document(benchmark="compare", title=title, summary=_summary(result, shown), sections=sections, result=data, facts=facts)


def _summary(result: CompareResult, shown: Sequence[Column]) -> list[str]:
    said = [warning("Partial: the comparison was stopped before all its parts were done.")] if result.partial else []
    said += [warning(f"{engine.label}: {failure}") for engine in result.engines for failure in engine.failures]
    said += [warning(f"{engine.label}: its description was never tried.") for engine in result.engines if not engine.tested]
    if unquiet := [part.unquiet for part in result.parts if part.unquiet]:
        said.append(warning(f"In {len(unquiet)} of {len(result.parts)} parts the machine was not quiet. One of them: {unquiet[0]}"))
    said += [warning(sentence) for sentence in _invalid(result)]
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
    return said


def _invalid(result: CompareResult) -> list[str]:
    """Runs whose figures are not the server's, or not of all requests."""
    said = []
    for part in result.parts:
        for name, load in part.loads.items():
            found = load.result
            if not found["valid"]:
                said.append(f"{part.engine}, {name}, round {part.round}: the client was the bottleneck ({found['client']['bottleneck']}).")
            if found["failed"]:
                said.append(
                    f"{part.engine}, {name}, round {part.round}: {found['failed']} of {found['requests']} requests did not complete."
                )
    return said


def _side_by_side(result: CompareResult, shown: Sequence[Column]) -> Section:
    titles = ["", *(engine.label for engine in result.engines)]

    def rows(cell: Callable[[FigureResult], Cell]) -> list[list[Cell]]:
        return [[column.title, *(cell(engine.figures[column.key]) for engine in result.engines)] for column in shown]

    tables = [
        Table(
            columns=titles,
            rows=rows(lambda figure: figure.median),
            title="Medians over rounds",
            note="–: the engine does not say, or has no such figure.",
        ),
        *([Table(columns=titles, rows=rows(_spread), title="Lowest and highest round")] if result.rounds > 1 else []),
        Table(columns=titles, rows=rows(lambda figure: figure.ratio), title=f"Over {result.engines[0].label}'s"),
    ]
    return Section(heading="Side by side", tables=tables, charts=[_bars(column, result) for column in shown if _told(column, result)])


def _told(column: Column, result: CompareResult) -> bool:
    return any(engine.figures[column.key].median is not None for engine in result.engines)


def _spread(figure: FigureResult) -> Cell:
    return None if figure.median is None else f"{text(figure.low)} … {text(figure.high)}"


def _bars(column: Column, result: CompareResult) -> Chart:
    found = [engine.figures[column.key] for engine in result.engines]
    there = [figure for figure in found if figure.median is not None]
    bounded = len(there) == len(found)
    series = Series(
        name="median",
        x=list(range(len(found))),
        y=[figure.median for figure in found],
        low=[figure.low or 0.0 for figure in found] if bounded else None,
        high=[figure.high or 0.0 for figure in found] if bounded else None,
    )
    return Chart(
        title=column.title,
        kind="bars",
        x_label="",
        y_label=column.title.partition(" (")[0],
        series=[series],
        categories=[engine.label for engine in result.engines],
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
    return [found["completed"], found["failed"], found["output_tok_s"], *latencies, of("tpot_ms", "p50"), of("e2e_ms", "p50")]


def _sweep_section(result: CompareResult) -> Section:
    swept = [(engine, part) for engine in result.engines for part in parts_of(result.parts, engine.label, "sweep") if part.sweep]
    rows: list[list[Cell]] = [_sweep_row(engine, part) for engine, part in swept]
    rows += [
        [engine.label, None, None, None, None, None, "not swept"]
        for engine in result.engines
        if engine.label not in {e.label for e, _ in swept}
    ]
    titles = [
        "engine",
        "highest rate kept",
        "lowest rate not kept",
        "highest shown to be kept",
        "KV efficiency there",
        "requests sent",
        "set up",
    ]
    rules = swept[0][1].sweep["rule"] if swept and swept[0][1].sweep else []
    confidence = f"{100 * swept[0][1].sweep['confidence']:g} %" if swept and swept[0][1].sweep else "the stated"
    words = [f"The highest Poisson rate that keeps {result.slo}, in requests a second.", *rules]
    table = Table(
        columns=titles,
        rows=rows,
        note=f"0: not even the lowest rate that was tried. By the estimates; shown: at {confidence} confidence, which takes more requests.",
    )
    return Section(heading="The highest rate at the SLO", text=words, tables=[table], charts=_curves(swept, result.slo or ""))


def _sweep_row(engine: EngineResult, part: PartResult) -> list[Cell]:
    found = part.sweep or {}
    kept, lost = found["bracket"]
    return [
        engine.label,
        kept or 0.0,
        lost,
        found["shown_sustained"],
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


def _engines_section(result: CompareResult) -> Section:
    rows: list[list[Cell]] = [
        [engine.label, engine.version or None, engine.release or None, engine.weights, engine.notes, engine.tested]
        for engine in result.engines
    ]
    engines = Table(columns=["engine", "version", "installed", "weights", "notes", "description tried"], rows=rows)
    commands: list[list[Cell]] = []
    for engine in result.engines:
        env = [f"{name}={value}" for name, value in engine.env.items()]
        commands.append([engine.label, "loads", " ".join([*env, *engine.command])])
        if engine.sweep_command is not None and engine.sweep_command != engine.command:
            commands.append([engine.label, "SLO", " ".join([*env, *engine.sweep_command])])
    memory: list[list[Cell]] = [_memory_row(engine, result.parts) for engine in result.engines]
    titles = ["engine", "peak, MiB", "shared pages counted in each process, MiB", "start-up, s"]
    note = "Medians over rounds. Peak: sum of VmHWM over the server's processes, less what Rss - Pss says is counted twice."
    tables = [engines, Table(columns=titles, rows=memory, title="Memory and start-up", note=note)]
    return Section(heading="Engines", tables=[*tables, Table(columns=["engine", "for", "command"], rows=commands, title="Commands")])


def _memory_row(engine: EngineResult, parts: Sequence[PartResult]) -> list[Cell]:
    own = parts_of(parts, engine.label, "round")

    def middle(values: list[float | None]) -> float | None:
        there = [value for value in values if value is not None]
        return median(there) if there else None

    sizes = [middle([part.peak_memory for part in own]), middle([part.peak_memory_upper for part in own])]
    return [engine.label, *(None if size is None else size / 2**20 for size in sizes), middle([part.startup_s for part in own])]
