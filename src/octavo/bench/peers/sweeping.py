"""The sweep of one engine in a comparison."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from octavo.bench.load.probe import Ready
from octavo.bench.observe.timeline import server_line, time_average
from octavo.bench.peers.plan import SweepPlan
from octavo.bench.serve import ServePlan
from octavo.bench.sweep.over_http import HttpOffer, verdict_line
from octavo.bench.sweep.plan import plan_lines, plan_sweep
from octavo.bench.sweep.settings import SweepSettings
from octavo.bench.sweep.sweep import sweep
from octavo.bench.workload.tokens import Tokens


class Swept(NamedTuple):
    """What came out."""

    result: dict[str, Any]
    """A SweepResult (octavo.bench.sweep.result) as plain data."""
    kv_efficiency: float | None
    """At the highest rate kept, in the last run at it; None: the engine does not say, or kept none."""


def settings_of(plan: SweepPlan, seed: int) -> SweepSettings:
    """Raises InvalidRequestError for what is out of range."""
    return SweepSettings(slos=plan.slos, seed=seed, **plan.options)


def sweep_engine(plan: SweepPlan, seed: int, ready: Ready, tokens: Tokens, as_text: bool, tell: Callable[[str], None]) -> Swept:
    """The highest rate at which this server keeps the SLO, the same requests and arrivals for every server.

    Raises:
        SweepError: it does not complete the requests of the warm-up.
    """
    settings = settings_of(plan, seed)
    source = HttpOffer(
        ServePlan(url=ready.target.url, model=ready.target.model, workload=plan.workload(), tokens=tokens, as_text=as_text), ready
    )
    planned = plan_sweep(settings)
    for line in plan_lines(settings, planned)[:2]:
        tell(line)
    found = sweep(source, settings, lambda verdict: tell(verdict_line(verdict)), planned)
    efficiency = None
    if found.max_rate is not None and found.max_rate in source.seen:
        run, seen = source.seen[found.max_rate]
        efficiency = time_average(server_line(seen, run.seconds, "kv_efficiency"), run.seconds)
    result: dict[str, Any] = msgspec.to_builtins(found)
    return Swept(result, efficiency)
