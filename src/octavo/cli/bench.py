"""``octavo bench``: what this machine can do, and how near Octavo comes to it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from octavo.cli import bench_compare, bench_kv, bench_serve, bench_sweep
from octavo.cli.bench_alone import WaitForLock, alone
from octavo.cli.options import engine_flags, flag
from octavo.config import EngineArgs
from octavo.errors import InvalidRequestError

if TYPE_CHECKING:
    from octavo.bench.drive import Driver
    from octavo.engine.info import EngineInfo

commands = typer.Typer(
    help="Measure: a server over HTTP, engines side by side, the machine, one stream, many requests, KV policies.", no_args_is_help=True
)
commands.command()(bench_kv.kv)
commands.command()(bench_serve.serve)
commands.command()(bench_sweep.sweep)
commands.command()(bench_compare.compare)

NUM_PROMPTS = 32
"""Of bench throughput."""
Output = Annotated[Path | None, typer.Option(help="Write the result here as JSON.", dir_okay=False)]


@commands.command()
def machine(
    num_threads: Annotated[int | None, typer.Option(min=1, help="CPUs to measure on; by default those the engine would use.")] = None,
    seconds: Annotated[float, typer.Option(min=0.01, max=60, help="For each measurement.")] = 1.0,
    output: Output = None,
    wait_for_lock: WaitForLock = False,
) -> None:
    """This machine's limits: memory read bandwidth and int8, bf16, fp32 arithmetic, on the engine's CPUs together."""
    from octavo.bench.machine import engine_cpus, measure

    cpus = engine_cpus(num_threads)
    with alone(wait_for_lock):
        rates = measure(cpus, seconds)
    _report("machine", f"CPUs {', '.join(map(str, cpus))}", dataclasses.asdict(rates), output)


@commands.command()
@engine_flags
def latency(
    args: EngineArgs,
    prefill_len: Annotated[int, typer.Option(min=1, help="Tokens of the prompt that is prefilled.")] = 512,
    decode_prompt_len: Annotated[int, typer.Option(min=1, help="Tokens of the prompt before those that are decoded.")] = 32,
    decode_len: Annotated[int, typer.Option(min=2, help="Tokens decoded.")] = 128,
    repeats: Annotated[int, typer.Option(min=1, help="Times each is measured, after one to warm up; medians count.")] = 3,
    output: Output = None,
    wait_for_lock: WaitForLock = False,
) -> None:
    """One stream: prefill and decode speed, and what part of the machine's limits that is."""
    from octavo.bench.latency import LatencyPlan, measure_latency
    from octavo.bench.limits import ModelCosts
    from octavo.bench.machine import engine_cpus, measure

    plan = LatencyPlan(
        prefill_len=prefill_len, decode_prompt_len=decode_prompt_len, decode_len=decode_len, repeats=repeats, seed=args.seed or 0
    )

    def run(driver: Driver, info: EngineInfo) -> dict[str, Any]:
        result = measure_latency(
            driver, plan, ModelCosts.from_info(info, args), lambda: measure(engine_cpus(args.num_threads)), info.vocab_size
        )
        return {**dataclasses.asdict(result), "plan": dataclasses.asdict(plan)}

    _measure("latency", args, plan.max_model_len, run, output, wait_for_lock)


@commands.command()
@engine_flags
def throughput(
    args: EngineArgs,
    workload: Annotated[str | None, typer.Option(help="The load, a TOML file (docs/benchmarking.md), instead of these lengths.")] = None,
    num_prompts: Annotated[int | None, typer.Option(min=1, help=f"Requests; by default {NUM_PROMPTS}, or the file's.")] = None,
    input_len: Annotated[int | None, typer.Option(min=1, help="Tokens of each prompt; by default 128.")] = None,
    output_len: Annotated[int | None, typer.Option(min=1, help="Tokens each request generates; by default 128.")] = None,
    request_rate: Annotated[float | None, typer.Option(help="Poisson requests a second; by default all at once, or the file's.")] = None,
    max_concurrency: Annotated[int | None, typer.Option(min=1, help="Requests at a time; by default as many as come.")] = None,
    output: Output = None,
    wait_for_lock: WaitForLock = False,
) -> None:
    """Many requests: tokens a second, and how well the KV memory is used."""
    from octavo.bench.throughput import measure_throughput
    from octavo.bench.workload.flags import WorkloadFlags
    from octavo.bench.workload.tokens import Tokens
    from octavo.engine.processor import load_model_tokenizer

    if workload is None:
        num_prompts = num_prompts or NUM_PROMPTS
    load = WorkloadFlags(
        workload=workload,
        request_rate=request_rate,
        num_prompts=num_prompts,
        input_len=input_len,
        output_len=output_len,
        max_concurrency=max_concurrency,
        seed=args.seed,
    ).build()

    def run(driver: Driver, info: EngineInfo) -> dict[str, Any]:
        known = load.needs_tokenizer
        tokens = Tokens.of(load_model_tokenizer(args), info.vocab_size) if known else Tokens.of_size(info.vocab_size)
        return {**dataclasses.asdict(measure_throughput(driver, load, tokens)), "workload": load.as_toml()}

    _measure("throughput", args, load.max_model_len, run, output, wait_for_lock)


def _measure(
    name: str, args: EngineArgs, needed: int, run: Callable[[Driver, EngineInfo], dict[str, Any]], output: Path | None, wait: bool
) -> None:
    """Load the model in this process, ``run`` on it with the machine to ourselves, report."""
    from octavo.bench.drive import Driver
    from octavo.engine.client import InProcessClient

    engine = InProcessClient(args)
    try:
        info = engine.info
        if needed > info.max_model_len:
            limit = f"this benchmark needs {needed} tokens of one sequence"
            raise InvalidRequestError(f"{flag('max_model_len')} = {info.max_model_len}: {limit}", field="max_model_len")
        driver = Driver(engine)
        with alone(wait):
            result = run(driver, info)
    finally:
        engine.shutdown()
    facts: dict[str, Any] = {"model": args.model, "isa": info.isa, "num_threads": info.num_threads, "numerics_id": info.numerics_id}
    facts["allocations_after_ready"] = driver.allocations_after_ready
    threads = "1 thread" if info.num_threads == 1 else f"{info.num_threads} threads"
    _report(name, f"{args.model} · {info.isa} · {threads}", {**result, **facts}, output)


def _report(name: str, title: str, result: dict[str, Any], output: Path | None) -> None:
    from octavo.bench.report.terminal import show, write_json

    show(result, title, Console())
    if output is not None:
        write_json({"benchmark": name, **result}, output)
