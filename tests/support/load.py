"""Requests for the load client, without a workload."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.bench.workload.requests import DrawnRequest


def drawn(arrivals: Sequence[float], tokens: int = 4, text: str | None = None, tenant: str | None = None) -> list[DrawnRequest]:
    """One request at each time, of three prompt tokens, that asks for ``tokens``."""
    return [
        DrawnRequest(
            index=i,
            arrival=arrival,
            kind="test",
            tenant=tenant,
            prompt_token_ids=[5, 6, 7],
            prompt_text=text,
            max_tokens=tokens,
            output_tokens=tokens,
        )
        for i, arrival in enumerate(arrivals)
    ]


def constant(rate: float, count: int, **values: int) -> list[DrawnRequest]:
    """``count`` requests at a constant rate, the first at once."""
    return drawn([i / rate for i in range(count)], **values)
