"""The result of a load run as data: what ``--output`` writes, and what its JSON Schema is made from.

Durations are in milliseconds where a name ends in ``_ms``, in seconds where it ends in ``_s``; rates are per second; shares are 0 to 1.
"""

from __future__ import annotations

from typing import Any

import msgspec

SCHEMA_VERSION = 1
"""Raised when a field changes its meaning or goes away; new fields leave it as it is."""


class Statistics(msgspec.Struct, kw_only=True, frozen=True):
    """Of one latency, over completed requests."""

    p50: float
    p90: float
    p95: float
    p99: float
    max: float
    mean: float
    p99_ci95: tuple[float, float] | None
    """Bounds that hold the p99 at 95 % confidence: a bootstrap over clusters; null with fewer than ten of them."""
    samples: int
    clusters: int
    """Blocks of requests in a row, each as long as their correlation time, or for ITL one-second windows: what the confidence rests on."""
    few: bool
    """Too few samples for a p99: with fewer than 100 requests, or fewer than 100 blocks of them, it is all but the maximum."""


class SloResult(msgspec.Struct, kw_only=True, frozen=True):
    """One SLO, judged over all requests that were offered. A request that did not complete is infinitely late."""

    slo: str
    metric: str
    statistic: str
    limit_ms: float
    pooled_ms: float | None
    """The statistic over all requests or gaps together, as most tables have it; null: infinite."""
    pooled_inside: bool
    attained: int
    """Requests that kept it, each for itself."""
    attainment: float
    """The same, of those offered."""


class FailureGroup(msgspec.Struct, kw_only=True, frozen=True):
    """Requests that failed in the same way."""

    kind: str
    """refused, failed, expired, or unfinished: the run stopped first."""
    message: str
    status: int | None
    count: int


class WrongLength(msgspec.Struct, kw_only=True, frozen=True):
    """A completed request whose prompt or answer was not as long as planned."""

    index: int
    prompt_planned: int
    prompt_seen: int
    """By the server's count."""
    output_asked: int
    output_seen: int


class ClientResult(msgspec.Struct, kw_only=True, frozen=True):
    """The load client's own part."""

    cpu_share: float
    """Of one core."""
    peak_in_flight: int
    queueing_ms: Statistics | None
    """From the scheduled send to the actual one: already part of every latency, and shown apart. Null in a closed loop."""
    ttft_from_send_ms: Statistics | None
    """TTFT as tools have it that count from the actual send. Null in a closed loop, where it is TTFT."""
    send_lag_p99_ms: float | None
    """How late requests were sent, but for those that waited at a cap; null in a closed loop."""
    loop_lag_p99_ms: float | None
    loop_lag_max_ms: float
    """How late its event loop was at worst."""
    bottleneck: str | None
    """Why the figures tell of the client, not of the server; null: they tell of the server."""


class Measures(msgspec.Struct, kw_only=True, frozen=True):
    """Of a run, or of one kind's or tenant's share of it."""

    requests: int
    """Offered: all that were planned but those that were not sent because the run stopped first."""
    completed: int
    failed: int
    """requests - completed."""
    completed_rate: float
    output_tokens: int
    """Of completed requests."""
    prompt_tokens: int
    cached_prompt_tokens: int | None
    """Found in the server's prefix cache; null: it does not say."""
    output_tok_s: float
    total_tok_s: float
    """Prompt and output."""
    ttft_ms: Statistics | None
    """Null: no request completed."""
    itl_ms: Statistics | None
    """Per token; null: no completed request had two."""
    tpot_ms: Statistics | None
    e2e_ms: Statistics | None
    slos: list[SloResult]
    slo_attainment: float | None
    """The share of the offered requests that kept every SLO; null without SLOs."""
    goodput_rps: float | None
    """Requests a second that kept every SLO, over the window; null without SLOs."""
    goodput_tok_s: float | None
    """Their output tokens."""


class ServeResult(Measures, kw_only=True, frozen=True):
    """A whole run."""

    schema_version: int = SCHEMA_VERSION
    benchmark: str = "serve"
    valid: bool
    """False when the client was the bottleneck: then the figures do not tell of the server."""
    partial: bool
    interrupted: str | None
    """Why the run stopped early."""
    warnings: list[str]
    method: dict[str, str]
    """How what can be computed in several ways was computed."""
    open_loop: bool
    started: float
    """Seconds since the epoch."""
    window_s: float
    """From time 0 to the end of the last request."""
    offered_rate: float | None
    """Requests over the time of the last scheduled send; null in a closed loop, and where all come at once."""
    not_sent: int
    """Planned, but the run stopped first."""
    failures: list[FailureGroup]
    errors: dict[str, int]
    """The failed ones by kind."""
    wrong_length: int
    """Completed requests whose prompt or answer was not as long as planned."""
    wrong_length_examples: list[WrongLength]
    client: ClientResult
    by_kind: dict[str, Measures]
    """Empty where there is but one."""
    by_tenant: dict[str, Measures]


def json_schema() -> dict[str, Any]:
    """JSON Schema of a ServeResult."""
    return msgspec.json.schema(ServeResult)
