"""From times to a verdict. Nothing here reads a clock."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.guard.cases import Case, Reference, better

TOLERANCE = 0.2
"""A case may be so much slower than its committed result. Less than that is this machine's own noise."""


@dataclass(frozen=True)
class Figure:
    """One case, measured."""

    seconds: float
    """The fastest run."""
    share: float
    """Of the limit: what the reference loops take for the same work, in the same minutes, over ``seconds``. For Python a mere ratio."""


@dataclass(frozen=True)
class Verdict:
    """One case beside its committed result."""

    name: str
    now: Figure
    then: Figure | None
    """None: there is none committed."""

    @property
    def slowdown(self) -> float:
        """How many times as slow as it was, by the clock or against the reference loops, whichever says less; 1 where nothing is committed.

        The clock alone would take a slow minute of the machine for a regress, and the loops alone a minute in which only they ran faster
        (a memory that other guests leave alone, say). A case that became slower is so by both.
        """
        if self.then is None:
            return 1.0
        return min(self.now.seconds / self.then.seconds, self.then.share / self.now.share)

    def regressed(self, tolerance: float) -> bool:
        return self.slowdown > 1 + tolerance


def take(cases: Sequence[Case], reference: Callable[[], Reference], rounds: int) -> dict[str, Figure]:
    """Best of ``rounds``: in each the reference loops, then every case once; so what else the machine does meets them alike."""
    best: dict[str, float] = {}
    limits = reference()
    for _ in range(rounds):
        for case in cases:
            best[case.name] = min(case.run(), best.get(case.name, float("inf")))
        limits = better(limits, reference())
    return {case.name: Figure(best[case.name], case.least(limits) / best[case.name]) for case in cases}


def middle(figures: Sequence[dict[str, Figure]]) -> dict[str, Figure]:
    """Of several measurements the median of each case: what is worth committing."""
    return {name: Figure(median(f[name].seconds for f in figures), median(f[name].share for f in figures)) for name in figures[0]}


def verdicts(now: dict[str, Figure], then: dict[str, Figure]) -> list[Verdict]:
    return [Verdict(name, figure, then.get(name)) for name, figure in now.items()]


def judge(
    cases: Sequence[Case],
    then: dict[str, Figure],
    reference: Callable[[], Reference],
    *,
    rounds: int,
    tolerance: float = TOLERANCE,
    retries: int = 2,
) -> list[Verdict]:
    """Measure ``cases`` and hold them against ``then``.

    What looks slower is measured again, in three times as many rounds, up to ``retries`` times, and its least slowdown counts.
    """
    found = {verdict.name: verdict for verdict in verdicts(take(cases, reference, rounds), then)}
    for _ in range(retries):
        suspects = [case for case in cases if found[case.name].regressed(tolerance)]
        if not suspects:
            break
        for again in verdicts(take(suspects, reference, 3 * rounds), then):
            found[again.name] = min(found[again.name], again, key=lambda verdict: verdict.slowdown)
    return list(found.values())


def table(found: Sequence[Verdict], tolerance: float) -> str:
    """A line a case; those that regressed are marked."""
    width = max(len(verdict.name) for verdict in found)
    lines = [f"{'':{width}}  {'best, µs':>10}  {'of limit':>8}  {'committed':>9}  slowdown"]
    for verdict in found:
        then = f"{100 * verdict.then.share:8.1f}%" if verdict.then else f"{'–':>9}"
        slowdown = f"{verdict.slowdown:8.2f}" if verdict.then else f"{'–':>8}"
        mark = "  SLOWER" if verdict.regressed(tolerance) else ""
        lines.append(
            f"{verdict.name:{width}}  {1e6 * verdict.now.seconds:10.1f}  {100 * verdict.now.share:7.1f}%  {then}  {slowdown}{mark}"
        )
    return "\n".join(lines)


def load(path: Path) -> dict[str, Figure]:
    """Committed figures by case; none where the file is missing."""
    if not path.exists():
        return {}
    return {name: Figure(**figure) for name, figure in json.loads(path.read_text(encoding="utf-8"))["cases"].items()}


def save(path: Path, machine: str, figures: dict[str, Figure]) -> None:
    cases = {name: {"seconds": float(f"{f.seconds:.4g}"), "share": float(f"{f.share:.4g}")} for name, f in figures.items()}
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"machine": machine, "cases": cases}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
