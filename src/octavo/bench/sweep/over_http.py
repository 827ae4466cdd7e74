"""A sweep of a server over HTTP: the workload's requests at whatever rate is asked for, and the server watched meanwhile."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec

from octavo.bench.load.probe import Ready, get_ready
from octavo.bench.load.records import LoadRun, StopWhen
from octavo.bench.load.run import offer
from octavo.bench.machine import MachineRates
from octavo.bench.measures.measures import measure
from octavo.bench.observe.observation import Observation
from octavo.bench.observe.observer import Observer
from octavo.bench.observe.server import server_side
from octavo.bench.report.cost import cost_data
from octavo.bench.report.document import Document, Section
from octavo.bench.report.energy import Energy, EnergyMeter
from octavo.bench.report.facts import collect
from octavo.bench.report.private import cleaned
from octavo.bench.report.quiet import Quiet
from octavo.bench.report.serve import latency_tables, serve_sentences, throughput_table
from octavo.bench.serve import Say, ServePlan, asked_of, counting, quiet_for, rates_of, server_facts
from octavo.bench.sweep.document import sweep_document
from octavo.bench.sweep.result import SweepResult, Verdict
from octavo.bench.sweep.settings import SweepSettings
from octavo.bench.sweep.sweep import sweep
from octavo.bench.workload.arrivals import Arrivals


@dataclass(frozen=True, kw_only=True)
class SweepOutcome:
    """What came out."""

    found: SweepResult
    result: dict[str, Any]
    """What --output writes: ``found`` as plain data, and beside it the server and a run's measures at the answer, and what was asked."""
    document: Document

    @property
    def good(self) -> bool:
        """Whether the sweep went to its end and found a rate."""
        return self.found.valid and not self.found.partial and self.found.max_rate is not None


def sweep_server(plan: ServePlan, settings: SweepSettings, say: Say) -> SweepOutcome:
    """Probe the server, warm it up, say what the sweep will take, sweep. Of ``plan``'s workload kinds, lengths, prompts and tenants count.

    Raises:
        InvalidRequestError: nothing answers at the URL, it has no such model, or the workload needs a tokenizer and there is none.
        OctavoError: it does not answer as an OpenAI server does.
        SweepError: it does not complete the requests of the warm-up.
    """
    sample = dataclasses.replace(plan.workload, num_requests=1).draw(plan.tokens, as_text=plan.as_text, salt=plan.salt)[0]
    target = {"endpoint": plan.endpoint, "api_key": plan.api_key, "tokenizer": plan.tokens.known, "cache_salt": plan.cache_salt}
    ready = get_ready(plan.url, plan.model, sample, **target)
    for note in ready.notes:
        say(note)
    rates = rates_of(plan, ready.target)
    source = HttpOffer(plan, ready)
    quiet = quiet_for(plan, ready.target)
    quiet.look_before()
    with quiet:
        found = sweep(source, settings, lambda verdict: say(verdict_line(verdict)), say)
    return _outcome(plan, settings, source, found, (quiet, rates))


@dataclass
class HttpOffer:
    """An Offer (octavo.bench.sweep.settings): Poisson arrivals of the plan's workload at a server; each run's seed draws the rest."""

    plan: ServePlan
    ready: Ready
    seen: dict[float, tuple[LoadRun, Observation]] = field(default_factory=dict)
    """By rate, the last run at it and what the server said meanwhile."""
    energy: dict[float, Energy] = field(default_factory=dict)
    """Of the same runs."""

    def __call__(self, rate: float | None, num_requests: int, seed: int, stop_when: StopWhen | None = None) -> LoadRun:
        plan = self.plan
        arrivals = Arrivals(process="closed", concurrency=1) if rate is None else Arrivals(process="poisson", rate=rate)
        load = dataclasses.replace(plan.workload, arrivals=arrivals, num_requests=num_requests, seed=seed)
        requests = load.draw(plan.tokens, as_text=plan.as_text, salt=plan.salt)
        observer = Observer(plan.url, api_key=plan.api_key)
        observer.start()
        options = dataclasses.replace(plan.options, stop_when=stop_when)
        with EnergyMeter() as meter:
            run = offer(self.ready.target, requests, concurrency=arrivals.in_flight, options=options)
        seen = observer.stop(run.started)
        if rate is not None:
            self.seen[rate], self.energy[rate] = (run, seen), meter.energy
        return run


