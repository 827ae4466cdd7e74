"""The report's figures: fidelity against REFERENCE, memory and speed against BASELINE, the guard's cost, and what follows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.bench.kv_report.divergence import Distributions, Divergence, Fidelity
from octavo.bench.kv_report.recommend import recommend
from octavo.bench.kv_report.speed import SpeedPlan, Speeds, measure_speeds, ratio
from octavo.bench.kv_report.variants import BASELINE
from octavo.bench.stats import median
from octavo.engine.kv_variants import Scorer, Variants

GIB = 2**30
CHUNK_LOGITS = 2**24
"""Logits compared at a time: bounds the memory, whatever the vocabulary."""

Progress = Callable[[str, int, int], None]
"""What is done, how much of it, of how much."""


@dataclass
class Measured:
    """All that was measured of one variant."""

    scorer: Scorer
    fidelity: Fidelity
    speeds: list[Speeds]
    """By context."""


def measure(model: Variants, ids: npt.NDArray[np.int32], plan: SpeedPlan, progress: Progress) -> dict[str, Any]:
    """The report on a model whose first scorers are those of REFERENCE and BASELINE; ``ids``: the text. A dict fit for JSON."""
    model.allocate(len(ids))
    fidelities = score(model.scorers, ids, model.vocab_size, progress)
    speeds = _speeds(model.scorers, ids, plan, progress)
    runs = [Measured(*parts) for parts in zip(model.scorers, fidelities, speeds, strict=True)]
    baseline = next(run for run in runs if run.scorer.variant == BASELINE)
    records = [_record(run, baseline) for run in runs]
    return {
        "tokens": len(ids),
        "isa": model.isa,
        "num_threads": model.num_threads,
        "plan": dataclasses.asdict(plan),
        "runs": records,
        "guard": _guard_costs(runs),
        "recommendation": dataclasses.asdict(recommend(records)),
    }


def score(scorers: Sequence[Scorer], ids: npt.NDArray[np.int32], vocab_size: int, progress: Progress) -> list[Fidelity]:
    """Teacher-forced: what each scorer predicts after each token of ``ids``, against the first scorer; chunk by chunk, side by side."""
    rows = max(1, CHUNK_LOGITS // vocab_size)
    divergences = [Divergence() for _ in scorers]
    for start in range(0, len(ids), rows):
        chunk, following = ids[start : start + rows], ids[start + 1 : start + rows + 1]
        reference = Distributions(scorers[0].run(chunk, start, len(chunk)))
        divergences[0].add(reference, reference.logits, following)
        for scorer, divergence in zip(scorers[1:], divergences[1:], strict=True):
            divergence.add(reference, scorer.run(chunk, start, len(chunk)), following)
        progress("scoring the text", start + len(chunk), len(ids))
    return [divergence.fidelity() for divergence in divergences]


def _speeds(scorers: Sequence[Scorer], ids: npt.NDArray[np.int32], plan: SpeedPlan, progress: Progress) -> list[list[Speeds]]:
    total, done = plan.rounds * len(plan.contexts(len(ids))), 0

    def round_done() -> None:
        nonlocal done
        done += 1
        progress("measuring speed", done, total)

    return measure_speeds(scorers, ids, plan, round_done)


def _record(run: Measured, baseline: Measured) -> dict[str, Any]:
    variant, bytes_per_token = run.scorer.variant, run.scorer.bytes_per_token
    return {
        "dtype": variant.dtype,
        "scales": variant.scales,
        **dataclasses.asdict(run.fidelity),
        "bytes_per_token": bytes_per_token,
        "tokens_per_gib": int(GIB // bytes_per_token),
        "tokens_vs_bf16": baseline.scorer.bytes_per_token / bytes_per_token,
        "speed": [_speed(own, base) for own, base in zip(run.speeds, baseline.speeds, strict=True)],
        "numerics_id": run.scorer.numerics_id,
    }


def _speed(own: Speeds, base: Speeds) -> dict[str, float]:
    return {
        "context": own.context,
        "decode_tok_s": 1 / median(own.decode),
        "decode_vs_bf16": ratio(base.decode, own.decode),
        "prefill_tok_s": own.prefill_tokens / median(own.prefill),
        "prefill_vs_bf16": ratio(base.prefill, own.prefill),
    }


def _guard_costs(runs: Sequence[Measured]) -> list[dict[str, Any]]:
    """How much longer a guarded step takes than a static one, in percent, by dtype and context."""
    by_variant = {(run.scorer.variant.dtype, run.scorer.variant.scales): run for run in runs}
    costs = []
    for (dtype, scales), guarded in by_variant.items():
        if scales == "guarded" and (static := by_variant.get((dtype, "static"))) is not None:
            speed = [
                {"context": s.context, "decode_percent": _cost(s.decode, g.decode), "prefill_percent": _cost(s.prefill, g.prefill)}
                for s, g in zip(static.speeds, guarded.speeds, strict=True)
            ]
            costs.append({"dtype": dtype, "speed": speed, "guarded_share": guarded.scorer.guarded_share()})
    return costs


def _cost(static: Sequence[float], guarded: Sequence[float]) -> float:
    return 100 * (1 / ratio(static, guarded) - 1)
