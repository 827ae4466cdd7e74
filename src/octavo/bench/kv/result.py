"""What ``octavo bench kv`` says, as data, and what a reader must know of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from octavo.bench.kv.experiment import Experiment, TrialResult
from octavo.bench.kv.measure import StepSample
from octavo.bench.kv.runners import fit_step_cost
from octavo.bench.machine import machine_facts
from octavo.bench.report.document import Cell, Table
from octavo.bench.report.summary import warning

SAMPLED = (
    "Sampled after each step, weighted by its time; from when the pool has been full and as many requests have ended as ran then, "
    "to when the head of the queue waits for KV for the last time"
)


def as_json(experiment: Experiment, results: Sequence[TrialResult]) -> dict[str, Any]:
    """``runs``, and ``meta`` with all that is needed to run them again."""
    return {"runs": [result.as_run() for result in results], "meta": _meta(experiment, results)}


def _meta(experiment: Experiment, results: Sequence[TrialResult]) -> dict[str, Any]:
    info = results[0].info
    same, compared = same_outputs(results)
    return {
        "benchmark": "kv",
        "simulated": experiment.cost is not None,
        "model": experiment.args.model,
        "numerics_id": info.numerics_id,
        "kv_cache_dtype": info.kv_cache_dtype,
        "pool_tokens": experiment.pool_tokens,
        "pool_bytes": info.pool_bytes,
        "max_model_len": info.max_model_len,
        "seed": experiment.workload.seed,
        "workload": experiment.workload.as_toml(),
        "machine": machine_facts() | {"isa": info.isa, "num_threads": info.num_threads},
        "sampled": SAMPLED,
        "windows": [_window(result) for result in results],
        "step_cost": dataclasses.asdict(experiment.cost or _fitted(results)),
        "outputs_compared": compared,
        "outputs_same": same,
    }


def _window(result: TrialResult) -> dict[str, Any]:
    """About one run's window: how long it is, and what runs says nothing of."""
    chosen = result.window.of(result.samples)
    return {
        **dataclasses.asdict(result.trial),
        "saturated": result.window.saturated,
        "from_s": chosen[0].start,
        "to_s": chosen[-1].start + chosen[-1].seconds,
        "steps": len(chosen),
        "ended": sum(sample.ended for sample in chosen),
        "mean_length": result.mean_length,
        "kv_efficiency_while_steps_run": result.efficiency_meanwhile,
        "cached": result.parts["cached"],
        "free": result.parts["free"],
        "fragmentation_over_time": _over_time(result.samples),
    }


def _over_time(samples: Sequence[StepSample], spans: int = 40) -> dict[str, list[float]]:
    """The whole run in 40 spans of time: the middle of each that has steps, and its fragmentation on average over time."""
    length = (samples[-1].start + samples[-1].seconds) / spans or 1.0
    area, seconds = [0.0] * spans, [0.0] * spans
    for sample in samples:
        span = min(int(sample.start / length), spans - 1)
        area[span] += sample.fragmentation * sample.seconds
        seconds[span] += sample.seconds
    filled = [i for i in range(spans) if seconds[i] > 0]
    return {"seconds": [(i + 0.5) * length for i in filled], "fragmentation": [area[i] / seconds[i] for i in filled]}


def _fitted(results: Sequence[TrialResult]) -> Any:
    """The step cost that the real steps show."""
    work = [each for result in results for each in result.work]
    return fit_step_cost(work, [sample.seconds for result in results for sample in result.samples])


def same_outputs(results: Sequence[TrialResult]) -> tuple[bool, int]:
    """Whether requests that ended under several trials got the same tokens under each, and how many such requests there are."""
    first: dict[int, tuple[int, ...]] = {}
    seen: dict[int, int] = {}
    same = True
    for result in results:
        for index, token_ids in result.outputs.items():
            same &= first.setdefault(index, token_ids) == token_ids
            seen[index] = seen.get(index, 0) + 1
    return same, sum(count > 1 for count in seen.values())


def figures(result: dict[str, Any]) -> Table:
    """A row a run. Nothing is stale without sliding windows, so that column may be missing."""
    runs = [run | run["waste"] for run in result["runs"]]
    shown = [name for name in SHARES if name != "stale" or any(run[name] for run in runs)]
    rows: list[list[Cell]] = [
        [
            run_name(run),
            *(f"{100 * run[name]:.1f}" for name in shown),
            f"{run['concurrent']:.1f}",
            round(run["output_tok_s"]),
            run["preemptions"],
        ]
        for run in runs
    ]
    return Table(columns=["policy, block", *(SHARES[name] for name in shown), "running", "tok/s", "preempted"], rows=rows)


def run_name(run: Mapping[str, Any]) -> str:
    return f"{run['policy']}, {run['block_size']}"


SHARES = {
    "kv_efficiency": "live/held",
    "live_of_total": "live/total",
    "tail": "tail",
    "reserved": "reserved",
    "stale": "stale",
    "external": "external",
    "fragmentation": "fragmentation",
}
"""Shown in percent; the first and the last two are no parts of one whole."""


def title(result: dict[str, Any]) -> str:
    """One line about the whole experiment."""
    meta = result["meta"]
    what = "SIMULATED, no model run" if meta["simulated"] else meta["model"]
    return f"KV policies · {what} · {meta['workload']['name']} · pool of {meta['pool_tokens']:,} tokens"


def notes(result: dict[str, Any]) -> list[str]:
    """What a reader of the numbers must know."""
    meta = result["meta"]
    said = [f"In percent; efficiency is live / held, waste is of the whole pool. {meta['sampled']}."]
    if meta["simulated"]:
        cost = meta["step_cost"]
        parts = (
            f"{1e3 * cost['fixed']:.2f} ms + {1e6 * cost['token']:.0f} µs a token + {1e9 * cost['attended']:.0f} ns a position attended to"
        )
        said.append(f"Simulated: scheduler and KV core are the real ones, but no model runs, and a step is taken to last {parts}.")
    elif meta["outputs_same"]:
        said.append(f"The {meta['outputs_compared']} requests that ended in several runs had the same tokens in each.")
    else:
        said.append(warning("a request had other tokens in one run than in another; under Octavo's promises that is a bug."))
    unsaturated = [f"{w['policy']} at {w['block_size']}" for w in meta["windows"] if not w["saturated"]]
    if unsaturated:
        said.append(warning(f"the pool was not full for long enough under {', '.join(unsaturated)}: all steps count there. "
                    "A smaller --pool-tokens or more --num-requests would fill it."))  # fmt: skip
    return said
