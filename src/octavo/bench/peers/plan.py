"""What is to be compared: read from a TOML file, cut into parts, and how long they will take. The format: benchmarks/peers/README.md."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from octavo.bench.measures.slo import Slo, parse_slos
from octavo.bench.peers.description import Places, ServerDescription, load_description
from octavo.bench.strict_table import StrictTable, read_toml
from octavo.bench.workload.arrivals import Arrivals
from octavo.bench.workload.bounds import MAX_TOKENS
from octavo.bench.workload.lengths import Fixed
from octavo.bench.workload.requests import RequestKind, Workload
from octavo.errors import InvalidRequestError

T = TypeVar("T")
_TOLD_APART = ("weights_file", "shown_weights_file")
"""Of a server's description: for its digest alone; what is served, its command says."""

Figure = Literal["ttft_ms", "itl_ms", "output_tok_s", "decode_tok_s", "prefill_tok_s", "kv_efficiency"]
FIGURES: tuple[Figure, ...] = ("ttft_ms", "itl_ms", "output_tok_s", "decode_tok_s", "prefill_tok_s", "kv_efficiency")
"""What the table of all engines takes from a load: median TTFT; p99 and max ITL; output tokens a second; 1 / median TPOT; prompt tokens
over median TTFT; live over held KV."""

CONFIRM = (0, 100)
"""From … to, of a sweep's ``confirm``."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """One load that every engine gets in every round."""

    name: str
    input_len: int
    output_len: int
    num_prompts: int
    concurrency: int | None
    """Closed loop, this many at a time; None: open loop, Poisson at ``rate``."""
    rate: float
    """Requests a second."""
    shows: tuple[Figure, ...]
    expected_seconds: float
    """For the plan."""

    def workload(self, seed: int) -> Workload:
        """As the workload room knows it."""
        closed = Arrivals(process="closed", concurrency=self.concurrency or 1)
        output = Fixed(self.output_len)
        kind = RequestKind(name=self.name, prompt_tokens=Fixed(self.input_len), output_tokens=output, max_tokens=output)
        arrivals = closed if self.concurrency else Arrivals(process="poisson", rate=self.rate)
        return Workload(name=self.name, arrivals=arrivals, requests=(kind,), seed=seed, num_requests=self.num_prompts)


@dataclass(frozen=True, kw_only=True)
class SweepPlan:
    """The search for the highest rate that keeps the SLO."""

    slos: tuple[Slo, ...]
    input_len: int
    output_len: int
    options: dict[str, Any]
    """Of octavo.bench.sweep.settings.SweepSettings, where they are not its defaults."""
    expected_seconds: float
    """For one engine, for the plan."""

    def workload(self) -> Workload:
        """Its lengths; rate, number and seed are the sweep's to choose."""
        output = Fixed(self.output_len)
        kind = RequestKind(name="sweep", prompt_tokens=Fixed(self.input_len), output_tokens=output, max_tokens=output)
        return Workload(name="sweep", arrivals=Arrivals(process="closed", concurrency=1), requests=(kind,))


@dataclass(frozen=True, kw_only=True)
class Entrant:
    """One engine in the comparison."""

    label: str
    server: ServerDescription
    sweep_server: ServerDescription | None
    """Set up for the SLO; None: left out of the sweep."""
    sweep_confirm: int | None = None
    """How carefully the rates near its limit are judged (SweepSettings.confirm), where not as for all."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """One start of one engine, measured and stopped: what is saved, and what --resume does not repeat."""

    kind: Literal["round", "sweep"]
    entrant: Entrant
    round: int
    """From 1; 0 for a sweep."""

    @property
    def name(self) -> str:
        """Of its file."""
        stem = "".join(c if c.isalnum() else "_" for c in self.entrant.label.lower())
        return f"{self.kind}-{self.round}-{stem}" if self.kind == "round" else f"sweep-{stem}"

    @property
    def server(self) -> ServerDescription:
        found = self.entrant.server if self.kind == "round" else self.entrant.sweep_server
        assert found is not None
        return found


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All of it."""

    name: str
    description: str
    model: str
    tokenizer: str
    """Of the model: an alias, a GGUF file or a folder. {peers} in it is the folder of the peers."""
    seed: int
    rounds: int
    entrants: tuple[Entrant, ...]
    loads: tuple[Load, ...]
    sweep: SweepPlan | None

    def parts(self) -> list[Part]:
        """In the order they run: each round in the opposite order of the last, so that none always follows another; so do the sweeps."""
        numbers = range(1, self.rounds + 1) if self.loads else range(0)
        rounds = [Part(kind="round", entrant=entrant, round=number) for number in numbers for entrant in self._order(number)]
        swept = [entrant for entrant in self._order(len(numbers) + 1) if entrant.sweep_server is not None] if self.sweep else []
        return rounds + [Part(kind="sweep", entrant=entrant, round=0) for entrant in swept]

    def sweep_of(self, part: Part) -> SweepPlan | None:
        """What its engine is to be swept by."""
        confirm = part.entrant.sweep_confirm
        if self.sweep is None or confirm is None:
            return self.sweep
        return replace(self.sweep, options={**self.sweep.options, "confirm": confirm})

    def _order(self, number: int) -> tuple[Entrant, ...]:
        """Of round ``number``, from 1."""
        return self.entrants if number % 2 else self.entrants[::-1]

    def expected_seconds(self, part: Part) -> float:
        """What a part may take, by the file's own guesses."""
        loads = sum(load.expected_seconds for load in self.loads)
        return part.server.startup_seconds + (loads if part.kind == "round" else self.sweep.expected_seconds if self.sweep else 0)

    def seed_of(self, part: Part) -> int:
        """The same for all engines of a round; another in each round."""
        return self.seed + part.round

    def digest(self, part: Part) -> str:
        """Of all that shapes a part's figures: a saved part with another one is not this part."""
        server = {key: value for key, value in asdict(part.server).items() if key not in _TOLD_APART}
        shaped: dict[str, Any] = {"server": server, "seed": self.seed_of(part), "tokenizer": self.tokenizer}
        if part.kind == "round":
            shaped["loads"] = [asdict(load) for load in self.loads]
        elif (sweep := self.sweep_of(part)) is not None:
            shaped["sweep"] = asdict(sweep)
        return hashlib.sha256(json.dumps(shaped, sort_keys=True, default=str).encode()).hexdigest()[:16]


