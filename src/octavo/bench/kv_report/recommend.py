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
    f"of the 8-bit ways that hold at least {LEAST_TOKENS} times the tokens of bf16, the one with the least KL divergence, among those that "
    f"decode at least {LEAST_SPEED} times as fast at the longest context if there are any"
)


@dataclass(frozen=True)
class Recommendation:
    """``dtype`` "bf16" with no scales when no 8-bit way was measured that holds enough."""

    dtype: str
    scales: str | None
    decode_vs_bf16: float
    """Its decode speed at the longest context."""
    rule: str = RULE


def recommend(runs: Sequence[Mapping[str, Any]]) -> Recommendation:
    """By RULE, of a report's runs."""
    small = [run for run in runs if run["scales"] and run["tokens_vs_bf16"] >= LEAST_TOKENS]
    fast = [run for run in small if decode_ratio(run) >= LEAST_SPEED]
    if not small:
        return Recommendation("bf16", None, 1.0)
    best = min(fast or small, key=lambda run: run["kl_mean"])
    return Recommendation(best["dtype"], best["scales"], decode_ratio(best))


def decode_ratio(run: Mapping[str, Any]) -> float:
    """Decode speed against bf16's at the longest context."""
    return float(run["speed"][-1]["decode_vs_bf16"])
