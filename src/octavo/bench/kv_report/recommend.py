"""Which 8-bit KV to use, by a rule that is stated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LEAST_TOKENS = 1.9
"""Times the tokens of bf16 in the same bytes, scales counted."""
LEAST_SPEED = 0.97
"""Of bf16's decode speed at the longest context; under 1 by what two measurements of the same thing differ."""
RULE = (
    f"of the 8-bit ways that hold at least {LEAST_TOKENS} times the tokens of bf16 and decode at least {LEAST_SPEED} times as fast "
    "at the longest context, the one with the least KL divergence"
)


@dataclass(frozen=True)
class Recommendation:
    """``dtype`` "bf16" with no scales when no 8-bit way fulfils the rule."""

    dtype: str
    scales: str | None
    rule: str = RULE


def recommend(runs: Sequence[Mapping[str, Any]]) -> Recommendation:
    """By RULE, of a report's runs."""
    fit = [
        run for run in runs if run["scales"] and run["tokens_vs_bf16"] >= LEAST_TOKENS and run["speed"][-1]["decode_vs_bf16"] >= LEAST_SPEED
    ]
    if not fit:
        return Recommendation("bf16", None)
    best = min(fit, key=lambda run: run["kl_mean"])
    return Recommendation(best["dtype"], best["scales"])
