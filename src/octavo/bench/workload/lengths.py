"""Distributions of token counts. Each draws from low to high, and knows both."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from octavo.bench.strict_table import StrictTable
from octavo.bench.workload.bounds import MAX_TOKENS, MAX_WEIGHT


class Lengths(Protocol):
    """How many tokens something has."""

    @property
    def low(self) -> int: ...

    @property
    def high(self) -> int: ...

    def draw(self, random: np.random.Generator) -> int:
        """One length, low to high."""

    def as_toml(self) -> int | dict[str, Any]:
        """As it stands in a workload file."""


@dataclass(frozen=True)
class Fixed:
    """Always the same; in a file the bare number will do."""

    tokens: int

    @property
    def low(self) -> int:
        return self.tokens

    @property
    def high(self) -> int:
        return self.tokens

    def draw(self, random: np.random.Generator) -> int:
        return self.tokens

    def as_toml(self) -> int:
        return self.tokens


@dataclass(frozen=True)
class Uniform:
    """Every count from low to high is as likely."""

    low: int
    high: int

    def draw(self, random: np.random.Generator) -> int:
        return int(random.integers(self.low, self.high, endpoint=True))

    def as_toml(self) -> dict[str, Any]:
        return {"distribution": "uniform", "low": self.low, "high": self.high}


@dataclass(frozen=True)
class LogNormal:
    """exp(ln median + sigma × a standard normal), rounded, and clipped to low … high: how the lengths of chats are spread."""

    median: float
    sigma: float
    low: int
    high: int

    def draw(self, random: np.random.Generator) -> int:
        exponent = math.log(self.median) + self.sigma * random.standard_normal()
        return max(self.low, min(self.high, round(math.exp(min(exponent, math.log(self.high))))))

    def as_toml(self) -> dict[str, Any]:
        return {"distribution": "lognormal", "median": self.median, "sigma": self.sigma, "low": self.low, "high": self.high}


@dataclass(frozen=True)
class Choice:
    """One of a few values, as likely as its weight says."""

    values: tuple[int, ...]
    weights: tuple[float, ...]

    @property
    def low(self) -> int:
        return min(self.values)

    @property
    def high(self) -> int:
        return max(self.values)

    def draw(self, random: np.random.Generator) -> int:
        return self.values[pick(random, self.weights)]

    def as_toml(self) -> dict[str, Any]:
        return {"distribution": "choice", "values": list(self.values), "weights": list(self.weights)}


def pick(random: np.random.Generator, weights: tuple[float, ...]) -> int:
    """An index, as likely as its weight says; one random number whatever the weights."""
    bounds = np.cumsum(weights)
    return min(int(np.searchsorted(bounds, random.random() * bounds[-1], side="right")), len(weights) - 1)


def read_lengths(table: StrictTable, key: str, low: int = 1) -> Lengths:
    """The lengths under ``key``: an integer, or a table that names a distribution. None is under ``low``."""
    if table.holds_table(key):
        return _read_distribution(table.table(key), low)
    return Fixed(table.integer(key, low, MAX_TOKENS))


def _read_distribution(table: StrictTable, low: int) -> Lengths:
    kind = table.choice("distribution", ("fixed", "uniform", "lognormal", "choice"))
    lengths: Lengths
    if kind == "fixed":
        lengths = Fixed(table.integer("tokens", low, MAX_TOKENS))
    elif kind == "choice":
        lengths = _read_choice(table, low)
    else:
        median = table.number("median", 1, MAX_TOKENS) if kind == "lognormal" else 0.0
        sigma = table.number("sigma", 0, 10) if kind == "lognormal" else 0.0
        least = table.integer("low", low, MAX_TOKENS, low)
        most = table.integer("high", least, MAX_TOKENS)
        lengths = LogNormal(median, sigma, least, most) if kind == "lognormal" else Uniform(least, most)
    table.close()
    return lengths


def _read_choice(table: StrictTable, low: int) -> Choice:
    values = table.array("values", int, "integers")
    if not values or not all(low <= value <= MAX_TOKENS for value in values):
        table.refuse("values", values, f"at least one, each from {low} to {MAX_TOKENS}")
    weights = table.array("weights", (int, float), "numbers", [1.0] * len(values))
    if len(weights) != len(values) or not all(0 <= weight <= MAX_WEIGHT for weight in weights) or not sum(weights):
        table.refuse("weights", weights, f"as many as values ({len(values)}), each from 0 to {MAX_WEIGHT:g}, not all of them 0")
    return Choice(tuple(values), tuple(map(float, weights)))
