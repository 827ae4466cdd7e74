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
    """Null: infinite; of the growth in requests: not known."""
    low: float | None
    """Lower bound, one-sided. What the sweep's confidence lets err is divided by the number of conditions, as any of them can fail, and by
    that of the looks at which it may."""
    high: float | None
    """Upper bound, one-sided, divided by the number of looks at which it can be low enough; null: infinite or not known."""
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
    near_limit: bool
    """With requests until it was decided, or the largest number was reached; false: by the search, which takes estimates."""
    runs: int
    seconds: float
    stopped_early: bool
    """So many requests had missed that the rest could not make up for it; the figures are of what there was. Near the limit that
    decides."""
    conditions: list[Condition]
    measures: Measures
    """Of the judged requests."""


class SweepPlan(msgspec.Struct, kw_only=True, frozen=True):
    """What a sweep will take, said after the warm-up and before the first verdict."""

    answer_seconds: float
    """What one answer may take, by the warm-up and the SLOs."""
    max_verdicts: int
    """Of the search."""
    requests_per_run: int
    """At low rates; more at rates where that would be over too soon."""
    max_near_limit: int
    """Verdicts near the limit."""
    max_requests: int
    """The largest number for one verdict, at low rates."""
    needed: int
    """Requests of which none misses, to show that a rate is kept."""
    max_minutes: float
    """Of sending, whatever the server's rate is, and if every verdict takes the largest number."""
    minutes: list[PlannedTime]
    passes: list[PassChance]


class PlannedTime(msgspec.Struct, kw_only=True, frozen=True):
    """How long a server's sweep takes to send, without what it needs to end the last requests of each run."""

    rate: float
    """The highest that it sustains."""
    minutes: float
    """If the search leads there: two verdicts near the limit of the largest number of requests, and one that is decided at its first
    look."""
    max_minutes: float
    """If the search leads astray, and as many verdicts near the limit are needed as there may be, of the largest number of requests."""


class PassChance(msgspec.Struct, kw_only=True, frozen=True):
    """How sharp the estimates of one run of the search are."""

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
    """The highest rate of which every condition is shown at ``confidence``; null: of none. With ``shown_not_sustained`` the interval that
    the answer is shown to lie in."""
    shown_not_sustained: float | None
    """The lowest rate shown not to be sustained; null: none."""
    confirmed: bool
    """Whether ``max_rate`` was sustained in a verdict near the limit, by requests of its own."""
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
