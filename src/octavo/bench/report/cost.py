"""What tokens cost on a machine that is paid by the hour."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MILLION = 1_000_000
_HOUR = 3600


def per_million_tokens(price_per_hour: float, tokens_per_second: float) -> float | None:
    """Price of a million tokens at this rate; None at no rate."""
    return price_per_hour / _HOUR / tokens_per_second * _MILLION if tokens_per_second > 0 else None


def cost_data(price_per_hour: float, result: Mapping[str, Any]) -> dict[str, Any]:
    """Of a serve result (octavo.bench.measures.result): at what came out, and at what came out in time.

    At goodput only requests that kept every SLO pay for the machine: the cost of output tokens divided by their share. None without SLOs.
    """
    output = per_million_tokens(price_per_hour, result["output_tok_s"])
    share, completed = result.get("slo_attainment"), result["completed"] / result["requests"] if result["requests"] else 0.0
    kept = share / completed if share is not None and completed else None
    return {
        "price_per_hour": price_per_hour,
        "per_million_output_tokens": output,
        "per_million_total_tokens": per_million_tokens(price_per_hour, result["total_tok_s"]),
        "per_million_output_tokens_at_goodput": output / kept if output is not None and kept else None,
    }
