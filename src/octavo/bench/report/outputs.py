"""What ``--output`` writes, as types: a result, and what stands beside it. The JSON Schemas are made from these.

Durations are in milliseconds where a name ends in ``_ms``, in seconds where it ends in ``_s``; shares are 0 to 1.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from octavo.bench.load.credit import Counted
from octavo.bench.measures.result import ServeResult
from octavo.bench.observe.causes import Cause
from octavo.bench.sweep.result import SweepResult


class Asked(msgspec.Struct, kw_only=True, frozen=True):
    """What was measured, for whoever wants to do it again."""

    url: str
    model: str
    """Its name on the server."""
    endpoint: str
    prompts: Literal["ids", "text"]
    salt: str | None
    cache_salt: str | None
    seed: int
    workload: dict[str, Any]
    """As a workload file has it."""


class Energy(msgspec.Struct, kw_only=True, frozen=True):
    """Of the whole machine while the load ran."""

    joules: float | None
    """Null: not readable."""
    why: str | None = None
    """It is not."""
    watts: float | None = None
    joules_per_output_token: float | None = None
    domains: dict[str, float] = {}
    """Joules by package, memory and card."""


class Cost(msgspec.Struct, kw_only=True, frozen=True):
    """In the currency of the price."""

    price_per_hour: float
    per_million_output_tokens: float | None
    per_million_total_tokens: float | None
    """Prompt and output."""
    per_million_output_tokens_at_goodput: float | None
    """Of the output of requests that kept every SLO; null without SLOs, or if none did."""


class SpikeExample(msgspec.Struct, kw_only=True, frozen=True):
    """One gap that was too long."""

    request: int
    at_s: float
    ms: float
    steps: tuple[int, int] | None
    """The first and the last step in it; null: no log of them."""
    shares_ms: dict[str, float]
    """By cause."""


class SpikeCause(msgspec.Struct, kw_only=True, frozen=True):
    """One cause over the run."""

    cause: Cause
    spikes: int
    """That it names."""
    seconds: float
    """Of all spikes, whatever they are named."""
    share: float
    worst: list[SpikeExample]


class Spikes(msgspec.Struct, kw_only=True, frozen=True):
    """Gaps over a limit, and why."""

    limit_ms: float
    rule: str
    gaps: int
    """In all."""
    count: int
    """Over the limit."""
    seconds: float
    causes: list[SpikeCause]
    """The largest first."""


class RooflinePercent(msgspec.Struct, kw_only=True, frozen=True):
    """octavo.bench.observe.roofline.Roofline."""

    percent: float
    decode_percent: float | None
    prefill_percent: float | None
    memory_share: float
    busy_s: float
    basis: Literal["steps", "tokens"]


class ServerSideResult(msgspec.Struct, kw_only=True, frozen=True):
    """What the server said of itself: means over the run's time, and totals of it. Null: it does not say."""

    engine: str | None
    version: str | None
    kv_efficiency: float | None
    """Live over held."""
    fragmentation: float | None
    kv_usage: float | None
    running: float | None
    waiting: float | None
    preemptions: float | None
    cache_hit_rate: float | None
    gc_seconds: float | None
    peak_memory_bytes: dict[str, int | None] | None
    """Of each of its processes, from its start to the end of the run."""
    percent_of_roofline: float | None
    roofline: RooflinePercent | None
    spikes: Spikes
    clock_offset_ms: float
    clock_error_ms: float
    partial: bool
    """Something is missing that there should be."""
    notes: list[str]


class ServeOutput(ServeResult, kw_only=True, frozen=True):
    """Of ``bench serve``."""

    counted: dict[Counted, int] = msgspec.field(default_factory=dict)
    """How the tokens of completed requests were counted (octavo.bench.load.credit): requests by way."""
    server: ServerSideResult | None = None
    asked: Asked | None = None
    energy: Energy | None = None
    cost: Cost | None = None
    """Null without --price-per-hour."""
    facts: dict[str, Any] = msgspec.field(default_factory=dict)
    """What makes it checkable (octavo.bench.report.facts); in report.json it stands beside the result."""


class SweepOutput(SweepResult, kw_only=True, frozen=True):
    """Of ``bench sweep``."""

    server: ServerSideResult | None = None
    """In the last run at ``max_rate``."""
    run: ServeOutput | None = None
    """The measures of that run."""
    asked: Asked | None = None
    facts: dict[str, Any] = msgspec.field(default_factory=dict)
