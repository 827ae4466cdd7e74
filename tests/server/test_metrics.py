"""/metrics as a dashboard reads it."""

from __future__ import annotations

import concurrent.futures
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from support.live_server import LiveServer
from support.outputs import SEEDS

GOLDEN = {
    "gauge": """num_requests_running num_requests_waiting oldest_waiting_seconds kv_cache_usage_perc kv_cache_token_usage_perc
        startup_phase_seconds engine_info cache_config_info kv_efficiency kv_fragmentation
        kv_slots kv_slots_held kv_slots_live kv_slots_tail kv_slots_reserved kv_slots_stale kv_slots_cached kv_slots_free kv_slots_external
        kv_blocks kv_blocks_held kv_blocks_live kv_blocks_tail kv_blocks_reserved kv_blocks_stale kv_blocks_cached kv_blocks_free
        kv_blocks_external kv_bytes kv_bytes_held kv_bytes_live kv_bytes_tail kv_bytes_reserved kv_bytes_stale kv_bytes_cached
        kv_bytes_free kv_bytes_external kv_swap_bytes prefix_cache_disk_bytes step_prediction_margin_seconds""",
    "counter": """prompt_tokens generation_tokens num_preemptions recomputed_tokens prefix_cache_queries prefix_cache_hits engine_steps
        prefix_cache_disk_hits prefix_cache_disk_spilled_blocks prefix_cache_disk_dropped_blocks prefix_cache_disk_corrupt_files
        kv_moved_blocks kv_swapped_out_blocks kv_swapped_in_blocks engine_step_seconds engine_native_seconds request_success
        engine_schedule_seconds engine_transfer_seconds engine_gc_seconds engine_idle_seconds server_gc_seconds
        engine_predicted_step_seconds engine_predicted_steps_observed_seconds engine_step_prediction_error_seconds requests_refused
        native_allocations native_allocated_bytes programs_built threads_started""",
    "histogram": """time_to_first_token_seconds inter_token_latency_seconds request_time_per_output_token_seconds
        e2e_request_latency_seconds request_queue_time_seconds request_prefill_time_seconds request_decode_time_seconds
        request_inference_time_seconds request_prompt_tokens request_generation_tokens""",
}
"""Names that dashboards rely on: they may be added to; one that goes stays here, and in /metrics, for a release more."""


def families(server: LiveServer) -> dict[str, str]:
    response = server.client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    return {family.name: family.type for family in text_string_to_metric_families(response.text)}


def test_ob_06_ob_08_names_and_types_are_stable(server: LiveServer) -> None:
    found = families(server)
    expected = {f"octavo_{name}": kind for kind, names in GOLDEN.items() for name in names.split()}
    assert {name: found.get(name) for name in expected} == expected
    assert {name for name in found if name.startswith("octavo_")} == set(expected)


def test_ob_05_time_to_first_token_matches_the_client(slow: LiveServer) -> None:
    name = "octavo_time_to_first_token_seconds"
    before, count = slow.gauge(f"{name}_sum"), slow.gauge(f"{name}_count")
    measured = 0.0
    for _ in range(5):
        start = time.monotonic()
        body = {"prompt": [5] * 100, "max_tokens": 2, "seed": SEEDS["long"], "stream": True, "cache_salt": str(start)}
        with slow.client.stream("POST", "/v1/completions", json=body) as response:
            events = response.iter_bytes()
            next(events)
            measured += time.monotonic() - start
            assert b"[DONE]" in b"".join(events)
    assert slow.gauge(f"{name}_count") - count == 5
    assert slow.gauge(f"{name}_sum") - before == pytest.approx(measured, rel=0.2)


def test_counters_count_tokens_and_hits(server: LiveServer) -> None:
    names = ("octavo_prompt_tokens_total", "octavo_generation_tokens_total", "octavo_prefix_cache_hits_total")
    before = [server.gauge(name) for name in names]
    for _ in range(2):
        body = {"prompt": [9] * 40, "max_tokens": 3, "cache_salt": "counters"}
        assert server.post("/v1/completions", body).status_code == 200
    assert [server.gauge(name) - start for name, start in zip(names, before, strict=True)] == [80, 6, 32]


def test_ob_08_kv_queue_tokens_and_latency_are_there(slow: LiveServer) -> None:
    body = {"prompt": [7] * 30, "max_tokens": 5, "seed": SEEDS["long"]}
    with slow.client.stream("POST", "/v1/completions", json=body | {"stream": True}) as response:
        events = response.iter_bytes()
        next(events)
        assert slow.gauge("octavo_kv_slots_held") > 0
        assert slow.gauge("octavo_num_requests_running") == 1
        assert b"[DONE]" in b"".join(events)
    assert slow.gauge("octavo_num_requests_waiting") == 0
    assert slow.gauge("octavo_generation_tokens_total") >= 5
    assert slow.gauge("octavo_inter_token_latency_seconds_count") >= 4


def oldest_waiting(server: LiveServer) -> tuple[str, float]:
    """Why, and how long."""
    text = server.client.get("/metrics").text
    (family,) = [family for family in text_string_to_metric_families(text) if family.name == "octavo_oldest_waiting_seconds"]
    (sample,) = family.samples
    return sample.labels["reason"], sample.value


def test_ob_10_how_long_a_request_waits_and_why(slow: LiveServer) -> None:
    """There are two seats: the third waits for one."""
    body = {"prompt": [8] * 10, "max_tokens": 40, "seed": SEEDS["long"]}
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        answers = [pool.submit(slow.post, "/v1/completions", body) for _ in range(3)]
        longest = 0.0
        while not all(answer.done() for answer in answers):
            reason, seconds = oldest_waiting(slow)
            longest = max(longest, seconds if reason == "seats" else 0.0)
            time.sleep(0.02)
    assert longest > 0.2
    assert oldest_waiting(slow) == ("none", 0)
