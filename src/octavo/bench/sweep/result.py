"""The result of a sweep as data: what ``--output`` writes, and what its JSON Schema is made from."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from octavo.bench.measures.result import SCHEMA_VERSION, Measures

Unit = Literal["share", "s", "requests"]


class Condition(msgspec.Struct, kw_only=True, frozen=True):
    """One thing that must hold for a rate to be sustained."""

    what: str
    unit: Unit
    limit: float
    estimate: float | None
    """Null: infinite."""
    low: float | None
    """Lower bound, one-sided at the sweep's confidence over the number of conditions, as any of them can fail."""
    high: float | None
    """Upper bound, one-sided at the sweep's confidence; null: infinite or not known."""
    inside: bool
    """By the estimate."""
    shown_inside: bool
    """By the upper bound."""
    shown_outside: bool
    """By the lower bound."""


class Verdict(msgspec.Struct, kw_only=True, frozen=True):
    """On one rate."""

    rate: float
    sustained: bool
    """Every condition's estimate is inside."""
    decided: bool
    """Shown at the sweep's confidence; false: by the estimates alone."""
    reason: str
    """What failed, or what is not shown."""
    requests: int
    """Sent."""
    judged: int
    confirming: bool
    """By a longer run to confirm the search's answer, and by the search's own at this rate if there was one."""
    seconds: float
    stopped_early: bool
    """So many requests had missed that the rest could not make up for it; the figures are of what there was."""
    conditions: list[Condition]
    measures: Measures
    """Of the judged requests."""


class SweepPlan(msgspec.Struct, kw_only=True, frozen=True):
    """What a sweep will take, said before anything is sent."""

    max_verdicts: int
    requests_per_run: int
    """At low rates; more at rates where that would be over too soon."""
    max_confirmations: int
    requests_to_confirm: int
    """At low rates."""
    max_minutes: float
    """Of sending, whatever the server's rate is."""
    minutes: list[PlannedTime]
    passes: list[PassChance]


class PlannedTime(msgspec.Struct, kw_only=True, frozen=True):
    """How long a server's sweep takes to send, without what it needs to end the last requests of each run."""

    rate: float
    """The highest that it sustains."""
    minutes: float
    """If the search's answer is confirmed at once."""
    max_minutes: float
    """If it is not confirmed until the last try."""


class PassChance(msgspec.Struct, kw_only=True, frozen=True):
    """How sharp one run is."""

    missing: float
    """The share of requests that miss at some rate."""
    passes: float
    """How likely that rate passes, if requests miss independently."""


class SweepResult(msgspec.Struct, kw_only=True, frozen=True):
    schema_version: int = SCHEMA_VERSION
    benchmark: str = "sweep"
    slo: str
    max_rate: float | None
    """The highest rate sustained, requests a second; null: not even the lowest tried."""
    bracket: tuple[float | None, float | None]
    """``max_rate``, and the lowest rate that was not sustained: null when none was found up to the sweep's max_rate."""
    shown_sustained: float | None
    """The highest rate of which every condition is shown at ``confidence``; null: of none."""
    confirmed: bool
    """Whether ``max_rate`` was sustained in a second, longer run too."""
    shown_not_sustained: float | None
    """The lowest rate shown not to be."""
    confidence: float
    resolution: float
    requests_per_verdict: int
    seed: int
    start_rate: float
    """Where the probe began: one over the mean time of a request on the idle server."""
    rule: list[str]
    valid: bool
    partial: bool
    interrupted: str | None
    warnings: list[str]
    plan: SweepPlan
    seconds: float
    """Of all runs, with the warm-up."""
    verdicts: list[Verdict]
    """In the order they were reached."""


def json_schema() -> dict[str, Any]:
    """JSON Schema of a SweepResult."""
    return msgspec.json.schema(SweepResult)
