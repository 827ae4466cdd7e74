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
HEADING = "What makes it checkable"
_IN_SHORT: dict[str, tuple[str, ...]] = {
    "run": ("date", "command"),
    "software": ("octavo", "git_commit"),
    "machine": ("cpu", "usable_cpus", "measured"),
    "model": ("name", "file", "sha256", "quantization"),
    "server": ("engine", "version", "command"),
    "seeds": (),
}
"""What a terminal has room for, by group; (): all."""


def facts_section(facts: Mapping[str, Any]) -> Section:
    """A row a fact, under the name of its group; what is nested deeper stands in one row."""
    rows = [[name if i == 0 else "", *entry] for name, entries in _groups(facts) for i, entry in enumerate(entries)]
    return Section(
        heading=HEADING,
        text=["Where and with what it was measured. The same command with the same seeds sends the same requests at the same times."],
        tables=[Table(columns=["", "fact", "value"], rows=rows)],
    )


def facts_in_short(facts: Mapping[str, Any]) -> list[str]:
    """The few that must not be missing anywhere, a line a group."""
    lines = []
    for group, names in _IN_SHORT.items():
        entries = facts if group == "run" else facts.get(group)
        if isinstance(entries, Mapping):
            said = [f"{_words(name)} {value}" for name in names or entries if (value := _value(name, entries.get(name)))]
            lines += [f"{group}: {', '.join(said)}"] if said else []
    return lines


def _groups(facts: Mapping[str, Any]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    loose = {name: value for name, value in facts.items() if not isinstance(value, Mapping)}
    for group, entries in [("run", loose), *((name, value) for name, value in facts.items() if isinstance(value, Mapping))]:
        shown = [(_words(name), said) for name, value in entries.items() if (said := _value(name, value))]
        if shown:
            yield _words(group), shown


def _words(name: str) -> str:
    for end, _, _ in _UNITS:
        name = name.removesuffix(end)
    return name.replace("_", " ")


def _value(name: str, value: Any) -> str:
    """Nothing for what is not told, and for what is empty."""
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return ", ".join(f"{_words(key)} {said}" for key, each in value.items() if (said := _value(key, each)))
    if isinstance(value, list | tuple):
        joint = "; " if any(isinstance(each, Mapping) for each in value) else " " if name == "command" else ", "
        return joint.join(_value(name, each) for each in value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return text(value)
    for end, divisor, unit in _UNITS:
        if name.endswith(end):
            return f"{text(float(value / divisor))} {unit}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
