"""Holds Octavo's kernels and steps against fixed loops, and against the results committed for this kind of machine.

    make bench-guard                              # or: python -m benchmarks.guard; ends with 1 if something became slower,
                                                  # with 2 if so on a machine that was busy with other things
    python -m benchmarks.guard --only linear
    python -m benchmarks.guard --update           # measure three times, and write the medians to results/, or end with 2
                                                  # where the machine was busy with other things
    python -m benchmarks.guard --callgrind        # count AVX2 kernels' instructions instead, which no other load disturbs

docs/benchmarks.md says what is measured and how it is judged.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.guard import callgrind
from benchmarks.guard.cases import Case, reference
from benchmarks.guard.judge import TOLERANCE, Figure, Verdict, judge, load, middle, save, table, take
from octavo import _native, envs
from octavo.bench.machine import engine_cpus, machine_line
from octavo.bench.report.cpu import cpu_facts
from octavo.bench.report.quiet import Quiet

RESULTS = Path(__file__).parent / "results"
MODELS = ("smollm2", "gemma3-270m")


def all_cases(isa: str, cpus: list[int], models: list[str]) -> list[Case]:
    """Kernels, Python and steps; everything is built, and no time taken yet."""
    from benchmarks.guard.kernels import kernel_cases
    from benchmarks.guard.python_costs import python_cases
    from benchmarks.guard.steps import Stepper, python_of_a_step, step_cases

    cases = [*kernel_cases(isa, _native.ThreadPool(cpus)), *python_cases()]
    for model in models:
        stepper = Stepper(model)
        cases += [*step_cases(stepper, model), *python_of_a_step(stepper, model)]
    return cases


def results_path(isa: str, threads: int) -> Path:
    """By CPU model, instruction set and threads."""
    facts = cpu_facts()
    family = "-".join(str(facts["family_model_stepping"] or "").split("/")[:2])
    name = re.sub(r"[^a-z0-9]+", "-", f"{facts['cpu']} {family} {isa} {threads} threads".lower()).strip("-")
    return RESULTS / f"{name}.json"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--models", nargs="*", default=list(MODELS), help="whose steps to time; none: kernels and Python alone")
    parser.add_argument("--rounds", type=int, default=6, help="the best of so many counts (default: 6)")
    parser.add_argument("--tolerance", type=float, default=TOLERANCE, help=f"how much slower a case may be (default: {TOLERANCE})")
    parser.add_argument("--callgrind", action="store_true", help="count the AVX2 kernels' instructions in place of timing (needs valgrind)")
    parser.add_argument("--update", action="store_true", help="write this machine's results in place of judging")
    args = parser.parse_args()
    if args.callgrind:
        return callgrind.guard(args.update)

    isa, cpus = envs.isa() or _native.supported_isas()[0], engine_cpus()
    cases = [case for case in all_cases(isa, cpus, args.models) if args.only in case.name]
    path, loops = results_path(isa, len(cpus)), lambda: reference(cpus)
    machine = machine_line(isa, loops().rates)
    print(f"{machine}\n{path.name}")
    if args.update:
        with Quiet() as quiet:
            figures = middle([take(cases, loops, args.rounds) for _ in range(3)])
        return update(path, machine, figures, quiet.warnings())
    with Quiet() as quiet:
        found = judge(cases, load(path), loops, rounds=args.rounds, tolerance=args.tolerance)
    return tell(found, args.tolerance, quiet.warnings())


def update(path: Path, machine: str, figures: dict[str, Figure], warnings: Sequence[str]) -> int:
    """Write ``figures`` over those committed of the same cases, unless the machine was not quiet: then nothing is written, and it is 2."""
    for warning in warnings:
        print(f"{warning} So nothing is written: run it again.")
    if warnings:
        return 2
    save(path, machine, load(path) | figures)
    return 0


def tell(found: Sequence[Verdict], tolerance: float, warnings: Sequence[str]) -> int:
    """Print what became slower; the exit code."""
    print(table(found, tolerance))
    slower = [verdict.name for verdict in found if verdict.regressed(tolerance)]
    new = sum(verdict.then is None for verdict in found)
    if new:
        print(f"{new} cases have no committed result on such a machine; --update writes one")
    print(f"slower by more than {tolerance:.0%}: {'; '.join(slower) or 'nothing'}")
    for warning in warnings:
        print(f"{warning}{' So this is no verdict: run it again.' if slower else ''}")
    return (2 if warnings else 1) if slower else 0


if __name__ == "__main__":
    sys.exit(main())
