"""The server's side of a run, in one call: what goes into the result, and the section of the report."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from octavo.bench.limits import ModelCosts
from octavo.bench.load.records import LoadRun
from octavo.bench.machine import MachineRates
from octavo.bench.observe.attribution import Attribution, attribute
from octavo.bench.observe.observation import Observation
from octavo.bench.observe.roofline import Roofline, roofline
from octavo.bench.observe.sections import observation_section
from octavo.bench.observe.timeline import server_line, time_average
from octavo.bench.report.document import Section

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ServerSide:
    """For the result's ``server`` key, and for the report."""

    result: dict[str, Any]
    section: Section


def server_side(
    run: LoadRun,
    seen: Observation,
    *,
    itl_limits: Sequence[float] = (),
    rates: MachineRates | None = None,
    costs: ModelCosts | None = None,
) -> ServerSide:
    """What ``seen`` says of ``run``. If no sense can be made of it (another version's, say), a note says so, and the client's part is left.

    Args:
        itl_limits: seconds between tokens that SLOs allow; a gap over the least of them is a spike.
        rates: of the machine that the server runs on, for the percent of the roofline; None: it is not reckoned.
        costs: of the model, where the server does not tell them.
    """
    try:
        return _sides(run, seen, itl_limits, rates, costs)
    except Exception as error:
        logger.exception("what the server said cannot be laid beside the run")
        note = f"what the server said of itself cannot be laid beside the run ({type(error).__name__}: {error})"
        known = Observation(engine=seen.engine, version=seen.version, notes=[*seen.notes, note], partial=True)
        return _sides(run, known, itl_limits, None, None)


def _sides(
    run: LoadRun, seen: Observation, itl_limits: Sequence[float], rates: MachineRates | None, costs: ModelCosts | None
) -> ServerSide:
    spikes = attribute(run, seen, itl_limits=itl_limits)
    limit = roofline(run, seen, rates, costs) if rates is not None else None
    result = server_result(run, seen, spikes, limit)
    return ServerSide(result=result, section=observation_section(run, seen, spikes, result))


def server_result(run: LoadRun, seen: Observation, spikes: Attribution, limit: Roofline | None) -> dict[str, Any]:
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
        "running": average("running"),
        "waiting": average("waiting"),
        "preemptions": seen.grown("preemptions"),
        "cache_hit_rate": None if hits is None or not queries else hits / queries,
        "gc_seconds": seen.grown("gc_seconds"),
        "peak_memory_bytes": seen.facts.get("peak_memory_bytes") if seen.facts else None,
        "percent_of_roofline": limit.percent if limit else None,
        "roofline": limit.as_dict() if limit else None,
        "spikes": spikes.as_dict(),
        "clock_offset_ms": 1000 * seen.clock_offset,
        "clock_error_ms": 1000 * seen.clock_error,
        "partial": seen.partial,
        "notes": seen.notes,
    }
