"""``octavo bench serve``"""

from __future__ import annotations

from typing import Annotated

import typer

from octavo.bench.workload.flags import WorkloadFlags
from octavo.cli.bench_target import TargetFlags, target_flags
from octavo.cli.options import workload_flags


@workload_flags
@target_flags
def serve(
    load: WorkloadFlags,
    target: TargetFlags,
    slo: Annotated[str | None, typer.Option(help='Goodput counts requests that keep it: "itl:p99<50ms,ttft:p99<2.5s".')] = None,
) -> int:
    """Load on a server over HTTP: any OpenAI-compatible one at --url, or `octavo serve MODEL`, started for this and stopped.

    Requests come when the load says, whatever the server does, and latency counts from then. The exit status is 0 if the run was whole and
    valid, 1 otherwise; what was measured is told and written in any case.
    """
    from rich.console import Console

    from octavo.bench.measures.slo import parse_slos
    from octavo.bench.report.lock import measuring
    from octavo.bench.serve import measure_server
    from octavo.cli.bench_results import check_places, tell

    check_places(target.output, target.report)
    plan = target.plan(load.build(), parse_slos(slo) if slo is not None else ())
    console = Console()

    def say(line: str) -> None:
        console.print(line, style="dim", markup=False, highlight=False)

    with measuring(target.wait_for_lock, say), target.at(plan) as plan:
        outcome = measure_server(plan, say)
    tell(outcome.document, console, target.output, target.report)
    return 0 if outcome.good else 1
