"""From the parts of a comparison to its result: each figure over the rounds, and beside the first engine's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from octavo.bench.peers.efficiency import Basis, EfficiencyFigure, basis_of, efficiency_figures
from octavo.bench.peers.identity import WeightsFiles
from octavo.bench.peers.plan import Comparison, Entrant, Figure, Load
from octavo.bench.peers.result import CompareResult, EngineResult, FigureResult, LoadResult, PartResult
from octavo.bench.stats import median

KEPT, LOST = "max_qps_shown_kept", "max_qps_shown_not_kept"
"""Figures beside max_qps."""
METHOD = {
    "order": "each engine is started anew in each round, one at a time, each round the other way round than the last; then one sweep an "
    "engine; the order is that of the parts' started",
    "client": "one load client for all, on the machine of the servers; arrivals, prompts and lengths are the same for all in a round",
    "median": "over rounds, without loads that were stopped or whose client was the bottleneck; low and high are the lowest and highest",
    "ttft_p50_ms": "median over requests of the time from the scheduled send to the first text",
    "itl_p99_ms": "over all gaps between tokens of the load; itl_max_ms is the longest",
    "decode_tok_s": "1000 / median TPOT of requests one after another",
    "prefill_tok_s": "prompt tokens / median TTFT of requests one after another",
    "output_tok_s": "tokens of completed requests / (first scheduled send to last end)",
    "max_qps": "the highest Poisson rate that keeps the SLO by the estimates, by a server set up for it (sweep_command); 0: none of those "
    "tried; what is shown at the sweep's confidence to be kept, and not to be, are figures of their own",
    "roofline_percent": "least time for what was asked and answered, by the model's costs and the machine's measured rates, over the time "
    "with requests in flight; each prompt and answer computed once, the weights read once for as many as were ever in flight; engines that "
    "do not tell their costs are measured by those of costs_of",
    "cost": "price_per_hour over the tokens of completed requests in an hour",
    "joules": "of the whole machine, idle power with it, where it counts them",
    "kv_efficiency": "live / held KV bytes, averaged over the run; only where the engine says",
    "peak_memory": "sum over the server's processes of VmHWM, less Rss - Pss, so that shared pages count once; from start to end",
    "startup_s": "from exec to the first 200 of the readiness URL, model in the page cache or not as it happens to be",
}


@dataclass(frozen=True)
class Column:
    """One figure of the table of all engines."""

    key: str
    title: str
    read: Callable[[PartResult], float | None]
    """From one part; None: it has none."""
    kind: str = "round"
    """Of the parts it is read from."""
    told: bool = True
    """In the report's first sentences."""
    drawn: bool = True
    """As a chart."""
    table: str = ""
    """"": that of all engines; "efficiency": that of roofline, cost and energy."""
    over: str = ""
    """The figure of the first engine that ``ratio`` divides by; "": the same."""
    ratio_title: str = ""
    """"": as ``title``."""


def columns(comparison: Comparison, basis: Basis | None = None) -> list[Column]:
    """In the order of the table. ``basis``: for figures that no part knows by itself; None: only their names are wanted."""
    found = [column for load in comparison.loads for figure in load.shows for column in _of_load(load, figure)]
    if comparison.sweep is not None:
        found += [
            Column("max_qps", "max QPS at the SLO", _max_qps, "sweep", told=False),
            _shown(KEPT, "… shown to be kept", "shown_sustained", LOST, "… at least, by what is shown"),
            _shown(LOST, "… shown not to be kept", "shown_not_sustained", KEPT, "… at most, by what is shown"),
            Column("kv_efficiency_at_slo", "KV efficiency there", _kv_efficiency_at_slo, "sweep", told=False),
        ]
    if comparison.loads:
        found.append(Column("peak_memory_mib", "peak memory, MiB", lambda part: _mib(part.peak_memory), told=False))
        found.append(Column("startup_s", "start-up, s", lambda part: part.startup_s, told=False))
    return found + _efficiency(comparison, basis or Basis())


def summarize(
    comparison: Comparison,
    parts: Sequence[PartResult],
    *,
    price_per_hour: float | None = None,
    weights: Mapping[str, WeightsFiles | None] | None = None,
) -> CompareResult:
    """The result of all ``parts``, which may be fewer than planned. ``weights``: what each engine reads, by its label."""
    basis = basis_of([entrant.label for entrant in comparison.entrants], parts, price_per_hour)
    shown = columns(comparison, basis)
    engines = [_engine(entrant, parts, shown, (weights or {}).get(entrant.label)) for entrant in comparison.entrants]
    for engine in engines:
        for column in shown:
            first, own = engines[0].figures[column.over or column.key].median, engine.figures[column.key]
            if own.median is not None and first and not (column.over and engine is engines[0]):
                own.ratio = own.median / first
    return CompareResult(
        name=comparison.name,
        description=comparison.description,
        model=comparison.model,
        seed=comparison.seed,
        rounds=comparison.rounds,
        slo=", ".join(map(str, comparison.sweep.slos)) if comparison.sweep else None,
        partial=len(parts) < len(comparison.parts()) or any(part.interrupted for part in parts),
        loads=[asdict(load) for load in comparison.loads],
        engines=engines,
        parts=list(parts),
        method=METHOD,
        rates=basis.rates,
        costs_of=basis.costs_of,
        price_per_hour=price_per_hour,
    )


def parts_of(parts: Sequence[PartResult], engine: str, kind: str) -> list[PartResult]:
    """Of one engine, by round."""
    return sorted((part for part in parts if part.engine == engine and part.kind == kind), key=lambda part: part.round)


