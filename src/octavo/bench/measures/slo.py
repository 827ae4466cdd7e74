"""Latency objectives: "itl:p99<50ms,ttft:p99<2.5s" read, and one request judged by them.

A request attains an SLO
- on ttft, tpot or e2e: when it completed and its own value is under the limit, whatever the statistic;
- on itl: when it completed and the statistic of its own gaps is under the limit. For a percentile p that means: of its n gaps at most
  ceil((1 - p) n), and never all, are at or over the limit. So of 63 gaps one may be over p99's limit, and two may not.
A request that was refused, failed or expired attains none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from octavo.bench.load.records import RequestRecord
from octavo.errors import InvalidRequestError

METRICS = ("ttft", "itl", "tpot", "e2e")
UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_EXAMPLE = "itl:p99<50ms,ttft:p99<2.5s"
_PARTS = (
    (re.compile(r"\s*(ttft|itl|tpot|e2e)\s*"), f"expected a metric: {', '.join(METRICS)}"),
    (re.compile(r":\s*"), "expected ':' and a statistic"),
    (re.compile(r"(mean|max|p[0-9]+(?:\.[0-9]+)?)\s*"), "expected a statistic: p50 to p99.9, mean or max"),
    (re.compile(r"<\s*"), "expected '<' and a limit"),
    (re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*"), "expected a limit: a number above 0 and a unit"),
    (re.compile(r"(us|ms|s)\s*(?=,|$)"), "expected a unit: us, ms or s"),
)
"""What an item is made of, in order, and what is said where it is not there."""


@dataclass(frozen=True)
class Slo:
    """``metric``'s ``statistic`` is to be under ``limit`` seconds."""

    metric: str
    statistic: str
    """mean, max, or p with a percent of 50 to 99.9, which has one decimal place at most."""
    limit: float

    def __str__(self) -> str:
        """As it is written; ``parse_slos`` reads it back."""
        unit = next((unit for unit in ("s", "ms") if self.limit >= UNITS[unit]), "us")
        return f"{self.metric}:{self.statistic}<{self.limit / UNITS[unit]:.12g}{unit}"

    @property
    def per_mille(self) -> int | None:
        """Of a percentile: 990 for p99; None for mean and max."""
        return round(float(self.statistic[1:]) * 10) if self.statistic.startswith("p") else None

    @property
    def may_be_over(self) -> float:
        """The share that a percentile lets be at the limit or over; 0 for max, 1 for mean, which says nothing of single values."""
        if self.per_mille is None:
            return 1.0 if self.statistic == "mean" else 0.0
        return (1000 - self.per_mille) / 1000

    def attained(self, record: RequestRecord) -> bool:
        """Whether this request kept it, by the rule of this module's docstring."""
        if not record.completed:
            return False
        if self.metric == "itl":
            return self._gaps_attain(record.gaps)
        value = {"ttft": record.ttft, "e2e": record.e2e, "tpot": record.tpot}[self.metric]
        return value is None or value < self.limit

    def _gaps_attain(self, gaps: Sequence[float]) -> bool:
        if not gaps:
            return True
        if self.statistic == "mean":
            return sum(gaps) / len(gaps) < self.limit
        over = sum(gap >= self.limit for gap in gaps)
        allowed = 0 if self.per_mille is None else -(-(1000 - self.per_mille) * len(gaps) // 1000)
        return over <= min(allowed, len(gaps) - 1)


def parse_slos(text: str) -> tuple[Slo, ...]:
    """SLOs by commas, such as "itl:p99<50ms,ttft:p99<2.5s"; spaces do no harm.

    Raises:
        InvalidRequestError: for anything else; it shows the place and says what may stand there.
    """
    slos: list[Slo] = []
    place = 0
    while True:
        slo, end = _read_item(text, place)
        if any((slo.metric, slo.statistic) == (other.metric, other.statistic) for other in slos):
            _refuse(text, place, f"there are two limits for {slo.metric}:{slo.statistic}")
        slos.append(slo)
        if end == len(text):
            return tuple(slos)
        place = end + 1


def all_attained(record: RequestRecord, slos: Sequence[Slo]) -> bool:
    """Whether a request kept every SLO; with none, whether it completed."""
    return record.completed and all(slo.attained(record) for slo in slos)


def _read_item(text: str, place: int) -> tuple[Slo, int]:
    """The SLO that begins at ``place``, and where it ends."""
    words: list[str] = []
    starts: list[int] = []
    for pattern, expected in _PARTS:
        found = pattern.match(text, place)
        if found is None:
            _refuse(text, place, expected)
        if found.groups():
            words.append(found.group(1))
            starts.append(found.start(1))
        place = found.end()
    metric, statistic, number, unit = words
    if statistic.startswith("p") and not (50 <= float(statistic[1:]) <= 99.9 and _places(statistic) <= 1):
        _refuse(text, starts[1], "expected a statistic: p50 to p99.9 (one decimal place at most), mean or max")
    limit = float(number) * UNITS[unit]
    if not 0 < limit < float("inf"):
        _refuse(text, starts[2], "expected a limit above 0")
    return Slo(metric, statistic, limit), place


def _places(statistic: str) -> int:
    """Decimal places that count."""
    return len(statistic.partition(".")[2].rstrip("0"))


def _refuse(text: str, place: int, expected: str) -> NoReturn:
    found = repr(text[place : place + 16]) if text[place:].strip() else "the end"
    raise InvalidRequestError(f"slo = {text!r}: at character {place + 1}, {found}: {expected}; an example: {_EXAMPLE}", field="slo")
