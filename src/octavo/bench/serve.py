"""``octavo bench serve``: one load on one server, from the workload to the result."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from octavo.bench.load.probe import Ready, get_ready
from octavo.bench.load.records import LoadRun
from octavo.bench.load.run import LoadOptions, offer
from octavo.bench.load.target import Target
from octavo.bench.machine import MachineRates, engine_cpus
from octavo.bench.machine import measure as measure_rates
from octavo.bench.measures.measures import measure
from octavo.bench.measures.slo import Slo
from octavo.bench.observe.observation import Observation
from octavo.bench.observe.observer import Observer
from octavo.bench.observe.server import server_side
from octavo.bench.peers.process import ServerProcess
from octavo.bench.report.cost import cost_data
from octavo.bench.report.document import Document
from octavo.bench.report.energy import EnergyMeter
from octavo.bench.report.facts import collect
from octavo.bench.report.private import cleaned
from octavo.bench.report.processes import listener
from octavo.bench.report.quiet import Quiet
from octavo.bench.report.serve import serve_document
from octavo.bench.workload.requests import DrawnRequest, Workload
from octavo.bench.workload.tokens import Tokens

RATES_SECONDS = 0.3
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
    served: str | None = None
    """The model that it was started with."""
    rates: bool = False
    """Measure what this machine can do at most, if the server is on it: two seconds before the run."""


@dataclass(frozen=True, kw_only=True)
class ServeOutcome:
    """What came out."""

    result: dict[str, Any]
    """The document's: of octavo.bench.report.outputs.ServeOutput."""
    document: Document
    run: LoadRun

    @property
    def good(self) -> bool:
        """Whether the figures are of the whole load, and of the server."""
        return bool(self.result["valid"] and not self.result["partial"] and self.result["completed"])


def measure_server(plan: ServePlan, say: Say) -> ServeOutcome:
    """Probe the server, offer it the load, watch both meanwhile, measure.

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
    rates = rates_of(plan, ready.target)
    watch = _Watch(plan, ready.target)
    say(f"{ready.target.model} at {plan.url}: {announcement(plan.workload, requests)}")
    run = watch.over(lambda: offer(ready.target, requests, concurrency=plan.workload.arrivals.in_flight, options=plan.options))
    return _outcome(plan, ready, run, watch, rates)


def rates_of(plan: ServePlan, target: Target) -> MachineRates | None:
    """What this machine can do at most, if the plan wants it and the server is on it."""
    return measure_rates(engine_cpus(), RATES_SECONDS) if plan.rates and target.address.local else None


def quiet_for(plan: ServePlan, target: Target) -> Quiet:
    """Watches the machine, of which the client and, if it is here, the server are no disturbance."""
    address = target.address
    pid = plan.server.pid if plan.server is not None else listener(address.port) if address.local else None
    return Quiet(own=[] if pid is None else [pid])


class _Watch:
    """What is looked at while a load runs: the server, the machine, its energy."""

    def __init__(self, plan: ServePlan, target: Target) -> None:
        self.quiet = quiet_for(plan, target)
        self.meter = EnergyMeter()
        self._observer = Observer(plan.url, api_key=plan.api_key)

    def over(self, load: Callable[[], LoadRun]) -> LoadRun:
        self.quiet.look_before()
        self._observer.start()
        with self.quiet, self.meter:
            run = load()
        self.seen = self._observer.stop(run.started)
        return run


def _outcome(plan: ServePlan, ready: Ready, run: LoadRun, watch: _Watch, rates: MachineRates | None) -> ServeOutcome:
    result = measure(run, plan.slos)
    result["warnings"] += [*ready.notes, *counting(run), *watch.quiet.warnings()]
    if plan.server is not None and (ended := plan.server.failure()) is not None:
        result["warnings"].insert(0, f"{ended}.")
    limits = [slo.limit for slo in plan.slos if slo.metric == "itl"]
    side = server_side(run, watch.seen, itl_limits=limits, rates=rates)
    result["counted"] = dict(Counter(record.counted for record in run.records if record.completed))
    result |= {"server": side.result, "asked": asked_of(plan, ready), "energy": watch.meter.energy.as_data(result["output_tokens"])}
    if plan.price_per_hour is not None:
        result["cost"] = cost_data(plan.price_per_hour, result)
    facts = collect(
        client=result["asked"],
        server=server_facts(plan, watch.seen),
        model=plan.served,
        seeds={"arrivals, lengths and prompts": plan.workload.seed},
        rates=rates or False,
    )
    facts["quiet"] = watch.quiet.as_facts()
    title = f"{ready.target.model} at {plan.url}, {plan.workload.name}"
    document = cleaned(serve_document(run, result, title=title, facts=facts, sections=[side.section]))
    return ServeOutcome(result=document.result, document=document, run=run)


def counting(run: LoadRun) -> list[str]:
    """Where a chunk's tokens are no count of the server's, but our estimate."""
    guessed = sum(record.counted in ("text", "chunks") for record in run.records if record.completed)
    if not guessed:
        return []
    return [f"Of {guessed} answers the server did not say which tokens came when: the gaps between them are by the text."]


def server_facts(plan: ServePlan, seen: Observation) -> dict[str, Any]:
    """What is known of the server: what it told, and of one that was started for this how."""
    told = dict(seen.facts or {})
    if isinstance(info := told.get("info"), dict):
        told["info"] = {name: value for name, value in info.items() if name not in ("details", "phases")}  # pages of them
    facts: dict[str, Any] = {"engine": seen.engine, "version": seen.version, **told}
    if plan.server is not None:
        memory = plan.server.memory
        facts |= {"command": list(plan.server_command), "startup_s": plan.server.startup_seconds}
        facts |= {} if memory is None else {"peak_memory_bytes": memory.peak}
    return {name: value for name, value in facts.items() if value is not None}


def announcement(workload: Workload, requests: Sequence[DrawnRequest]) -> str:
    """What is about to happen, and how long the sending takes."""
    arrivals = workload.arrivals
    count = f"{len(requests)} requests"
    if arrivals.closed:
        return f"{count} by {arrivals.concurrency} clients, each waiting for its answers"
    last = requests[-1].arrival
    cap = "" if arrivals.max_concurrency is None else f", at most {arrivals.max_concurrency} in flight"
    return f"{count} {f'over {math.ceil(last)} s ({arrivals.process})' if last else 'all at once'}{cap}"


def asked_of(plan: ServePlan, ready: Ready) -> dict[str, Any]:
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
    return asked
