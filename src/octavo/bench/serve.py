"""``octavo bench serve``: one load on one server, from the workload to the result."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from octavo.bench.load.probe import Ready, get_ready
from octavo.bench.load.records import LoadRun
from octavo.bench.load.run import LoadOptions, offer
from octavo.bench.measures.measures import measure
from octavo.bench.measures.slo import Slo
from octavo.bench.peers.process import ServerProcess
from octavo.bench.workload.requests import DrawnRequest, Workload
from octavo.bench.workload.tokens import Tokens

Say = Callable[[str], None]
"""Told one line at a time."""


@dataclass(frozen=True, kw_only=True)
class ServePlan:
    """What is measured, and how."""

    url: str
    model: str | None
    """Its name on the server; None: the first that the server lists."""
    workload: Workload
    tokens: Tokens
    endpoint: str = "/v1/completions"
    api_key: str | None = None
    as_text: bool = False
    """Prompt with text; otherwise with token ids."""
    salt: str = ""
    """Another draws other tokens."""
    cache_salt: str | None = None
    slos: Sequence[Slo] = ()
    options: LoadOptions = field(default_factory=LoadOptions)
    price_per_hour: float | None = None
    server: ServerProcess | None = None
    """If it was started for this."""
    server_command: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ServeOutcome:
    """What came out."""

    plan: ServePlan
    ready: Ready
    run: LoadRun
    result: dict[str, Any]
    """What --output writes."""

    @property
    def good(self) -> bool:
        """Whether the figures are of the whole load, and of the server."""
        return bool(self.result["valid"] and not self.result["partial"] and self.result["completed"])


def measure_server(plan: ServePlan, say: Say) -> ServeOutcome:
    """Probe the server, offer it the load, measure.

    Raises:
        InvalidRequestError: nothing answers at the URL, it has no such model, or the workload needs a tokenizer and there is none.
        OctavoError: it does not answer as an OpenAI server does.
    """
    requests = plan.workload.draw(plan.tokens, as_text=plan.as_text, salt=plan.salt)
    ready = get_ready(
        plan.url,
        plan.model,
        requests[0],
        endpoint=plan.endpoint,
        api_key=plan.api_key,
        tokenizer=plan.tokens.known,
        cache_salt=plan.cache_salt,
    )
    for note in ready.notes:
        say(note)
    say(f"{ready.target.model} at {plan.url}: {announcement(plan.workload, requests)}")
    run = offer(ready.target, requests, concurrency=plan.workload.arrivals.in_flight, options=plan.options)
    result = measure(run, plan.slos)
    result["warnings"] += ready.notes
    result |= {"counted": sorted({record.counted for record in run.records if record.completed}), **_asked(plan, ready)}
    return ServeOutcome(plan=plan, ready=ready, run=run, result=result)


def announcement(workload: Workload, requests: Sequence[DrawnRequest]) -> str:
    """What is about to happen, and how long the sending takes."""
    arrivals = workload.arrivals
    count = f"{len(requests)} requests"
    if arrivals.closed:
        return f"{count} by {arrivals.concurrency} clients, each waiting for its answers"
    last = requests[-1].arrival
    cap = "" if arrivals.max_concurrency is None else f", at most {arrivals.max_concurrency} in flight"
    return f"{count} {f'over {math.ceil(last)} s ({arrivals.process})' if last else 'all at once'}{cap}"


def _asked(plan: ServePlan, ready: Ready) -> dict[str, Any]:
    """What was measured, for whoever wants to do it again."""
    asked: dict[str, Any] = {
        "url": plan.url,
        "model": ready.target.model,
        "endpoint": plan.endpoint,
        "prompts": "text" if plan.as_text else "ids",
        "salt": plan.salt or None,
        "cache_salt": plan.cache_salt,
        "seed": plan.workload.seed,
        "workload": plan.workload.as_toml(),
    }
    if plan.server is not None:
        asked["server_command"] = list(plan.server_command)
        asked["startup_s"] = plan.server.startup_seconds
    return asked
