"""``octavo bench serve``"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from octavo.bench.workload.flags import WorkloadFlags
from octavo.cli import bench_target as shared
from octavo.cli.bench_alone import WaitForLock
from octavo.cli.options import workload_flags


@workload_flags
def serve(
    load: WorkloadFlags,
    served: shared.Served = None,
    serve_flags: shared.ServeFlags = None,
    url: shared.Url = None,
    model_name: shared.ModelName = None,
    endpoint: shared.Endpoint = "/v1/completions",
    api_key: shared.ApiKey = None,
    tokenizer: shared.Tokenizer = None,
    slo: Annotated[str | None, typer.Option(help='Goodput counts requests that keep it: "itl:p99<50ms,ttft:p99<2.5s".')] = None,
    text_prompts: shared.TextPrompts = False,
    salt: shared.Salt = None,
    cache_salt: shared.CacheSalt = None,
    request_timeout: shared.RequestTimeout = 600.0,
    max_client_lag_ms: shared.MaxClientLag = 50.0,
    price_per_hour: Annotated[
        float | None, typer.Option(min=0, help="What the machine costs an hour, in any currency: adds the cost of a million tokens.")
    ] = None,
    wait_for_lock: WaitForLock = False,
    output: Annotated[Path | None, typer.Option(help="Write the result here as JSON.", dir_okay=False)] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write the report, as HTML, Markdown and JSON, in this folder.", file_okay=False)
    ] = None,
) -> int:
    """Load on a server over HTTP: any OpenAI-compatible one at --url, or `octavo serve MODEL`, started for this and stopped.

    Requests come when the load says, whatever the server does, and latency counts from then. The exit status is 0 if the run was whole and
    valid, 1 otherwise; what was measured is told and written in any case.
    """
    from rich.console import Console

    from octavo.bench.load.run import LoadOptions
    from octavo.bench.measures.slo import parse_slos
    from octavo.bench.report.lock import measuring
    from octavo.bench.serve import ServePlan, measure_server
    from octavo.bench.workload.tokens import find_tokens
    from octavo.cli.bench_results import check_places, tell

    as_text = shared.check_endpoint(endpoint) or text_prompts
    check_places(output, report)
    slos = parse_slos(slo) if slo is not None else ()
    workload = load.build()
    tokens = find_tokens(tokenizer, served or model_name)
    console = Console()

    def say(line: str) -> None:
        console.print(line, style="dim", markup=False, highlight=False)

    with measuring(wait_for_lock, say), shared.serving(url, served, serve_flags, model_name) as server:
        plan = ServePlan(
            url=server.url,
            model=server.model,
            endpoint=endpoint,
            api_key=shared.key(api_key),
            workload=workload,
            tokens=tokens,
            as_text=as_text,
            salt=salt or "",
            cache_salt=cache_salt,
            slos=slos,
            options=LoadOptions(request_timeout=request_timeout, max_client_lag=max_client_lag_ms / 1000),
            price_per_hour=price_per_hour,
            server=server.process,
            server_command=server.command,
            served=served,
            rates=report is not None,
        )
        outcome = measure_server(plan, say)
    return tell(outcome, console, output, report)
