"""Axes: from values to places, and where the ticks are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from octavo.bench.report.numbers import tick

NICE = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True)
class Scale:
    """Values ``low`` to ``high`` on places ``start`` to ``end``, which may run either way."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def place(self, value: float) -> float:
        """Where ``value`` is; outside of the domain where it is outside. On a log axis what is not positive is at the low end."""
        low, high, at = self.low, self.high, value
        if self.log:
            low, high, at = math.log10(low), math.log10(high), math.log10(max(value, self.low))
        return self.start + (at - low) / (high - low) * (self.end - self.start)

    def ticks(self, count: int) -> list[tuple[float, str]]:
        """About ``count`` values with their labels, evenly spaced, or 1, 2, 5 times powers of ten on a log axis."""
        if self.log:
            return log_ticks(self.low, self.high, count)
        step = nice_step(self.low, self.high, count)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [(i * step, tick(i * step, step)) for i in range(first, last + 1)]


def nice_step(low: float, high: float, count: int) -> float:
    """1, 2, 2.5 or 5 times a power of ten, such that about ``count`` steps fit between low and high."""
    raw = (high - low) / max(count, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    return next((factor for factor in NICE if factor * power >= raw * (1 - 1e-9)), 10.0) * power


def log_ticks(low: float, high: float, count: int) -> list[tuple[float, str]]:
    """Powers of ten between low and high; 2 and 5 times them too while there is room; only some powers if there are too many."""
    first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    choices: list[list[float]] = [
        [factor * 10.0**power for power in range(first, last + 1) for factor in factors] for factors in ((1, 2, 5), (1, 3), (1,))
    ]
    choices += [[10.0**power for power in range(first, last + 1) if (power - first) % every == 0] for every in (2, 3, 4, 6, 10)]
    inside = [[value for value in values if low * (1 - 1e-9) <= value <= high * (1 + 1e-9)] for values in choices]
    chosen = next((values for values in inside if len(values) <= count + 1), inside[-1])
    return [(value, tick(value, value)) for value in chosen]


def linear_domain(values: Iterable[float], count: int = 5, zero: bool = True) -> tuple[float, float]:
    """From 0 (if ``zero``, or the values are on both sides of it) to a tick beyond the last value. (0, 1) for no values."""
    found = list(values)
    if not found:
        return 0.0, 1.0
    low, high = min(found), max(found)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if high - low <= max(1e-9 * max(abs(low), abs(high)), 1e-99):  # one value, as far as ticks can tell
        pad = max(0.5, 1e-3 * abs(low))
        return (low - pad, high + pad) if abs(low) > 1e-99 else (0.0, 1.0)
    step = nice_step(low, high, count)
    return math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step


def log_domain(values: Iterable[float]) -> tuple[float, float]:
    """From the 1, 2 or 5 times a power of ten below the least positive value to the one above the greatest. (1, 10) for none."""
    found = [value for value in values if value > 0]
    if not found:
        return 1.0, 10.0
    low, high = _round_125(min(found), down=True), _round_125(max(found), down=False)
    return (low, high) if low < high else (low / 2, high * 2)


def _round_125(value: float, down: bool) -> float:
    power = 10.0 ** math.floor(math.log10(value))
    steps: Sequence[float] = (1, 2, 5, 10)
    if down:
        return max(step for step in steps if step * power <= value * (1 + 1e-9)) * power
    return min(step for step in steps if step * power >= value * (1 - 1e-9)) * power
