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

    At goodput only the output of requests that kept every SLO pays for the machine. None without SLOs.
    """
    return {
        "price_per_hour": price_per_hour,
        "per_million_output_tokens": per_million_tokens(price_per_hour, result["output_tok_s"]),
        "per_million_total_tokens": per_million_tokens(price_per_hour, result["total_tok_s"]),
        "per_million_output_tokens_at_goodput": per_million_tokens(price_per_hour, result.get("goodput_tok_s") or 0.0),
    }
