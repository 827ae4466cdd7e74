"""The facts of a report as a section of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from octavo.bench.report.document import Section, Table
from octavo.bench.report.numbers import text

_UNITS: tuple[tuple[str, float, str], ...] = (
    ("_bytes_s", 1e9, "GB/s"),
    ("_flops_s", 1e9, "GFLOP/s"),
    ("_ops_s", 1e9, "GOP/s"),
    ("_bytes", 2**20, "MiB"),
)
"""End of a name, divisor, unit."""


def facts_section(facts: Mapping[str, Any]) -> Section:
    """A row a fact, under the name of its group."""
    rows = [[group if first else "", name, value] for group, entries in _groups(facts) for first, name, value in _marked(entries)]
    return Section(
        heading="What makes it checkable",
        text=["Where and with what it was measured. The same command with the same seeds sends the same requests at the same times."],
        tables=[Table(columns=["", "fact", "value"], rows=rows)],
    )


def _groups(facts: Mapping[str, Any]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    loose = [(_words(name), _value(name, value)) for name, value in facts.items() if not isinstance(value, Mapping) and value is not None]
    if loose:
        yield "run", loose
    for name, value in facts.items():
        if isinstance(value, Mapping):
            entries = list(_flat(value))
            if entries:
                yield _words(name), entries


def _flat(facts: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for name, value in facts.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{_words(name)}: ")
        elif value is not None:
            yield before + _words(name), _value(name, value)


def _marked(entries: list[tuple[str, str]]) -> Iterator[tuple[bool, str, str]]:
    for i, (name, value) in enumerate(entries):
        yield i == 0, name, value


def _words(name: str) -> str:
    for end, _, _ in _UNITS:
        name = name.removesuffix(end)
    return name.replace("_", " ")


def _value(name: str, value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return text(value)
    for end, divisor, unit in _UNITS:
        if name.endswith(end):
            return f"{value / divisor:,.1f} {unit}"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
