"""The server's side of a run, in one call: what goes into the result, and the section of the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from octavo.bench.load.records import LoadRun
from octavo.bench.machine import MachineRates
from octavo.bench.observe.observation import Observation
from octavo.bench.observe.sections import observation_section
from octavo.bench.observe.timeline import server_line, time_average
from octavo.bench.report.document import Section


@dataclass(frozen=True, kw_only=True)
class ServerSide:
    """For the result's ``server`` key, and for the report."""

    result: dict[str, Any]
    section: Section


def server_side(run: LoadRun, seen: Observation, *, itl_limits: Sequence[float] = (), rates: MachineRates | None = None) -> ServerSide:
    """What ``seen`` says of ``run``.

    Args:
        itl_limits: seconds between tokens that SLOs allow; a gap over the least of them is a spike.
        rates: of the machine that the server runs on, for the percent of the roofline; None: it is not reckoned.
    """
    return ServerSide(result=server_result(run, seen), section=observation_section(run, seen))


def server_result(run: LoadRun, seen: Observation) -> dict[str, Any]:
    """Means over the run's time; None: the server does not say."""

    def average(name: str) -> float | None:
        return time_average(server_line(seen, run.seconds, name), run.seconds)

    queries, hits = seen.grown("prefix_queries"), seen.grown("prefix_hits")
    return {
        "engine": seen.engine,
        "version": seen.version,
        "kv_efficiency": average("kv_efficiency"),
        "fragmentation": average("fragmentation"),
        "kv_usage": average("kv_usage"),
        "preemptions": seen.grown("preemptions"),
        "cache_hit_rate": None if hits is None or not queries else hits / queries,
        "partial": seen.partial,
        "notes": seen.notes,
    }
