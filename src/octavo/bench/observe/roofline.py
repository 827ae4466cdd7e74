"""How near a served run came to what the machine can do: the percent of the roofline at the operating point.

Roofline: Williams, Waterman and Patterson 2009. What must be read and computed takes at least
max(bytes / bandwidth, operations / rate), with the rates that octavo.bench.machine measured.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from octavo.bench.limits import ModelCosts
from octavo.bench.load.records import LoadRun
from octavo.bench.machine import MachineRates
from octavo.bench.observe.observation import Observation
from octavo.bench.observe.timeline import held, in_flight
from octavo.config import EngineArgs
from octavo.engine.info import EngineInfo
from octavo.engine.step_demand import attended_pairs, kv_positions
from octavo.engine.step_log import StepRecord


@dataclass(frozen=True, kw_only=True)
class Roofline:
    """Percents, 0 to 100: least time over real time."""

    percent: float
    """Of all the time in which there was work: of steps, and of what passed between them."""
    decode_percent: float | None
    """Of the steps that only decode, alone; None: there are none, or the engine does not tell its steps."""
    prefill_percent: float | None
    """Of the steps with a prefill chunk."""
    memory_share: float
    """Share of the least time in which memory was the limit, 0 to 1."""
    busy_s: float
    """The time that ``percent`` is of."""
    basis: str
    """"steps": each step has its own least time. "tokens": the engine does not tell, and prompts and answers are reckoned as if each
    request were computed once and as many as were ever in flight shared each reading of the weights."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Work(msgspec.Struct, kw_only=True):
    """What a run asked of a model, whatever the model costs: enough to reckon the basis "tokens" when the run is long over."""

    spans: list[tuple[int, int, int]]
    """Of each answer, the tokens of its prompt that were cached, of its prompt, and of itself."""
    peak: float
    """Most requests in flight."""
    busy_s: float
    """Seconds with a request in flight."""


def roofline(run: LoadRun, seen: Observation, rates: MachineRates, costs: ModelCosts | None = None) -> Roofline | None:
    """None: nobody knows the costs, or nothing ran.

    Args:
        rates: of the machine that the server runs on.
        costs: of the model, for an engine that does not tell them itself.
    """
    told = model_costs(seen.facts)
    steps = seen.steps_within(run.seconds)
    if told is not None and steps and all(len(step.attended) == len(step.kv_reads) == len(told[1]) for step in steps if step.tokens):
        return _of_steps(steps, *told, rates)
    known, work = costs or (told[0] if told else None), work_of(run)
    return None if known is None or work is None else of_work(work, known, rates)


def model_costs(facts: Mapping[str, Any] | None) -> tuple[ModelCosts, list[int]] | None:
    """What a step costs, and the window of each entry of a step's ``attended``, from what GET /admin/engine says."""
    try:
        info = msgspec.convert((facts or {})["info"], EngineInfo)
        settings = {name: (facts or {})["settings"][name] for name in ("dtype", "kv_cache_dtype")}
        return ModelCosts.from_info(info, EngineArgs(**settings)), info.kv_windows
    except (KeyError, TypeError, ValueError):
        return None  # another version's, or a runner that does not say


def _of_steps(steps: Sequence[StepRecord], costs: ModelCosts, windows: Sequence[int], rates: MachineRates) -> Roofline:
    least = {step.step: _least(step, costs, windows, rates) for step in steps}
    memory = sum(byte_time for byte_time, op_time in least.values() if byte_time >= op_time)
    needed = sum(max(both) for both in least.values())
    busy = sum(step.seconds for step in steps)
    for before, after in itertools.pairwise(steps):
        if after.step == before.step + 1:
            busy += max(after.time - after.seconds - before.time - after.idle_before, 0.0)

    def percent(chosen: Sequence[StepRecord]) -> float | None:
        seconds = sum(step.seconds for step in chosen)
        return 100 * sum(max(least[step.step]) for step in chosen) / seconds if seconds > 0 else None

    return Roofline(
        percent=100 * needed / busy if busy else 0.0,
        decode_percent=percent([step for step in steps if step.decodes and not step.prefills]),
        prefill_percent=percent([step for step in steps if step.prefills]),
        memory_share=memory / needed if needed else 0.0,
        busy_s=busy,
        basis="steps",
    )


def _least(step: StepRecord, costs: ModelCosts, windows: Sequence[int], rates: MachineRates) -> tuple[float, float]:
    """Seconds that a step's bytes, and its operations, take at least."""
    if not step.tokens:
        return 0.0, 0.0
    attended, reads = dict(zip(windows, step.attended, strict=True)), dict(zip(windows, step.kv_reads, strict=True))
    nbytes = costs.weight_bytes + sum(a.kv_bytes_per_token * reads[a.window] for a in costs.attention)
    pairs_flops = sum(a.flops_per_pair * attended[a.window] for a in costs.attention)
    return nbytes / rates.read_bytes_s, _op_seconds(costs, rates, step.tokens, step.sampled, pairs_flops)


def _op_seconds(costs: ModelCosts, rates: MachineRates, tokens: int, logits_rows: int, pairs_flops: float) -> float:
    seconds = pairs_flops / rates.of(costs.attention_arithmetic) if pairs_flops else 0.0
    seconds += sum(2.0 * params * tokens / rates.of(kind) for kind, params in costs.matmul_params.items())
    return seconds + sum(2.0 * params * logits_rows / rates.of(kind) for kind, params in costs.head_params.items())


def work_of(run: LoadRun) -> Work | None:
    """Answers are taken as they came; what a prefix cache is said to have spared is not counted. None: nothing ran."""
    spans = []
    for record in run.records:
        if record.chunks:
            prompt = record.usage.prompt_tokens if record.usage else record.prompt_tokens
            cached = (record.usage.cached_tokens or 0) if record.usage else 0
            spans.append((min(cached, prompt - 1), prompt, record.received_tokens))
    line = in_flight(run)
    busy = sum(max(stop - start, 0.0) for count, start, stop in held(line, run.seconds) if count)
    if not spans or not busy:
        return None
    return Work(spans=spans, peak=max(value for value in line.values if value is not None), busy_s=busy)


def of_work(work: Work, costs: ModelCosts, rates: MachineRates) -> Roofline:
    """On the basis "tokens"."""
    spans = work.spans
    steps = max(max(out for _, _, out in spans), sum(out for _, _, out in spans) / work.peak)
    nbytes, pairs_flops = costs.weight_bytes * steps, 0.0
    for a in costs.attention:
        for cached, prompt, out in spans:
            reads = kv_positions(cached, prompt - cached, a.window) + attended_pairs(prompt, out - 1, a.window)
            nbytes += a.kv_bytes_per_token * reads
            pairs_flops += a.flops_per_pair * attended_pairs(cached, prompt - cached + out - 1, a.window)
    tokens = sum(prompt - cached + out - 1 for cached, prompt, out in spans)
    byte_time = nbytes / rates.read_bytes_s
    op_time = _op_seconds(costs, rates, tokens, sum(out for _, _, out in spans), pairs_flops)
    return Roofline(
        percent=100 * max(byte_time, op_time) / work.busy_s,
        decode_percent=None,
        prefill_percent=None,
        memory_share=float(byte_time >= op_time),
        busy_s=work.busy_s,
        basis="tokens",
    )