def uncounted(result: Mapping[str, Any]) -> str | None:
    """Why a load's figures are not counted; None: they are."""
    if not result["valid"]:
        return "client too slow"
    if result["partial"]:
        return "stopped early"
    return None if result["completed"] else "nothing completed"


def _engine(entrant: Entrant, parts: Sequence[PartResult], shown: Sequence[Column], weights: WeightsFiles | None) -> EngineResult:
    own = [part for part in parts if part.engine == entrant.label]
    server, sweeping = entrant.server, entrant.sweep_server
    return EngineResult(
        label=entrant.label,
        name=server.name,
        variant=server.variant,
        sweep_variant=sweeping.variant if sweeping else None,
        version=next((part.version for part in own if part.version), ""),
        release=server.release,
        tested=server.tested,
        weights=server.weights,
        weights_files=weights,
        notes=server.notes,
        sweep_notes=sweeping.notes if sweeping else "",
        command=list(server.shown_command),
        sweep_command=list(sweeping.shown_command) if sweeping else None,
        env=dict(server.shown_env),
        figures={column.key: _figure([column.read(part) for part in parts_of(parts, entrant.label, column.kind)]) for column in shown},
        failures=list(dict.fromkeys(part.failure for part in own if part.failure)),
        client_notes=list(dict.fromkeys(note for part in own for note in part.notes)),
    )


def _figure(values: list[float | None]) -> FigureResult:
    there = [value for value in values if value is not None]
    if not there:
        return FigureResult(values=values, median=None, low=None, high=None, ratio=None)
    return FigureResult(values=values, median=median(there), low=min(there), high=max(there), ratio=None)


def _of_load(load: Load, figure: Figure) -> list[Column]:
    def column(name: str, title: str, value: Callable[[LoadResult], float | None]) -> Column:
        def read(part: PartResult) -> float | None:
            return _counted(part.loads.get(load.name), value)

        return Column(f"{load.name}/{name}", f"{title} ({load.name})", read)

    def latency(name: str, statistic: str) -> Callable[[LoadResult], float | None]:
        return lambda found: _statistic(found.result, name, statistic)

    return {
        "ttft_ms": [column("ttft_p50_ms", "TTFT p50, ms", latency("ttft_ms", "p50"))],
        "itl_ms": [
            column("itl_p99_ms", "ITL p99, ms", latency("itl_ms", "p99")),
            column("itl_max_ms", "ITL max, ms", latency("itl_ms", "max")),
        ],
        "output_tok_s": [column("output_tok_s", "output tok/s", lambda found: found.result["output_tok_s"])],
        "decode_tok_s": [column("decode_tok_s", "decode tok/s", lambda found: _over(1000.0, _statistic(found.result, "tpot_ms", "p50")))],
        "prefill_tok_s": [
            column(
                "prefill_tok_s",
                "prefill tok/s",
                lambda found: _over(1000.0 * load.input_len, _statistic(found.result, "ttft_ms", "p50")),
            )
        ],
        "kv_efficiency": [column("kv_efficiency", "KV efficiency", lambda found: found.kv_efficiency)],
    }[figure]


def _statistic(result: dict[str, Any], latency: str, statistic: str) -> float | None:
    found = result[latency]
    return None if found is None else float(found[statistic])


def _over(numerator: float, denominator: float | None) -> float | None:
    return numerator / denominator if denominator else None


def _mib(size: int | None) -> float | None:
    return None if size is None else size / 2**20


def _counted(found: LoadResult | None, value: Callable[[LoadResult], float | None]) -> float | None:
    return value(found) if found is not None and uncounted(found.result) is None else None


def _ended(part: PartResult) -> dict[str, Any] | None:
    """The sweep of a part, if it went to its end."""
    return part.sweep if part.sweep is not None and not part.sweep["partial"] and part.sweep["valid"] else None


def _max_qps(part: PartResult) -> float | None:
    """0 for a sweep that found no rate it could keep; None for one that did not end."""
    found = _ended(part)
    return None if found is None else float(found["max_rate"] or 0.0)


def _shown(key: str, title: str, of_sweep: str, over: str, ratio_title: str) -> Column:
    """A bound on max_qps. The ratio of two rates is bounded by one's lower bound over the other's upper one, and the reverse."""

    def read(part: PartResult) -> float | None:
        bound: float | None = (_ended(part) or {}).get(of_sweep)
        return bound

    return Column(key, title, read, "sweep", told=False, drawn=False, over=over, ratio_title=ratio_title)


def _kv_efficiency_at_slo(part: PartResult) -> float | None:
    return part.kv_efficiency if _max_qps(part) else None


def _efficiency(comparison: Comparison, basis: Basis) -> list[Column]:
    """For each load, and for the highest rate at the SLO."""
    found = []
    for figure in efficiency_figures(basis):
        loads = [load for load in comparison.loads if load.output_len > 1 or not figure.of_answers]
        found += [_of_efficiency(figure, f"{load.name}/{figure.key}", load.name) for load in loads]
        if comparison.sweep is not None:
            found.append(_of_efficiency(figure, f"{figure.key}_at_slo", None))
    return found


def _of_efficiency(figure: EfficiencyFigure, key: str, load: str | None) -> Column:
    """``load``: its name; None: the last run at the highest rate."""

    def read(part: PartResult) -> float | None:
        found = part.at_answer if load is None else part.loads.get(load)
        return _counted(found, lambda found: figure.read(part.engine, found))

    title = f"{figure.title} ({load or 'highest rate at the SLO'})"
    kind = "sweep" if load is None else "round"
    return Column(key, title, read, kind, told=False, drawn=False, table="efficiency")
