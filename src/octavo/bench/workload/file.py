"""The one reader of workload files, for every benchmark that takes --workload. The format: docs/benchmarking.md."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from octavo.bench.strict_table import StrictTable, read_toml
from octavo.bench.workload.arrivals import PROCESSES, STEADY, Arrivals
from octavo.bench.workload.bounds import (
    MAX_BURSTINESS,
    MAX_CONCURRENCY,
    MAX_PREFIXES,
    MAX_RATE,
    MAX_REQUESTS,
    MAX_SECONDS,
    MAX_SEED,
    MAX_TOKENS,
    MAX_WEIGHT,
    MIN_BURSTINESS,
    MIN_RATE,
)
from octavo.bench.workload.lengths import read_lengths
from octavo.bench.workload.requests import RequestKind, SharedPrefix, Tenant, Workload
from octavo.bench.workload.text import read_prompt
from octavo.bench.workload.trace import Trace, read_trace


def load_workload(path: Path) -> Workload:
    """The workload that a TOML file describes.

    Raises:
        InvalidRequestError: for what is not there, unknown, of the wrong type or out of range; it names file, table, key, value and limit.
    """
    return parse_workload(read_toml(path, "workload"), str(path), path.parent)


def parse_workload(tables: Mapping[str, Any], source: str, folder: Path = Path()) -> Workload:
    """The same from tables already read; ``source`` stands for the file in messages, and paths start at ``folder``.

    Workload.as_toml is its inverse.
    """
    top = StrictTable(source, "", tables)
    name = top.text("name")
    description = top.text("description", "")
    seed = top.integer("seed", 0, MAX_SEED, 0)
    trace = read_trace(top.table("trace"), folder) if top.holds("trace") else None
    arrivals = _read_arrivals(top, trace)
    tenants = tuple(_read_tenant(table) for table in top.tables("tenants", []))
    top.refuse_doubles("tenants", [tenant.name for tenant in tenants])
    kinds = top.tables("requests", None if trace is None else [])
    requests = tuple(_read_kind(table, [tenant.name for tenant in tenants], folder) for table in kinds)
    top.refuse_doubles("requests", [kind.name for kind in requests])
    if trace is None and not requests:
        top.refuse("requests", [], "at least one [[requests]]")
    if trace is not None and (requests or tenants):
        top.refuse("trace", trace.file, "its lines say who asks for what: no [[requests]] or [[tenants]] beside it")
    replayed = trace is not None and arrivals.process == "trace"
    most = len(trace.rows) if trace is not None and replayed else MAX_REQUESTS
    num_requests = top.integer("num_requests", 1, most, most if replayed else 100)
    top.close()
    return Workload(
        name=name,
        description=description,
        seed=seed,
        num_requests=num_requests,
        arrivals=arrivals,
        tenants=tenants,
        requests=requests,
        trace=trace,
    )


def _read_arrivals(top: StrictTable, trace: Trace | None) -> Arrivals:
    """A trace's own, where there is one and no other are asked for."""
    if trace is not None and not top.holds("arrivals"):
        return Arrivals(process="trace")
    table = top.table("arrivals")
    process = table.choice("process", PROCESSES)
    if process == "trace" and trace is None:
        table.refuse("process", process, "there is no [trace] to take them from")
    ramp = process == "ramp"
    rate = table.number("rate", 0 if ramp else MIN_RATE, MAX_RATE) if process in (*STEADY, "ramp") else 0.0
    arrivals = Arrivals(
        process=process,
        rate=rate,
        burstiness=table.number("burstiness", MIN_BURSTINESS, MAX_BURSTINESS) if process == "gamma" else 1.0,
        end_rate=table.number("end_rate", MIN_RATE, MAX_RATE) if ramp else 0.0,
        duration=table.number("duration", 1e-3, MAX_SECONDS) if ramp and table.holds("duration") else None,
        concurrency=table.integer("concurrency", 1, MAX_CONCURRENCY) if process == "closed" else 0,
        max_concurrency=_read_cap(table) if process != "closed" else None,
    )
    table.close()
    return arrivals


def _read_cap(table: StrictTable) -> int | None:
    return table.integer("max_concurrency", 1, MAX_CONCURRENCY) if table.holds("max_concurrency") else None


def _read_tenant(table: StrictTable) -> Tenant:
    tenant = Tenant(name=table.text("name"), weight=_read_weight(table))
    table.close()
    return tenant


def _read_kind(table: StrictTable, tenants: list[str], folder: Path) -> RequestKind:
    senders = table.array("tenants", str, "strings", [])
    if unknown := [name for name in senders if name not in tenants]:
        table.refuse("tenants", senders, f"{unknown[0]!r} is no [[tenants]] name; there are {', '.join(tenants) or 'none'}")
    kind = RequestKind(
        name=table.text("name"),
        weight=_read_weight(table),
        tenants=tuple(senders),
        shared_prefix=_read_prefix(table.table("shared_prefix")) if table.holds("shared_prefix") else None,
        prompt=read_prompt(table, "prompt", folder),
        prompt_tokens=read_lengths(table, "prompt_tokens"),
        output_tokens=read_lengths(table, "output_tokens"),
        max_tokens=read_lengths(table, "max_tokens"),
    )
    table.close()
    return kind


def _read_prefix(table: StrictTable) -> SharedPrefix:
    prefix = SharedPrefix(
        tokens=table.integer("tokens", 1, MAX_TOKENS),
        count=table.integer("count", 1, MAX_PREFIXES, 1),
        zipf=table.number("zipf", 0, 10, 0.0),
    )
    table.close()
    return prefix


def _read_weight(table: StrictTable) -> float:
    """Above 0: what is never to come has no place in a file."""
    return table.number("weight", 1e-9, MAX_WEIGHT, 1.0)
