"""How fast a model decodes and prefills at given contexts under each KV variant, all in turn, so that a busy machine treats them alike.

Tokens of the scored text are computed again, in their own places: what is stored stays the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from octavo.bench.stats import median
from octavo.engine.kv_variants import Scorer

CONTEXTS = (2048, 8192)
PREFILL_TOKENS = 512


@dataclass(frozen=True, kw_only=True)
class SpeedPlan:
    """What is run."""

    rounds: int = 5
    decode_steps: int = 8
    """In each round for each variant, after one that does not count."""

    def contexts(self, tokens: int) -> list[int]:
        """Those of CONTEXTS that the text fills, or its whole length if it fills none."""
        return [context for context in CONTEXTS if context <= tokens] or [tokens]


@dataclass
class Speeds:
    """Of one variant at one context, one number a round, in seconds."""

    context: int
    prefill_tokens: int
    decode: list[float] = field(default_factory=list)
    """Median of a round's decode steps."""
    prefill: list[float] = field(default_factory=list)
    """Of the context's last ``prefill_tokens`` tokens."""


def ratio(base: Sequence[float], other: Sequence[float]) -> float:
    """How many times as fast as ``base`` the ``other`` is: median over rounds, each against the same round's."""
    return median([a / b for a, b in zip(base, other, strict=True)])


def measure_speeds(
    scorers: Sequence[Scorer], ids: npt.NDArray[np.int32], plan: SpeedPlan, progress: Callable[[], None] = lambda: None
) -> list[list[Speeds]]:
    """By scorer and context; every scorer has computed ``ids``. ``progress`` is called after each round."""
    contexts = plan.contexts(len(ids))
    speeds = [[Speeds(context, min(PREFILL_TOKENS, context)) for context in contexts] for _ in scorers]
    for place, context in enumerate(contexts):
        for _ in range(plan.rounds):
            for scorer, by_context in zip(scorers, speeds, strict=True):
                _round(scorer, ids[:context], plan, by_context[place])
            progress()
    return speeds


def _round(scorer: Scorer, ids: npt.NDArray[np.int32], plan: SpeedPlan, speeds: Speeds) -> None:
    speeds.prefill.append(_seconds(scorer, ids, speeds.prefill_tokens))
    speeds.decode.append(median([_seconds(scorer, ids, 1) for _ in range(plan.decode_steps + 1)][1:]))


def _seconds(scorer: Scorer, ids: npt.NDArray[np.int32], count: int) -> float:
    """Of computing the last ``count`` tokens, and the logits after the last."""
    start = time.perf_counter()
    scorer.run(ids[-count:], len(ids) - count, 1)
    return time.perf_counter() - start