def load_comparison(path: Path, places: Places) -> Comparison:
    """The comparison that a file describes; ``places.model`` is overridden by its own.

    Raises:
        InvalidRequestError: for what is not there, unknown, of the wrong type or out of range; it names file, table, key, value and limit.
    """
    top = StrictTable(str(path), "", read_toml(path, "file"))
    model = top.text("model")
    entrants = tuple(_read_entrant(table, path.parent, replace(places, model=model)) for table in top.tables("engines"))
    loads = tuple(_read_load(table) for table in top.tables("loads", []))
    comparison = Comparison(
        name=top.text("name"),
        description=top.text("description", ""),
        model=model,
        tokenizer=top.text("tokenizer").replace("{peers}", str(places.peers)),
        seed=top.integer("seed", 0, 2**31, 0),
        rounds=top.integer("rounds", 1, 100, 3),
        entrants=entrants,
        loads=loads,
        sweep=_read_sweep(top.table("sweep")) if top.holds("sweep") else None,
    )
    top.close()
    top.refuse_doubles("engines", [entrant.label for entrant in entrants])
    top.refuse_doubles("loads", [load.name for load in loads])
    if not entrants or not (loads or comparison.sweep):
        top.refuse("engines" if not entrants else "loads", [], "at least one engine, and a load or a sweep")
    return comparison


def select(
    comparison: Comparison, *, only: Sequence[str] | None, loads: Sequence[str] | None, rounds: int | None, skip_sweep: bool
) -> Comparison:
    """Less of it: some engines, some loads (by name), fewer rounds, no sweep.

    Raises:
        InvalidRequestError: for names that are none of its own.
    """
    entrants = _chosen("only", only, {entrant.label: entrant for entrant in comparison.entrants})
    chosen = _chosen("loads", loads, {load.name: load for load in comparison.loads})
    sweep = None if skip_sweep else comparison.sweep
    return replace(comparison, entrants=entrants, loads=chosen, rounds=rounds or comparison.rounds, sweep=sweep)


def _chosen(flag: str, names: Sequence[str] | None, there: dict[str, T]) -> tuple[T, ...]:
    if names is None:
        return tuple(there.values())
    if unknown := [name for name in names if name not in there]:
        raise InvalidRequestError(f"{flag} = {unknown[0]}: there is none of this name; there are {', '.join(there)}", field=flag)
    return tuple(value for name, value in there.items() if name in names)


def _read_entrant(table: StrictTable, folder: Path, places: Places) -> Entrant:
    path = folder / table.text("description")
    variant = table.text("variant", "")
    server = load_description(path, variant, places)
    sweeps = table.boolean("sweep", True)
    sweep_variant = table.text("sweep_variant", variant)
    found = Entrant(
        label=table.text("label", server.name),
        server=server,
        sweep_server=load_description(path, sweep_variant, places) if sweeps else None,
        sweep_confirm=table.integer("sweep_confirm", *CONFIRM) if table.holds("sweep_confirm") else None,
    )
    table.close()
    return found


def _read_load(table: StrictTable) -> Load:
    closed = table.holds("concurrency")
    shows = table.array("shows", str, "strings", [])
    if unknown := [figure for figure in shows if figure not in FIGURES]:
        table.refuse("shows", shows, f"{unknown[0]!r} is none of {', '.join(FIGURES)}")
    load = Load(
        name=table.text("name"),
        input_len=table.integer("input_len", 1, MAX_TOKENS),
        output_len=table.integer("output_len", 1, MAX_TOKENS),
        num_prompts=table.integer("num_prompts", 1, 1_000_000),
        concurrency=table.integer("concurrency", 1, 65536) if closed else None,
        rate=0.0 if closed else table.number("rate", 1e-3, 1e6),
        shows=tuple(figure for figure in FIGURES if figure in shows),
        expected_seconds=table.number("expected_seconds", 0, 86400, 30.0),
    )
    table.close()
    return load


def _read_sweep(table: StrictTable) -> SweepPlan:
    whole = {"requests_per_verdict": (20, 1_000_000), "confirm": CONFIRM, "warmup": (1, 10_000)}
    parts = {"min_rate": (1e-3, 1e5), "max_rate": (1e-3, 1e5), "resolution": (0.002, 1.0), "confidence": (0.5, 0.9999)}
    options: dict[str, Any] = {key: table.integer(key, low, high) for key, (low, high) in whole.items() if table.holds(key)}
    options |= {key: table.number(key, low, high) for key, (low, high) in parts.items() if table.holds(key)}
    plan = SweepPlan(
        slos=parse_slos(table.text("slo")),
        input_len=table.integer("input_len", 1, MAX_TOKENS),
        output_len=table.integer("output_len", 1, MAX_TOKENS),
        options=options,
        expected_seconds=table.number("expected_seconds", 0, 86400, 240.0),
    )
    table.close()
    return plan
