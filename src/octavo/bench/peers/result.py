"""The result of a comparison as data, and its parts on disk as they are finished.

Durations are in seconds where a name ends in ``_s``, in milliseconds where it ends in ``_ms``; memory is in bytes; shares are 0 to 1.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from octavo.bench.limits import ModelCosts
from octavo.bench.machine import MachineRates
from octavo.bench.observe.roofline import Work
from octavo.bench.peers.identity import WeightsFiles

SCHEMA_VERSION = 1
"""Raised when a field changes its meaning or goes away; new fields leave it as it is."""


class LoadResult(msgspec.Struct, kw_only=True):
    """One load on one engine, once."""

    result: dict[str, Any]
    """A ServeResult (octavo.bench.measures.result), and ``counted``: how the tokens of how many answers were."""
    kv_efficiency: float | None = None
    """Live over held KV, averaged over the run; null: the engine does not say."""
    energy: dict[str, Any] | None = None
    """Of the whole machine meanwhile (octavo.bench.report.energy); null: not looked at."""
    work: Work | None = None
    """For the percent of the roofline."""
    costs: ModelCosts | None = None
    """Of the model, as the engine tells them; null: it does not."""
    steps_roofline: dict[str, Any] | None = None
    """A Roofline by the engine's own steps; null: it does not tell them."""


class PartResult(msgspec.Struct, kw_only=True):
    """One start of one engine."""

    kind: str
    """round or sweep."""
    engine: str
    round: int
    digest: str
    """Of all that shaped the figures."""
    started: float
    """Seconds since the epoch."""
    seconds: float = 0.0
    version: str = ""
    startup_s: float | None = None
    peak_memory: int | None = None
    """Of all its processes; shared pages count once."""
    peak_memory_upper: int | None = None
    """Shared pages counted in each process."""
    failure: str | None = None
    """Why it has no figures, or not all."""
    interrupted: bool = False
    """By whoever ran the comparison."""
    notes: tuple[str, ...] = ()
    """What the server does not take of a request, and what follows."""
    loads: dict[str, LoadResult] = msgspec.field(default_factory=dict)
    """By name."""
    sweep: dict[str, Any] | None = None
    kv_efficiency: float | None = None
    """In a sweep: at the highest rate that kept the SLO."""
    at_answer: LoadResult | None = None
    """In a sweep: the last run at that rate."""
    rates: MachineRates | None = None
    """What the machine could do at most, measured before."""
    unquiet: str | None = None
    """What else ran on the machine; null: it was quiet, or nobody looked."""


class FigureResult(msgspec.Struct, kw_only=True):
    """One figure of one engine, over rounds."""

    values: list[float | None]
    """By round."""
    median: float | None
    low: float | None
    high: float | None
    ratio: float | None
    """Median over that of the first engine. Of max_qps_shown_kept: the least ratio of the highest rates that is shown, its median over
    the first engine's max_qps_shown_not_kept; of max_qps_shown_not_kept the greatest."""


class EngineResult(msgspec.Struct, kw_only=True):
    """One engine."""

    label: str
    name: str
    variant: str
    sweep_variant: str | None
    version: str
    release: str
    tested: bool
    """Whether its description is known to work."""
    weights: str
    weights_files: WeightsFiles | None = None
    """Null: not told, or not there."""
    notes: str
    sweep_notes: str
    """How it is set up for the SLO."""
    command: list[str]
    sweep_command: list[str] | None
    env: dict[str, str]
    figures: dict[str, FigureResult]
    """By "load/figure" and "figure_at_slo", and max_qps, max_qps_shown_kept, max_qps_shown_not_kept, peak_memory_mib and startup_s."""
    failures: list[str]
    client_notes: list[str] = []
    """What it does not take of a request, and what follows."""


class CompareResult(msgspec.Struct, kw_only=True):
    """All of it: what --report writes as report.json."""

    schema_version: int = SCHEMA_VERSION
    benchmark: str = "compare"
    name: str
    description: str
    model: str
    seed: int
    rounds: int
    slo: str | None
    partial: bool
    """Stopped before all parts were done."""
    loads: list[dict[str, Any]]
    engines: list[EngineResult]
    parts: list[PartResult]
    method: dict[str, str]
    rates: MachineRates | None = None
    """The most that the machine was seen to do: what percents of the roofline are of."""
    costs_of: str | None = None
    """The engine whose costs are taken for those that do not tell theirs."""
    price_per_hour: float | None = None
    """Of the machine."""


def json_schema() -> dict[str, Any]:
    """JSON Schema of a CompareResult."""
    return msgspec.json.schema(CompareResult)


class PartStore:
    """Parts, a file each, so that a comparison which was interrupted can go on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, name: str, digest: str, *, finished: bool = True) -> PartResult | None:
        """The part saved under ``name`` if it is the same in all that shapes it, and, for ``finished``, has all its figures."""
        try:
            part = msgspec.json.decode((self.folder / f"{name}.json").read_bytes(), type=PartResult)
        except (OSError, msgspec.DecodeError):
            return None
        return part if part.digest == digest and not (finished and part.failure) else None

    def save(self, name: str, part: PartResult) -> None:
        """Whole or not at all."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{name}.json"
        unfinished = path.with_suffix(".partial")
        unfinished.write_bytes(msgspec.json.format(msgspec.json.encode(part), indent=1))
        unfinished.replace(path)

    def clear(self) -> None:
        """Forget the parts of an earlier comparison."""
        for path in self.folder.glob("*.json"):
            path.unlink()
