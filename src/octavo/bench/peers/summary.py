"""From the parts of a comparison to its result: each figure over the rounds, and beside the first engine's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from octavo.bench.peers.plan import Comparison, Entrant, Figure, Load
from octavo.bench.peers.result import CompareResult, EngineResult, FigureResult, LoadResult, PartResult
from octavo.bench.stats import median

METHOD = {
    "order": "each engine is started anew in each round, one at a time; each round goes the other way round",
    "client": "one load client for all, on the machine of the servers; arrivals, prompts and lengths are the same for all in a round",
    "median": "over rounds; low and high are the lowest and highest round",
    "ttft_p50_ms": "median over requests of the time from the scheduled send to the first text",
    "itl_p99_ms": "over all gaps between tokens of the load; itl_max_ms is the longest",
    "decode_tok_s": "1000 / median TPOT of requests one after another",
    "prefill_tok_s": "prompt tokens / median TTFT of requests one after another",
    "output_tok_s": "tokens of completed requests / (first scheduled send to last end)",
    "max_qps": "the highest Poisson rate that keeps the SLO, by a server set up for it (sweep_command); 0: none of those tried",
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


def columns(comparison: Comparison) -> list[Column]:
    """In the order of the table."""
    found = [column for load in comparison.loads for figure in load.shows for column in _of_load(load, figure)]
    if comparison.sweep is not None:
        found.append(Column("max_qps", "max QPS at the SLO", _max_qps, "sweep"))
        found.append(Column("kv_efficiency_at_slo", "KV efficiency there", lambda part: part.kv_efficiency, "sweep", told=False))
    if comparison.loads:
        found.append(Column("peak_memory_mib", "peak memory, MiB", lambda part: _mib(part.peak_memory), told=False))
        found.append(Column("startup_s", "start-up, s", lambda part: part.startup_s, told=False))
    return found


def summarize(comparison: Comparison, parts: Sequence[PartResult]) -> CompareResult:
    """The result of all ``parts``, which may be fewer than planned."""
    engines = [_engine(entrant, parts, columns(comparison)) for entrant in comparison.entrants]
    for engine in engines:
        for key, figure in engine.figures.items():
            first = engines[0].figures[key].median
            figure.ratio = figure.median / first if figure.median is not None and first else None
    return CompareResult(
        name=comparison.name,
        description=comparison.description,
        model=comparison.model,
        seed=comparison.seed,
        rounds=comparison.rounds,
        slo=", ".join(map(str, comparison.sweep.slos)) if comparison.sweep else None,
        partial=len(parts) < len(comparison.parts()),
        loads=[asdict(load) for load in comparison.loads],
        engines=engines,
        parts=list(parts),
        method=METHOD,
    )


def parts_of(parts: Sequence[PartResult], engine: str, kind: str) -> list[PartResult]:
    """Of one engine, by round."""
    return sorted((part for part in parts if part.engine == engine and part.kind == kind), key=lambda part: part.round)


def _engine(entrant: Entrant, parts: Sequence[PartResult], shown: Sequence[Column]) -> EngineResult:
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
        notes=server.notes,
        sweep_notes=sweeping.notes if sweeping else "",
        command=list(server.shown_command),
        sweep_command=list(sweeping.shown_command) if sweeping else None,
        env=dict(server.shown_env),
        figures={column.key: _figure([column.read(part) for part in parts_of(parts, entrant.label, column.kind)]) for column in shown},
        failures=list(dict.fromkeys(part.failure for part in own if part.failure)),
    )


def _figure(values: list[float | None]) -> FigureResult:
    there = [value for value in values if value is not None]
    if not there:
        return FigureResult(values=values, median=None, low=None, high=None, ratio=None)
    return FigureResult(values=values, median=median(there), low=min(there), high=max(there), ratio=None)


def _of_load(load: Load, figure: Figure) -> list[Column]:
    def column(name: str, title: str, value: Callable[[LoadResult], float | None]) -> Column:
        def read(part: PartResult) -> float | None:
            found = part.loads.get(load.name)
            return value(found) if found is not None and found.result["completed"] else None

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


def _max_qps(part: PartResult) -> float | None:
    """0 for a sweep that found no rate it could keep; None for one that did not end."""
    if part.sweep is None or (part.sweep["partial"] and part.sweep["max_rate"] is None):
        return None
    return float(part.sweep["max_rate"] or 0.0)
