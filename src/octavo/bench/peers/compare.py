"""A whole comparison: plan, parts, report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from octavo.bench.machine import engine_cpus
from octavo.bench.machine import measure as measure_rates
from octavo.bench.peers.document import compare_document
from octavo.bench.peers.identity import Names, weights_files
from octavo.bench.peers.plan import Comparison
from octavo.bench.peers.result import CompareResult, PartStore
from octavo.bench.peers.runner import Client, Runner
from octavo.bench.peers.summary import summarize
from octavo.bench.report.document import Document
from octavo.bench.report.facts import collect
from octavo.bench.report.private import clean
from octavo.bench.workload.tokens import find_tokens

RATES_SECONDS = 0.3


@dataclass(frozen=True)
class Outcome:
    """Of a comparison."""

    document: Document
    good: bool
    """Every part was measured."""


def plan_lines(comparison: Comparison) -> list[str]:
    """What will be done, and how long it may take, in words."""
    parts = comparison.parts()
    names = ", ".join(entrant.label for entrant in comparison.entrants)
    rounds = [part for part in parts if part.kind == "round"]
    sweeps = [part for part in parts if part.kind == "sweep"]
    lines = [f"{comparison.name}: {names}."]
    if rounds:
        minutes = sum(comparison.expected_seconds(part) for part in rounds) / 60
        loads = ", ".join(load.name for load in comparison.loads)
        count = "One round" if comparison.rounds == 1 else f"{comparison.rounds} rounds in alternating order"
        lines.append(f"{count}, a fresh start of each engine in each: {loads}. About {minutes:.0f} minutes.")
    if sweeps and comparison.sweep is not None:
        minutes = sum(comparison.expected_seconds(part) for part in sweeps) / 60
        slo = ", ".join(map(str, comparison.sweep.slos))
        swept = ", ".join(part.entrant.label for part in sweeps)
        lines.append(f"Then the highest rate at {slo} of {swept}. About {minutes:.0f} minutes.")
    if rounds and sweeps:
        lines.append(f"Together about {sum(map(comparison.expected_seconds, parts)) / 60:.0f} minutes, by the file's own guesses.")
    return lines


def compare_engines(
    comparison: Comparison,
    folder: Path,
    *,
    names: Names,
    price_per_hour: float | None = None,
    resume: bool,
    tell: Callable[[str], None],
) -> Outcome:
    """Run all parts, keep each in ``folder`` as it ends, and put the report together; of what there is, if somebody stops it.

    ``names``: for folders of this machine, in all that is told. ``price_per_hour``: of the machine.

    Raises:
        InvalidRequestError: there is no such tokenizer.
        ModelFileError: weights cannot be read.
    """
    client = Client(tokens=find_tokens(comparison.tokenizer))
    servers = {entrant.label: entrant.server for entrant in comparison.entrants}
    weights = {label: weights_files(server.weights_file, server.shown_weights_file) for label, server in servers.items()}
    rates = measure_rates(engine_cpus(), RATES_SECONDS)
    parts = Runner(comparison, client, PartStore(folder), rates, tell).run(resume)
    found = summarize(comparison, parts, price_per_hour=price_per_hour, weights=weights)
    result = msgspec.convert(clean(names.put_into(msgspec.to_builtins(found))), CompareResult)
    seeds = {"workload": comparison.seed}
    facts = names.put_into(collect(model=comparison.tokenizer, seeds=seeds, rates=result.rates or rates))
    good = not result.partial and not any(part.failure for part in result.parts)
    return Outcome(compare_document(comparison, result, facts), good)