def verdict_line(verdict: Verdict) -> str:
    """A verdict in one line."""
    word = "sustained" if verdict.sustained else "not sustained"
    sure = "" if verdict.decided else ", by the estimate"
    kind = "near the limit, " if verdict.near_limit else ""
    runs = f" in {verdict.runs} runs" if verdict.runs > 1 else ""
    found = verdict.reason if not verdict.sustained else _figures(verdict)
    return f"{verdict.rate:g}/s {word}{sure} ({kind}{verdict.judged} judged{runs}, {math.ceil(verdict.seconds)} s): {found}"


def _figures(verdict: Verdict) -> str:
    measures = verdict.measures
    tails = [(name, stats.p99) for name, stats in (("TTFT", measures.ttft_ms), ("ITL", measures.itl_ms)) if stats is not None]
    kept = f"{100 * (measures.slo_attainment or 0):.4g} % keep every SLO"
    return "; ".join([kept, *(f"{name} p99 {p99:.3g} ms" for name, p99 in tails)])


def _outcome(
    plan: ServePlan, settings: SweepSettings, source: HttpOffer, found: SweepResult, machine: tuple[Quiet, MachineRates | None]
) -> SweepOutcome:
    quiet, rates = machine
    result: dict[str, Any] = msgspec.to_builtins(found)
    result["warnings"] += [*source.ready.notes, *quiet.warnings()]
    if plan.server is not None and (ended := plan.server.failure()) is not None:
        result["warnings"].insert(0, f"{ended}.")
    result |= {"asked": asked_of(plan, source.ready) | {"seed": settings.seed}, "server": None, "run": None}
    sections: list[Section] = []
    at = source.seen.get(found.max_rate) if found.max_rate is not None else None
    if at is not None and found.max_rate is not None:
        limits = [slo.limit for slo in settings.slos if slo.metric == "itl"]
        side = server_side(*at, itl_limits=limits, rates=rates)
        result |= {"server": side.result, "run": _measured(plan, settings, at[0], source.energy[found.max_rate])}
        result["warnings"] += [f"At the highest rate: {each}" for each in [*result["run"]["warnings"], *counting(at[0])]]
        sections = [*_at_answer(result["run"]), side.section]
    last = at or next(reversed(source.seen.values()), None)
    facts = collect(
        client=result["asked"],
        server=server_facts(plan, last[1]) if last is not None else {},
        model=plan.served,
        seeds={"sweep": settings.seed},
        rates=rates or False,
    )
    facts["quiet"] = quiet.as_facts()
    title = f"Highest rate of {source.ready.target.model} at {plan.url}, {plan.workload.name}"
    document = cleaned(sweep_document(found, result, settings.slos, title=title, facts=facts, sections=sections))
    return SweepOutcome(found=found, result=document.result, document=document)


def _measured(plan: ServePlan, settings: SweepSettings, run: LoadRun, energy: Energy) -> dict[str, Any]:
    """The last run at the answer, as ``bench serve`` would give it."""
    measured = measure(run, settings.slos)
    measured["counted"] = dict(Counter(record.counted for record in run.records if record.completed))
    measured["energy"] = energy.as_data(measured["output_tokens"])
    if plan.price_per_hour is not None:
        measured["cost"] = cost_data(plan.price_per_hour, measured)
    return measured


def _at_answer(run: dict[str, Any]) -> list[Section]:
    return [
        Section(heading="The last run at the highest rate", text=serve_sentences(run), tables=[*latency_tables(run), throughput_table(run)])
    ]
