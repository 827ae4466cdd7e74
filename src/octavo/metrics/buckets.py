"""Histogram buckets: upper bounds, in the metric's own unit."""

from __future__ import annotations

LATENCY_SECONDS = (
    0.001, 0.002, 0.003, 0.004,
    0.005, 0.0075, 0.01, 0.0125, 0.015, 0.0175, 0.02, 0.025, 0.03, 0.035, 0.04, 0.045, 0.05, 0.06, 0.07, 0.08, 0.09, 0.1,
    0.125, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip
"""Between two tokens: finest from 5 to 100 ms, where limits on inter-token latency are set."""

DURATION_SECONDS = (
    0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0,
    15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0,
)  # fmt: skip
"""Of a request or one of its phases."""

TOKENS = tuple(float(2**power) for power in range(18))
"""Counts of tokens: 1 to 131,072."""
