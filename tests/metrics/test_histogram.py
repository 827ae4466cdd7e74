"""Our histogram against prometheus_client's own."""

from __future__ import annotations

import prometheus_client
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from octavo.metrics.histogram import Histogram

BOUNDS = (0.001, 0.5, 1.0, 300.0)


@given(st.lists(st.tuples(st.floats(0, 1000) | st.sampled_from(BOUNDS), st.integers(1, 4))))
def test_what_is_shown_is_what_prometheus_clients_own_shows(observed: list[tuple[float, int]]) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    histogram = Histogram("x_seconds", "Of x.", {"model_name": "m"}, BOUNDS, ours)
    reference = prometheus_client.Histogram("x_seconds", "Of x.", ["model_name"], registry=theirs, buckets=BOUNDS).labels("m")
    for amount, times in observed:
        histogram.observe(amount, times)
        for _ in range(times):
            reference.observe(amount)
    shown, expected = (
        [line for line in generate_latest(registry).decode().splitlines() if "_sum" not in line and "_created" not in line]
        for registry in (ours, theirs)
    )
    assert shown == expected
