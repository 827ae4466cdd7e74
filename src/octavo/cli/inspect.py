"""``octavo inspect``"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from octavo.cli.options import engine_flags
from octavo.cli.pull import ensure
from octavo.config import AsyncEngineArgs


@engine_flags
def command(args: AsyncEngineArgs, json: Annotated[bool, typer.Option("--json", help="Print all of it as JSON.")] = False) -> None:
    """Show a model as this machine would run it: its shape, each tensor's stored and run-time format, the program."""
    from octavo.runner.model_runner import inspect

    ensure(args.model)
    facts = inspect(args)
    if json:
        import msgspec

        print(msgspec.json.format(msgspec.json.encode(facts), indent=2).decode())
    else:
        _show(facts)


def _show(facts: dict[str, Any]) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    details = facts["details"]
    console.print(_pairs("Model", details.get("config", {})))
    console.print(_pairs("Here", _machine(facts, details)))
    console.print(_tensors(details.get("tensors", ())))
    console.print("[bold]Program[/bold]")
    for line in details.get("program", ()):
        console.print(line, markup=False, soft_wrap=True)


def _machine(facts: dict[str, Any], details: dict[str, Any]) -> dict[str, Any]:
    """How this machine runs it."""
    tensors = details.get("tensors", ())
    return {
        "instruction set": facts["isa"],
        "threads": facts["num_threads"],
        "context": f"{facts['max_model_len']:,} tokens",
        "weights": f"{sum(t['stored_bytes'] for t in tensors):,} bytes stored, {sum(t['run_bytes'] for t in tensors):,} packed",
        "KV per block": ", ".join(f"{group['name']}: {group['bytes_per_block']:,} bytes" for group in facts["groups"]),
        "numerics_id": facts["numerics_id"],
    }


def _pairs(title: str, values: dict[str, Any]) -> Any:
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", show_header=False, box=None)
    table.add_column()
    table.add_column(overflow="fold")
    for name, value in values.items():
        table.add_row(name.replace("_", " "), str(value))
    return table


def _tensors(tensors: list[dict[str, Any]]) -> Any:
    """Tensors with the same name but for the layer's number, formats and sizes share a row."""
    from rich.table import Table

    table = Table(title="Tensors", title_justify="left", title_style="bold", box=None)
    for heading in ("tensor", "count", "stored", "bytes", "run as", "bytes"):
        table.add_column(heading, justify="right" if heading in ("count", "bytes") else "left")
    for (name, stored, stored_bytes, run, run_bytes), count in _grouped(tensors).items():
        table.add_row(name, str(count), stored, f"{stored_bytes:,}", run, f"{run_bytes:,}")
    return table


def _grouped(tensors: list[dict[str, Any]]) -> dict[tuple[str, str, int, str, int], int]:
    groups: dict[tuple[str, str, int, str, int], int] = {}
    for tensor in tensors:
        name = ".".join("*" if part.isdigit() else part for part in tensor["name"].split("."))
        key = (name, tensor["stored"], tensor["stored_bytes"], tensor["run"], tensor["run_bytes"])
        groups[key] = groups.get(key, 0) + 1
    return groups
