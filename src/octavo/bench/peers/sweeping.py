"""The sweep of one engine in a comparison."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from octavo.bench.load.probe import Ready
from octavo.bench.machine import MachineRates
from octavo.bench.peers.measuring import load_result
from octavo.bench.peers.plan import SweepPlan
from octavo.bench.peers.result import LoadResult
from octavo.bench.serve import ServePlan
from octavo.bench.sweep.over_http import HttpOffer, verdict_line
from octavo.bench.sweep.settings import SweepSettings
from octavo.bench.sweep.sweep import sweep
from octavo.bench.workload.tokens import Tokens


class Swept(NamedTuple):
    """What came out."""

    result: dict[str, Any]
    """A SweepResult (octavo.bench.sweep.result) as plain data."""
    at_answer: LoadResult | None
    """The last run at the highest rate kept; None: it kept none."""


def settings_of(plan: SweepPlan, seed: int) -> SweepSettings:
    """Raises InvalidRequestError for what is out of range."""
    return SweepSettings(slos=plan.slos, seed=seed, **plan.options)


def sweep_engine(
    plan: SweepPlan, seed: int, ready: Ready, tokens: Tokens, as_text: bool, rates: MachineRates, tell: Callable[[str], None]
) -> Swept:
    """The highest rate at which this server keeps the SLO, the same requests and arrivals for every server.

    Raises:
        SweepError: it does not complete the requests of the warm-up.
    """
    settings = settings_of(plan, seed)
    source = HttpOffer(
        ServePlan(url=ready.target.url, model=ready.target.model, workload=plan.workload(), tokens=tokens, as_text=as_text), ready
    )
    found = sweep(source, settings, lambda verdict: tell(verdict_line(verdict)), tell)
    result: dict[str, Any] = msgspec.to_builtins(found)
    if found.max_rate is None or found.max_rate not in source.seen:
        return Swept(result, None)
    return Swept(result, load_result(*source.seen[found.max_rate], source.energy.get(found.max_rate), plan.slos, rates))
