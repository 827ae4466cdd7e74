"""Request metrics against times laid out by hand."""

from __future__ import annotations

from itertools import pairwise

import pytest
from prometheus_client import CollectorRegistry

from octavo.metrics.requests import RequestMetrics


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def metrics(registry: CollectorRegistry) -> RequestMetrics:
    return RequestMetrics(registry, "m")


def value(registry: CollectorRegistry, name: str, **labels: str) -> float:
    found = registry.get_sample_value(f"octavo_{name}", {"model_name": "m"} | labels)
    assert found is not None
    return found


def test_latencies_of_one_request(registry: CollectorRegistry, metrics: RequestMetrics) -> None:
    timer = metrics.start(arrival=100.0, num_prompt_tokens=7)
    for now in (100.5, 100.6, 100.8):
        timer.tokens(now, 0, 1)
    timer.ended(0, "length")
    timer.finished(100.9, {"queued": 50.0, "scheduled": 50.2, "first_token": 50.5, "finished": 50.8})
    timer.close()
    sums = {
        "time_to_first_token_seconds": 0.5,
        "inter_token_latency_seconds": 0.3,
        "request_time_per_output_token_seconds": 0.15,
        "e2e_request_latency_seconds": 0.9,
        "request_queue_time_seconds": 0.2,
        "request_prefill_time_seconds": 0.3,
        "request_decode_time_seconds": 0.3,
        "request_inference_time_seconds": 0.6,
        "request_prompt_tokens": 7,
        "request_generation_tokens": 3,
    }
    for name, expected in sums.items():
        assert value(registry, f"{name}_sum") == pytest.approx(expected), name
    assert value(registry, "inter_token_latency_seconds_count") == 2
    assert value(registry, "request_success_total", finished_reason="length") == 1
    assert value(registry, "request_success_total", finished_reason="abort") == 0


def test_several_tokens_at_once_share_the_gap(registry: CollectorRegistry, metrics: RequestMetrics) -> None:
    """10 tokens, 2 at a time, 100 ms apart: 9 gaps that sum to 400 ms (the extra token of the first pair took none)."""
    timer = metrics.start(0.0, 1)
    for place in range(5):
        timer.tokens(1.0 + place / 10, 0, 2)
    assert value(registry, "inter_token_latency_seconds_count") == 9
    assert value(registry, "inter_token_latency_seconds_sum") == pytest.approx(0.4)


def test_sequences_of_one_request_have_gaps_of_their_own(registry: CollectorRegistry, metrics: RequestMetrics) -> None:
    timer = metrics.start(0.0, 1, num_sequences=2)
    timer.tokens(1.0, 0, 1)
    timer.tokens(5.0, 1, 1)
    timer.tokens(6.0, 0, 1)
    timer.tokens(7.0, 1, 1)
    assert value(registry, "inter_token_latency_seconds_sum") == pytest.approx(5.0 + 2.0)
    assert value(registry, "time_to_first_token_seconds_count") == 1


def test_ob_04_what_has_not_ended_counts_as_aborted_once(registry: CollectorRegistry, metrics: RequestMetrics) -> None:
    for place in range(10):
        timer = metrics.start(0.0, 1)
        timer.tokens(1.0, 0, 1)
        if place % 2:
            timer.ended(0, "stop")
        timer.close()
        timer.close()
    counts = {reason: value(registry, "request_success_total", finished_reason=reason) for reason in ("stop", "abort", "length", "error")}
    assert counts == {"stop": 5, "abort": 5, "length": 0, "error": 0}
    assert value(registry, "request_generation_tokens_count") == 10


def test_a_queued_request_that_is_left_has_no_first_token(registry: CollectorRegistry, metrics: RequestMetrics) -> None:
    metrics.start(0.0, 1).close()
    assert value(registry, "time_to_first_token_seconds_count") == 0


def test_buckets_are_finest_where_limits_are_set(registry: CollectorRegistry, metrics: RequestMetrics) -> None:
    [family] = [family for family in registry.collect() if family.name == "octavo_inter_token_latency_seconds"]
    bounds = [float(sample.labels["le"]) for sample in family.samples if sample.name.endswith("_bucket")]
    assert bounds == sorted(bounds)
    within = [bound for bound in bounds if 0.005 <= bound <= 0.1]
    assert len(within) >= 15
    assert all(upper / lower <= 1.5 for lower, upper in pairwise(within))
