"""``octavo bench sweep``"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from octavo.bench.workload.flags import WorkloadFlags
from octavo.cli.bench_target import TargetFlags, target_flags
from octavo.cli.options import flag_group, workload_flags
from octavo.errors import InvalidRequestError

if TYPE_CHECKING:
    from octavo.bench.sweep.settings import SweepSettings

NOT_HERE = {
    "request_rate": "the sweep finds it; --min-rate and --max-rate bound it",
    "num_prompts": "--requests-per-verdict says how many are sent at each rate",
    "burstiness": "the sweep's arrivals are Poisson",
    "max_concurrency": "the sweep is open loop, and sends whatever is in flight",
}
"""Flags of a load that a sweep does not have."""

Slo = Annotated[
    str | None,
    typer.Option(help='What is to be kept, such as "itl:p99<50ms,ttft:p99<2.5s"; of ttft, itl, tpot, e2e; p50 to p99.9, mean, max.'),
]
Confidence = Annotated[float, typer.Option(help="One-sided, at which a verdict is decided.")]
RequestsPerVerdict = Annotated[
    int,
    typer.Option(
        help="Sent at each rate of the search, the first tenth not judged; more where that is over in 10 times the longest limit, or 3 "
        "times what an answer may take."
    ),
]
Confirm = Annotated[
    int, typer.Option(help="Rates near the limit are judged anew by up to so many times the requests, until decided; 0: not.")
]
MinRate = Annotated[float, typer.Option(help="The lowest rate tried, requests a second.")]
MaxRate = Annotated[float, typer.Option(help="The highest.")]
Resolution = Annotated[float, typer.Option(help="Rates tried are min-rate × (1 + resolution)^i.")]
Warmup = Annotated[int, typer.Option(help="Requests sent one after another first; their time says where to begin, and how long a run is.")]


@dataclass(frozen=True, kw_only=True)
class SweepFlags:
    """What is to be found, and how carefully; see octavo.bench.sweep.settings."""

    slo: Slo = None
    confidence: Confidence = 0.95
    requests_per_verdict: RequestsPerVerdict = 50
    confirm: Confirm = 5
    min_rate: MinRate = 0.25
    max_rate: MaxRate = 64.0
    resolution: Resolution = 0.05
    warmup: Warmup = 4

    def settings(self, seed: int) -> SweepSettings:
        """Raises InvalidRequestError for no SLO, one that does not parse, and what is out of range."""
        from octavo.bench.measures.slo import parse_slos
        from octavo.bench.sweep.settings import SweepSettings

        if self.slo is None:
            raise InvalidRequestError('slo = None: a sweep needs one, such as "itl:p99<50ms,ttft:p99<2.5s"', field="slo")
        return SweepSettings(
            slos=parse_slos(self.slo),
            confidence=self.confidence,
            requests_per_verdict=self.requests_per_verdict,
            confirm=self.confirm,
            min_rate=self.min_rate,
            max_rate=self.max_rate,
            resolution=self.resolution,
            seed=seed,
            warmup=self.warmup,
        )


@workload_flags
@target_flags
@flag_group("search", SweepFlags)
def sweep(load: WorkloadFlags, target: TargetFlags, search: SweepFlags) -> int:
    """The highest Poisson rate at which a server keeps --slo: an exponential probe, bisection, then verdicts near the limit until decided.

    A rate is sustained if (a) each SLO's statistic over all requests together is inside its limit, (b) at least 99 % of the requests
    complete inside every SLO, a refused, failed or expired one missing them all, and (c) the number in flight grows from the first third of
    the arrivals to the last, once the server has filled, by no more than the chance of Poisson arrivals explains. What that takes is told
    after the warm-up. The answer comes with the interval that it is shown to lie in; docs/benchmarking.md says how sure it is.

    The exit status is 0 if the sweep was whole and found a rate, 1 otherwise; what was measured is told and written in any case.
    """
    from rich.console import Console

    from octavo.bench.report.lock import measuring
    from octavo.bench.sweep.over_http import sweep_server
    from octavo.cli.bench_results import check_places, tell

    _refuse(load)
    settings = search.settings(load.seed or 0)
    check_places(target.output, target.report)
    plan = target.plan(load.build())
    console = Console()

    def say(line: str) -> None:
        console.print(line, style="dim", markup=False, highlight=False)

    with measuring(target.wait_for_lock, say), target.at(plan) as plan:
        outcome = sweep_server(plan, settings, say)
    tell(outcome.document, console, target.output, target.report)
    return 0 if outcome.good else 1


def _refuse(load: WorkloadFlags) -> None:
    """Raises InvalidRequestError for flags that go with a rate of one's own."""
    for field, why in NOT_HERE.items():
        if (value := getattr(load, field)) is not None:
            raise InvalidRequestError(f"{field} = {value}: {why}", field=field)
