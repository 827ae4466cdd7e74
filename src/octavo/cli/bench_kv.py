"""``octavo bench kv``: one load under each set of KV policies, at saturation of a small pool."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from octavo.cli.bench_alone import WaitForLock, alone
from octavo.cli.options import engine_flags
from octavo.config import EngineArgs
from octavo.errors import InvalidRequestError

if TYPE_CHECKING:
    from octavo.bench.kv.experiment import TrialResult
    from octavo.bench.workload.requests import Workload


@engine_flags
def kv(
    args: EngineArgs,
    workload: Annotated[
        Path, typer.Option(help="The load, a TOML file (docs/benchmarking.md); examples/workloads has some.", dir_okay=False)
    ],
    policies: Annotated[str | None, typer.Option(help="Names, by commas: static, contiguous, paged, … By default all.")] = None,
    block_sizes: Annotated[str | None, typer.Option(help="Sizes, by commas. By default 16, and 8, 16, 32 and 64 for paged.")] = None,
    num_requests: Annotated[int | None, typer.Option(min=1, help="Instead of the file's.")] = None,
    pool_tokens: Annotated[
        int | None, typer.Option(min=1, help="Of the KV pool; by default room for four of the longest requests.")
    ] = None,
    simulate: Annotated[bool, typer.Option("--simulate", help="Run no model: a step takes the time that a cost model says.")] = False,
    output: Annotated[Path | None, typer.Option(help="Write the result here as JSON.", dir_okay=False)] = None,
    report: Annotated[Path | None, typer.Option(help="Write HTML, Markdown, JSON and pictures into this folder.", file_okay=False)] = None,
    wait_for_lock: WaitForLock = False,
) -> None:
    """KV policies compared: the same requests under each, while a small pool is full; where its slots are, and what that costs.

    --seed changes the workload's; where requests end is drawn with them, and hidden from the engine.
    """
    from octavo.bench.kv import plan
    from octavo.bench.kv.experiment import Experiment
    from octavo.bench.kv.report import kv_document
    from octavo.bench.kv.result import as_json
    from octavo.bench.kv.runners import StepCost
    from octavo.bench.report.facts import collect
    from octavo.bench.workload.file import load_workload
    from octavo.bench.workload.tokens import Tokens
    from octavo.cli.bench_results import check_places, tell
    from octavo.engine.processor import load_model_tokenizer

    check_places(output, report)
    plan.check_args(args)
    trials = plan.plan_trials(_names(policies), _sizes(block_sizes))
    load = _changed(load_workload(workload), num_requests, args.seed)
    tokens = Tokens.of(load_model_tokenizer(args)) if load.needs_tokenizer and not simulate else None
    load = load.without_text() if simulate else load
    experiment = Experiment(args, load, plan.pool_tokens(pool_tokens, load), StepCost() if simulate else None, tokens)
    console = Console()
    held = contextlib.nullcontext() if simulate else alone(wait_for_lock)
    with held, _quiet("octavo.scheduler"):  # it warns of each preemption, and here they are counted
        results = experiment.run_all(trials, lambda result: _tell(result, console))
        facts = collect(model=None if simulate else args.model, seeds={"workload": load.seed}, rates=not simulate)
    document = dataclasses.replace(kv_document(as_json(experiment, results)), facts=facts)
    tell(document, console, output, report)


def _tell(result: TrialResult, console: Console) -> None:
    """One line as a trial ends: the whole takes minutes."""
    seconds = result.samples[-1].start + result.samples[-1].seconds
    console.print(f"{result.trial.policy}, blocks of {result.trial.block_size}: {len(result.samples)} steps, {seconds:.1f} s", style="dim")


@contextlib.contextmanager
def _quiet(logger: str) -> Iterator[None]:
    """No warnings from this part of Octavo."""
    found = logging.getLogger(logger)
    level = found.level
    found.setLevel(logging.ERROR)
    try:
        yield
    finally:
        found.setLevel(level)


def _changed(workload: Workload, num_requests: int | None, seed: int | None) -> Workload:
    if num_requests is not None:
        workload = dataclasses.replace(workload, num_requests=num_requests)
    return workload if seed is None else dataclasses.replace(workload, seed=seed)


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",")]


def _sizes(text: str | None) -> list[int] | None:
    try:
        return None if text is None else [int(size) for size in text.split(",")]
    except ValueError:
        raise InvalidRequestError(f"block_sizes = {text}: it must be whole numbers, by commas", field="block_sizes") from None
