"""What the guard times, and what it holds the times against: fixed loops that no change of Octavo's kernels touches."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from octavo.bench.machine import MachineRates, measure

PYTHON_LOOP = 20_000
"""Turns of the loop that stands for the interpreter's speed. Never to be changed: every committed result rests on it."""


@dataclass(frozen=True)
class Reference:
    """What the machine gave, all at one time: the native loops of ``octavo bench machine``, and one loop in Python."""

    rates: MachineRates
    python_seconds: float
    """Of ``python_loop``."""


@dataclass(frozen=True)
class Case:
    """One thing that must not become slower."""

    name: str
    run: Callable[[], float]
    """Do it once; the seconds it took."""
    least: Callable[[Reference], float]
    """Seconds that the reference loops take for as many bytes or operations; for Python, those of its loop."""


def python_loop() -> float:
    """Seconds of a fixed piece of interpreted work: a dict, small integers, calls."""
    start = time.perf_counter()
    table: dict[int, int] = {}
    for i in range(PYTHON_LOOP):
        table[i & 1023] = table.get(i & 1023, 0) + i
    return time.perf_counter() - start


def reference(cpus: list[int]) -> Reference:
    """Run the fixed loops, about a fifth of a second, and take the best of each."""
    return Reference(measure(cpus, 0.05), min(python_loop() for _ in range(5)))


def better(a: Reference, b: Reference) -> Reference:
    """The best of two."""
    best = {name: max(getattr(a.rates, name), getattr(b.rates, name)) for name in RATES}
    return Reference(replace(a.rates, **best), min(a.python_seconds, b.python_seconds))


RATES = ("read_bytes_s", "int8_ops_s", "bf16_flops_s", "fp32_flops_s")
