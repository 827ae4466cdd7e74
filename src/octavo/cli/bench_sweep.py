"""``octavo bench sweep``"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from octavo.bench.workload.flags import WorkloadFlags
from octavo.cli import bench_target as shared
from octavo.cli.bench_alone import WaitForLock
from octavo.cli.options import workload_flags
from octavo.errors import InvalidRequestError

NOT_HERE = {
    "request_rate": "the sweep finds it; --min-rate and --max-rate bound it",
    "num_prompts": "--requests-per-verdict says how many are sent at each rate",
    "burstiness": "the sweep's arrivals are Poisson",
    "max_concurrency": "the sweep is open loop, and sends whatever is in flight",
}
"""Flags of a load that a sweep does not have."""


@workload_flags
def sweep(
    load: WorkloadFlags,
    served: shared.Served = None,
    serve_flags: shared.ServeFlags = None,
    slo: Annotated[
        str | None,
        typer.Option(help='What is to be kept, such as "itl:p99<50ms,ttft:p99<2.5s"; of ttft, itl, tpot, e2e; p50 to p99.9, mean, max.'),
    ] = None,
    confidence: Annotated[float, typer.Option(help="One-sided, of the bounds that call a verdict decided.")] = 0.95,
    requests_per_verdict: Annotated[
        int,
        typer.Option(help="Sent at each rate, the first tenth not judged; more where that is over in 10 times the longest limit."),
    ] = 100,
    confirm: Annotated[
        int, typer.Option(help="The rate found is run again with so many times the requests, and lower ones if it fails; 0: not.")
    ] = 3,
    min_rate: Annotated[float, typer.Option(help="The lowest rate tried, requests a second.")] = 0.25,
    max_rate: Annotated[float, typer.Option(help="The highest.")] = 64.0,
    resolution: Annotated[float, typer.Option(help="Rates tried are min-rate × (1 + resolution)^i.")] = 0.05,
    warmup: Annotated[int, typer.Option(help="Requests sent one after another first; their time says at which rate to begin.")] = 4,
    url: shared.Url = None,
    model_name: shared.ModelName = None,
    endpoint: shared.Endpoint = "/v1/completions",
    api_key: shared.ApiKey = None,
    tokenizer: shared.Tokenizer = None,
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
    """The highest Poisson rate at which a server keeps --slo: an exponential probe, then bisection, then a longer run to confirm it.

    A rate is sustained if (a) each SLO's statistic over all requests together is inside its limit, (b) at least 99 % of the requests
    complete inside every SLO, a refused, failed or expired one missing them all, and (c) the number in flight grows from the first third of
    the arrivals to the last by no more than the chance of Poisson arrivals explains. How many requests and minutes that takes is told
    before any is sent. docs/benchmarking.md says how sure the answer is.

    The exit status is 0 if the sweep was whole and found a rate, 1 otherwise; what was measured is told and written in any case.
    """
    from rich.console import Console

    from octavo.bench.load.run import LoadOptions
    from octavo.bench.measures.slo import parse_slos
    from octavo.bench.report.lock import measuring
    from octavo.bench.serve import ServePlan
    from octavo.bench.sweep.over_http import sweep_server
    from octavo.bench.sweep.settings import SweepSettings
    from octavo.bench.workload.tokens import find_tokens
    from octavo.cli.bench_results import check_places, tell

    _refuse(load)
    if slo is None:
        raise InvalidRequestError('slo = None: a sweep needs one, such as "itl:p99<50ms,ttft:p99<2.5s"', field="slo")
    as_text = shared.check_endpoint(endpoint) or text_prompts
    settings = SweepSettings(
        slos=parse_slos(slo),
        confidence=confidence,
        requests_per_verdict=requests_per_verdict,
        confirm=confirm,
        min_rate=min_rate,
        max_rate=max_rate,
        resolution=resolution,
        seed=load.seed or 0,
        warmup=warmup,
    )
    check_places(output, report)
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
            options=LoadOptions(request_timeout=request_timeout, max_client_lag=max_client_lag_ms / 1000),
            server=server.process,
            server_command=server.command,
            served=served,
            price_per_hour=price_per_hour,
            rates=report is not None,
        )
        outcome = sweep_server(plan, settings, say)
    return tell(outcome, console, output, report)


def _refuse(load: WorkloadFlags) -> None:
    """Raises InvalidRequestError for flags that go with a rate of one's own."""
    for field, why in NOT_HERE.items():
        if (value := getattr(load, field)) is not None:
            raise InvalidRequestError(f"{field} = {value}: {why}", field=field)
