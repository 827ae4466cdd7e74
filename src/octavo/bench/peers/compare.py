"""A whole comparison: plan, parts, report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from octavo.bench.peers.document import compare_document
from octavo.bench.peers.plan import Comparison
from octavo.bench.peers.result import CompareResult, PartStore
from octavo.bench.peers.runner import Client, Runner
from octavo.bench.peers.summary import summarize
from octavo.bench.report import facts
from octavo.bench.report.document import Document
from octavo.bench.report.private import clean
from octavo.bench.workload.tokens import find_tokens


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
    return lines


def compare_engines(comparison: Comparison, folder: Path, *, resume: bool, tell: Callable[[str], None]) -> Outcome:
    """Run all parts, keep each in ``folder`` as it ends, and put the report together; of what there is, if somebody stops it.

    Raises:
        InvalidRequestError: there is no such tokenizer.
    """
    client = Client(tokens=find_tokens(comparison.tokenizer))
    found = facts.collect(model=comparison.tokenizer, seeds={"workload": comparison.seed})
    parts = Runner(comparison, client, PartStore(folder), tell).run(resume)
    result = msgspec.convert(clean(msgspec.to_builtins(summarize(comparison, parts))), CompareResult)
    good = not result.partial and not any(part.failure for part in result.parts)
    return Outcome(compare_document(comparison, result, found), good)
