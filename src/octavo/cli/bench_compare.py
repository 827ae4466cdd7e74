"""``octavo bench compare``"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from octavo import envs
from octavo.cli.bench_alone import WaitForLock

if TYPE_CHECKING:
    from octavo.bench.peers.plan import Comparison


Only = Annotated[str | None, typer.Option(help="Engines, by commas; by default all.", metavar="ENGINE,…")]
Loads = Annotated[str | None, typer.Option(help="Loads, by commas; by default all.", metavar="LOAD,…")]
Rounds = Annotated[int | None, typer.Option(min=1, max=100, help="Instead of the file's.")]
Peers = Annotated[
    Path | None, typer.Option(help="Where the engines are installed (benchmarks/peers/install.py). Also OCTAVO_PEERS.", file_okay=False)
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with a comparison that was stopped: keep its finished parts.")]
PricePerHour = Annotated[
    float | None, typer.Option(min=0, help="What the machine costs an hour, in any currency: adds the cost of a million tokens.")
]
Report = Annotated[
    Path | None,
    typer.Option(
        help="Write the report in this folder; finished parts and logs go to its parts/. By default compare-NAME.", file_okay=False
    ),
]


def compare(
    file: Annotated[Path, typer.Argument(help="The comparison, a TOML file; benchmarks/peers has one.", dir_okay=False)],
    only: Only = None,
    loads: Loads = None,
    rounds: Rounds = None,
    skip_sweep: Annotated[bool, typer.Option("--skip-sweep", help="Leave the highest rate at the SLO out.")] = False,
    peers: Peers = None,
    plan: Annotated[bool, typer.Option("--plan", help="Say what would be done, and how long it takes, and do nothing.")] = False,
    resume: Resume = False,
    price_per_hour: PricePerHour = None,
    wait_for_lock: WaitForLock = False,
    output: Annotated[Path | None, typer.Option(help="Write the result here as JSON.", dir_okay=False)] = None,
    report: Report = None,
) -> int:
    """Engines side by side: each is started in turn, measured under the same loads by the same client, and stopped.

    The exit status is 0 if every part was measured, 1 otherwise.
    """
    from rich.console import Console

    from octavo.bench.peers.compare import compare_engines, plan_lines
    from octavo.bench.peers.identity import names_for
    from octavo.bench.report.lock import measuring
    from octavo.cli.bench_results import check_places, tell

    installed = (peers or envs.peers()).absolute()
    comparison = _selected(file, installed, only, loads, rounds, skip_sweep)
    console = Console()

    def say(line: str) -> None:
        console.print(line, style="dim", markup=False, highlight=False)

    for line in plan_lines(comparison):
        say(line)
    if plan:
        return 0
    folder = report or Path(f"compare-{comparison.name}")
    check_places(output, folder)
    names = names_for(installed, file, sys.executable)
    with measuring(wait_for_lock, say):
        outcome = compare_engines(comparison, folder / "parts", names=names, price_per_hour=price_per_hour, resume=resume, tell=say)
    tell(outcome.document, console, output, folder)
    return 0 if outcome.good else 1


def _selected(file: Path, peers: Path, only: str | None, loads: str | None, rounds: int | None, skip_sweep: bool) -> Comparison:
    from octavo.bench.machine import engine_cpus
    from octavo.bench.peers.description import Places
    from octavo.bench.peers.plan import load_comparison, select

    places = Places(peers=peers, model="", cpus=engine_cpus(), python=sys.executable)
    return select(load_comparison(file, places), only=_names(only), loads=_names(loads), rounds=rounds, skip_sweep=skip_sweep)


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",")]
