"""Every test: first all of them, the slow ones too; then those that run a model on each instruction set × thread count.

usage: python tests/run_all.py [pytest arguments]          the last line sums up; exit status 1 when anything failed
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from octavo import _native
from support.arm import missing

ROOT = Path(__file__).resolve().parent.parent
RUN_A_MODEL = ("tests/engine", "tests/runner", "tests/e2e", "tests/server")
THREADS = (1, 2)


@dataclass
class Round:
    """One run of pytest."""

    name: str
    arguments: list[str]
    environment: dict[str, str] = field(default_factory=dict)


def rounds() -> list[Round]:
    """All of them, the longest first."""
    folders = [folder for folder in RUN_A_MODEL if (ROOT / folder).is_dir()]
    settings = [(isa, threads) for isa in _native.supported_isas() for threads in THREADS]
    return [
        Round("all tests", ["tests"]),
        *(
            Round(f"{isa}, {n} thread{'s'[: n > 1]}", [*folders, "-m", "not slow"], {"OCTAVO_ISA": isa, "OCTAVO_NUM_THREADS": str(n)})
            for isa, n in settings
        ),
    ]


def run(one: Round, extra: list[str]) -> Counter[str]:
    """Run it, show its output; returns how many tests passed, failed and were skipped. A run that broke off counts as failed."""
    print(f"\n== {one.name}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *one.arguments, *extra]
        status = subprocess.run(command, cwd=ROOT, env=os.environ | one.environment, check=False).returncode
        counts = count(report) if report.exists() else Counter()
    if status != 0 and not counts["failed"]:
        counts["failed"] += 1
    return counts


def count(report: Path) -> Counter[str]:
    """Totals of a JUnit report."""
    counts: Counter[str] = Counter()
    for suite in ElementTree.parse(report).getroot().iter("testsuite"):
        tests, failed, skipped = (int(suite.get(k, 0)) for k in ("tests", "failures", "skipped"))
        errors = int(suite.get("errors", 0))
        counts.update(passed=tests - failed - errors - skipped, failed=failed + errors, skipped=skipped)
    return counts


def main(extra: list[str]) -> bool:
    start, totals = time.monotonic(), Counter[str]()
    for one in rounds():
        totals += run(one, extra)
    minutes, seconds = divmod(round(time.monotonic() - start), 60)
    isas = ", ".join(_native.supported_isas())
    print(f"\nAll rounds: {isas} × {' and '.join(map(str, THREADS))} threads, soak included, {minutes} min {seconds} s")
    if lacking := missing():
        print(f"\n*** ATTENTION: {lacking} ***\n")
    print(f"{totals['passed']} passed, {totals['failed']} failed, {totals['skipped']} skipped")
    return totals["failed"] == 0


if __name__ == "__main__":
    sys.exit(0 if main(sys.argv[1:]) else 1)
